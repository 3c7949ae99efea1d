//! The kernel as an engine of `twinbpf bench`, and measurements under perf.

use std::process::Output;

use serde_json::Value;

use crate::common::{run, stderr};
use crate::rig::{as_unprivileged, kernel, kernel_and, public};

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

pub(crate) fn perf_shows_where_the_time_went() {
    if !kernel_and(&["perf"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // `len` = 20 for the kernels of `bench/`, and the memory after it.
    let block = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; 64 + 2 * 65536];
    bytes[0] = 20;
    std::fs::write(block.path(), bytes).unwrap();
    let (svg, ctx) = (folder.path().join("where.svg"), format!("@{}", block.path().display()));
    let path = svg.to_str().unwrap();
    let args =
        ["bench", "bench/matmul.bpf.o", "--ctx", &ctx, "--engine", "jit", "--time", "500ms", "--flamegraph", path];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("jit"), "{output:?}");
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.contains("bpf_prog_prog") && picture.contains("bench/matmul.bpf.o"), "{picture}");
    let output = run(&["bench", "bench/matmul.bpf.o", "--flamegraph", "/no/such/where.svg"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("twinbpf: cannot write /no/such/where.svg: "), "{}", stderr(&output));
    let output = run(&["bench", "no/such.bpf.o", "--flamegraph", path]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
