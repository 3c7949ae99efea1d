//! Kinds of attachments, each with exact counts of the workload.

use twinbpf_kernel::system::System;

use super::{WORKLOAD, has_symbol, refused, said, session, words};

/// 1 + 2 + ... + 100.
const SUM: &str = "5050";

pub(super) fn kprobes() {
    let text = said(&session("probes/kprobes.bpf.o", &WORKLOAD));
    for kind in ["kprobe", "kretprobe", "ksyscall", "kretsyscall"] {
        assert_eq!(words(&text, kind), [kind, "100", SUM], "{text}");
    }
}

/// By definitions in perf's notation.
pub(super) fn arguments() {
    let output = session("probes/arguments.bpf.o", &WORKLOAD);
    let text = said(&output);
    for kind in ["reads", "pattern", "results", "seeks"] {
        assert_eq!(words(&text, kind), [kind, "100", SUM], "{text}");
    }
    // 100 times /dev/zero, 1:5.
    assert_eq!(words(&text, "device"), ["device", "100", "104858100"], "{text}");
    // O_WRONLY, O_CREAT, O_TRUNC, O_CLOEXEC and what the system call adds; 0666; AT_FDCWD.
    assert_eq!(words(&text, "opens")[..2], ["opens", "1"], "{text}");
    let flags: i64 = words(&text, "opens")[2].parse().unwrap();
    assert_eq!(flags & 0x80241, 0x80241, "{text}");
    assert_eq!(words(&text, "mode"), ["mode", "1", "438"], "{text}");
    assert_eq!(words(&text, "folder"), ["folder", "1", "-100"], "{text}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("left out: argument count at vfs_readlink: no variable count is there"), "{told}");
}

/// Kernels before 6.8 take arguments for the context by their types, not by a tag.
pub(super) fn context_arguments() {
    let text = said(&session("probes/context.bpf.o", &WORKLOAD));
    assert_eq!(words(&text, "raw_tp"), ["raw_tp", "100", "800"], "{text}");
    assert_eq!(words(&text, "kprobe"), ["kprobe", "100", SUM], "{text}");
}

pub(super) fn trampolines() {
    let text = said(&session("probes/trampolines.bpf.o", &WORKLOAD));
    for kind in ["fentry", "fexit"] {
        assert_eq!(words(&text, kind), [kind, "100", SUM], "{text}");
    }
    assert_eq!(words(&text, "fmod_ret"), ["fmod_ret", "20", "180"], "{text}");
    assert_eq!(words(&text, "lsm"), ["lsm", "10", "180"], "{text}");
    // Ten times EPERM, and ten times EACCES.
    assert_eq!(words(&text, "workload")[3..], ["10", "130"], "{text}");
}

/// Where the kernel was built without such probes, the message says so.
pub(super) fn multi() {
    let output = session("probes/multi.bpf.o", &WORKLOAD);
    if has_symbol("register_fprobe") {
        let text = said(&output);
        for kind in ["kprobe.multi", "kretprobe.multi"] {
            assert_eq!(words(&text, kind), [kind, "100", SUM], "{text}");
        }
        return;
    }
    let text = refused(&output);
    assert!(text.contains("probes of many functions (CONFIG_FPROBE)"), "{text}");
    assert!(text.contains("program reading to kernel functions vfs_rea?"), "{text}");
}

/// A session whose program goes to a place in the workload's file.
fn attached(object: &str, place: &str) -> String {
    let mut command = super::twinbpf();
    said(&command.args(["run", object, "--attach", place, "--"]).args(WORKLOAD).output().unwrap())
}

pub(super) fn uprobe() {
    let text = attached("scripts/calls.bpf.o", "called=/bin/checks:twinbpf_vm_work");
    let pid = words(&text, "workload")[1];
    assert_eq!(words(&text, pid), [pid, "100", "calls", SUM, "sum"], "{text}");
}

/// By one link where the kernel has such, by an event for each place otherwise.
pub(super) fn usdt() {
    let text = attached("scripts/usdt.bpf.o", "passed=/bin/checks:twin:step");
    let arguments: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(": 2 arguments: ")).map(|(_, arguments)| arguments).collect();
    assert_eq!(arguments, ["-2 40000000000", "-1 10000000000", "0 0", "1 10000000000", "2 40000000000"], "{text}");
}

/// Registered while the session lasts, by a link or, where the kernel has none, by an element of its map.
pub(super) fn struct_ops() {
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let text = said(&session("kernel/congestion.bpf.o", &["cat", file]));
    assert!(text.contains("twinbpf_steady"), "{text}");
    let after = std::fs::read_to_string(file).unwrap();
    assert!(!after.contains("twinbpf_steady"), "{after}");
}

/// The object was compiled with types of its own; what it reads is this kernel's.
pub(super) fn core() {
    let text = said(&session("probes/core.bpf.o", &WORKLOAD));
    assert_eq!(words(&text, "tasks")[1..], words(&text, "workload")[1..3], "{text}");
    let answers = &words(&text, "kernel")[1..];
    assert_eq!(answers, &words(&text, "userspace")[1..], "{text}");
    let btf = System::get().btf().expect("the kernel's types");
    let task = btf.find("task_struct", |found| matches!(found, twinbpf_btf::Type::Struct(_))).unwrap();
    assert_eq!(answers[1], btf.size_of(task).unwrap().to_string(), "{text}");
    assert_eq!(answers[2..4], ["1", "0"], "{text}");
    let arena = if has_symbol("arena_map_ops") { "1" } else { "0" };
    assert_eq!(answers[4..], [arena, "27"], "{text}");
}
