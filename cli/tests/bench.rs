//! `twinbpf bench`: what it prints, draws and leaves out.

mod common;

use common::{run, stderr};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let output = run(&[&["bench", "--json", "--time", "30ms"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `len` = 20 for the kernels of `bench/`, and the memory after it.
fn block() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; 64 + 2 * 65536];
    bytes[0] = 20;
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn each_engine_is_measured_on_each_program() {
    let block = block();
    let ctx = format!("@{}", block.path().display());
    let report = json(&["bench/fnv1a.bpf.o", "bench/matmul.bpf.o", "--ctx", &ctx, "--engine", "interp,jit"]);
    for (program, name) in [(0, "bench/fnv1a.bpf.o:prog"), (1, "bench/matmul.bpf.o:prog")] {
        let program = &report["programs"][program];
        assert_eq!(program["program"], name);
        assert!(program["insns"].as_u64() > Some(20));
        let engines = program["engines"].as_array().unwrap();
        let names: Vec<&str> = engines.iter().map(|engine| engine["engine"].as_str().unwrap()).collect();
        assert_eq!(names, ["interp", "jit"]);
        let native = usize::from(cfg!(all(target_arch = "x86_64", target_os = "linux")));
        for engine in &engines[..1 + native] {
            let [min, ns, max] = ["min_ns", "ns", "max_ns"].map(|key| engine[key].as_f64().unwrap());
            assert!(0.0 < min && min <= ns && ns <= max, "{engine}");
        }
        assert_eq!(engines[0]["ratio"], 1.0);
    }
    assert_eq!(report["means"][0]["programs"], 2);
}

#[test]
fn the_table_names_engines_and_the_picture_too() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("times.svg");
    let args = ["bench", "packets/xdp_parse.bpf.o", "--packet", "0102030405060708090a0b0c0800", "--time", "30ms"];
    let output = run(&[&args[..], &["--svg", svg.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    let picture = std::fs::read_to_string(&svg).unwrap();
    for engine in ["interp", "jit"] {
        assert!(table.lines().any(|line| line.trim_start().starts_with(engine)), "{table}");
        assert!(picture.contains(&format!(">{engine}</text>")), "{picture}");
    }
}

#[test]
fn another_result_is_not_timed() {
    let report = json(&["embed/poll.bpf.o:now", "--engine", "interp,jit"]);
    let engines = &report["programs"][0]["engines"];
    assert!(engines[0]["ns"].is_number(), "{engines}");
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        let why = engines[1]["left_out"].as_str().unwrap_or_else(|| panic!("{engines}"));
        assert!(why.starts_with("wrong result: r0 = 0x") && why.contains(", interp has 0x"), "{why}");
    }
}

#[test]
fn a_program_that_traps_is_an_error() {
    let output = run(&["bench", "faults/null_load.bpf.o", "--engine", "interp"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("twinbpf: memory access out of bounds: "), "{}", stderr(&output));
}
