//! What the kernel refuses has one message with the cause and what to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::tempdir;

use crate::common::{installed, skip, stderr, twinbpf};
use crate::rig::{kernel, public, unprivileged};

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
            program("system(\"ls\"); return 0;"),
            &[],
            &["it calls system, which userspace has and the kernel has not: call it from EVENT"],
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

/// What neither clang, the linker nor this machine takes.
fn wrong_elsewhere() -> Vec<Case> {
    let mut cases: Vec<Case> = vec![
        (
            program("static void *to[] = { &&a, &&b }; goto *to[ctx[2] & 1]; a: return 1; b: return 0;"),
            &[],
            &["BPF has no jump to a computed address (goto *p): use a switch"],
        ),
        (
            program("return other(3);").replace(PLACE, &format!("int other(int x);\n{PLACE}")),
            &[],
            &["symbol 'other' is not defined here", "link the objects (`bpftool gen object OUT IN...`)"],
        ),
        (
            format!(
                "{HEAD}struct absent_ops {{ int (*go)(void); }};\nSEC(\"struct_ops/go\") int go(void *ctx) {{ return 0; }}\n\
                 SEC(\".struct_ops\") struct absent_ops ops = {{ .go = (void *)go }};\n"
            ),
            &[],
            &["attach target 'ops': the kernel has no such struct_ops", "ENOTSUPP: this kernel does not support it"],
        ),
    ];
    if !Path::new("/sys/bus/event_source/devices/cpu").exists() {
        cases.push((
            format!("{HEAD}SEC(\"perf_event\") int a(void *ctx) {{ return 0; }}\n"),
            &["--attach", "a=cycles:1000"],
            &["this machine does not have that counter: --attach PROG=cpu-clock:HZ samples by a timer"],
        ));
    }
    cases
}

pub(crate) fn refusals_have_cause_and_remedy() {
    if !installed("clang-19") {
        return skip("clang-19 is not installed, so that no tool can be compiled");
    }
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    for (source, options, parts) in wrong_programs().into_iter().chain(wrong_places()).chain(wrong_elsewhere()) {
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

pub(crate) fn little_memory_names_its_limit() {
    let script = "ulimit -v 60000; exec \"$0\" run scripts/hello.bpf.o";
    let mut command = Command::new("sh");
    command.current_dir(crate::common::corpus()).args(["-c", script, env!("CARGO_BIN_EXE_twinbpf")]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let text = stderr(&output);
    assert!(text.contains("the limit of this process is 61440000 bytes (RLIMIT_AS, ulimit -v)"), "{text}");
}

pub(crate) fn a_workload_that_is_not_found_names_the_folder_that_is_closed() {
    let folder = public("scripts/hello.bpf.o");
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::write(open.join("text"), "no program").unwrap();
    let path = format!("PATH={}:{}:/usr/bin:/bin", closed.display(), open.display());
    let refused = |workload: &str| {
        let mut command = unprivileged(folder.path())?;
        command.args(["env", &path, "./twinbpf", "run", "tool.bpf.o", "--", workload]);
        Some(stderr(&command.output().unwrap()))
    };
    let Some(text) = refused("absent") else { return };
    let denied = "Permission denied (os error 13)";
    let wanted = format!("'absent': {denied}: PATH has the folder {}, which may not be searched", closed.display());
    assert!(text.contains(&wanted), "{text}");
    fs::remove_dir(&closed).unwrap();
    let text = refused("text").expect("as before");
    assert!(text.contains(&format!("'text': {denied}: {}", open.join("text").display())), "{text}");
}
