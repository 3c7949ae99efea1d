//! Hosts that the system gives little: an address space of 64 MiB to 16 GiB, no further thread, threads with stacks of
//! 64 KiB, no privileges. What they do ends in a result, or in an error that says which limit it is and how much is
//! needed. Each host is a child process, this test binary started again.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![expect(unsafe_code, reason = "limits a process")]

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use twinbpf::{CallOptions, CancelToken, Config, Engine, EngineKind, Instance, InstancePre, Linker, Object, TrapCode};

const ROLE: &str = "TWINBPF_TEST_STARVED";
/// What a host prints when it begins, and when it has ended without a panic.
const BEGUN: &str = "host: begun";
const ENDED: &str = "host: ended";

/// MiB of addresses. An engine takes a little more than 4 GiB, its native code a GiB in two views.
const SIZES: [u64; 12] = [64, 128, 256, 1024, 4096, 4400, 5000, 6000, 7000, 8192, 12_288, 16_384];

fn set_limit(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` lives across the call.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0, "{}", std::io::Error::last_os_error());
}

/// Root may start as many threads as it likes.
fn drop_privileges() {
    // SAFETY: changes the ids of this process, in all of its threads.
    let dropped = unsafe {
        libc::getuid() != 0
            || libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(65_534) == 0 && libc::setuid(65_534) == 0
    };
    assert!(dropped, "{}", std::io::Error::last_os_error());
}

/// An error names the limit and an amount.
fn reports(what: &str, error: &dyn std::fmt::Display, limit: &str) {
    let text = error.to_string();
    println!("{what}: {text}");
    assert!(text.contains(limit) && text.contains(|letter: char| letter.is_ascii_digit()), "{what}: {text}");
}

fn pre(kind: EngineKind, timeout: Option<Duration>) -> Option<InstancePre<()>> {
    let config = Config::new().engine(kind).timeout(timeout).memory_limit(256 << 20);
    let engine = match Engine::new(config) {
        Ok(engine) => engine,
        Err(error) => {
            reports("engine", &error, "RLIMIT_AS");
            return None;
        }
    };
    let object = Object::open("endure.bpf.o", include_bytes!("../corpus/embed/endure.bpf.o")).expect("an object");
    let mut linker = Linker::new(&engine);
    linker.func("give_up", || -> u64 { panic!("a host function that gives up") });
    match linker.instantiate_pre(&object) {
        Ok(pre) => Some(pre),
        Err(error) => {
            reports("instantiate", &error, "RLIMIT_AS");
            None
        }
    }
}

fn instance(pre: &InstancePre<()>) -> Option<Instance<()>> {
    match pre.instance(()) {
        Ok(instance) => Some(instance),
        Err(error) => {
            reports("instance", &error, "RLIMIT_AS");
            None
        }
    }
}

/// When the system refuses every thread.
fn without_threads(pre: &InstancePre<()>, timed: Option<&InstancePre<()>>) {
    let Some(mut instance) = instance(pre) else { return };
    let [fine, endless, deep] = ["fine", "endless", "deep"].map(|name| pre.program(name).expect("the object has it"));
    let limit = Duration::from_millis(5);
    for _ in 0..3 {
        match instance.call(fine, &[]) {
            Ok(answer) => assert_eq!(answer, 1),
            Err(trap) => return reports("call", &trap, "RLIMIT_AS"),
        }
        assert!(instance.call(deep, &[]).is_err());
        let token = CancelToken::new();
        for options in
            [CallOptions::new().timeout(limit), CallOptions::new().cpu_time(limit), CallOptions::new().cancel(&token)]
        {
            let trap = instance.call_with(endless, &[], &options).unwrap_err();
            if trap.code() == TrapCode::StackOverflow {
                return reports("call_with", &trap, "RLIMIT_AS");
            }
            assert_eq!(trap.code(), TrapCode::LimitUnavailable, "{trap:#}");
            reports("call_with", &trap, "RLIMIT_NPROC");
        }
        token.cancel();
        let trap = instance.call_with(fine, &[], &CallOptions::new().cancel(&token)).unwrap_err();
        assert_eq!(trap.code(), TrapCode::Cancelled, "{trap:#}");
    }
    let Some(timed) = timed else { return };
    let Some(mut limited) = crate::instance(timed) else { return };
    let trap = limited.call(timed.program("endless").expect("the object has it"), &[]).unwrap_err();
    reports("call", &trap, "RLIMIT_NPROC");
}

/// Later, when the system allows threads again.
fn with_threads(pre: &InstancePre<()>, canceller: &mpsc::Sender<CancelToken>) {
    let Some(mut instance) = instance(pre) else { return };
    let endless = pre.program("endless").expect("the object has it");
    let ended = |code: TrapCode, trap: twinbpf::Trap| match trap.code() {
        // There may be no memory for the thread's stack.
        TrapCode::LimitUnavailable => reports("later call", &trap, "KiB more memory"),
        // Nor for a native stack.
        TrapCode::StackOverflow => reports("later call", &trap, "RLIMIT_AS"),
        other => {
            println!("later call: {trap}");
            assert_eq!(other, code, "{trap:#}");
        }
    };
    for _ in 0..3 {
        let options = CallOptions::new().timeout(Duration::from_millis(5));
        ended(TrapCode::Timeout, instance.call_with(endless, &[], &options).unwrap_err());
        let token = CancelToken::new();
        let options = CallOptions::new().cancel(&token).timeout(Duration::from_secs(20));
        canceller.send(token.clone()).expect("it listens");
        ended(TrapCode::Cancelled, instance.call_with(endless, &[], &options).unwrap_err());
    }
}

fn host(kind: EngineKind) {
    println!("{BEGUN}");
    let (start, wait) = mpsc::channel::<()>();
    let (canceller, tokens) = mpsc::channel::<CancelToken>();
    let small = || thread::Builder::new().stack_size(64 << 10);
    // Both begin while there is memory: the standard library aborts a process whose new thread finds none for its signal
    // stack.
    let cancelling = small().spawn(move || {
        for token in tokens {
            thread::sleep(Duration::from_millis(5));
            token.cancel();
        }
    });
    let small = small().spawn(move || {
        wait.recv().expect("it starts");
        let Some(pre) = pre(kind, None) else { return };
        without_threads(&pre, crate::pre(kind, Some(Duration::from_millis(5))).as_ref());
        set_limit(libc::RLIMIT_NPROC, 4096, 4096);
        with_threads(&pre, &canceller);
    });
    let (Ok(small), Ok(cancelling)) = (small, cancelling) else {
        println!("no thread for the host itself\n{ENDED}");
        return;
    };
    set_limit(libc::RLIMIT_NPROC, 1, 4096);
    drop_privileges();
    start.send(()).expect("it listens");
    small.join().expect("no panic");
    cancelling.join().expect("no panic");
    println!("{ENDED}");
}

fn check(test: &str, kind: EngineKind) {
    if std::env::var(ROLE).is_ok() {
        return host(kind);
    }
    for size in SIZES {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "120"]).arg(std::env::current_exe().expect("a path"));
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, "host");
        // SAFETY: the closure makes a system call and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit { rlim_cur: size << 20, rlim_max: size << 20 };
                libc::setrlimit(libc::RLIMIT_AS, &raw const limit);
                Ok(())
            })
        };
        let output = command.output().expect("it starts");
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        let how = format!("{kind:?} in {size} MiB: {} (signal {:?})\n{text}", output.status, output.status.signal());
        println!("{how}");
        // The system may have no room for the host itself.
        if size > 128 || text.contains(BEGUN) {
            assert!(output.status.success() && text.contains(ENDED), "{how}");
        }
    }
}

#[test]
fn hosts_that_interpret() {
    check("hosts_that_interpret", EngineKind::Interp);
}

#[test]
fn hosts_that_compile_what_is_hot() {
    check("hosts_that_compile_what_is_hot", EngineKind::Auto);
}

#[test]
#[cfg(feature = "jit")]
fn hosts_that_compile() {
    check("hosts_that_compile", EngineKind::Jit);
}
