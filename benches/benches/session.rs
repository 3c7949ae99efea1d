//! How does a whole tool compare with the same one over libbpf, and with bpftrace? From exec to enabled, peak memory, the
//! kernel's types as a header, opening and linking with CO-RE, a million events, each formatted, and a million entries of a map
//! printed. Needs root.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use twinbpf_benches::bench::has_flag;
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::rounds::Figure;
use twinbpf_benches::session::{Rig, SERVED, Took, Totals};
use twinbpf_benches::workload::corpus;
use twinbpf_kernel::system::System;
use twinbpf_loader::Object;
use twinbpf_loader::kernel::KernelOptions;

/// Rounds in which all sides take a turn.
const ROUNDS: usize = 15;
/// Rounds of a million events.
const LONG_ROUNDS: usize = 15;
const EVENTS: u64 = 1_000_000;
/// Time between two requests for metrics.
const SCRAPES: Duration = Duration::from_millis(100);
/// Rounds of a million entries, and these.
const ENTRY_ROUNDS: usize = 5;
const ENTRIES: u64 = 1_000_000;
/// Entries that maps have room for.
const ROOM: u64 = 1_100_000;
/// Objects with CO-RE relocations.
const RELOCATED: [&str; 2] = ["scripts/execsnoop.bpf.o", "scripts/tasks.bpf.o"];
const ONE_LINER: &str = "tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }";

fn main() -> ExitCode {
    if let Some(object) = std::env::args().skip_while(|word| word != "link").nth(1) {
        println!("{}", link(&object));
        return ExitCode::SUCCESS;
    }
    complete(bench)
}

fn bench() {
    if !has_flag("--bench") {
        return;
    }
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(why) => return leave_out("all", &why),
    };
    let mut report = Report::default();
    starts(&rig, &mut report);
    sources(&rig, &mut report);
    headers(&rig, &mut report);
    links(&rig, &mut report);
    events(&rig, &mut report);
    scraped(&rig, &mut report);
    entries(&rig, &mut report);
    report.promises.print();
    println!("\n{}", report.table);
    let head = "| | twinbpf | libbpf in C | bpftrace | bpftool |\n|---|---:|---:|---:|---:|\n";
    let body = format!("{}\n{head}{}\n{NOTES}", report.promises.markdown(), report.table);
    performance::write("session", "Sessions", &body);
}

const NOTES: &str = "- Each figure is the median of 15 rounds, those of a million entries of 5; a ratio is the median of the ratios of each round. Every tool is a process of its own,
  and its workload says when it began, which is when everything is enabled.
- Start and memory: `corpus/scripts/syscall_counts.bpf.o` by the command, the same object by `benches/session/libbpf.c`,
  and bpftrace's one-liner.
- Open and link: in a fresh process, with reading the kernel's types. libbpf does not link without loading: the time of its
  bpf(2) calls is taken off.
- Events: `corpus/bench/events.bpf.c` with a ring of 64 MiB, so that none is lost, and of 256 KiB, so that most are; both
  print the same line for each into a file. Time is from the first event to the end of the tool.
- Scraped: a second object counts by a thousand keys, whose page is read every 100 ms.
- A kept source: `corpus/scripts/syscall_counts.bpf.c` once more after a first run, beside its object.
- Entries: a text (`-e`) and a one-liner count calls by time, so that each is an entry, and print them sorted.
";

#[derive(Default)]
struct Report {
    promises: Promises,
    table: String,
}

impl Report {
    fn row(&mut self, what: &str, cells: [Option<String>; 4]) {
        let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
        writeln!(self.table, "| {what} | {} |", cells.join(" | ")).expect("strings take all");
    }
}

/// A link of a fresh process, in nanoseconds.
fn link(path: &str) -> u128 {
    let begin = Instant::now();
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let object = Object::open(path, &bytes).unwrap_or_else(|error| panic!("{error:#}"));
    let linked = object.link_kernel(System::get(), &KernelOptions::default());
    let types = object.kernel_btf();
    let took = begin.elapsed().as_nanos();
    assert!(linked.failures.is_empty() && types.is_some(), "{path} links");
    took
}

/// Each side in turn, `rounds` times; none of a side that failed once.
fn alternate<const N: usize>(
    rounds: usize,
    mut sides: [&mut dyn FnMut() -> Result<Took, String>; N],
) -> [Option<Vec<Took>>; N] {
    let mut took: [Option<Vec<Took>>; N] = std::array::from_fn(|_| Some(Vec::new()));
    for _ in 0..rounds {
        for (side, took) in sides.iter_mut().zip(&mut took) {
            match (side(), took.as_mut()) {
                (Ok(one), Some(all)) => all.push(one),
                (Err(why), Some(_)) => {
                    leave_out("a side", &why);
                    *took = None;
                }
                (_, None) => {}
            }
        }
    }
    took
}

fn figure(took: &Option<Vec<Took>>, part: impl Fn(&Took) -> f64) -> Option<Figure> {
    took.as_ref().map(|took| Figure::new(took.iter().map(part).collect()))
}

fn ratio(own: &Option<Figure>, other: &Option<Figure>) -> Option<f64> {
    Some(own.as_ref()?.ratio_to(other.as_ref()?))
}

fn ms(figure: &Option<Figure>) -> Option<String> {
    figure.as_ref().map(|figure| format!("{:.1} ms", figure.ns() / 1e6))
}

fn mb(figure: &Option<Figure>) -> Option<String> {
    figure.as_ref().map(|figure| format!("{:.1} MB", figure.ns() / 1e3))
}

fn words(parts: &[&str], workload: Vec<String>) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).chain(workload).collect()
}

fn starts(rig: &Rig, report: &mut Report) {
    let object = corpus().join("scripts/syscall_counts.bpf.o").display().to_string();
    let ours = words(&[&rig.twinbpf(), "run", &object, "--"], rig.stamp());
    let libbpf = words(&[&rig.path("libbpf"), "counts", &object], rig.stamp());
    let bpftrace = words(&["bpftrace", "-e", ONE_LINER, "-c", &rig.stamp().join(" ")], Vec::new());
    let took =
        alternate(ROUNDS, [&mut || rig.measure(&ours), &mut || rig.measure(&libbpf), &mut || rig.measure(&bpftrace)]);
    let [own, c, trace] = took.each_ref().map(|took| figure(took, |took| took.start_ns));
    let promises = &mut report.promises;
    promises.at_most("exec to enabled, twinbpf / libbpf in C", ratio(&own, &c), 1.5, "");
    promises.at_most("exec to enabled, twinbpf / bpftrace", ratio(&own, &trace), 0.333, "");
    report.row("exec to enabled", [ms(&own), ms(&c), ms(&trace), None]);
    let [own, c, trace] = took.each_ref().map(|took| figure(took, |took| took.peak_kb));
    report.promises.at_most("peak memory, twinbpf / libbpf in C", ratio(&own, &c), 2.0, "");
    report.row("peak memory", [mb(&own), mb(&c), mb(&trace), None]);
}

/// From a source that was compiled before, and from its object.
fn sources(rig: &Rig, report: &mut Report) {
    let ours = |file: &str| {
        let path = corpus().join("scripts").join(file).display().to_string();
        words(&[&rig.twinbpf(), "run", &path, "--"], rig.stamp())
    };
    let (source, object) = (ours("syscall_counts.bpf.c"), ours("syscall_counts.bpf.o"));
    if let Err(why) = rig.measure(&source) {
        return leave_out("the kept source", &why);
    }
    let took = alternate(ROUNDS, [&mut || rig.measure(&source), &mut || rig.measure(&object)]);
    let [kept, built] = took.each_ref().map(|took| figure(took, |took| took.start_ns));
    report.promises.at_most("exec to enabled, kept source / object", ratio(&kept, &built), 1.3, "");
    report.row("exec to enabled from a kept source", [ms(&kept), None, None, None]);
}

/// A million entries of a map, sorted and printed.
fn entries(rig: &Rig, report: &mut Report) {
    let text = "tp/syscalls/sys_enter_getppid { count(&calls, nsecs()); }";
    let size = format!("--clang-opt=-DTWINBPF_ENTRIES={ROOM}");
    let ours = words(&[&rig.twinbpf(), "run", &size, "-e", text, "--"], rig.storm(ENTRIES));
    let text = "tracepoint:syscalls:sys_enter_getppid { @[nsecs] = count(); }";
    let keys = format!("BPFTRACE_MAP_KEYS_MAX={ROOM}");
    let bpftrace = words(&["env", &keys, "bpftrace", "-e", text, "-c", &rig.storm(ENTRIES).join(" ")], Vec::new());
    let counted = |command: &[String]| {
        let took = rig.measure(command)?;
        let lines = rig.output().lines().filter(|line| line.starts_with('@')).count() as u64;
        // Other processes call it, too.
        if (ENTRIES..ROOM).contains(&lines) { Ok(took) } else { Err(format!("{lines} lines of {command:?}")) }
    };
    let took = alternate(ENTRY_ROUNDS, [&mut || counted(&ours), &mut || counted(&bpftrace)]);
    let [own, trace] = took.each_ref().map(|took| figure(took, |took| took.cpu_ns));
    report.promises.at_most("a million entries, CPU time, twinbpf / bpftrace", ratio(&own, &trace), 1.0, "");
    report.row("a million entries printed, CPU time with the workload's", [ms(&own), None, ms(&trace), None]);
    let [own, trace] = took.each_ref().map(|took| figure(took, |took| took.peak_kb));
    report.promises.at_most("a million entries, memory, twinbpf / bpftrace", ratio(&own, &trace), 0.5, "");
    report.row("the same, peak memory", [mb(&own), None, mb(&trace), None]);
}

fn headers(rig: &Rig, report: &mut Report) {
    let ours = words(&[&rig.twinbpf(), "btf", "dump"], Vec::new());
    let types = "/sys/kernel/btf/vmlinux";
    let bpftool = words(&["bpftool", "btf", "dump", "file", types, "format", "c"], Vec::new());
    let took = alternate(ROUNDS, [&mut || rig.measure(&ours), &mut || rig.measure(&bpftool)]);
    let [own, tool] = took.each_ref().map(|took| figure(took, |took| took.whole_ns));
    report.promises.at_most("vmlinux.h, twinbpf / bpftool", ratio(&own, &tool), 1.0, "");
    report.row("vmlinux.h", [ms(&own), None, None, ms(&tool)]);
}

fn links(rig: &Rig, report: &mut Report) {
    let own = std::env::current_exe().expect("a bench has a path").display().to_string();
    for name in RELOCATED {
        let object = corpus().join(name).display().to_string();
        let printed = |program: &str| {
            let output = Command::new(program).args(["link", &object]).output().expect("it ran before");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split_whitespace().last().and_then(|word| word.parse::<f64>().ok())
        };
        let libbpf = rig.path("libbpf");
        let rounds = (0..ROUNDS).map(|_| Some([printed(&own)?, printed(&libbpf)?]));
        let rounds: Option<Vec<[f64; 2]>> = rounds.collect();
        if rounds.is_none() {
            leave_out(&format!("open and link of {name}"), "a process has not printed its time");
        }
        let side = |at: usize| Some(Figure::new(rounds.as_ref()?.iter().map(|round| round[at]).collect()));
        let (own, c) = (side(0), side(1));
        report.promises.at_most(&format!("open and link of {name}, twinbpf / libbpf"), ratio(&own, &c), 1.0, "");
        report.row(&format!("open and link, {name}"), [ms(&own), ms(&c), None, None]);
    }
}

fn events(rig: &Rig, report: &mut Report) {
    let mut wrong = Vec::new();
    for (ring, object) in
        [("64 MiB", rig.path("events.bpf.o")), ("256 KiB", corpus().join("bench/events.bpf.o").display().to_string())]
    {
        let ours = words(&[&rig.twinbpf(), "run", &object, "--"], rig.burst(EVENTS));
        let libbpf = words(&[&rig.path("libbpf"), "events", &object], rig.burst(EVENTS));
        let mut kept: [Vec<Totals>; 2] = [Vec::new(), Vec::new()];
        let [own_sums, c_sums] = &mut kept;
        let mut own = || consumed(rig, &ours, own_sums);
        let mut c = || consumed(rig, &libbpf, c_sums);
        let took = alternate(LONG_ROUNDS, [&mut own, &mut c]);
        let whole = |sums: &Totals| sums.sent == EVENTS && sums.delivered + sums.lost == sums.sent;
        if kept.iter().any(|sums| sums.len() != LONG_ROUNDS || !sums.iter().all(whole)) {
            wrong.push(format!("ring of {ring}"));
        }
        let [own, c] = took.each_ref().map(|took| figure(took, |took| took.run_ns));
        let [own_cpu, c_cpu] = took.each_ref().map(|took| figure(took, |took| took.cpu_ns));
        let delivered = kept.map(|sums| {
            let shares = sums.iter().map(|sums| sums.delivered as f64 / EVENTS as f64).collect::<Vec<f64>>();
            (!shares.is_empty()).then(|| format!("{:.1} %", Figure::new(shares).ns() * 100.0))
        });
        if ring == "64 MiB" {
            let rate = ratio(&c, &own);
            report.promises.at_least("rate of events formatted, twinbpf / libbpf in C", rate, 1.0, "");
        }
        report.row(&format!("a million events, ring of {ring}"), [ms(&own), ms(&c), None, None]);
        report.row("the same, CPU time with the workload's", [ms(&own_cpu), ms(&c_cpu), None, None]);
        let [own, c] = delivered;
        report.row("the same, delivered", [own, c, None, None]);
    }
    report.promises.nowhere("delivered + lost is not sent", &wrong);
}

/// A session whose map is read meanwhile, beside one whose map is not.
fn scraped(rig: &Rig, report: &mut Report) {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    let Ok(address) = port else { return leave_out("metrics", "no port for them") };
    let (served, events) = (rig.path(SERVED), rig.path("events.bpf.o"));
    let alone = words(&[&rig.twinbpf(), "run", &served, &events, "--"], rig.burst(EVENTS));
    let metrics = ["--metrics", &address.to_string(), "--"];
    let read = words(&[&[&rig.twinbpf()[..], "run", &served, &events], &metrics[..]].concat(), rig.burst(EVENTS));
    let (mut sums, mut pages) = ([Vec::new(), Vec::new()], 0);
    let [of_alone, of_read] = &mut sums;
    let took = alternate(
        LONG_ROUNDS,
        [&mut || consumed(rig, &alone, of_alone), &mut || {
            let (took, read) = beside(address, || consumed(rig, &read, of_read));
            pages += read;
            took
        }],
    );
    let whole = |sums: &Vec<Totals>| sums.len() == LONG_ROUNDS && sums.iter().all(|sums| sums.delivered == EVENTS);
    let sides = sums.iter().zip(["not scraped", "scraped"]).filter(|(sums, _)| !whole(sums));
    let lost: Vec<String> = sides.map(|(_, side)| side.to_owned()).collect();
    report.promises.nowhere("scraped: events are lost", &lost);
    let [alone, read] = took.each_ref().map(|took| figure(took, |took| took.run_ns));
    report.promises.at_most("a million events, scraped every 100 ms / not", ratio(&read, &alone), 1.02, "");
    report.row("a million events and a map of a thousand keys", [ms(&alone), None, None, None]);
    report.row(&format!("the same, scraped ({pages} pages)"), [ms(&read), None, None, None]);
}

/// Does something while a thread reads pages; how many it has read.
fn beside<R>(address: SocketAddr, work: impl FnOnce() -> R) -> (R, u32) {
    let over = AtomicBool::new(false);
    let page = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page.contains("served{"))
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut pages = 0;
            while !over.load(Ordering::Relaxed) {
                // Before the session and after it nothing answers.
                pages += u32::from(page().unwrap_or(false));
                std::thread::sleep(SCRAPES);
            }
            pages
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        (result, reader.join().unwrap_or(0))
    })
}

fn consumed(rig: &Rig, command: &[String], sums: &mut Vec<Totals>) -> Result<Took, String> {
    let took = rig.measure(command)?;
    sums.push(rig.sums().ok_or("what was printed is not what was delivered")?);
    Ok(took)
}
