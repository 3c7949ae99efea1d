//! A host in a child process, and what it does to its signals.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::Duration;

use twinbpf::{Config, Engine, EngineKind, Instance, InstancePre, Linker, Object, TrapCode};

const VARIABLE: &str = "TWINBPF_TEST_HOST";

/// Where neither an arena nor a process has memory.
pub(crate) const NOWHERE: u64 = 0x7fff_f000_0000_0000;

/// What this process is, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

/// A child that has ended.
pub(crate) struct Ended {
    what: String,
    output: Output,
}

/// Runs one test of this binary in a child process that finds `role`.
pub(crate) fn child(test: &str, role: &str) -> Ended {
    let this = std::env::current_exe().expect("a path");
    run(Command::new(this), test, role)
}

/// The same, started by another program.
pub(crate) fn child_of(program: &str, args: &[&str], test: &str, role: &str) -> Ended {
    let mut command = Command::new(program);
    command.args(args).arg(std::env::current_exe().expect("a path"));
    run(command, test, role)
}

fn run(mut command: Command, test: &str, role: &str) -> Ended {
    // A child whose time limit has no effect would never end.
    let mut limited = Command::new("timeout");
    limited.args(["--signal=KILL", "60"]).arg(command.get_program()).args(command.get_args());
    command = limited;
    let output = command.args([test, "--exact", "--nocapture"]).env(VARIABLE, role).output().expect("it starts");
    Ended { what: format!("{test}, {role}"), output }
}

impl Ended {
    pub(crate) fn text(&self) -> String {
        [&self.output.stdout, &self.output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
    }

    pub(crate) fn succeeds(&self) {
        let status = self.output.status;
        let how = format!("{status} (signal {:?})", status.signal());
        assert!(status.success(), "{}: {how}\n{}", self.what, self.text());
        assert!(self.text().contains("1 passed"), "{}: no such test\n{}", self.what, self.text());
    }
}

/// An engine with the programs of `endure.bpf.c`.
pub(crate) struct Host {
    pre: InstancePre<()>,
}

impl Host {
    pub(crate) fn new(kind: EngineKind, trusted: bool) -> Host {
        let config = Config::new().engine(kind).timeout(Duration::from_millis(20)).memory_limit(1 << 25);
        let engine = match trusted {
            // SAFETY: the programs access their own memory, and addresses where nothing is.
            true => unsafe { Engine::new_trusted(config) },
            false => Engine::new(config),
        };
        let object =
            Object::open("endure.bpf.o", include_bytes!("../../corpus/embed/endure.bpf.o")).expect("an object");
        let mut linker = Linker::new(&engine.expect("address space"));
        linker.func("give_up", || -> u64 { std::panic::resume_unwind(Box::new("gives up")) });
        Host { pre: linker.instantiate_pre(&object).unwrap_or_else(|error| panic!("{error:#}")) }
    }

    pub(crate) fn instance(&self) -> Instance<()> {
        self.pre.instance(()).expect("room for a stack")
    }

    pub(crate) fn call(&self, instance: &mut Instance<()>, program: &str, arg: u64) -> Result<u64, TrapCode> {
        let entry = self.pre.program(program).expect("the object has it");
        instance.call(entry, &[arg]).map_err(|trap| trap.code())
    }
}

/// Signals that the calling thread blocks.
pub(crate) fn mask() -> Vec<i32> {
    (1..65).filter(|signal| blocked(*signal)).collect()
}

/// Whether the calling thread blocks a signal.
pub(crate) fn blocked(signal: i32) -> bool {
    // SAFETY: only writes the set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        libc::sigismember(&raw const set, signal) == 1
    }
}

/// Blocks all signals in the calling thread.
pub(crate) fn block_all() {
    // SAFETY: a full set, which the call only reads.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}
