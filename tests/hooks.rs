//! Programs at functions of this process: what they count and read, what is skipped, and how they end.

#![expect(unsafe_code, reason = "calls C functions, and hooks them")]

#[path = "support/mod.rs"]
mod support;

use std::ffi::CString;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;

use support::harness;
use tempfile::TempDir;
use twinbpf::hook::{Function, Module, Point};
use twinbpf::{Config, Engine, EngineKind, ErrorKind, HookOptions, Hooks, InstancePre, Linker, Object, OwnMemory};
use twinbpf_loader::section::Attach;

const SOURCE: &str = "
#include <ucontext.h>
long add(long a, long b) { return a + b; }
long length(const char *text) { long n = 0; while (text[n]) n++; return n; }
long same(long a) { return a; }
double product(double a, float b, double c) { return a * b * c; }
long outer(long a) { return add(a, 1) + 1; }
static ucontext_t host, other;
static long result;
static void run(long a) { result = add(a, 1); }
long on_stack(char *stack, long size, long a) {
    getcontext(&other);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = size;
    other.uc_link = &host;
    makecontext(&other, (void (*)(void))run, 1, a);
    swapcontext(&host, &other);
    return result;
}
";
const CALLS: i64 = 200_000;
const THREADS: i64 = 4;

type Add = extern "C" fn(i64, i64) -> i64;

/// A library of a name of its own, so that sections of objects name this one.
struct Library {
    module: Arc<Module>,
    handle: usize,
    _folder: TempDir,
}

impl Library {
    fn new(options: &[&str]) -> Option<Library> {
        if !support::installed("gcc") {
            harness::skip("no gcc");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        let (source, path) = (folder.path().join("hooked.c"), folder.path().join("libhooked.so"));
        std::fs::write(&source, SOURCE).expect("it is written");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-fno-inline", "-shared", "-fPIC"]).args(options).arg("-o").args([&path, &source]);
        assert!(gcc.status().expect("gcc runs").success());
        let name = CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: it has no initialisers.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) }.addr();
        assert_ne!(handle, 0);
        let module = Module::find(path.to_str().expect("UTF-8")).expect("it is loaded");
        Some(Library { module, handle, _folder: folder })
    }

    fn function(&self, name: &str) -> Function {
        self.module.functions(name).remove(0)
    }

    fn add(&self) -> Add {
        // SAFETY: it is that function.
        unsafe { std::mem::transmute(self.function("add").address() as usize) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: of `dlopen`.
        unsafe { libc::dlclose(std::ptr::with_exposed_provenance_mut(self.handle)) };
    }
}

fn object() -> Object {
    Object::open("hooks.bpf.o", include_bytes!("../corpus/embed/hooks.bpf.o")).expect("an object")
}

fn pre(kind: EngineKind) -> InstancePre<()> {
    let engine = Engine::new(Config::new().engine(kind).cpus(8)).expect("an engine");
    Linker::new(&engine).instantiate_pre(&object()).expect("it links")
}

fn hooks(pre: &InstancePre<()>, slots: u32) -> Hooks<()> {
    pre.hooks(&HookOptions::new().slots(slots).memory(Arc::new(OwnMemory::new())), |_| ()).expect("slots")
}

fn counted(pre: &InstancePre<()>, index: u32) -> u64 {
    let map = pre.per_cpu_map::<u32, u64>("counts").expect("the object has it");
    map.get(&index).expect("an array").expect("an element").into_iter().sum()
}

/// Programs by their sections, in every engine, while threads call: each call is counted or skipped.
fn sections_count_every_call() {
    let Some(library) = Library::new(&["-fpatchable-function-entry=5"]) else { return };
    let add = library.add();
    for kind in [EngineKind::Interp, EngineKind::Auto, EngineKind::Jit] {
        let pre = pre(kind);
        let slots = hooks(&pre, 3);
        // SAFETY: functions of the library.
        let attached = unsafe { slots.attach_sections(&object()) }.expect("they attach");
        assert_eq!(attached.iter().map(|hook| hook.program()).collect::<Vec<_>>(), ["count_calls", "count_returns"]);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || (0..CALLS).for_each(|n| assert_eq!(add(n, thread), n + thread)));
            }
        });
        let [calls, returns] = [0, 1].map(|index: usize| counted(&pre, index as u32) + attached[index].skipped());
        assert_eq!((calls, returns), ((THREADS * CALLS) as u64, (THREADS * CALLS) as u64), "{kind:?}");
        if attached[1].skipped() == 0 {
            let sum = pre.global::<i64>("sum").expect("a global").get();
            assert_eq!(sum, THREADS * CALLS * (CALLS - 1) / 2 + CALLS * THREADS * (THREADS - 1) / 2);
        }
        assert_eq!(attached.iter().map(|hook| hook.traps() + hook.lost_returns()).sum::<u64>(), 0);
    }
}

/// Memory that arguments point to, keys by argument, and functions whose first instructions move.
fn programs_read_arguments() {
    let Some(library) = Library::new(&[]) else { return };
    let pre = pre(EngineKind::Jit);
    let slots = hooks(&pre, 2);
    let attach = |program, function| {
        let entry = pre.program(program).expect("the object has it");
        // SAFETY: functions of the library.
        unsafe { slots.attach(entry, &[library.function(function)], Point::Entry) }.expect("it attaches")
    };
    let _both = [attach("read_text", "length"), attach("count_by_argument", "add")];
    // SAFETY: it is that function.
    let length: extern "C" fn(*const u8) -> i64 =
        unsafe { std::mem::transmute(library.function("length").address() as usize) };
    assert_eq!(length(c"seventeen".as_ptr().cast()), 9);
    assert_eq!(&pre.global::<[u8; 16]>("text").expect("a global").get()[..10], b"seventeen\0");
    (0..30).for_each(|n| assert_eq!(library.add()(n % 3, 1), n % 3 + 1));
    let map = pre.map::<u64, u64>("by_argument").expect("the object has it");
    assert_eq!([0, 1, 2].map(|key| map.get(&key).expect("a map")), [Some(10); 3]);
}

/// A trap ends the program, not the function; it is counted, and the first one kept.
fn traps_are_counted() {
    let Some(library) = Library::new(&["-fpatchable-function-entry=5"]) else { return };
    for kind in [EngineKind::Interp, EngineKind::Jit] {
        let pre = pre(kind);
        let slots = hooks(&pre, 1);
        let entry = pre.program("faults").expect("the object has it");
        // SAFETY: functions of the library.
        let hook = unsafe { slots.attach(entry, &[library.function("add")], Point::Entry) }.expect("it attaches");
        (0..10).for_each(|n| assert_eq!(library.add()(n, 0), n));
        assert_eq!((hook.traps(), hook.skipped()), (10, 0), "{kind:?}");
        let words = format!("{:#}", hook.first_trap().expect("one was kept"));
        assert!(words.contains("faults") && words.contains("0x0"), "{words}");
        hook.detach().expect("it detaches");
    }
}

/// Programs that run without saved vector registers, and others, leave those of functions alone.
fn floats_pass() {
    let Some(library) = Library::new(&["-fpatchable-function-entry=5"]) else { return };
    let pre = pre(EngineKind::Jit);
    let slots = hooks(&pre, 1);
    // SAFETY: it is that function.
    let product: extern "C" fn(f64, f32, f64) -> f64 =
        unsafe { std::mem::transmute(library.function("product").address() as usize) };
    for program in ["empty", "count_calls", "count_returns", "count_by_argument", "faults"] {
        for point in [Point::Entry, Point::Return] {
            let entry = pre.program(program).expect("the object has it");
            // SAFETY: functions of the library.
            let hook = unsafe { slots.attach(entry, &[library.function("product")], point) }.expect("it attaches");
            (1..100).map(f64::from).for_each(|n| assert_eq!(product(n, 0.5, 0.25), n / 8.0, "{program} {point:?}"));
            let traps = if program == "faults" { 99 } else { 0 };
            assert_eq!((hook.traps(), hook.skipped()), (traps, 0), "{program} {point:?}");
        }
    }
}

/// More threads than slots, and than CPUs: none waits, and what has no slot is counted. `TWINBPF_HOOK_CALLS` is how many calls
/// each of 64 threads makes.
fn calls_without_a_slot_are_skipped() {
    let Some(library) = Library::new(&["-fpatchable-function-entry=5"]) else { return };
    let pre = pre(EngineKind::Jit);
    let slots = hooks(&pre, 2);
    let calls = std::env::var("TWINBPF_HOOK_CALLS").ok().and_then(|calls| calls.parse().ok()).unwrap_or(10_000_i64);
    let entry = pre.program("count_calls").expect("the object has it");
    // SAFETY: functions of the library.
    let hook = unsafe { slots.attach(entry, &[library.function("add")], Point::Entry) }.expect("it attaches");
    let add = library.add();
    thread::scope(|scope| {
        (0..64).for_each(|_| drop(scope.spawn(move || (0..calls).for_each(|n| assert_eq!(add(n, 1), n + 1)))));
    });
    let (counted, skipped) = (counted(&pre, 0), hook.skipped());
    println!("{counted} calls counted, {skipped} skipped");
    assert_eq!(counted + skipped, 64 * calls as u64);
}

/// Each thread of the process has a slot where the engine has as many CPU numbers.
fn each_thread_has_a_slot() {
    const CALLERS: u64 = 16;
    let Some(library) = Library::new(&["-fpatchable-function-entry=5"]) else { return };
    let engine = Engine::new(Config::new().engine(EngineKind::Jit).cpus(32)).expect("an engine");
    let pre: InstancePre<()> = Linker::new(&engine).instantiate_pre(&object()).expect("it links");
    let add = library.add();
    let begin = Barrier::new(CALLERS as usize + 1);
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                // Once the thread is there, once it is hooked, and once all have called.
                begin.wait();
                begin.wait();
                (0..CALLS).for_each(|n| assert_eq!(add(n, 1), n + 1));
                begin.wait();
            });
        }
        begin.wait();
        let slots = pre.hooks(&HookOptions::new(), |_| ()).expect("slots");
        let entry = pre.program("count_calls").expect("the object has it");
        // SAFETY: functions of the library.
        let hook = unsafe { slots.attach(entry, &[library.function("add")], Point::Entry) };
        begin.wait();
        begin.wait();
        let hook = hook.expect("it attaches");
        assert_eq!((counted(&pre, 0), hook.skipped()), (CALLERS * CALLS as u64, 0));
    });
}

/// A function on a stack of one page: programs do not need the caller's.
fn functions_have_small_stacks() {
    const PAGE: usize = 4096;
    let Some(library) = Library::new(&["-fpatchable-function-entry=5"]) else { return };
    // SAFETY: new pages, of which the lowest guards the others; it is that function.
    let (stack, on_stack) = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let pages = libc::mmap(std::ptr::null_mut(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_eq!(libc::mprotect(pages, PAGE, libc::PROT_NONE), 0);
        (
            pages.byte_add(PAGE),
            std::mem::transmute::<usize, extern "C" fn(*mut libc::c_void, usize, i64) -> i64>(
                library.function("on_stack").address() as usize,
            ),
        )
    };
    for kind in [EngineKind::Interp, EngineKind::Auto, EngineKind::Jit] {
        let pre = pre(kind);
        let slots = hooks(&pre, 2);
        let attach = |program, point| {
            let entry = pre.program(program).expect("the object has it");
            // SAFETY: functions of the library.
            unsafe { slots.attach(entry, &[library.function("add")], point) }.expect("it attaches")
        };
        let attached = [attach("count_by_argument", Point::Entry), attach("count_returns", Point::Return)];
        (0..100).for_each(|n| assert_eq!(on_stack(stack, PAGE, n % 3), n % 3 + 1, "{kind:?}"));
        let map = pre.map::<u64, u64>("by_argument").expect("the object has it");
        assert_eq!([0, 1, 2].map(|key| map.get(&key).expect("a map")), [Some(34), Some(33), Some(33)], "{kind:?}");
        assert_eq!(counted(&pre, 1), 100, "{kind:?}");
        assert_eq!(attached.iter().map(|hook| hook.skipped() + hook.traps()).sum::<u64>(), 0, "{kind:?}");
    }
    // SAFETY: mapped above, and no function runs there.
    unsafe { libc::munmap(stack.byte_sub(PAGE), 2 * PAGE) };
}

/// The function, at its return too, the instruction inside it, and the cookie of the hook.
fn programs_learn_where_they_run() {
    let Some(library) = Library::new(&["-fpatchable-function-entry=5"]) else { return };
    for kind in [EngineKind::Interp, EngineKind::Jit] {
        let pre = pre(kind);
        let slots = hooks(&pre, 2);
        let entry = pre.program("keep_place").expect("the object has it");
        let place = pre.global::<[u64; 2]>("place").expect("a global");
        let (add, outer) = (library.function("add"), library.function("outer"));
        let inside = (1..outer.size()).map(|offset| outer.at_offset(offset)).find(|place| place.check().is_ok());
        let inside = inside.expect("it has an instruction that moves");
        let hooks = [(&add, Point::Entry, 7), (&add, Point::Return, u64::MAX), (&inside, Point::Entry, 0)];
        for (function, point, cookie) in hooks {
            // SAFETY: functions of the library.
            let hook = unsafe { slots.attach_with_cookie(entry, std::slice::from_ref(function), point, cookie) };
            let hook = hook.expect("it attaches");
            place.set(&[1, 1]).expect("a global");
            // SAFETY: it is that function.
            let call: Add = unsafe { std::mem::transmute(outer.address() as usize) };
            assert_eq!(call(4, 0), 6);
            assert_eq!((place.get(), hook.traps()), ([function.address(), cookie], 0), "{kind:?} {point:?}");
        }
    }
}

/// A function that is shorter than a jump counts where options allow breakpoints, alone and by a pattern.
fn breakpoints_where_options_allow_them() {
    let Some(library) = Library::new(&["-fcf-protection=none"]) else { return };
    let path = library.module.path().display();
    let same = library.function("same");
    // SAFETY: it is that function.
    let call: extern "C" fn(i64) -> i64 = unsafe { std::mem::transmute(same.address() as usize) };
    let words = [
        (format!("uprobe/{path}:same"), format!("cannot hook same of {path}: it is shorter than a jump of 5 bytes")),
        (
            format!("uprobe.multi/{path}:sam?"),
            format!("uprobe.multi/{path}:sam?: {path} has no function sam? that can be hooked"),
        ),
    ];
    for kind in [EngineKind::Interp, EngineKind::Jit] {
        let pre = pre(kind);
        let mut object = object();
        let program = object.programs.iter_mut().find(|program| &*program.name == "count_calls").expect("a program");
        for (section, why) in &words {
            program.section = section.as_str().into();
            program.attach = Attach::parse(section);
            // SAFETY: nothing is attached.
            let error = unsafe { hooks(&pre, 1).attach_section(program) }.expect_err(section);
            assert_eq!(error.to_string(), *why);
            let slots = pre.hooks(&HookOptions::new().slots(1).breakpoints(true), |_| ()).expect("slots");
            let before = counted(&pre, 0);
            // SAFETY: a function of the library.
            let hook = unsafe { slots.attach_section(program) }.expect(section).expect("it names a function");
            (0..100).for_each(|n| assert_eq!(call(n), n));
            assert_eq!((counted(&pre, 0) - before, hook.skipped(), hook.traps()), (100, 0, 0), "{kind:?} {section}");
            hook.detach().expect("it detaches");
            (0..100).for_each(|n| assert_eq!(call(n), n));
            assert_eq!(counted(&pre, 0) - before, 100, "{kind:?} {section}");
        }
    }
}

/// Sections that name what is not in the process, or what a process does not have.
fn wrong_sections_have_exact_words() {
    let Some(library) = Library::new(&["-fpatchable-function-entry=5"]) else { return };
    let path = library.module.path().display();
    let words = [
        (format!("uprobe/{path}:sub"), format!("{path} has no function sub")),
        (format!("uprobe/{path}:add+x"), "'x' is no offset".to_owned()),
        (format!("uretprobe/{path}:add+4"), "a return has no offset: FILE:FUNC".to_owned()),
        (format!("uprobe.multi/{path}:sub*"), format!("{path} has no function sub* that can be hooked")),
        (format!("usdt/{path}:p:n"), "the file has no static probes".to_owned()),
        ("usdt/libnowhere.so:p:n".to_owned(), "this process has loaded no file libnowhere.so; /proc/self/maps lists what it has".to_owned()),
        (format!("uprobe.session/{path}:add"), "a session runs at entry and return by functions of the kernel (bpf_session_is_return): use uprobe.multi and \
          uretprobe.multi, or run it in the kernel (`twinbpf run`)".to_owned()),
    ];
    let pre = pre(EngineKind::Interp);
    let slots = hooks(&pre, 1);
    let mut object = object();
    for (section, why) in words {
        let program = object.programs.iter_mut().find(|program| &*program.name == "count_calls").expect("a program");
        program.section = section.as_str().into();
        program.attach = Attach::parse(&section);
        // SAFETY: nothing is attached.
        let error = unsafe { slots.attach_sections(&object) }.expect_err(&section);
        assert_eq!(error.to_string(), format!("{section}: {why}"));
    }
}

/// What a section says of a process that has nothing like it.
fn sections_that_lead_nowhere_are_errors() {
    let pre = pre(EngineKind::Interp);
    let slots = hooks(&pre, 1);
    // SAFETY: nothing is attached.
    let error = unsafe { slots.attach_sections(&object()) }.expect_err("the library is not loaded");
    assert_eq!(error.kind(), ErrorKind::Hook);
    assert_eq!(
        error.to_string(),
        "uprobe/libhooked.so:add: this process has loaded no file libhooked.so; /proc/self/maps lists what it has"
    );
}

fn main() -> std::process::ExitCode {
    let mut tests = harness::Tests::default();
    // One after another: sections name a library that each test loads.
    tests.add_in_turn(&[
        ("sections_count_every_call", sections_count_every_call),
        ("programs_read_arguments", programs_read_arguments),
        ("traps_are_counted", traps_are_counted),
        ("floats_pass", floats_pass),
        ("calls_without_a_slot_are_skipped", calls_without_a_slot_are_skipped),
        ("each_thread_has_a_slot", each_thread_has_a_slot),
        ("functions_have_small_stacks", functions_have_small_stacks),
        ("programs_learn_where_they_run", programs_learn_where_they_run),
        ("breakpoints_where_options_allow_them", breakpoints_where_options_allow_them),
        ("wrong_sections_have_exact_words", wrong_sections_have_exact_words),
        ("sections_that_lead_nowhere_are_errors", sections_that_lead_nowhere_are_errors),
    ]);
    tests.run()
}
