//! What perf and gdb see of programs that run as native code.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{corpus, harness, skip, twinbpf};

const PACKET: &str = "02000000000102000000000208004500001e00014000401126cc0a0000010a00000203e80035000a7f516869";

fn exec_args(args: &[&str]) -> Vec<String> {
    let object = format!("{}:parse", corpus().join("packets/xdp_parse.bpf.o").display());
    let all = ["exec", "--engine", "jit", "--packet", PACKET, &object];
    all.iter().chain(args).map(|arg| arg.to_string()).collect()
}

/// Runs it, and gives its process id.
fn exec(args: &[&str], folder: &Path) -> u32 {
    let mut command = twinbpf();
    let child = command.args(exec_args(args)).env("JITDUMPDIR", folder).stdout(Stdio::null()).spawn().unwrap();
    let id = child.id();
    assert!(child.wait_with_output().unwrap().status.success());
    id
}

/// The perf map of a process that is over.
fn take_map(process: u32) -> String {
    let path = format!("/tmp/perf-{process}.map");
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(path).unwrap();
    text
}

fn perf_finds_programs_in_its_map() {
    let folder = tempfile::tempdir().unwrap();
    let text = take_map(exec(&["--perf", "map"], folder.path()));
    assert!(text.lines().any(|line| line.ends_with(" bpf_prog_parse")), "{text}");
    let mut command = twinbpf();
    let child = command.args(exec_args(&[])).env("TWINBPF_PERF", "map").stdout(Stdio::null()).spawn().unwrap();
    let id = child.id();
    assert!(child.wait_with_output().unwrap().status.success());
    assert!(take_map(id).contains(" bpf_prog_parse\n"));
}

fn perf_finds_programs_and_lines_in_the_dump() {
    let folder = tempfile::tempdir().unwrap();
    let process = exec(&["--perf", "jitdump"], folder.path());
    let dump = fs::read(folder.path().join(format!("jit-{process}.dump"))).unwrap();
    let has = |word: &[u8]| dump.windows(word.len()).any(|bytes| bytes == word);
    assert!(has(b"\0bpf_prog_parse\0") && has(b"xdp_parse.bpf.c\0"));
}

fn a_file_for_perf_that_cannot_be_written_is_an_error() {
    let mut command = twinbpf();
    let output = command.args(exec_args(&["--perf", "jitdump"])).env("JITDUMPDIR", "/nowhere").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        text.contains("cannot write /nowhere/jit-") && text.contains("which perf is to read: No such file"),
        "{text}"
    );
}

fn gdb_stops_in_a_program_by_its_name() {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", "set breakpoint pending on", "-ex", "break bpf_prog_parse"]);
    gdb.args(["-ex", "run", "-ex", "backtrace", "-ex", "kill", "--args"]);
    gdb.arg(twinbpf().get_program()).args(exec_args(&["--gdb"]));
    let Ok(output) = gdb.output() else {
        return skip("gdb is not installed");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("ptrace: Operation not permitted") || text.contains("Cannot PTRACE_GETREGS") {
        return skip("gdb may not trace");
    }
    let frame = text.lines().find(|line| line.starts_with("#0")).unwrap_or_else(|| panic!("no frame in {text}"));
    assert!(frame.contains("bpf_prog_parse") && frame.contains("xdp_parse.bpf.c:"), "{text}");
    assert!(text.contains(" main ("), "frames of the command below: {text}");
}

harness::tests! {
    perf_finds_programs_in_its_map,
    perf_finds_programs_and_lines_in_the_dump,
    a_file_for_perf_that_cannot_be_written_is_an_error,
    gdb_stops_in_a_program_by_its_name,
}
