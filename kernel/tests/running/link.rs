//! Attachments that this kernel can run.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{RETURN_0, allowed, load, skip};
use twinbpf_kernel::link::{Clock, Functions, Iter, Rate, Return, Sampling, UprobeSite};
use twinbpf_kernel::probe::{Feature, has};
use twinbpf_kernel::prog::LoadTarget;
use twinbpf_kernel::system::System;
use twinbpf_kernel::{
    AttachType, Error, Link, Map, MapCreate, MapKind, Options, Prog, ProgLoad, ProgType, Target, user,
};

/// An array with counters, and a program that adds one to the one whose index is the lower byte of its cookie, or 0.
fn counter(kind: ProgType, attach: u32, with_cookie: bool) -> Result<(Map, Prog), Error> {
    let map = Map::create(&MapCreate::new("counters", MapKind::Array, 4, 8, 8))?;
    let cookie = if with_cookie { "call 174\nr0 &= 7" } else { "r0 = 0" };
    let text = format!(
        "{cookie}
         *(u32 *)(r10 - 4) = r0
         r1 = map_fd({}) ll
         r2 = r10
         r2 += -4
         call 1
         if r0 == 0 goto out
         r1 = 1
         lock *(u64 *)(r0 + 0) += r1
         out:
         r0 = 0
         exit",
        map.as_fd().as_raw_fd()
    );
    let insns = super::code(&text);
    let target = LoadTarget { attach, ..LoadTarget::default() };
    let prog = Prog::load(&ProgLoad { target, ..ProgLoad::new("counter", kind, &insns, "GPL") })?;
    Ok((map, prog))
}

fn count(map: &Map, index: u32) -> u64 {
    let value = map.lookup(&index.to_ne_bytes()).unwrap().unwrap();
    u64::from_ne_bytes(value.try_into().unwrap())
}

/// A function without other callers.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn twinbpf_test_target(value: u64) -> u64 {
    std::hint::black_box(value) + 1
}

fn call(times: u64) {
    for value in 0..times {
        std::hint::black_box(twinbpf_test_target(value));
    }
}

/// Where that function is, and the turn of the one test that calls it.
fn own_probe_site() -> (PathBuf, u64, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let path = std::env::current_exe().unwrap();
    let offset = user::Binary::read(&path).unwrap().function("twinbpf_test_target").unwrap();
    (path, offset, turn)
}

fn getpid(times: u64) {
    for _ in 0..times {
        // The C library caches nothing here.
        std::hint::black_box(std::os::unix::process::parent_id());
    }
}

pub(crate) fn a_tracepoint_counts_while_the_link_lives() {
    let Some((map, prog)) = allowed(counter(ProgType::Tracepoint, 0, false)) else { return };
    let target = Target::Tracepoint { category: "syscalls".into(), name: "sys_enter_getppid".into() };
    let pending = target.open(&prog, &Options::default()).unwrap_or_else(|error| panic!("{error:#}"));
    getpid(10);
    assert_eq!(count(&map, 0), 0, "disabled");
    let link = pending.enable().unwrap();
    getpid(10);
    let counted = count(&map, 0);
    assert!(counted >= 10, "{counted}");
    drop(link);
    let counted = count(&map, 0);
    getpid(10);
    assert_eq!(count(&map, 0), counted, "gone");
}

pub(crate) fn a_tracepoint_that_is_not_there_is_named() {
    let Some(prog) = allowed(load(ProgType::Tracepoint, RETURN_0)) else { return };
    let open = |category: &str, name: &str| {
        let target = Target::Tracepoint { category: category.into(), name: name.into() };
        target.open(&prog, &Options::default()).unwrap_err().to_string()
    };
    let error = open("syscalls", "sys_enter_getppi");
    assert!(error.contains("this kernel has syscalls:sys_enter_getppid"), "{error}");
    let error = open("nothing", "x");
    assert!(error.contains("no category nothing"), "{error}");
    let error = open("..", "x");
    assert!(error.contains("no tracepoint has such a name"), "{error}");
}

pub(crate) fn a_kind_that_cannot_filter_refuses_a_process() {
    let Some(prog) = allowed(load(ProgType::RawTracepoint, RETURN_0)) else { return };
    let options = Options { pid: Some(1), ..Options::default() };
    let error = Target::RawTracepoint { name: "sys_enter".into() }.open(&prog, &options).unwrap_err().to_string();
    assert!(error.contains("program test to raw tracepoint sys_enter"), "{error}");
    assert!(error.contains("cannot be limited to process 1"), "{error}");
}

pub(crate) fn a_raw_tracepoint_counts() {
    let Some((map, prog)) = allowed(counter(ProgType::RawTracepoint, 0, false)) else { return };
    let link = Target::RawTracepoint { name: "sys_enter".into() }.attach(&prog, &Options::default()).unwrap();
    getpid(10);
    assert!(count(&map, 0) >= 10);
    assert!(link.id().unwrap().is_some());
    drop(link);
}

pub(crate) fn a_typed_raw_tracepoint_counts() {
    let Some(btf) = System::get().btf() else { return skip("no BTF of the kernel") };
    let name = "btf_trace_sys_enter";
    let id = btf.find(name, |found| matches!(found, twinbpf_btf::Type::Typedef(_)));
    let map = allowed(Map::create(&MapCreate::new("counters", MapKind::Array, 4, 8, 1)));
    let (Some(id), Some(map)) = (id, map) else { return };
    let text = format!(
        "r1 = map_fd({}) ll\nr2 = r10\nr2 += -4\n*(u32 *)(r10 - 4) = 0\ncall 1\nif r0 == 0 goto +2\n\
         r1 = 1\nlock *(u64 *)(r0 + 0) += r1\nr0 = 0\nexit",
        map.as_fd().as_raw_fd()
    );
    let insns = super::code(&text);
    let target = LoadTarget { attach: AttachType::TraceRawTp as u32, btf_id: id.0, of: None };
    let spec = ProgLoad { target, ..ProgLoad::new("typed", ProgType::Tracing, &insns, "GPL") };
    let Some(prog) = allowed(Prog::load(&spec)) else { return };
    let _link = Target::Btf.attach(&prog, &Options::default()).unwrap();
    getpid(10);
    assert!(count(&map, 0) >= 10);
}

pub(crate) fn a_uprobe_counts_exactly() {
    let Some((map, prog)) = allowed(counter(ProgType::Kprobe, 0, true)) else { return };
    let (path, offset, _turn) = own_probe_site();
    let site = UprobeSite { offset, semaphore: 0, cookie: 3 };
    for (ret, index) in [(false, 3_u32), (true, 3)] {
        let before = count(&map, index);
        let target = Target::Uprobe { path: path.clone(), site, ret };
        let options = Options { pid: Some(std::process::id()), ..Options::default() };
        let link = target.attach(&prog, &options).unwrap_or_else(|error| panic!("{error:#}"));
        call(17);
        assert_eq!(count(&map, index) - before, 17, "return {ret}");
        drop(link);
        call(5);
        assert_eq!(count(&map, index) - before, 17, "gone");
    }
}

pub(crate) fn many_uprobes_in_one_link() {
    if !has(Feature::UprobeMulti) {
        return skip("this kernel has no links of many offsets in files");
    }
    let attach = AttachType::TraceUprobeMulti as u32;
    let Some((map, prog)) = allowed(counter(ProgType::Kprobe, attach, true)) else { return };
    let (path, offset, _turn) = own_probe_site();
    let options = Options { pid: Some(std::process::id()), cookie: 5, ..Options::default() };
    let by_glob = Functions::Glob("twinbpf_test_targe?".into());
    let by_name = Functions::Names(vec![("twinbpf_test_target".into(), 6)]);
    let by_site = Functions::Sites(vec![UprobeSite { offset, semaphore: 0, cookie: 7 }]);
    for (functions, ret, index) in [(by_glob, Return::No, 5), (by_name, Return::Yes, 6), (by_site, Return::No, 7)] {
        let target = Target::UprobeMulti { path: path.clone(), functions, ret };
        let link = target.attach(&prog, &options).unwrap_or_else(|error| panic!("{error:#}"));
        call(9);
        assert_eq!(count(&map, index), 9, "{target}");
        drop(link);
    }
    let nothing = Target::UprobeMulti { path, functions: Functions::Glob("no_such_*".into()), ret: Return::No };
    assert!(nothing.open(&prog, &options).unwrap_err().to_string().contains("no function of the file matches"));
}

pub(crate) fn one_program_for_a_call_and_its_return() {
    let attach = AttachType::TraceUprobeSession as u32;
    let Some((map, prog)) = allowed(counter(ProgType::Kprobe, attach, true)) else { return };
    let (path, _, _turn) = own_probe_site();
    let functions = Functions::Names(vec![("twinbpf_test_target".into(), 4)]);
    let options = Options { pid: Some(std::process::id()), ..Options::default() };
    match (Target::UprobeMulti { path, functions, ret: Return::Session }).attach(&prog, &options) {
        Ok(link) => {
            call(9);
            drop(link);
            call(9);
            assert_eq!(count(&map, 4), 18);
        }
        Err(error) => skip(&error.to_string()),
    }
}

pub(crate) fn samples_come_at_a_rate() {
    let Some((map, prog)) = allowed(counter(ProgType::PerfEvent, 0, false)) else { return };
    let sampling = Sampling { clock: Clock::Cpu, rate: Rate::Frequency(999), pid: None, cpus: Vec::new() };
    let link = Target::Sampling(sampling).attach(&prog, &Options::default()).unwrap();
    let start = std::time::Instant::now();
    let mut turns = 0_u64;
    while start.elapsed().as_millis() < 200 || (count(&map, 0) == 0 && start.elapsed().as_secs() < 20) {
        turns = std::hint::black_box(turns + 1);
    }
    assert!(count(&map, 0) > 0);
    assert_eq!(link.events().len(), twinbpf_kernel::cpu::online().len());
}

pub(crate) fn an_iterator_writes_text() {
    let Some(btf) = System::get().btf() else { return skip("no BTF of the kernel") };
    let Some(id) = btf.func("bpf_iter_task") else { return skip("no iterator of tasks") };
    // if (ctx->task) bpf_seq_write(ctx->meta->seq, "x\n", 2)
    let insns = super::code(
        "r6 = *(u64 *)(r1 + 8)\nr1 = *(u64 *)(r1 + 0)\nif r6 == 0 goto +6\n*(u16 *)(r10 - 2) = 2680\n\
         r1 = *(u64 *)(r1 + 0)\nr2 = r10\nr2 += -2\nr3 = 2\ncall 127\nr0 = 0\nexit",
    );
    let target = LoadTarget { attach: AttachType::TraceIter as u32, btf_id: id.0, of: None };
    let spec = ProgLoad { target, ..ProgLoad::new("tasks", ProgType::Tracing, &insns, "GPL") };
    let Some(prog) = allowed(Prog::load(&spec)) else { return };
    let text = |iter: Iter| {
        let link: Link = Target::Iter(iter).attach(&prog, &Options::default()).unwrap();
        let mut text = String::new();
        link.iterate().unwrap().read_to_string(&mut text).unwrap();
        text
    };
    let all = text(Iter::default());
    assert!(all.len() > 20 && all.lines().all(|line| line == "x"), "{all:?}");
    let mine = text(Iter { pid: Some(std::process::id()), ..Iter::default() });
    assert!(!mine.is_empty() && mine.len() < all.len(), "{mine:?}");
}

pub(crate) fn a_kprobe_on_a_kernel_without_says_so() {
    let Some(prog) = allowed(load(ProgType::Kprobe, RETURN_0)) else { return };
    let open = |function: &str| {
        Target::Kprobe { function: function.into(), offset: 0, ret: false }.attach(&prog, &Options::default())
    };
    let error = open("no_such_function_here").unwrap_err().to_string();
    assert!(error.contains("no_such_function_here"), "{error}");
    match open("do_nanosleep") {
        Ok(link) => assert!(link.what().contains("kprobe do_nanosleep")),
        Err(error) => assert!(error.to_string().contains("kprobe do_nanosleep"), "{error}"),
    }
}
