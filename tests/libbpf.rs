//! One object serves us and stock libbpf: the C program `libbpf/corpus.c` opens and loads the corpus with Debian's
//! library, and runs the packet cases in the kernel, whose results must be those we expect of our machine.
//!
//! Needs gcc, libbpf-dev and the right to call bpf(2); skips with a reason without them, unless `TWINBPF_CI=1`.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use support::{Case, cases, corpus, harness, installed, libbpf_program, objects, skip};

/// Objects in forms that libbpf refuses and we accept.
const NOT_FOR_LIBBPF: [&str; 6] = [
    "kernel/arena.bpf.o",      // an arena, which this libbpf is too old for
    "scripts/bigendian.bpf.o", // for machines of the other byte order
    "scripts/legacy.bpf.o",    // SEC("maps")
    "scripts/lowercase.bpf.o", // SEC("BEGIN") without the question mark
    "scripts/names.bpf.o",     // externs that are not __ksym
    "scripts/pointers.bpf.o",  // a function without BTF, which clang knows itself
];

/// Cases whose result in the kernel is another: the maps are empty there.
const OTHERWISE_IN_KERNEL: [&str; 5] = ["event-perf", "target-device", "target-all", "target-cpu", "target-socket"];

/// The C program, or why there is none.
fn program() -> &'static Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(build)
}

fn build() -> Result<PathBuf, String> {
    let binary = libbpf_program("tests/libbpf/corpus.c")?;
    let probe = Command::new(&binary).arg("probe").output().expect("the program runs");
    match probe.status.code() {
        Some(0) => Ok(binary),
        Some(77) => Err(format!("bpf(2) is not available here: {}", String::from_utf8_lossy(&probe.stdout).trim())),
        _ => panic!("probe: {probe:?}"),
    }
}

fn call(binary: &Path, args: &[&str]) -> Output {
    Command::new(binary).args(args).current_dir(corpus()).output().expect("the program runs")
}

fn stock_libbpf_opens_and_loads_every_object() {
    let binary = match program() {
        Ok(binary) => binary,
        Err(reason) => return skip(reason),
    };
    let objects = objects(&["scripts", "maps", "kernel", "packets"]);
    let mut args = vec!["load"];
    args.extend(objects.iter().map(String::as_str).filter(|object| !NOT_FOR_LIBBPF.contains(object)));
    assert!(args.len() > 40, "the corpus is there");
    let output = call(binary, &args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("loaded ").count(), args.len() - 1, "{text}");
}

fn objects_that_libbpf_refuses_are_listed() {
    let binary = match program() {
        Ok(binary) => binary,
        Err(reason) => return skip(reason),
    };
    for object in NOT_FOR_LIBBPF {
        assert!(!call(binary, &["load", object]).status.success(), "{object} loads: take it off the list");
    }
}

/// The object with program, and the packet, of a plain `exec OBJ:PROG --packet HEX`.
fn packet_case(case: &Case) -> Option<(&str, &str, &str)> {
    let [command, program, flag, packet] = case.args.as_slice() else { return None };
    if command != "exec" || flag != "--packet" || case.r0.is_none() || OTHERWISE_IN_KERNEL.contains(&&*case.name) {
        return None;
    }
    let (object, program) = program.rsplit_once(':')?;
    Some((object, program, packet))
}

fn the_kernel_agrees_on_every_packet() {
    let binary = match program() {
        Ok(binary) => binary,
        Err(reason) => return skip(reason),
    };
    let cases = cases();
    let mut ran = 0;
    for case in &cases {
        let Some((object, program, packet)) = packet_case(case) else { continue };
        let output = call(binary, &["run", object, program, packet]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "[{}]: {text}", case.name);
        let (r0, after) = text.trim_end().split_once(' ').expect("result and packet");
        assert_eq!(r0.parse(), Ok(case.r0.expect("an exec case has r0")), "[{}] r0", case.name);
        if let Some(packet) = &case.packet {
            assert_eq!(after, packet, "[{}] packet", case.name);
        }
        ran += 1;
    }
    assert!(ran >= 30, "only {ran} packet cases");
}

fn bpftool_loads_the_scripts_that_carry_kernel_programs() {
    if let Err(reason) = program() {
        return skip(reason);
    }
    if !installed("bpftool") {
        return skip("bpftool is not installed");
    }
    // Pins live in a file system of a mount namespace of their own and vanish with it.
    let script = r#"mount -t bpf bpf "$1" && bpftool prog loadall "$2" "$1/pins" && ls "$1/pins""#;
    let mount = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bpffs");
    std::fs::create_dir_all(&mount).expect("a directory to mount on");
    let objects = objects(&["kernel", "packets"]);
    for object in objects.iter().filter(|object| !NOT_FOR_LIBBPF.contains(&object.as_str())) {
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(&mount)
            .arg(corpus().join(object))
            .output()
            .expect("unshare runs");
        assert!(output.status.success(), "{object}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{object}: nothing was pinned");
    }
}

harness::tests! {
    stock_libbpf_opens_and_loads_every_object,
    objects_that_libbpf_refuses_are_listed,
    the_kernel_agrees_on_every_packet,
    bpftool_loads_the_scripts_that_carry_kernel_programs,
}
