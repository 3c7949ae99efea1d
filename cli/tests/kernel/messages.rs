//! What the kernel refuses has one message with the cause and what to do.

use std::fs;
use std::process::Command;

use tempfile::tempdir;

use crate::common::{installed, skip, twinbpf};
use crate::rig::kernel;

const HEAD: &str =
    "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n#include <twinbpf/script.h>\nLICENSE(\"GPL\");\n";
const PLACE: &str = "SEC(\"tp/syscalls/sys_enter_getppid\")";

/// A program at a place that every kernel has.
fn program(text: &str) -> String {
    format!("{HEAD}{PLACE} int a(long *ctx) {{ {text} }}\n")
}

fn map(members: &str, text: &str) -> String {
    program(text).replace(PLACE, &format!("struct {{ {members} }} m SEC(\".maps\");\n{PLACE}"))
}

/// A source, options, and parts of the message.
type Case = (String, &'static [&'static str], &'static [&'static str]);

/// Definitions and instructions that the kernel refuses.
fn wrong_programs() -> Vec<Case> {
    vec![
        (
            map(
                "__uint(type, BPF_MAP_TYPE_HASH); __type(key, int); __type(value, int);",
                "int k = 0; return !bpf_map_lookup_elem(&m, &k);",
            ),
            &[],
            &["map m: ", "it has no size: give it __uint(max_entries, N)"],
        ),
        (
            map(
                "__uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); __type(value, int);",
                "int k = 0; return bpf_ringbuf_output(&m, &k, 4, 0);",
            ),
            &[],
            &["a ring buffer has neither keys nor values"],
        ),
        (
            program("return ctx[60];"),
            &[],
            &["it reads past the tracepoint's arguments, which `twinbpf list -v tp/syscalls/sys_enter_getppid` prints"],
        ),
        (
            program("volatile long i = 8; return *(int *)((char *)ctx + i);"),
            &[],
            &["dereference of modified ctx ptr", "constant offsets from its own pointer"],
        ),
    ]
}

/// Places, rates and functions that are not there.
fn wrong_places() -> Vec<Case> {
    let many: String = (0..70).map(|n| format!("{PLACE} int a{n}(void *ctx) {{ return {n}; }}\n")).collect();
    vec![
        (
            program("volatile int n = 0; while (1) n++; return n;"),
            &[],
            &["infinite loop detected at insn ", "a loop needs an end that the verifier can see"],
        ),
        (
            program("printf(\"%d\\n\", 1); return 0;"),
            &[],
            &["it calls printf, which userspace has and the kernel has not: include <twinbpf/trace.h>"],
        ),
        (
            program("return strlen(\"abc\") + (ctx[2] & 1);").replace("strlen", "atoi"),
            &[],
            &["it calls atoi, which userspace has and the kernel has not: call it from EVENT"],
        ),
        (
            format!("{HEAD}{many}"),
            &[],
            &["64 programs are attached to it, and the kernel takes no more); so it is with "],
        ),
        (
            format!("{HEAD}SEC(\"perf_event\") int a(void *ctx) {{ return 0; }}\n"),
            &["-F", "100000000"],
            &["the kernel's most is ", "kernel.perf_event_max_sample_rate"],
        ),
        (
            format!("{HEAD}SEC(\"tp/syscalls/sys_enter_getpid_\") int a(void *ctx) {{ return 0; }}\n"),
            &[],
            &["this kernel has syscalls:sys_enter_getpid"],
        ),
        (
            format!("{HEAD}SEC(\"uprobe/libc.so.6:mallok\") int a(void *ctx) {{ return 0; }}\n"),
            &[],
            &["no function mallok"],
        ),
    ]
}

pub(crate) fn refusals_have_cause_and_remedy() {
    if !installed("clang-19") {
        return skip("clang-19 is not installed, so that no tool can be compiled");
    }
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    for (source, options, parts) in wrong_programs().into_iter().chain(wrong_places()) {
        fs::write(folder.path().join("tool.bpf.c"), &source).unwrap();
        let mut command = twinbpf();
        command.current_dir(folder.path()).env("XDG_CACHE_HOME", folder.path().join("cache"));
        command.env("TWINBPF_CLANG", "clang-19").args(["run", "tool.bpf.c", "--clang-opt=-w"]).args(options);
        let output = command.args(["--", "true"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{source}: {text}");
        for part in parts {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let own = text.lines().filter(|line| line.starts_with("twinbpf: ")).count();
        assert!(own <= 2, "{own} messages: {text}");
    }
}

pub(crate) fn few_descriptors_are_one_message() {
    if !kernel() {
        return;
    }
    let script = "ulimit -n 24; exec \"$0\" run --allow-unattached probes/rare.bpf.o sessions/lossy.bpf.o -- true";
    let mut command = Command::new("sh");
    command.current_dir(crate::common::corpus()).args(["-c", script, env!("CARGO_BIN_EXE_twinbpf")]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("this process may have 24 files open (ulimit -n)"), "{text}");
}
