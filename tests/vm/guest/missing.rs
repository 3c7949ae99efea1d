//! Messages where a feature of the kernel or a privilege is missing, and that scripts of the same object run all the
//! same.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use super::{WORKLOAD, has_symbol, refused, said, twinbpf, words, workload};

/// Runs the command where the kernel shows no types.
fn without_types(args: &str) -> Output {
    let script = format!("mkdir -p /tmp/none; mount --bind /tmp/none /sys/kernel/btf; twinbpf run {args}");
    Command::new("/bin/unshare").args(["-m", "sh", "-c", &script]).output().unwrap()
}

/// Asserts that a text has all of these.
#[track_caller]
fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

pub(super) fn no_btf() {
    let text = refused(&without_types("scripts/execsnoop.bpf.o -- true"));
    has_all(&text, &["(BTF)", "CONFIG_DEBUG_INFO_BTF", "program: executed", "execsnoop.bpf.c:"]);
    let text = refused(&without_types("probes/trampolines.bpf.o -- true"));
    has_all(&text, &["(BTF)", "CONFIG_DEBUG_INFO_BTF", "program: reading", "fentry/vfs_read"]);
    let text = said(&without_types("--mode user scripts/execsnoop.bpf.o -- true"));
    assert_eq!(text, "PID     PPID    PATH\n");
    // Programs without CO-RE relocations need no types.
    let text = said(&without_types(&format!("scripts/syscall_counts.bpf.o -- {}", WORKLOAD.join(" "))));
    assert!(text.lines().any(|line| line.split_whitespace().eq(["workload", workload::CALLS])), "{text}");
}

/// A session whose kernel half is refused, and that runs without it.
fn refused_but_for_scripts(object: &str, parts: &[&str]) {
    has_all(&refused(&twinbpf().args(["run", "--allow-unattached", object, "--", "true"]).output().unwrap()), parts);
    let text = said(&twinbpf().args(["run", "--mode", "user", object]).output().unwrap());
    assert_eq!(text, "scripts run\n");
}

pub(super) fn no_map_type() {
    if has_symbol("arena_map_ops") {
        return;
    }
    let parts = ["map pages", "this kernel has no maps of kind arena", "program touch (syscall)", "newer.bpf.c:"];
    refused_but_for_scripts("probes/newer.bpf.o", &parts);
}

pub(super) fn no_program_type() {
    if has_symbol("bpf_nf_link_attach") {
        return;
    }
    let parts = ["program pass (netfilter)", "this kernel has no programs of type netfilter", "netfilter.bpf.c:"];
    refused_but_for_scripts("probes/netfilter.bpf.o", &parts);
}

pub(super) fn no_privilege() {
    let run = |args: &[&str]| twinbpf().arg("run").args(args).uid(1000).output().unwrap();
    let text = refused(&run(&["scripts/syscall_counts.bpf.o", "--", "true"]));
    has_all(&text, &["map counts", "this process has no CAP_BPF and CAP_PERFMON: run it as root", "program count"]);
    let text = said(&run(&["--mode", "user", "scripts/execsnoop.bpf.o", "--", "true"]));
    assert_eq!(words(&text, "PID")[1..], ["PPID", "PATH"]);
}
