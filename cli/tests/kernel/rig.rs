//! Workloads, what bpftrace reports of them, and commands without privilege.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::{TempDir, tempdir};

use crate::common::{corpus, installed, skip, twinbpf};

/// Whether programs can be loaded here; says so where not.
pub(crate) fn kernel() -> bool {
    let args = ["run", "--mode", "kernel", "scripts/syscall_counts.bpf.o", "--", "true"];
    let output = twinbpf().current_dir(corpus()).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return true;
    }
    // SAFETY: no arguments, and it always succeeds.
    assert_ne!(unsafe { libc::geteuid() }, 0, "root could not load a program: {text}");
    skip(&format!("no right to load programs: {text}"));
    false
}

/// The same, and whether these commands are installed.
pub(crate) fn kernel_and(commands: &[&str]) -> bool {
    let missing = commands.iter().find(|name| !installed(name));
    if let Some(missing) = missing {
        skip(&format!("{missing} is not installed"));
    }
    missing.is_none() && kernel()
}

/// How often something is killed: as `TWINBPF_KILLS` has it.
pub(crate) fn kills(otherwise: u32) -> u32 {
    std::env::var("TWINBPF_KILLS").ok().and_then(|times| times.parse().ok()).unwrap_or(otherwise)
}

/// Compiles C into a program without a library, so that every system call it makes is in its source.
pub(crate) fn bare(folder: &Path, name: &str, source: &str) -> PathBuf {
    compile(folder, name, source, &["-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-O1"])
}

/// Compiles an ordinary C program.
pub(crate) fn program(folder: &Path, name: &str, source: &str) -> PathBuf {
    compile(folder, name, source, &["-O1", "-g"])
}

fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (from, to) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&from, source).unwrap();
    let output = Command::new("cc").args(flags).arg("-o").arg(&to).arg(&from).output().expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    to
}

/// A script of the shell as a file. bpftrace splits its workload at spaces, and wants the path of a program.
pub(crate) fn script(folder: &Path, name: &str, text: &str) -> [String; 2] {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    ["/bin/bash".to_owned(), path.display().to_string()]
}

/// Runs a tool of the corpus with a workload.
pub(crate) fn tool(name: &str, options: &[&str], workload: &[&str]) -> Output {
    let mut command = twinbpf();
    command.current_dir(corpus()).arg("run").arg(format!("scripts/{name}.bpf.o")).args(options);
    if !workload.is_empty() {
        command.arg("--").args(workload);
    }
    command.output().unwrap()
}

/// What a tool printed; it must have ended well.
pub(crate) fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What bpftrace prints of a workload, if it is there.
pub(crate) fn bpftrace(program: &str, workload: &str) -> Option<String> {
    if !installed("bpftrace") {
        skip("bpftrace is not installed, so that there is nothing to compare with");
        return None;
    }
    // It reads tracepoints from debugfs, which is mounted for it alone where it is not.
    let script = "[ -d /sys/kernel/debug/tracing ] || mount -t debugfs none /sys/kernel/debug; \
        exec bpftrace -e \"$1\" -c \"$2\"";
    let args = ["--mount", "sh", "-c", script, "sh", program, workload];
    let output = Command::new("unshare").args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A pair of interfaces, each in a network namespace of its own, that are gone in the end.
pub(crate) struct Pair {
    pub(crate) name: String,
}

impl Pair {
    /// With the addresses 10.231.NET.1 here and 10.231.NET.2 there.
    pub(crate) fn new(net: u8) -> Option<Pair> {
        let pair = Pair { name: format!("tw{net}{}", std::process::id() % 100_000) };
        let name = &pair.name;
        let made = ip(&format!("netns add {name}")) && ip(&format!("link add {name}a type veth peer name {name}b"));
        let made = made
            && ip(&format!("link set {name}b netns {name}"))
            && ip(&format!("addr add 10.231.{net}.1/30 dev {name}a"))
            && ip(&format!("link set {name}a up"))
            && ip(&format!("-n {name} addr add 10.231.{net}.2/30 dev {name}b"))
            && ip(&format!("-n {name} link set {name}b up"));
        made.then_some(pair)
    }
}

pub(crate) fn ip(args: &str) -> bool {
    Command::new("ip").args(args.split(' ')).output().is_ok_and(|output| output.status.success())
}

impl Drop for Pair {
    fn drop(&mut self) {
        ip(&format!("link del {}a", self.name));
        ip(&format!("netns del {}", self.name));
    }
}

/// The words of the line that begins with this one.
pub(crate) fn words<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.into_iter().find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("no {first} in\n{text}"))
}

/// The command and an object in a folder that every user may read.
pub(crate) fn public(object: &str) -> TempDir {
    let folder = tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let put = |from: &Path, name: &str| fs::copy(from, folder.path().join(name)).unwrap();
    put(Path::new(env!("CARGO_BIN_EXE_twinbpf")), "twinbpf");
    put(&corpus().join(object), "tool.bpf.o");
    folder
}

/// What runs a program in a folder without any privilege; `None`, with a message, where that is not possible.
pub(crate) fn unprivileged(folder: &Path) -> Option<Command> {
    // SAFETY: no arguments, and it always succeeds.
    if !installed("setpriv") || unsafe { libc::geteuid() } != 0 {
        skip("setpriv is not installed, or this is not root, which may change its user");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).current_dir(folder);
    Some(command)
}

/// The command without any privilege, as [`unprivileged`].
pub(crate) fn as_unprivileged(folder: &Path, args: &[&str]) -> Option<Output> {
    Some(unprivileged(folder)?.arg("./twinbpf").args(args).output().unwrap())
}
