//! Maps with a million entries (`corpus/bench/million.bpf.c`): how long it takes to fill them, to look them up at random and to
//! walk over them, and what memory an entry takes, in twinbpf and in the kernel.

use std::sync::Arc;
use std::time::{Duration, Instant};

use twinbpf::{Instance, InstancePre, MapOps, Object};

use crate::clock::thread_cpu_ns;
use crate::left_out::leave_out;
use crate::peers::linux::object::{InKernel, as_classifiers};
use crate::peers::maps::{PACKET, all_succeed};
use crate::peers::twinbpf::{Mode, instantiate};
use crate::rounds::Figure;
use crate::workload::corpus_object;

/// Entries of a map.
const ENTRIES: u32 = 1 << 20;
/// Operations of a run.
const RUN: u32 = 4096;
/// Runs that fill a map.
const FULL: u32 = ENTRIES / RUN;
/// Fresh maps of each kind and side.
const ROUNDS: usize = 3;
/// Memory is settled if in this time less than a byte of an entry is given back.
const QUIET: Duration = Duration::from_millis(300);
/// How long it may take until it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// The kinds of maps, by the names of the maps.
pub const KINDS: [&str; 3] = ["hash", "lru_hash", "lpm"];
/// What is measured: nanoseconds of one entry, of the last one bytes.
pub const QUESTIONS: [&str; 5] =
    ["fill by a program", "fill by the host", "look up at random by a program", "walk by the host", "memory, bytes"];

/// Answers to all questions.
type Answers = [f64; QUESTIONS.len()];

/// Medians of both sides for a kind, question by question: ours, and the kernel's if it takes the programs.
///
/// # Errors
/// Ours fail.
pub fn measure(kind: &str) -> Result<Vec<(Figure, Option<Figure>)>, String> {
    let (mut own, mut kernel) = (Vec::new(), Ok(Vec::new()));
    for _ in 0..ROUNDS {
        own.push(in_twinbpf(kind)?);
        kernel = kernel.and_then(|mut all| in_kernel(kind).map(|one| all.push(one)).map(|()| all));
    }
    if let Err(why) = &kernel {
        leave_out(&format!("kernel in a million of {kind}"), why);
    }
    let figure = |all: &[Answers], at: usize| Figure::new(all.iter().map(|answers| answers[at]).collect());
    let both = |at| (figure(&own, at), kernel.as_ref().ok().map(|all| figure(all, at)));
    Ok((0..QUESTIONS.len()).map(both).collect())
}

/// The object, with one map that is large.
fn object(kind: &str) -> Result<Object, String> {
    let mut object = corpus_object("bench/million.bpf.o")?;
    for map in object.maps.iter_mut().filter(|map| *map.name != *kind && map.data.is_none()) {
        map.max_entries = 1;
    }
    Ok(object)
}

/// The keys that programs use, in their order.
fn keys(kind: &str) -> Vec<Vec<u8>> {
    let spread = |number: u32| {
        let number = number.wrapping_mul(0x9e37_79b1);
        (number ^ number >> 15).wrapping_mul(0x85eb_ca77)
    };
    let bits = if kind == "lpm" { &32_u32.to_le_bytes()[..] } else { &[] };
    (0..ENTRIES).map(|number| [bits, &spread(number).to_le_bytes()].concat()).collect()
}

/// Of an entry: what this takes in all.
fn each(work: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let start = thread_cpu_ns();
    work()?;
    Ok((thread_cpu_ns() - start) as f64 / f64::from(ENTRIES))
}

/// An instance with its map.
type Fresh = (InstancePre<()>, Instance<()>, Arc<dyn MapOps>);

/// One whose map is empty.
fn fresh(kind: &str) -> Result<Fresh, String> {
    let pre = instantiate(&object(kind)?, Mode::Sandbox)?;
    let instance = pre.instance(()).map_err(|error| error.to_string())?;
    let map = pre.map_ops(kind).cloned().ok_or_else(|| format!("no map `{kind}`"))?;
    Ok((pre, instance, map))
}

fn in_twinbpf(kind: &str) -> Result<Answers, String> {
    let keys = keys(kind);
    let before = resident();
    let (pre, mut instance, map) = fresh(kind)?;
    let mut run = |operation: &str| {
        let entry = pre.program(&format!("{kind}_{operation}")).ok_or_else(|| format!("no program for {operation}"))?;
        each(|| (0..FULL).try_for_each(|_| all_succeed(instance.call(entry, &[]).map_err(|trap| trap.to_string())?)))
    };
    let fill = run("fill")?;
    let memory = (resident() - before) / f64::from(ENTRIES);
    let lookup = run("lookup")?;
    let mut count = 0_u32;
    let walk = each(|| {
        map.entries(&mut |_| {
            count += 1;
            true
        })
        .map_err(|error| format!("{error:?}"))
    })?;
    let (_pre, _instance, map) = fresh(kind)?;
    let by_host =
        each(|| keys.iter().try_for_each(|key| map.update(key, &[0; 8], 0, 0)).map_err(|error| format!("{error:?}")))?;
    full(kind, count)?;
    Ok([fill, by_host, lookup, walk, memory])
}

/// That a walk found all entries; LRU maps may have let go of some.
fn full(kind: &str, count: u32) -> Result<(), String> {
    let least = if kind == "lru_hash" { ENTRIES / 10 * 9 } else { ENTRIES };
    if count >= least { Ok(()) } else { Err(format!("only {count} entries in {kind}")) }
}

fn in_kernel(kind: &str) -> Result<Answers, String> {
    let mut object = object(kind)?;
    as_classifiers(&mut object);
    let [fill, lookup] = ["fill", "lookup"].map(|operation| format!("{kind}_{operation}"));
    let before = settled()?;
    let kernel = InKernel::load(&object, &[&fill, &lookup])?;
    let run = |program: &str| {
        let result = kernel.run(program, &PACKET, FULL)?;
        all_succeed(result.r0.into())?;
        Ok::<_, String>(f64::from(result.duration_ns) / f64::from(RUN))
    };
    let fill_ns = run(&fill)?;
    let map = kernel.map(kind)?;
    let memory = (used()? - before) / f64::from(ENTRIES);
    let lookup_ns = run(&lookup)?;
    let mut count = 0_u32;
    let walk = each(|| {
        map.visit(&mut |_, _| {
            count += 1;
            true
        })
        .map_err(|error| error.to_string())
    })?;
    full(kind, count)?;
    let other = InKernel::load(&object, &[&fill])?;
    let keys = keys(kind);
    let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &[0; 8][..])).collect();
    let map = other.map(kind)?;
    let by_host = each(|| map.update_all(&entries, 0).map_err(|error| error.to_string()))?;
    Ok([fill_ns, by_host, lookup_ns, walk, memory])
}

/// Bytes of memory that the process has.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or_default() * 4096.0
}

/// [`used`] when nothing is given back any more: the kernel frees maps a while after their last use.
fn settled() -> Result<f64, String> {
    let (end, mut before) = (Instant::now() + PATIENCE, used()?);
    while Instant::now() < end {
        std::thread::sleep(QUIET);
        let now = used()?;
        if now > before - f64::from(ENTRIES) {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

/// Bytes of memory that are in use and could not be had at once: neither free nor a cache of files.
fn used() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    let kib = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().split(' ').next());
        found.and_then(|number| number.parse::<f64>().ok()).ok_or_else(|| format!("/proc/meminfo has no {name}"))
    };
    let idle = ["MemFree", "Buffers", "Cached", "SReclaimable"].into_iter().map(kib).sum::<Result<f64, _>>()?;
    Ok((kib("MemTotal")? - idle) * 1024.0)
}
