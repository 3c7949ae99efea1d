//! Kernels that lack something, and processes without privilege: what the messages say, and what runs all the same.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::tempdir;

use crate::common::{installed, run, skip, stderr, twinbpf};
use crate::rig::{as_unprivileged, kernel, public};

fn assert_says(output: &Output, parts: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    for part in parts {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
}

pub(crate) fn without_privilege_the_message_says_which() {
    let folder = public("scripts/opensnoop.bpf.o");
    let Some(refused) = as_unprivileged(folder.path(), &["run", "tool.bpf.o", "--", "true"]) else { return };
    let unprivileged = |args: &[&str]| as_unprivileged(folder.path(), args).expect("it ran just now");
    let parts = [
        "tool.bpf.o: map paths: MAP_CREATE of map paths (hash)",
        "map records: ",
        "this process has no CAP_BPF and CAP_PERFMON",
        "program opening (tracepoint/syscalls/sys_enter_openat): it needs map paths",
        "program opened (tracepoint/syscalls/sys_exit_openat): it needs map paths",
        "opensnoop.bpf.c:",
        "bpf_map_update_elem(&paths",
        "--mode user",
    ];
    assert_says(&refused, &parts);
    let user = unprivileged(&["run", "--mode", "user", "tool.bpf.o", "--", "true"]);
    assert!(user.status.success(), "{}", stderr(&user));
    let checked = unprivileged(&["check", "--kernel", "tool.bpf.o"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("kernel  opening"), "{checked:?}");
    for args in [&["map", "list"][..], &["map", "dump", "paths"]] {
        assert_says(&unprivileged(args), &["this process has no CAP_BPF"]);
    }
    let listed = unprivileged(&["list", "tp/sched"]);
    assert!(stderr(&listed).contains("left out: tp"), "{}", stderr(&listed));
}

pub(crate) fn without_types_the_message_names_program_and_need() {
    let no_types = ["--btf", "/dev/null", "scripts/tasks.bpf.o"];
    let refused = run(&[&["run"][..], &no_types].concat());
    let parts = ["programs of section kind 'iter'", "(BTF)", "program: list", "CONFIG_DEBUG_INFO_BTF", "--mode user"];
    assert_says(&refused, &parts);
    let user = run(&[&["run", "--mode", "user"][..], &no_types].concat());
    assert!(user.status.success(), "{}", stderr(&user));
    let checked = run(&[&["check"][..], &no_types].concat());
    let text = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot be linked") && text.contains("and it has none"), "{text}");
}

pub(crate) fn types_and_configuration_come_from_files() {
    let folder = tempdir().unwrap();
    let config = folder.path().join("config");
    fs::write(&config, "# Linux/x86 6.1.0 Kernel Configuration\nCONFIG_HZ=250\n").unwrap();
    let config = config.to_str().unwrap();
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return skip("this kernel shows no types");
    }
    let args = ["check", "--json", "--btf", "/sys/kernel/btf/vmlinux", "--kconfig", config, "scripts/tasks.bpf.o"];
    let output = run(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    assert!(text.contains(r#""relocations":9"#), "{text}");
    let missing = run(&["check", "--btf", "/no/such/file", "scripts/tasks.bpf.o"]);
    assert!(stderr(&missing).contains("cannot read /no/such/file"), "{}", stderr(&missing));
    let wrong = run(&["run", "--btf", "cases.txt", "scripts/hello.bpf.o"]);
    assert!(stderr(&wrong).contains("cases.txt: no types: "), "{}", stderr(&wrong));
}

pub(crate) fn without_a_kind_of_map_or_program_the_message_names_it() {
    if !kernel() {
        return;
    }
    let refused = run(&["run", "--allow-unattached", "probes/rare.bpf.o", "--", "true"]);
    let text = stderr(&refused);
    if !text.contains("has no maps of kind insn_array") {
        // A kernel that has them refuses nothing.
        return assert!(refused.status.success(), "{text}");
    }
    let parts = [
        "map jumps: MAP_CREATE of map jumps (insn_array)",
        "program forget (tp/sched/sched_switch): it needs map jumps: it could not be made, at corpus/probes/rare.bpf.c:",
        "return bpf_map_delete_elem(&jumps, &key);",
        "--mode user",
    ];
    assert_says(&refused, &parts);
    if text.contains("has no programs of type lirc_mode2") {
        assert_says(&refused, &["program remote (lirc_mode2)", "rare.bpf.c:", "return *sample & 1;"]);
    }
    let user = run(&["run", "--mode", "user", "probes/rare.bpf.o", "--", "true"]);
    assert!(user.status.success(), "{}", stderr(&user));
    assert_eq!(String::from_utf8_lossy(&user.stdout), "userspace runs\n");
}

pub(crate) fn every_failure_is_reported() {
    if !kernel() {
        return;
    }
    let refused = run(&["run", "probes/nowhere.bpf.o"]);
    let parts = [
        "program event (section tp/sched/no_such_event)",
        "program category (section tp/no_such_category/event)",
        "this kernel has no category no_such_category",
        "no function 'no_such_function'",
    ];
    assert_says(&refused, &parts);
    let late = run(&["run", "probes/late.bpf.o"]);
    let parts = ["program raw (section raw_tp/no_such_tracepoint)", "program other (section raw_tp/nor_such_a_one)"];
    assert_says(&late, &parts);
}

/// A tracepoint that is not there is named, with one that is, and not what clang makes of it.
pub(crate) fn a_mistyped_tracepoint_is_one_error() {
    if !kernel() {
        return;
    }
    if !installed("clang-19") {
        return skip("clang-19 is not installed");
    }
    let told = |text: &str| {
        let output = twinbpf().env("TWINBPF_CLANG", "clang-19").args(["run", "-e", text]).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        stderr(&output)
    };
    assert_eq!(
        told("tp/syscalls/sys_enter_raed { count(&n, args->fd); }"),
        "twinbpf: -e: tracepoint syscalls:sys_enter_raed: this kernel has syscalls:sys_enter_read\n"
    );
    assert_eq!(
        told("tp/shced/sched_switch { count(&n, args->prev_pid); }"),
        "twinbpf: -e: tracepoint shced:sched_switch: this kernel has no category shced, but sched\n"
    );
}
