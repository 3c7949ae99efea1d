//! Programs that go wrong, a thousand times in a row in one process, and the process continues to work.

#[path = "support/blocked.rs"]
mod blocked;

use std::time::{Duration, Instant};

use twinbpf::{Config, Engine, EngineKind, Entry, Instance, InstancePre, Linker, Object, TrapCode};

const TIMES: usize = 1000;

/// Engines that run native code from the first call, or at some time.
fn engines() -> &'static [EngineKind] {
    match EngineKind::Jit.is_available() {
        true => &[EngineKind::Auto, EngineKind::Jit],
        false => &[EngineKind::Auto],
    }
}

fn pre(config: Config) -> InstancePre<()> {
    let object = Object::open("endure.bpf.o", include_bytes!("../corpus/embed/endure.bpf.o")).expect("an object");
    let mut linker = Linker::new(&Engine::new(config).expect("address space"));
    linker.func("give_up", || -> u64 { panic!("a host function that gives up") });
    linker.instantiate_pre(&object).unwrap_or_else(|error| panic!("{error:#}"))
}

fn entry(pre: &InstancePre<()>, name: &str) -> Entry {
    pre.program(name).expect("the object has it")
}

/// It works. Only a machine that stalls for as long as the limit may have it end early, and not every time;
/// gives how often it did.
fn check_fine(instance: &mut Instance<()>, fine: Entry, limit: Option<Duration>) -> u64 {
    for early in 0..100 {
        let begun = Instant::now();
        match instance.call(fine, &[]) {
            Ok(answer) => {
                assert_eq!(answer, 1);
                return early;
            }
            Err(trap) => {
                let stalled = limit.is_some_and(|limit| begun.elapsed() >= limit);
                assert!(stalled && trap.code() == TrapCode::Timeout, "{trap:#}");
            }
        }
    }
    panic!("it ends early every time");
}

/// Calls a program with each of the arguments in turn; the trap is the same every time.
fn endure(config: &Config, name: &str, args: &[u64], code: TrapCode) {
    for kind in engines() {
        let pre = pre(config.clone().engine(*kind));
        let (fine, bad) = (entry(&pre, "fine"), entry(&pre, name));
        let mut instance = pre.instance(()).expect("room for a stack");
        let (mut words, mut early) = (vec![None; args.len()], 0);
        for turn in 0..TIMES {
            let which = turn % args.len();
            let trap = instance.call(bad, &[args[which]]).expect_err("it goes wrong");
            assert_eq!(trap.code(), code, "{kind:?}, {name}, turn {turn}: {trap:#}");
            assert_eq!(trap.location().map(|location| &*location.program), Some(name), "{trap:#}");
            // The interpreter reports a wild pointer as the program has it, native code as the sandbox has it.
            if *kind != EngineKind::Auto && code != TrapCode::Timeout {
                let words = words[which].get_or_insert_with(|| format!("{trap:#}"));
                assert_eq!(*words, format!("{trap:#}"), "{kind:?}, {name}, turn {turn}");
            }
            early += check_fine(&mut instance, fine, config.timeout);
        }
        let calls = pre.global::<u64>("calls").expect("the object has it").get();
        assert!((TIMES as u64..=TIMES as u64 + early).contains(&calls), "{calls} calls, {early} that ended early");
    }
}

#[test]
fn wild_pointers() {
    let wild = [0, 8, 0xffff, 0x7fff_0000, 0xffff_fff0, u64::MAX - 7, 1 << 63];
    endure(&Config::new(), "wild", &wild, TrapCode::OutOfBounds);
}

#[test]
fn calls_of_what_is_no_function() {
    endure(&Config::new(), "bad_call", &[0, 1, 0xdead_beef, u64::MAX, 1 << 63], TrapCode::BadCall);
}

#[test]
fn endless_loops() {
    let config = Config::new().timeout(Duration::from_millis(1));
    endure(&config, "endless", &[0], TrapCode::Timeout);
}

#[test]
fn endless_recursion() {
    endure(&Config::new(), "deep", &[0], TrapCode::CallDepth);
}

#[test]
fn panics_of_the_host() {
    // Suppresses the messages of the expected panics.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some("a host function that gives up") {
            before(panic);
        }
    }));
    endure(&Config::new(), "panics", &[0], TrapCode::Panic);
}

blocked::with_every_signal_blocked!();
