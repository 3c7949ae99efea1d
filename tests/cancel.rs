//! Calls that are cancelled, or reach a limit of their own: in every backend, whatever the program is doing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use twinbpf::{CallOptions, Caller, CancelToken, Config, Engine, EngineKind, Entry, Instance, InstancePre};
use twinbpf::{Linker, Object, Trap, TrapCode};
use twinbpf_isa::{Endian, asm};
use twinbpf_vm::host::Reason;
use twinbpf_vm::interp::Driver;
use twinbpf_vm::recover::Thread;

/// What the host function does.
type Host = Box<dyn FnMut(u64) -> Result<u64, Trap> + Send>;

fn backends() -> Vec<Config> {
    let config = |engine, driver| Config::new().engine(engine).driver(driver);
    let mut all = vec![config(EngineKind::Interp, Driver::Step), config(EngineKind::Interp, Driver::Threaded)];
    if EngineKind::Jit.is_available() {
        all.extend([config(EngineKind::Auto, Driver::default()), config(EngineKind::Jit, Driver::default())]);
    }
    all
}

fn pre(config: &Config) -> InstancePre<Host> {
    let object = Object::open("cancel.bpf.o", include_bytes!("../corpus/embed/cancel.bpf.o")).expect("an object");
    let mut linker = Linker::new(&Engine::new(config.clone()).expect("address space"));
    linker.func("host", |mut caller: Caller<'_, Host>, number: u64| caller.data_mut()(number));
    linker.instantiate_pre(&object).unwrap_or_else(|error| panic!("{error:#}"))
}

fn instance(pre: &InstancePre<Host>, host: impl FnMut(u64) -> Result<u64, Trap> + Send + 'static) -> Instance<Host> {
    pre.instance_with_output(Box::new(host), Box::new(std::io::sink())).expect("room for a stack")
}

fn entry(pre: &InstancePre<Host>, name: &str) -> Entry {
    pre.program(name).expect("the object has it")
}

/// Cancels a call of the program once it runs; gives the trap, and the CPU time that its thread still took.
fn cancel(pre: &InstancePre<Host>, name: &str, after: Duration) -> (Trap, Duration) {
    let token = CancelToken::new();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let options = CallOptions::new().cancel(&token);
        let runs = scope.spawn(move || {
            let mut instance = instance(pre, Ok);
            sender.send(Thread::current()).expect("the receiver is alive");
            let trap = instance.call_with(entry(pre, name), &[7], &options).expect_err("it does not end by itself");
            (trap, Thread::current().cpu_time().expect("it lives"))
        });
        let thread = receiver.recv().expect("it begins");
        thread::sleep(after);
        let before = thread.cpu_time().expect("it lives");
        token.cancel();
        let (trap, then) = runs.join().expect("no panic");
        (trap, then.saturating_sub(before))
    })
}

/// Programs that run until they are ended.
const ENDLESS: &[&str] = &[
    "endless",
    "may_goto",
    "recursion",
    "calls_host_often",
    "sorts",
    "walks",
    "walks_as_kernel",
    "loops",
    "prints",
    "prints_map",
    "copies",
    "compares",
];

#[test]
fn a_token_ends_whatever_the_program_does() {
    for config in backends() {
        let pre = pre(&config);
        for name in ENDLESS {
            // Into the middle of what it does, and when it may not have begun; in `auto` before and after it is compiled.
            for after in [0, 1, 30] {
                let (trap, took) = cancel(&pre, name, Duration::from_millis(after));
                let what = format!("{:?}, {:?}, {name} after {after} ms: {trap:#}", config.engine, config.driver);
                assert_eq!(trap.code(), TrapCode::Cancelled, "{what}");
                assert!(trap.location().is_some() || trap.detail() == "before it began", "{what}");
                assert!(took < Duration::from_millis(100), "{what} took {took:?}");
            }
        }
    }
}

#[test]
fn a_cancelled_token_ends_later_calls_until_it_is_reset() {
    for config in backends() {
        let pre = pre(&config);
        let mut instance = instance(&pre, Ok);
        let (fine, endless) = (entry(&pre, "fine"), entry(&pre, "endless"));
        let token = CancelToken::new();
        let options = CallOptions::new().cancel(&token);
        for _ in 0..20 {
            assert_eq!(instance.call_with(fine, &[], &options).unwrap(), 1);
            token.clone().cancel();
            for entry in [fine, endless, fine] {
                let trap = instance.call_with(entry, &[], &options).unwrap_err();
                assert_eq!((trap.code(), trap.detail()), (TrapCode::Cancelled, "before it began"));
            }
            assert!(token.is_cancelled());
            // Others run.
            assert_eq!(instance.call(fine, &[]).unwrap(), 1);
            assert_eq!(instance.call_with(fine, &[], &CallOptions::new().cancel(&CancelToken::new())).unwrap(), 1);
            token.reset();
        }
    }
}

#[test]
fn no_cancellation_is_lost_among_64_threads() {
    const THREADS: usize = 64;
    const TURNS: usize = 4;
    for config in backends() {
        let pre = pre(&config);
        let (token, barrier) = (CancelToken::new(), Barrier::new(THREADS + 1));
        let begun = AtomicUsize::new(0);
        thread::scope(|scope| {
            for index in 0..THREADS {
                let (pre, token, barrier, begun) = (&pre, &token, &barrier, &begun);
                scope.spawn(move || {
                    let mut instance = instance(pre, Ok);
                    let name = ["endless", "calls_host_often", "loops", "recursion"][index % 4];
                    let (options, entry) = (CallOptions::new().cancel(token), entry(pre, name));
                    for _ in 0..TURNS {
                        barrier.wait();
                        begun.fetch_add(1, Ordering::Relaxed);
                        let trap = instance.call_with(entry, &[1], &options).expect_err("it does not end by itself");
                        assert_eq!(trap.code(), TrapCode::Cancelled, "{trap:#}");
                        barrier.wait();
                    }
                });
            }
            for turn in 0..TURNS {
                begun.store(0, Ordering::Relaxed);
                barrier.wait();
                // Some begin when the token is cancelled already.
                while begun.load(Ordering::Relaxed) < turn * THREADS / TURNS {
                    thread::sleep(Duration::from_micros(100));
                }
                token.cancel();
                barrier.wait();
                token.reset();
            }
        });
    }
}

#[test]
fn a_cancellation_hits_no_other_call() {
    for config in backends() {
        let pre = pre(&config);
        let (token, over) = (CancelToken::new(), AtomicBool::new(false));
        let (fine, often) = (entry(&pre, "fine"), entry(&pre, "calls_host"));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    token.cancel();
                    thread::yield_now();
                    token.reset();
                    thread::yield_now();
                }
            });
            let mut instance = instance(&pre, |number| {
                // Long enough for a cancellation to come in between.
                thread::sleep(Duration::from_micros(number));
                Ok(1)
            });
            let with = CallOptions::new().cancel(&token);
            let other = CallOptions::new().cancel(&CancelToken::new()).timeout(Duration::from_secs(600));
            let (mut ran, mut ended) = (0, 0);
            let begun = Instant::now();
            while (ran < 200 || ended < 200) && begun.elapsed() < Duration::from_secs(20) {
                match instance.call_with(often, &[ended % 50], &with) {
                    Ok(_) => ran += 1,
                    Err(trap) => {
                        assert_eq!(trap.code(), TrapCode::Cancelled, "{trap:#}");
                        ended += 1;
                    }
                }
                assert_eq!(instance.call(fine, &[]).unwrap(), 1);
                assert_eq!(instance.call_with(fine, &[], &other).unwrap(), 1);
                assert_eq!(instance.call(often, &[0]).unwrap(), 1);
            }
            over.store(true, Ordering::Relaxed);
            assert!(ended > 0);
        });
    }
}

#[test]
fn a_call_ends_after_the_host_function_that_it_is_cancelled_in() {
    for config in backends() {
        let pre = pre(&config);
        let token = CancelToken::new();
        let own = token.clone();
        let mut instance = instance(&pre, move |_| {
            own.cancel();
            own.reset();
            Ok(1)
        });
        let options = CallOptions::new().cancel(&token);
        let entry = entry(&pre, "calls_host");
        for _ in 0..10 {
            // It was running when the token was cancelled.
            assert_eq!(instance.call_with(entry, &[0], &options).unwrap_err().code(), TrapCode::Cancelled);
        }
        assert_eq!(instance.call(entry, &[0]).unwrap(), 1);
    }
}

#[test]
fn a_token_ends_a_call_inside_a_call() {
    for config in backends() {
        let (outside, inside) = (pre(&config), pre(&config));
        for same in [true, false] {
            let (token, other) = (CancelToken::new(), CancelToken::new());
            let own = if same { token.clone() } else { other.clone() };
            let (begun, wait) = mpsc::channel();
            let (ended, inner_code) = mpsc::channel();
            let endless = entry(&inside, "endless");
            let mut inner = instance(&inside, Ok);
            let mut outer = instance(&outside, move |_| {
                begun.send(()).expect("the receiver is alive");
                let options = CallOptions::new().cancel(&own).timeout(Duration::from_secs(600));
                let trap = inner.call_with(endless, &[], &options).expect_err("it does not end by itself");
                ended.send(trap.code()).expect("the receiver is alive");
                Ok(3)
            });
            let options = CallOptions::new().cancel(&token);
            thread::scope(|scope| {
                let runs = scope.spawn(|| outer.call_with(entry(&outside, "calls_host"), &[0], &options));
                wait.recv().expect("it begins");
                token.cancel();
                if !same {
                    // The inner call is a host function for the outer one.
                    assert!(inner_code.recv_timeout(Duration::from_millis(20)).is_err());
                    other.cancel();
                }
                assert_eq!(inner_code.recv(), Ok(TrapCode::Cancelled));
                assert_eq!(runs.join().expect("no panic").unwrap_err().code(), TrapCode::Cancelled);
            });
        }
    }
}

#[test]
fn limits_of_a_call() {
    for config in backends() {
        let pre = pre(&config);
        let mut instance = instance(&pre, |number| {
            thread::sleep(Duration::from_millis(number));
            Ok(number)
        });
        let (endless, fine, host) = (entry(&pre, "endless"), entry(&pre, "fine"), entry(&pre, "calls_host"));
        let limit = Duration::from_millis(5);
        for _ in 0..20 {
            let (begun, cpu) = (Instant::now(), Thread::current().cpu_time());
            let trap = instance.call_with(endless, &[], &CallOptions::new().timeout(limit)).unwrap_err();
            assert_eq!(trap.to_string(), "time limit reached: 5ms");
            assert!(begun.elapsed() >= limit);

            let options = CallOptions::new().cpu_time(limit).timeout(Duration::from_secs(600));
            let trap = instance.call_with(endless, &[], &options).unwrap_err();
            assert_eq!(trap.to_string(), "time limit reached: 5ms of CPU time");
            assert!(Thread::current().cpu_time() >= cpu.map(|cpu| cpu + limit));
            assert_eq!(instance.call_with(fine, &[], &options).unwrap(), 1);
        }
        // To wait takes no CPU time.
        assert_eq!(instance.call_with(host, &[100], &CallOptions::new().cpu_time(limit)).unwrap(), 100);
        // Long enough for the watchdog to be late on a busy machine.
        let trap = instance.call_with(host, &[300], &CallOptions::new().timeout(limit)).unwrap_err();
        assert_eq!(trap.code(), TrapCode::Timeout);
        assert_eq!(instance.call(fine, &[]).unwrap(), 1);
        let forever = CallOptions::new().timeout(Duration::MAX).cpu_time(Duration::MAX);
        assert_eq!(instance.call_with(fine, &[], &forever).unwrap(), 1);
    }
}

#[test]
fn the_smaller_limit_counts() {
    for config in backends() {
        let long = Duration::from_secs(600);
        let short = Duration::from_millis(5);
        for (engine, call) in [(long, short), (short, long)] {
            let pre = pre(&config.clone().timeout(engine).max_insns(1_000_000_000_000));
            let mut instance = instance(&pre, Ok);
            let endless = entry(&pre, "endless");
            let trap = instance.call_with(endless, &[], &CallOptions::new().timeout(call)).unwrap_err();
            assert_eq!(trap.to_string(), "time limit reached: 5ms");
            for max_insns in [1, 1000, 12_345] {
                let options = CallOptions::new().max_insns(max_insns).timeout(long);
                let trap = instance.call_with(endless, &[], &options).unwrap_err();
                if engine == long {
                    assert_eq!(
                        trap.to_string(),
                        format!("instruction limit reached: the limit is {max_insns} instructions")
                    );
                    assert_eq!(instance.insns_executed(), Some(max_insns));
                }
            }
            assert_eq!(instance.call(entry(&pre, "fine"), &[]).unwrap(), 1);
        }
    }
}

#[test]
fn a_limit_that_nothing_counts_is_refused() {
    for config in backends() {
        let pre = pre(&config);
        let mut instance = instance(&pre, Ok);
        let options = CallOptions::new().max_insns(1000);
        let result = instance.call_with(entry(&pre, "endless"), &[], &options).unwrap_err();
        if config.engine == EngineKind::Interp {
            assert_eq!(result.code(), TrapCode::OutOfInsns);
        } else {
            assert_eq!(result.code(), TrapCode::LimitUnavailable);
            assert!(result.to_string().contains("Config::max_insns"), "{result}");
        }
    }
}

#[test]
fn the_embedders_flag_is_not_cleared() {
    for config in backends() {
        let pre = pre(&config);
        let mut instance = instance(&pre, Ok);
        let host = entry(&pre, "calls_host");
        let options = CallOptions::new().timeout(Duration::from_secs(600)).cancel(&CancelToken::new());
        instance.machine().runtime().interrupt().raise(Reason::Embedder);
        for _ in 0..3 {
            assert_eq!(instance.call_with(host, &[0], &options).unwrap_err().code(), TrapCode::Timeout);
        }
        instance.machine().runtime().interrupt().clear(&[Reason::Embedder]);
        assert_eq!(instance.call_with(host, &[0], &options).unwrap(), 0);
    }
}

/// A log of lines.
struct Lines(mpsc::Sender<String>);

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let _ = self.0.send(record.args().to_string());
    }

    fn flush(&self) {}
}

#[test]
fn the_log_says_why_a_call_does_not_end() {
    let (sender, lines) = mpsc::channel();
    log::set_boxed_logger(Box::new(Lines(sender))).expect("no other test sets one");
    log::set_max_level(log::LevelFilter::Info);
    let pre = pre(&Config::default());
    let start = format!("a call in thread {} has not ended 100 ms after", Thread::current().id());
    let mut instance = instance(&pre, move |_| {
        let line = lines.iter().find(|line| line.starts_with(&start)).expect("it comes");
        assert!(line.contains("it is in a host function"), "{line}");
        Ok(1)
    });
    let options = CallOptions::new().timeout(Duration::from_millis(1));
    let trap = instance.call_with(entry(&pre, "calls_host"), &[0], &options).unwrap_err();
    assert_eq!(trap.code(), TrapCode::Timeout, "{trap:#}");
}

/// A loop around a leaf function, which native code has in place of the call: the call is instruction 2, the leaf 4 to 22.
fn around_a_leaf() -> Object {
    let body = "r0 *= 31\nr0 ^= r6\n".repeat(8);
    let text = format!(
        "r6 = r1\nr0 = 1\nagain: call leaf\ngoto again\nleaf: r2 = *(u64 *)(r6 + 0)\nr2 += 1\n*(u64 *)(r6 + 0) = r2\n{body}exit"
    );
    let insns = asm::parse(&text).expect("it is a program");
    let code: Vec<u8> = insns.iter().flat_map(|insn| insn.encode().to_bytes(Endian::Little)).collect();
    Object::from_code("leaf.bpf.o", &code, Endian::Little).expect("an object")
}

/// The instruction, and the call around it.
#[test]
fn a_limit_that_ends_in_an_inlined_function_names_its_call() {
    const CALL: usize = 2;
    const LEAF: Range<usize> = 4..24;
    for config in backends().into_iter().flat_map(|config| [config.clone(), config.max_insns(u64::MAX / 2)]) {
        let counted = config.max_insns.is_some();
        let what = format!("{:?}, {:?}, counted: {counted}", config.engine, config.driver);
        #[cfg(feature = "jit")]
        let is_listed = config.engine == EngineKind::Jit && !counted;
        let pre = Linker::<()>::new(&Engine::new(config).expect("address space")).instantiate_pre(&around_a_leaf());
        let pre = pre.unwrap_or_else(|error| panic!("{error:#}"));
        let entry = pre.program(pre.programs().next().expect("one")).expect("it has it");
        #[cfg(feature = "jit")]
        if is_listed {
            let (_, listing) = pre.listing(entry).expect("native code").swap_remove(0);
            let mut code = listing.text.lines().filter(|line| !line.starts_with(';'));
            assert!(!code.any(|line| line.contains("call")), "{}", listing.text);
        }
        let mut instance = pre.instance(()).expect("room for a stack");
        let counter = instance.context(&[0; 8]).expect("room");
        let mut inside = 0;
        for round in 1..=20 {
            let options = CallOptions::new().timeout(Duration::from_millis(round % 4 + 1));
            let trap = instance.call_with(entry, &[counter.addr()], &options).expect_err("it does not end by itself");
            assert_eq!(trap.code(), TrapCode::Timeout, "{what}: {trap:#}");
            let Some(location) = trap.location() else { continue };
            let calls: Vec<usize> = trap.backtrace().sites.iter().map(|site| site.location.pc).collect();
            let is_inside = LEAF.contains(&location.pc);
            assert_eq!(calls, if is_inside { &[CALL][..] } else { &[] }, "{what}: {trap:#}");
            inside += u32::from(is_inside);
        }
        assert!(inside > 0, "{what}");
    }
}

/// Figures, of as many threads as there are cores: from `cancel` to the return of the call, the CPU time of its thread and
/// the wall-clock time. `TWINBPF_CANCELS` of them, 10,000 without.
#[test]
#[ignore = "measures; takes a minute"]
fn latency() {
    let times = std::env::var("TWINBPF_CANCELS").map_or(10_000, |times| times.parse().expect("a number"));
    for config in backends() {
        let pre = pre(&config);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut figures: Vec<(Duration, Duration)> = Vec::with_capacity(times);
        thread::scope(|scope| {
            let runners: Vec<_> = (0..cores)
                .map(|_| {
                    let token = CancelToken::new();
                    let (sender, receiver) = mpsc::channel();
                    let (again, wait) = mpsc::channel::<()>();
                    let (pre, options) = (&pre, CallOptions::new().cancel(&token));
                    scope.spawn(move || {
                        let (mut instance, thread) = (instance(pre, Ok), Thread::current());
                        while wait.recv().is_ok() {
                            let trap = instance.call_with(entry(pre, "endless"), &[], &options);
                            let then = (Instant::now(), thread.cpu_time().expect("it lives"));
                            let before_it_began = trap.is_err_and(|trap| trap.location().is_none());
                            let _ = sender.send((thread, then, before_it_began));
                        }
                    });
                    again.send(()).expect("it listens");
                    (token, receiver, again, None)
                })
                .collect();
            let mut runners: Vec<(_, mpsc::Receiver<_>, _, Option<Thread>)> = runners;
            for turn in 0.. {
                if figures.len() >= times {
                    break;
                }
                let (token, receiver, again, known) = &mut runners[turn % cores];
                thread::sleep(Duration::from_micros(200 + turn as u64 % 100));
                let before = (Instant::now(), known.and_then(Thread::cpu_time));
                token.cancel();
                let (thread, then, before_it_began): (Thread, (Instant, Duration), bool) =
                    receiver.recv().expect("it returns");
                if let (Some(cpu), false) = (before.1, before_it_began) {
                    figures.push((then.1.saturating_sub(cpu), then.0 - before.0));
                }
                *known = Some(thread);
                token.reset();
                again.send(()).expect("it listens");
            }
            runners.iter().for_each(|(token, ..)| token.cancel());
        });
        let percentiles = |mut all: Vec<Duration>| {
            all.sort();
            [50, 99, 100].map(|part| all[(all.len() * part / 100).min(all.len() - 1)])
        };
        let cpu = percentiles(figures.iter().map(|figure| figure.0).collect());
        let wall = percentiles(figures.iter().map(|figure| figure.1).collect());
        println!(
            "{:?}, {:?}, {} cancellations, {cores} running threads: 50 %, 99 % and all within {cpu:?} of CPU time, {wall:?}",
            config.engine,
            config.driver,
            figures.len()
        );
    }
}
