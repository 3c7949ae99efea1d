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

/// An Ethernet frame with an IPv4 header of this source.
fn frame(source: [u8; 4]) -> String {
    let mut bytes = [0_u8; 14 + 20];
    (bytes[12], bytes[14]) = (8, 0x45);
    bytes[26..30].copy_from_slice(&source);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn all_programs_of_an_object_are_measured_on_all_packets() {
    let packets = [frame([10, 0, 0, 1]), frame([10, 0, 0, 2])];
    let args = ["--packet", &packets[0], "--packet", &packets[1], "--engine", "interp,jit"];
    let report = json(&[&["packets/xdp_vlan.bpf.o"], &args[..]].concat());
    let programs = report["programs"].as_array().unwrap();
    let names: Vec<&str> = programs.iter().map(|program| program["program"].as_str().unwrap()).collect();
    let wanted = ["push", "pop", "cut", "grow", "metadata"].map(|name| format!("packets/xdp_vlan.bpf.o:{name}"));
    assert_eq!(names, wanted);
    assert!(programs.iter().all(|program| program["engines"][0]["ns"].is_number()), "{report}");
    let output = run(&["bench", "packets/xdp_vlan.bpf.o", "--time", "30ms"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(125));
    assert!(text.contains("packets/xdp_vlan.bpf.o: none of its programs can be measured on this input\n"), "{text}");
    assert!(
        text.contains("  packets/xdp_vlan.bpf.o:push: program push (section xdp) gets a packet: give one"),
        "{text}"
    );
    let some = json(&["embed/packets.bpf.o", "--packet", &packets[0], "--engine", "interp"]);
    let [wild] = some["left_out"].as_array().unwrap().as_slice() else { panic!("{some}") };
    assert_eq!(wild["program"], "embed/packets.bpf.o:wild");
    assert!(wild["why"].as_str().unwrap().starts_with("memory access out of bounds: "), "{some}");
    let both = run(&["bench", "embed/packets.bpf.o", "embed/hooks.bpf.o", "--packet", &packets[0], "--time", "30ms"]);
    let text = stderr(&both);
    assert!(text.contains("embed/hooks.bpf.o: none of its programs") && !text.contains(":wild"), "{text}");
}

#[test]
fn instructions_are_the_mean_of_all_packets() {
    let [blocked, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(frame);
    let insns = |packets: &[&str]| {
        let args: Vec<&str> = packets.iter().flat_map(|packet| ["--packet", packet]).collect();
        let set = ["embed/filter.bpf.o", "--engine", "interp", "--set", "blocked[0x0100000a]=0"];
        json(&[&set[..], &args].concat())["programs"][0]["insns"].as_u64().unwrap()
    };
    let [one, two] = [&blocked, &other].map(|packet| insns(&[packet]));
    assert_ne!(one, two, "the filter counts what it drops");
    assert_eq!(insns(&[&blocked, &other]), (one + two) / 2);
}

#[test]
fn maps_get_what_a_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.txt");
    let exec = |text: &str, source: [u8; 4]| {
        std::fs::write(&rules, text).unwrap();
        run(&["exec", "embed/filter.bpf.o", "--packet", &frame(source), "--set", &format!("@{}", rules.display())])
    };
    let verdict = |text: &str, source| String::from_utf8(exec(text, source).stdout).unwrap();
    let text =
        "# addresses in network order\n\nblocked[0x0100000a]=0\n  blocked[16777226] = 7\nblocked[0x0200000a]=0\n";
    for (source, wanted) in [([10, 0, 0, 1], "0x1"), ([10, 0, 0, 2], "0x1"), ([10, 0, 0, 3], "0x2")] {
        assert!(verdict(text, source).contains(wanted), "{source:?}: {}", verdict(text, source));
    }
    let place = |line: &str| format!("{}:2: {line}", rules.display());
    for (line, why) in [
        ("blocked", "write it as VAR=VALUE or MAP[KEY]=VALUE"),
        ("blocked[x]=1", "variable 'blocked[x]': as a key, "),
        ("blocked[1]=x", "variable 'blocked[1]': "),
        ("blocked=1", "blocked is a map: write blocked[KEY]=VALUE"),
        (
            "verdicts[0]=1",
            "verdicts is a map of type percpu_array, and elements are set of arrays, hashes and tries only",
        ),
    ] {
        let text = stderr(&exec(&format!("blocked[1]=1\n{line}\n"), [0; 4]));
        assert!(text.contains(&place(line)) && text.contains(why), "{text}");
    }
    let full: String = (0..65).map(|key| format!("blocked[{key}]=1\n")).collect();
    let text = stderr(&exec(&full, [0; 4]));
    assert!(text.contains("map blocked: its entry with the key 40000000 is refused: the map is full"), "{text}");
}
