//! The kernel as an engine of `twinbpf bench`.

use std::process::Output;

use serde_json::Value;

use crate::common::{run, stderr};
use crate::rig::{as_unprivileged, kernel, public};

/// A frame of 64 zeroes.
const FRAME: &str = "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000";

/// The engines of the only program.
fn engines(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["programs"][0]["engines"].as_array().unwrap().clone()
}

/// What the kernel is said to take, or why it was left out.
fn in_kernel(program: &str, input: [&str; 2]) -> Value {
    let args = ["bench", program, "--enable", "packet", "--json", "--time", "30ms"];
    let engine = engines(&run(&[&args[..], &input].concat())).pop().unwrap();
    assert_eq!(engine["engine"], "kernel", "{engine}");
    engine
}

pub(crate) fn programs_of_each_kind_with_a_test_run_are_measured() {
    if !kernel() {
        return;
    }
    let programs = [
        ("packets/xdp_swap.bpf.o", "--packet"),
        ("packets/xdp_tail.bpf.o:again", "--packet"),
        ("packets/tc_nat.bpf.o", "--packet"),
        ("packets/socket_legacy.bpf.o", "--packet"),
        ("kernel/syscalls.bpf.o:count", "--ctx"),
        ("bench/maps.bpf.o:hash_lookup", "--ctx"),
    ];
    for (program, input) in programs {
        let engine = in_kernel(program, [input, FRAME]);
        let [min, ns, max] = ["min_ns", "ns", "max_ns"].map(|key| engine[key].as_f64());
        assert!(min > Some(0.0) && min <= ns && ns <= max && ns < Some(1e8), "{program}: {engine}");
    }
}

pub(crate) fn programs_that_the_kernel_refuses_or_runs_differently_are_left_out() {
    if !kernel() {
        return;
    }
    let programs = [
        ("kernel/switches.bpf.o:on_switch", "--ctx", "the kernel has no test run for programs of type tracepoint"),
        ("kernel/syscalls.bpf.o:BEGIN", "--ctx", "section .text is not for the kernel"),
        ("packets/xdp_targets.bpf.o:to_device", "--packet", "wrong result: r0 = 0x2, interp has 0x4"),
        ("packets/xdp_swap.bpf.o", "--ctx", "a program of type xdp gets a packet"),
    ];
    for (program, input, why) in programs {
        assert_eq!(in_kernel(program, [input, FRAME])["left_out"], why, "{program}");
    }
}

pub(crate) fn without_privilege_all_engines_exclude_the_kernel() {
    let folder = public("packets/xdp_swap.bpf.o");
    let args = ["bench", "tool.bpf.o", "--packet", FRAME, "--json", "--time", "30ms"];
    let Some(output) = as_unprivileged(folder.path(), &args) else { return };
    let names: Vec<Value> = engines(&output).iter().map(|engine| engine["engine"].clone()).collect();
    assert_eq!(names, ["interp", "jit", "trusted"]);
    let selected = as_unprivileged(folder.path(), &[&args[..], &["--engine", "interp,kernel"]].concat()).unwrap();
    let why = engines(&selected)[1]["left_out"].clone();
    assert!(why.as_str().unwrap().contains("this process has no CAP_BPF"), "{why}");
}
