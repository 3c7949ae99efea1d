//! What does a hook cost a call of a function? Callbacks of each kind, programs in native code, and the kernel's uprobes on the
//! same functions, in turns. The kernel's part needs root and clang.
#![expect(unsafe_code, reason = "calls C functions, and hooks them")]

use std::ffi::c_void;
use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libloading::Library;
use tempfile::TempDir;
use twinbpf::hook::{Call, Callback, Function, Hook, Module, Point};
use twinbpf::{Config, Engine, EngineKind, HookOptions, Hooks, InstancePre, Linker, Object};
use twinbpf_benches::bench::has_flag;
use twinbpf_benches::clock;
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::rounds::Figure;
use twinbpf_benches::session::Rig;
use twinbpf_benches::workload::corpus;

const ROUNDS: usize = 15;
const CALLS: i64 = 200_000;
/// Of functions that the kernel traps.
const TRAPPED: i64 = 20_000;

const SOURCE: &str = "
__attribute__((noinline)) long add(long a, long b) { __asm__ volatile(\"\"); return a + b; }
long storm(long n) { long sum = 0; for (long i = 0; i < n; i++) sum = add(sum, i); return sum; }
";

/// How `add` begins: name, compiler, options.
const BEGINNINGS: [(&str, &str, &[&str]); 3] = [
    ("nop", "clang-19", &["-fpatchable-function-entry=5"]),
    ("push", "clang-19", &["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"]),
    ("lea", "gcc", &["-fcf-protection=none"]),
];

const NOTES: &str =
    "- Nanoseconds that a hook adds to a call of a C function with two arguments; medians of 15 rounds in which all
  take a turn. *nop*: the function begins with one nop of five bytes (clang `-fpatchable-function-entry=5`); *push*: with
  `push %rbp` and `mov`, which move; the kernel emulates the first; *lea*: with `lea`, which moves; the kernel runs that one
  elsewhere, in a single step.
- Programs are in native code, of the sandbox. *hash update* is the update of a map alone, in a program's loop.
- bpftime's results of 2025-04-28 (Intel Core Ultra 7 258V, Linux 6.11): 172 ns for a uprobe and 179 for a uretprobe in
  user space, beside 2177 and 2624 of that machine's kernel.
";

/// One library, compiled so that `add` begins in a certain way.
struct Target {
    library: Library,
    function: Function,
    path: String,
}

impl Target {
    fn new(folder: &Path, name: &str, compiler: &str, options: &[&str]) -> Result<Target, String> {
        Target::compile(folder, name, SOURCE, compiler, options)
    }

    fn compile(folder: &Path, name: &str, text: &str, compiler: &str, options: &[&str]) -> Result<Target, String> {
        let (source, path) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
        std::fs::write(&source, text).map_err(|error| error.to_string())?;
        let mut command = Command::new(compiler);
        command.args(["-O2", "-shared", "-fPIC"]).args(options).arg("-o").args([&path, &source]);
        let made = command.output().map_err(|error| format!("{compiler}: {error}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        // SAFETY: it has no initialisers.
        let library = unsafe { Library::new(&path) }.map_err(|error| error.to_string())?;
        let path = path.display().to_string();
        let module = Module::find(&path).map_err(|error| error.to_string())?;
        Ok(Target { library, function: module.functions("add").remove(0), path })
    }

    /// Nanoseconds of one call.
    fn ns(&self, calls: i64) -> f64 {
        // SAFETY: it is that function.
        let storm = unsafe { self.library.get::<extern "C" fn(i64) -> i64>(b"storm") }.expect("the library has it");
        let start = clock::thread_cpu_ns();
        assert_eq!(storm(calls), calls * (calls - 1) / 2);
        (clock::thread_cpu_ns() - start) as f64 / calls as f64
    }
}

unsafe extern "C" fn nothing(_: *mut Call, _: *mut c_void) {}

/// A way to hook `add`.
enum How {
    Bare,
    Callbacks { count: usize, point: Point, registers: bool, vectors: bool },
    Program(&'static str, Point),
    Pair,
    Kernel(&'static str),
}

/// Names, and what they do.
fn ways() -> Vec<(&'static str, How)> {
    let callbacks = |count, point, registers, vectors| How::Callbacks { count, point, registers, vectors };
    vec![
        ("bare call", How::Bare),
        ("one callback, arguments", callbacks(1, Point::Entry, false, false)),
        ("one callback, vector registers saved", callbacks(1, Point::Entry, false, true)),
        ("one callback, all registers", callbacks(1, Point::Entry, true, false)),
        ("two callbacks", callbacks(2, Point::Entry, false, false)),
        ("eight callbacks", callbacks(8, Point::Entry, false, false)),
        ("return", callbacks(1, Point::Return, false, false)),
        ("empty program", How::Program("empty", Point::Entry)),
        ("per-CPU array count", How::Program("count_calls", Point::Entry)),
        ("hash count", How::Program("count_by_argument", Point::Entry)),
        ("program at the return", How::Program("count_returns", Point::Return)),
        ("latency histogram", How::Pair),
        ("kernel uprobe, empty program", How::Kernel("uprobe")),
        ("kernel uretprobe, empty program", How::Kernel("uretprobe")),
    ]
}

/// What stays attached while calls are timed.
#[expect(dead_code, reason = "held until it is dropped")]
enum Attached {
    Hooks(Vec<Hook>),
    Programs(Vec<twinbpf::ProgramHook>),
    Kernel(Tracer),
    Nothing,
}

/// A session of the command, which ends when this is dropped.
struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        // SAFETY: the child is ours and not yet waited for.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGINT) };
        drop(self.0.wait());
    }
}

impl Tracer {
    /// Attached: calls take at least as long as no hook here does.
    fn start(rig: &Rig, kind: &str, target: &Target) -> Result<Tracer, String> {
        let (folder, file) = target.path.rsplit_once('/').ok_or("an absolute path")?;
        let text = format!("{kind}/./{file}:add {{ }}");
        let mut command = Command::new(rig.twinbpf());
        command.current_dir(folder);
        let child = command.args(["run", "-e", &text]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let tracer = Tracer(child.map_err(|error| error.to_string())?);
        let deadline = Instant::now() + Duration::from_secs(10);
        while target.ns(1000) < 200.0 {
            if Instant::now() > deadline {
                return Err(format!("{kind} was not attached in 10 s"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(tracer)
    }
}

struct Bench {
    pre: InstancePre<()>,
    hooks: Hooks<()>,
    rig: Result<Rig, String>,
}

impl Bench {
    fn new() -> Result<Bench, String> {
        let bytes = std::fs::read(corpus().join("embed/hooks.bpf.o")).map_err(|error| error.to_string())?;
        let make = || -> Result<_, Box<dyn std::error::Error>> {
            let object = Object::open("hooks.bpf.o", &bytes)?;
            let engine = Engine::new(Config::new().engine(EngineKind::Jit).cpus(4))?;
            let pre = Linker::<()>::new(&engine).instantiate_pre(&object)?;
            let hooks = pre.hooks(&HookOptions::new(), |_| ())?;
            Ok((pre, hooks))
        };
        let (pre, hooks) = make().map_err(|error| error.to_string())?;
        Ok(Bench { pre, hooks, rig: Rig::new() })
    }

    fn program(&self, name: &str, point: Point, target: &Target) -> Result<twinbpf::ProgramHook, String> {
        let entry = self.pre.program(name).ok_or("no such program")?;
        // SAFETY: C functions of this bench.
        unsafe { self.hooks.attach(entry, std::slice::from_ref(&target.function), point) }
            .map_err(|error| error.to_string())
    }

    fn attach(&self, how: &How, target: &Target) -> Result<Attached, String> {
        Ok(match how {
            How::Bare => Attached::Nothing,
            How::Callbacks { count, point, registers, vectors } => {
                // SAFETY: it does nothing, and so leaves all registers alone.
                let mut callback = unsafe { Callback::new(nothing, ptr::null_mut()) };
                if *registers {
                    callback = callback.with_registers();
                }
                if !vectors {
                    // SAFETY: as above.
                    callback = unsafe { callback.without_vectors() };
                }
                let functions = std::slice::from_ref(&target.function);
                // SAFETY: C functions of this bench.
                let attach = |_| unsafe { Hook::attach(functions, *point, &callback) };
                let hooks: Result<Vec<Hook>, _> = (0..*count).map(attach).collect();
                Attached::Hooks(hooks.map_err(|error| error.to_string())?)
            }
            How::Program(name, point) => Attached::Programs(vec![self.program(name, *point, target)?]),
            How::Pair => Attached::Programs(vec![
                self.program("begin", Point::Entry, target)?,
                self.program("end", Point::Return, target)?,
            ]),
            How::Kernel(kind) => {
                Attached::Kernel(Tracer::start(self.rig.as_ref().map_err(Clone::clone)?, kind, target)?)
            }
        })
    }

    /// Nanoseconds of one update of a hash map.
    fn hash_update(&self) -> f64 {
        let mut instance = self.pre.instance(()).expect("memory");
        let entry = self.pre.program("update_hash").expect("the object has it");
        let count = instance.context(&CALLS.to_ne_bytes()).expect("memory");
        let mut run = || {
            let start = clock::thread_cpu_ns();
            instance.call(entry, &[count.addr()]).expect("it ends");
            (clock::thread_cpu_ns() - start) as f64 / CALLS as f64
        };
        Figure::new((0..ROUNDS).map(|_| run()).collect()).ns()
    }

    /// All ways in turns, nanoseconds of a call; those that fail are left out, with the reason.
    fn measure(&self, target: &Target) -> Vec<Option<Figure>> {
        let ways = ways();
        let mut rounds: Vec<Option<Vec<f64>>> = ways.iter().map(|_| Some(Vec::new())).collect();
        for _ in 0..ROUNDS {
            for ((name, how), rounds) in ways.iter().zip(&mut rounds) {
                let Some(all) = rounds else { continue };
                let calls = if matches!(how, How::Kernel(_)) { TRAPPED } else { CALLS };
                match self.attach(how, target) {
                    Ok(attached) => {
                        target.ns(1000);
                        all.push(target.ns(calls));
                        drop(attached);
                    }
                    Err(why) => {
                        leave_out(&format!("{name}, {}", target.path), &why);
                        *rounds = None;
                    }
                }
            }
        }
        rounds.into_iter().map(|rounds| rounds.map(Figure::new)).collect()
    }
}

/// Functions that are hooked at once.
const MANY: usize = 10_000;

/// Milliseconds for attaching to all functions of a library, and for detaching, while four threads call them all the time;
/// medians. What they compute does not change.
fn attach_many(folder: &Path, name: &str, compiler: &str, options: &[&str]) -> Result<[f64; 2], String> {
    let mut source = String::new();
    for function in 0..MANY {
        let _ = writeln!(
            source,
            "__attribute__((noinline)) long f{function}(long a) {{ return a * {function} + (a >> 3); }}"
        );
    }
    let calls: String = (0..MANY).map(|function| format!("s += f{function}(s & 255);")).collect();
    let _ =
        writeln!(source, "long storm(long s) {{ {calls} return s; }}\nlong add(long a, long b) {{ return a + b; }}");
    let library = Target::compile(folder, name, &source, compiler, options)?;
    // SAFETY: it is that function.
    let storm =
        *unsafe { library.library.get::<extern "C" fn(i64) -> i64>(b"storm") }.map_err(|error| error.to_string())?;
    let functions = Module::find(&library.path).map_err(|error| error.to_string())?.functions("f*");
    let functions: Vec<Function> = functions.into_iter().filter(|function| function.check().is_ok()).collect();
    if functions.len() < MANY {
        return Err(format!("{} functions can be hooked", functions.len()));
    }
    // SAFETY: it does nothing.
    let callback = unsafe { Callback::new(nothing, ptr::null_mut()).without_vectors() };
    let (expected, done) = (storm(1), AtomicBool::new(false));
    let mut took = [Vec::new(), Vec::new()];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(storm(1), expected);
                }
            });
        }
        for _ in 0..ROUNDS {
            let start = Instant::now();
            // SAFETY: C functions of this bench.
            let hook = unsafe { Hook::attach(&functions, Point::Entry, &callback) };
            took[0].push(start.elapsed().as_secs_f64() * 1e3);
            let start = Instant::now();
            drop(hook.expect("they attach"));
            took[1].push(start.elapsed().as_secs_f64() * 1e3);
        }
        done.store(true, Ordering::Relaxed);
    });
    Ok(took.map(|all| Figure::new(all).ns()))
}

/// What a hook adds to a call.
fn added(figures: &[Option<Figure>], name: &str) -> Option<f64> {
    let at = |name: &str| figures[ways().iter().position(|(other, _)| *other == name)?].as_ref();
    Some(at(name)?.ns() - at("bare call")?.ns())
}

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    if !has_flag("--bench") {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let targets = BEGINNINGS.map(|(name, compiler, options)| Target::new(folder.path(), name, compiler, options));
    let targets: Result<Vec<Target>, String> = targets.into_iter().collect();
    let (bench, targets) = match (Bench::new(), targets) {
        (Ok(bench), Ok(targets)) => (bench, targets),
        (Err(why), _) | (_, Err(why)) => return leave_out("all", &why),
    };
    let all: Vec<Vec<Option<Figure>>> = targets.iter().map(|target| bench.measure(target)).collect();
    let update = bench.hash_update();
    let mut table = "| added to a call, ns | nop | push | lea |\n|---|---:|---:|---:|\n".to_owned();
    for (name, how) in ways() {
        let cells = [0, 1, 2].map(|at: usize| match how {
            How::Bare => all[at][0].as_ref().map(Figure::ns),
            _ => added(&all[at], name),
        });
        let cells = cells.map(|cell| cell.map_or("-".to_owned(), |ns| format!("{ns:.1}")));
        writeln!(table, "| {name} | {} |", cells.join(" | ")).expect("strings take all");
    }
    writeln!(table, "| hash update alone | {update:.1} | | |").expect("strings take all");
    let mut promises = Promises::default();
    let empty = added(&all[0], "empty program");
    promises.at_most("empty program at a nop", empty, 20.0, " ns");
    promises.at_most("per-CPU array count at a nop", added(&all[0], "per-CPU array count"), 30.0, " ns");
    let hash = added(&all[0], "hash count").zip(empty).map(|(count, empty)| count / (empty + update));
    promises.at_most("hash count / empty program and hash update", hash, 1.0, "");
    for (figures, (place, ..)) in all.iter().zip(BEGINNINGS) {
        for (kernel, own) in [("kernel uprobe", "empty program"), ("kernel uretprobe", "program at the return")] {
            let ratio = added(figures, &format!("{kernel}, empty program")).zip(added(figures, own));
            promises.at_least(
                &format!("{kernel} / hook at {place}"),
                ratio.map(|(kernel, hook)| kernel / hook),
                25.0,
                "",
            );
        }
    }
    let mut many = format!("| {MANY} functions, four threads call them | attach, ms | detach, ms |\n|---|---:|---:|\n");
    let kinds: [(&str, &[&str]); 2] = [("pads", &["-fpatchable-function-entry=5"]), ("moved", &[])];
    for (kind, options) in kinds {
        match attach_many(folder.path(), kind, "gcc", options) {
            Ok([attach, detach]) => {
                writeln!(many, "| {kind} | {attach:.1} | {detach:.1} |").expect("strings take all");
                promises.at_most(&format!("attach to {MANY} functions, {kind}"), Some(attach), 100.0, " ms");
                promises.at_most(&format!("detach from {MANY} functions, {kind}"), Some(detach), 100.0, " ms");
            }
            Err(why) => leave_out(kind, &why),
        }
    }
    promises.print();
    println!("\n{table}\n{many}");
    performance::write("hook", "Hooks", &format!("{}\n{table}\n{many}\n{NOTES}", promises.markdown()));
}
