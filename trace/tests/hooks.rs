//! The same program at the same places of this process, by the kernel's uprobes and by hooks: what its maps have is equal.
#![expect(unsafe_code, reason = "calls C functions, and hooks them")]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use support::{corpus, harness, skip};
use tempfile::TempDir;
use twinbpf::hook::{Module, Point};
use twinbpf::{Config, Engine, EngineKind, HookOptions, Hooks, InstancePre, Linker, Object, OwnMemory, ProgramHook};
use twinbpf_kernel::system::System;
use twinbpf_kernel::{Link, LoadOptions, Loaded, Options, Target, load};
use twinbpf_loader::kernel::KernelOptions;
use twinbpf_loader::section::Attach;
use twinbpf_trace::HookedProbes;

harness::tests! {
    calls_are_counted_alike,
    latencies_are_counted_alike,
    static_probes_give_the_same_arguments,
    static_probes_beside_jump_tables_take_a_breakpoint,
    definitions_of_perf_give_arguments,
}

/// A function, and static probes as `sys/sdt.h` writes them, with a counter of their users; `choose` has a jump table.
const SOURCE: &str = r#"
__attribute__((noinline)) long work(long n) { volatile long sum = 0; while (n > 0) sum += n--; return sum; }
__asm__(".pushsection .probes, \"aw\", \"progbits\"\n.globl step_users\nstep_users: .2byte 0\n.popsection");
extern unsigned short step_users;
long users(void) { return step_users; }
#define PROBE(name, first, second, third) \
    __asm__ volatile("990: nop\n" \
        ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n" \
        ".4byte 992f-991f, 994f-993f, 3\n991: .asciz \"stapsdt\"\n992: .balign 4\n" \
        "993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte step_users\n" \
        ".asciz \"twin\"\n.asciz \"" name "\"\n.asciz \"8@%0 -4@%1 8@$-9 -2@8(%2)\"\n994: .balign 4\n.popsection\n" \
        ".ifndef _.stapsdt.base\n" \
        ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
        ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n.popsection\n" \
        ".endif" \
        : : "r"(first), "r"(second), "r"(third))
__attribute__((noinline)) void step(long first, int second, short *third) {
    PROBE("step", first, second, third);
    work(second);
}
__attribute__((noinline)) long choose(long first, int second, short *third) {
    long result = second;
    switch (first & 7) {
    case 0: result = work(3); break;
    case 1: result *= 5; break;
    case 2: result ^= first; break;
    case 3: result = work(first & 15) - 1; break;
    case 4: result += first << 3; break;
    case 5: result -= third[4]; break;
    case 6: result = first / 3; break;
    }
    PROBE("chosen", first, second, third);
    return result;
}
void run(long calls) {
    short third[5] = {0, 0, 0, 0, -5};
    for (long n = 0; n < calls; n++) { work(n & 63); step(n, -3, third); }
}
long run_choose(long calls) {
    short third[5] = {0, 0, 0, 0, -5};
    long sum = 0;
    for (long n = 0; n < calls; n++) sum += choose(n, -3, third);
    return sum;
}
"#;
const CALLS: i64 = 1000;

/// The library, loaded.
struct Library {
    path: PathBuf,
    handle: *mut libc::c_void,
    _folder: TempDir,
}

impl Library {
    fn new(options: &[&str]) -> Option<Library> {
        if !support::installed("gcc") {
            skip("no gcc");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        let (source, path) = (folder.path().join("probed.c"), folder.path().join("libprobed.so"));
        std::fs::write(&source, SOURCE).expect("it is written");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-g", "-shared", "-fPIC", "-Wl,-Bsymbolic"]).args(options).arg("-o").args([&path, &source]);
        assert!(gcc.status().expect("gcc runs").success());
        let name = CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: it has no initialisers.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Some(Library { path, handle, _folder: folder })
    }

    fn call(&self, name: &str, argument: i64) -> i64 {
        let name = CString::new(name).expect("no NUL");
        // SAFETY: the functions that tests name take such an argument, or none.
        let function: extern "C" fn(i64) -> i64 =
            unsafe { std::mem::transmute(libc::dlsym(self.handle, name.as_ptr())) };
        function(argument)
    }

    fn run(&self) {
        self.call("run", CALLS);
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: of `dlopen`.
        unsafe { libc::dlclose(self.handle) };
    }
}

fn object(name: &str) -> Object {
    let bytes = std::fs::read(corpus().join(name)).expect("the corpus has it");
    Object::open(name, &bytes).expect("an object")
}

/// The programs in the kernel, if this may load them.
fn in_kernel(object: &Object) -> Option<Loaded> {
    let linked = object.link_kernel(System::get(), &KernelOptions::default());
    let loaded = load(object, &linked, &LoadOptions::default());
    if let Some(failure) = loaded.failures.first() {
        skip(&format!("{:#}", failure));
        return None;
    }
    Some(loaded)
}

/// A program at a place of this process that a section names.
fn uprobe(loaded: &Loaded, program: &str, section: &str) -> Link {
    let target = Target::of_section(&Attach::parse(section).kind).expect("a place").expect("a place");
    let program = loaded.program(program).expect("the object has it");
    let options = Options { cookie: 0x1234, pid: Some(std::process::id()), ..Options::default() };
    loaded.open(program, &target, &options).unwrap_or_else(|error| panic!("{error:#}")).enable().expect("it attaches")
}

/// The programs in this process.
fn in_process(object: &Object, kind: EngineKind, options: &HookOptions) -> (InstancePre<()>, Hooks<()>) {
    let engine = Engine::new(Config::new().engine(kind)).expect("an engine");
    let pre = Linker::<()>::new(&engine).instantiate_pre(object).expect("it links");
    let hooks = pre.hooks(&options.clone().memory(Arc::new(OwnMemory::new())), |_| ()).expect("slots");
    (pre, hooks)
}

fn hook(library: &Library, pre: &InstancePre<()>, hooks: &Hooks<()>, program: &str, point: Point) -> ProgramHook {
    let module = Module::find(library.path.to_str().expect("UTF-8")).expect("it is loaded");
    let entry = pre.program(program).expect("the object has it");
    // SAFETY: functions of the library.
    unsafe { hooks.attach(entry, &module.functions("work"), point) }.expect("it attaches")
}

/// Prepared functions, and such whose instructions move.
const KINDS: [&[&str]; 2] = [&["-fpatchable-function-entry=5"], &[]];
const ENGINES: [EngineKind; 2] = [EngineKind::Interp, EngineKind::Jit];

fn calls_are_counted_alike() {
    let object = object("scripts/calls.bpf.o");
    for options in KINDS {
        let Some(library) = Library::new(options) else { return };
        let Some(loaded) = in_kernel(&object) else { return };
        let link = uprobe(&loaded, "called", &format!("uprobe/{}:work", library.path.display()));
        library.run();
        drop(link);
        let key = std::process::id().to_ne_bytes();
        let expected = loaded.map("calls").expect("a map").lookup(&key).expect("a map").expect("this process");
        assert_eq!(expected[..8], (2 * CALLS).to_ne_bytes());
        for kind in ENGINES {
            let (pre, hooks) = in_process(&object, kind, &HookOptions::new());
            let hook = hook(&library, &pre, &hooks, "called", Point::Entry);
            library.run();
            let mut found = [0; 16];
            pre.map_ops("calls").expect("a map").lookup_copy(&key, 0, &mut found).expect("this process");
            assert_eq!((&found[..], hook.skipped(), hook.traps()), (&expected[..], 0, 0), "{kind:?} {options:?}");
        }
    }
}

fn latencies_are_counted_alike() {
    let object = object("scripts/funclatency.bpf.o");
    let numbers = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    for options in KINDS {
        let Some(library) = Library::new(options) else { return };
        let Some(loaded) = in_kernel(&object) else { return };
        let path = library.path.display();
        let links = [
            uprobe(&loaded, "entered", &format!("uprobe/{path}:work")),
            uprobe(&loaded, "returned", &format!("uretprobe/{path}:work")),
        ];
        library.run();
        drop(links);
        let slots = loaded.map("nanoseconds").expect("a map");
        let of_kernel = |slot: u32| numbers(&slots.lookup(&slot.to_ne_bytes()).expect("a map").expect("a slot"));
        assert_eq!((0..65).map(of_kernel).sum::<u64>(), 2 * CALLS as u64);
        for kind in ENGINES {
            let (pre, hooks) = in_process(&object, kind, &HookOptions::new());
            let attached = [("entered", Point::Entry), ("returned", Point::Return)]
                .map(|(program, point)| hook(&library, &pre, &hooks, program, point));
            library.run();
            let slots = pre.map::<u32, u64>("nanoseconds").expect("a map");
            assert_eq!(slots.iter().map(|(_, count)| count).sum::<u64>(), 2 * CALLS as u64, "{kind:?} {options:?}");
            assert_eq!(attached.iter().map(|hook| hook.skipped() + hook.lost_returns() + hook.traps()).sum::<u64>(), 0);
        }
    }
}

/// What the program has seen at the calls of a function of the library that comes to a static probe, by the kernel's uprobe.
fn seen_by_kernel(library: &Library, object: &Object, probe: &str, function: &str) -> Option<Vec<u8>> {
    let loaded = in_kernel(object)?;
    let link = uprobe(&loaded, "fired", &format!("usdt/{}:twin:{probe}", library.path.display()));
    library.call(function, CALLS);
    drop(link);
    assert_eq!(library.call("users", 0), 0);
    let seen = loaded.map(".bss").expect("globals").lookup(&[0; 4]).expect("a map").expect("globals");
    let words = seen.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().expect("eight bytes")));
    assert_eq!(words.collect::<Vec<_>>(), [CALLS, 0x1234, 4, CALLS - 1, -3, -9, -5]);
    Some(seen)
}

/// The same by a hook, attached by `attach`.
fn seen_in_process(library: &Library, pre: &InstancePre<()>, hook: ProgramHook, function: &str) -> Vec<u8> {
    assert_eq!(library.call("users", 0), 1);
    library.call(function, CALLS);
    assert_eq!((hook.skipped(), hook.traps()), (0, 0), "{:?}", hook.first_trap());
    hook.detach().expect("it detaches");
    assert_eq!(library.call("users", 0), 0);
    let globals = pre.map_ops(".bss").expect("globals");
    let mut seen = vec![0; globals.spec().value_size as usize];
    globals.lookup_copy(&[0; 4], 0, &mut seen).expect("globals");
    seen
}

fn static_probes_give_the_same_arguments() {
    let object = object("probes/usdt.bpf.o");
    for options in KINDS {
        let Some(library) = Library::new(options) else { return };
        let Some(expected) = seen_by_kernel(&library, &object, "step", "run") else { return };
        let file = library.path.to_str().expect("UTF-8");
        for kind in ENGINES {
            let (pre, hooks) = in_process(&object, kind, &HookOptions::new());
            let entry = pre.program("fired").expect("the object has it");
            let attach = |name: &str| {
                // SAFETY: functions of the library.
                unsafe { hooks.attach_usdt(entry, file, "twin", name, 0x1234) }
            };
            let hook = attach("step").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(seen_in_process(&library, &pre, hook, "run"), expected, "{kind:?} {options:?}");
            let error = attach("other").expect_err("there is none").to_string();
            assert_eq!(error, format!("usdt/{file}:twin:other: provider twin has chosen, step"));
        }
    }
}

/// A jump table may lead to any of the instructions that would move: a breakpoint needs the first alone.
fn static_probes_beside_jump_tables_take_a_breakpoint() {
    let object = object("probes/usdt.bpf.o");
    for options in KINDS {
        let Some(library) = Library::new(options) else { return };
        let Some(expected) = seen_by_kernel(&library, &object, "chosen", "run_choose") else { return };
        let (file, sum) = (library.path.to_str().expect("UTF-8"), library.call("run_choose", CALLS));
        for kind in ENGINES {
            let attach = |options: &HookOptions| {
                let (pre, hooks) = in_process(&object, kind, options);
                let entry = pre.program("fired").expect("the object has it");
                // SAFETY: functions of the library.
                let hook = unsafe { hooks.attach_usdt(entry, file, "twin", "chosen", 0x1234) };
                (pre, hook)
            };
            let (_, refused) = attach(&HookOptions::new());
            let error = refused.expect_err("its instructions stay").to_string();
            assert!(error.contains("the function jumps by a table"), "{error}");
            assert_eq!(library.call("users", 0), 0);
            let (pre, hook) = attach(&HookOptions::new().breakpoints(true));
            let hook = hook.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(seen_in_process(&library, &pre, hook, "run_choose"), expected, "{kind:?} {options:?}");
            assert_eq!(library.call("run_choose", CALLS), sum);
        }
    }
}

/// The object, with its definitions about this library.
fn probed(library: &Library) -> Object {
    let mut object = object("embed/probed.bpf.o");
    for program in &mut object.programs {
        let section = program.section.replace("./libprobed.so", "libprobed.so");
        program.section = section.replace("libprobed.so", library.path.to_str().expect("UTF-8")).into();
        program.attach = Attach::parse(&program.section);
    }
    object
}

fn definitions_of_perf_give_arguments() {
    for options in KINDS {
        let Some(library) = Library::new(options) else { return };
        let object = probed(&library);
        for kind in ENGINES {
            let linker = Linker::<()>::new(&Engine::new(Config::new().engine(kind)).expect("an engine"));
            let (pre, probes) = HookedProbes::link(&linker, &object).unwrap_or_else(|error| panic!("{error}"));
            assert!(probes.left_out().is_empty(), "{:?}", probes.left_out());
            let hooks = pre.hooks(&HookOptions::new().memory(Arc::new(OwnMemory::new())), |_| ()).expect("slots");
            // SAFETY: functions of the library.
            let attached = unsafe { probes.attach(&hooks, &object) }.unwrap_or_else(|error| panic!("{error}"));
            let names: Vec<&str> = attached.iter().map(ProgramHook::program).collect();
            assert_eq!(names, ["step_args#0", "work_result#0", "runs"]);
            library.run();
            let seen = pre.map_ops(".bss").expect("globals");
            let mut bytes = [0; 64];
            seen.lookup_copy(&[0; 4], 0, &mut bytes).expect("globals");
            let words = bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().expect("eight bytes")));
            let results: i64 = (0..CALLS).map(|n| (n & 63) * ((n & 63) + 1) / 2).sum();
            let expected = [CALLS, CALLS * (CALLS - 1) / 2, -3 * CALLS, -5 * CALLS, 0, 2 * CALLS, results, 1];
            assert_eq!(words.collect::<Vec<_>>(), expected, "{kind:?} {options:?}");
            assert_eq!(attached.iter().map(|hook| hook.skipped() + hook.traps()).sum::<u64>(), 0);
        }
        let (_, hooks) = in_process(&object, EngineKind::Interp, &HookOptions::new());
        // SAFETY: nothing is attached.
        let error = unsafe { hooks.attach_sections(&object) }.expect_err("that is another crate's").to_string();
        assert!(error.contains("twinbpf_trace::HookedProbes"), "{error}");
    }
}
