//! A child process after `fork`: calls end there as they do in the parent, whose threads it does not have, whatever locks
//! these held.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![expect(unsafe_code, reason = "forks")]

use std::io::sink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use twinbpf::{CallOptions, CancelToken, Config, Engine, EngineKind, Entry, Instance, InstancePre};
use twinbpf::{Linker, Object, TrapCode};

const KINDS: &[EngineKind] = match EngineKind::Jit.is_available() {
    true => &[EngineKind::Interp, EngineKind::Auto, EngineKind::Jit],
    false => &[EngineKind::Interp, EngineKind::Auto],
};

fn pre(kind: EngineKind, host: impl Fn() -> u64 + Send + Sync + 'static) -> InstancePre<()> {
    let object = Object::open("cancel.bpf.o", include_bytes!("../corpus/embed/cancel.bpf.o")).expect("an object");
    let mut linker = Linker::new(&Engine::new(Config::new().engine(kind)).expect("address space"));
    linker.func("host", move |_: u64| host());
    linker.instantiate_pre(&object).unwrap_or_else(|error| panic!("{error:#}"))
}

fn instance(pre: &InstancePre<()>) -> Instance<()> {
    pre.instance_with_output((), Box::new(sink())).expect("room for a stack")
}

fn entry(pre: &InstancePre<()>, name: &str) -> Entry {
    pre.program(name).expect("the object has it")
}

/// Every kind of limit ends a call.
fn limits_hold(pre: &InstancePre<()>) {
    let mut instance = instance(pre);
    let (endless, limit) = (entry(pre, "endless"), Duration::from_millis(3));
    for options in [CallOptions::new().timeout(limit), CallOptions::new().cpu_time(limit)] {
        let trap = instance.call_with(endless, &[], &options).expect_err("it does not end by itself");
        assert_eq!(trap.code(), TrapCode::Timeout, "{trap:#}");
    }
    let token = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(limit);
            token.cancel();
        });
        let trap = instance.call_with(endless, &[], &CallOptions::new().cancel(&token)).unwrap_err();
        assert_eq!(trap.code(), TrapCode::Cancelled, "{trap:#}");
    });
    assert_eq!(instance.call_with(entry(pre, "fine"), &[], &CallOptions::new().timeout(limit * 1000)).unwrap(), 1);
}

/// Ends this process, which is a child, with what became of the work.
fn end(work: impl FnOnce()) -> ! {
    let result = catch_unwind(AssertUnwindSafe(work));
    // SAFETY: ends the process; nothing of the parent's is run.
    unsafe { libc::_exit(i32::from(result.is_err())) }
}

fn fork() -> libc::pid_t {
    // SAFETY: the child runs code that allocates and starts threads, for which the C library prepares it.
    unsafe { libc::fork() }
}

/// Waits for a child; one that has not ended after a minute never will.
fn succeeds(child: libc::pid_t, what: &str) {
    let begun = Instant::now();
    let mut status = 0;
    // SAFETY: `status` lives across the call.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > Duration::from_secs(60) {
            // SAFETY: it is our child, which has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(1));
    }
    let how = (libc::WIFEXITED(status), libc::WEXITSTATUS(status));
    assert_eq!(how, (true, 0), "{what}: status {status:#x} after {:?}", begun.elapsed());
}

#[test]
fn a_child_has_limits_of_its_own() {
    for &kind in KINDS {
        let pre = pre(kind, || 1);
        limits_hold(&pre);
        let (over, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            // Holds the lock of what is armed most of the time.
            scope.spawn(|| {
                let mut instance = instance(&pre);
                let options = CallOptions::new().timeout(Duration::from_secs(600));
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(instance.call_with(entry(&pre, "fine"), &[], &options).unwrap(), 1);
                    begun.store(true, Ordering::Relaxed);
                }
            });
            while !begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            for turn in 0..10 {
                let child = fork();
                if child == 0 {
                    end(|| limits_hold(&pre));
                }
                succeeds(child, &format!("{kind:?}, child {turn}"));
            }
            over.store(true, Ordering::Relaxed);
        });
        limits_hold(&pre);
    }
}

#[test]
fn a_host_function_forks() {
    for &kind in KINDS {
        let pre = pre(kind, || fork() as u64);
        let mut instance = instance(&pre);
        let options = CallOptions::new().timeout(Duration::from_secs(600)).cancel(&CancelToken::new());
        let child = instance.call_with(entry(&pre, "calls_host"), &[0], &options).unwrap();
        if child as u32 == 0 {
            end(|| limits_hold(&pre));
        }
        succeeds(child as libc::pid_t, &format!("{kind:?}"));
        limits_hold(&pre);
    }
}

#[cfg(feature = "jit")]
#[test]
fn a_child_compiles_what_is_hot() {
    // The parent's compiler may be at work on it.
    let pre = pre(EngineKind::Auto, || 1);
    let mut instance = instance(&pre);
    let run = |instance: &mut Instance<()>| {
        let options = CallOptions::new().timeout(Duration::from_millis(20));
        instance.call_with(entry(&pre, "recursion"), &[], &options).expect_err("it does not end by itself");
        // Without native code the interpreter counts all of them.
        instance.insns_executed().is_none()
    };
    run(&mut instance);
    let child = fork();
    if child == 0 {
        end(|| {
            let begun = Instant::now();
            while !run(&mut instance) {
                assert!(begun.elapsed() < Duration::from_secs(50), "nothing compiles");
            }
        });
    }
    succeeds(child, "auto");
}
