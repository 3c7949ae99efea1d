//! Hosts that block signals: faults and time limits end a run as they do elsewhere, and the host's mask is what it was.
//! Each host is a child process, this test binary started again, since a failure kills it.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "signals/host.rs"]
mod host;

use host::{Host, child, child_of, role};
use twinbpf::{EngineKind, TrapCode};

/// What executes programs, and whether it trusts them.
const BACKENDS: [(&str, EngineKind, bool); 6] = [
    ("interp", EngineKind::Interp, false),
    ("auto", EngineKind::Auto, false),
    ("jit", EngineKind::Jit, false),
    ("interp-trusted", EngineKind::Interp, true),
    ("auto-trusted", EngineKind::Auto, true),
    ("jit-trusted", EngineKind::Jit, true),
];

/// A host that `role` names.
fn backend(role: &str) -> Host {
    let (_, kind, trusted) = BACKENDS.into_iter().find(|(name, ..)| *name == role).expect("one of the backends");
    Host::new(kind, trusted)
}

/// Runs the test of this name in a child for each backend.
fn for_each_backend(test: &str) {
    for (name, ..) in BACKENDS.into_iter().filter(|(_, kind, _)| kind.is_available()) {
        child(test, name).succeeds();
    }
}

/// Programs that fault, that run too long and that do neither, in turn.
fn faults_and_timeouts(host: &Host) {
    let mut instance = host.instance();
    for _ in 0..3 {
        let mask = host::mask();
        assert_eq!(host.call(&mut instance, "fine", 0), Ok(1));
        assert_eq!(host::mask(), mask, "after a run that returned");
        assert_eq!(host.call(&mut instance, "wild", host::NOWHERE), Err(TrapCode::OutOfBounds));
        assert_eq!(host::mask(), mask, "after a fault");
        assert_eq!(host.call(&mut instance, "endless", 0), Err(TrapCode::Timeout));
        assert_eq!(host::mask(), mask, "after a time limit");
        assert_eq!(host.call(&mut instance, "panics", 0), Err(TrapCode::Panic));
        assert_eq!(host::mask(), mask, "after a panic of a host function");
    }
}

#[test]
fn signals_blocked_before_the_first_run() {
    if let Some(role) = role() {
        let host = backend(&role);
        host::block_all();
        faults_and_timeouts(&host);
        std::thread::scope(|scope| scope.spawn(|| faults_and_timeouts(&host)).join()).expect("the thread ends");
        return;
    }
    for_each_backend("signals_blocked_before_the_first_run");
}

#[test]
fn signals_blocked_by_inheritance_through_exec() {
    if let Some(role) = role() {
        assert!(host::blocked(libc::SIGSEGV) && host::blocked(libc::SIGURG), "inherited");
        faults_and_timeouts(&backend(&role));
        return;
    }
    for (name, ..) in BACKENDS.into_iter().filter(|(_, kind, _)| kind.is_available()) {
        child_of("env", &["--block-signal"], "signals_blocked_by_inheritance_through_exec", name).succeeds();
    }
}
