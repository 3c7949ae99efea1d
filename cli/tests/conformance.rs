//! `twinbpf conformance` on vectors of our own, through the protocol of its runner, on each engine.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use common::{corpus, harness, skip, twinbpf};
use twinbpf_isa::{Endian, asm, encode_all};

/// One vector of `corpus/conformance/cases.data`.
#[derive(Debug, Default)]
struct Vector {
    name: String,
    mem: Option<String>,
    program: Vec<u8>,
    /// r0; none where an error is wanted.
    result: Option<u64>,
    /// Every one, without any.
    engines: Vec<String>,
}

fn vectors() -> Vec<Vector> {
    let text = fs::read_to_string(corpus().join("conformance/cases.data")).expect("the vectors");
    let (mut vectors, mut part, mut body): (Vec<Vector>, &str, String) = (Vec::new(), "", String::new());
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim()).filter(|line| !line.is_empty());
    for line in lines.chain(["-- end"]) {
        let Some(directive) = line.strip_prefix("-- ") else {
            body += line;
            body.push('\n');
            continue;
        };
        if let Some(vector) = vectors.last_mut() {
            end_part(vector, part, &std::mem::take(&mut body));
        }
        let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
        match word {
            "name" => vectors.push(Vector { name: rest.to_owned(), ..Vector::default() }),
            "engines" => {
                vectors.last_mut().expect("a name").engines = rest.split(' ').map(str::to_owned).collect();
            }
            "mem" | "asm" | "raw" | "result" | "error" | "end" => {}
            other => panic!("unknown directive {other}"),
        }
        part = word;
    }
    vectors
}

fn end_part(vector: &mut Vector, part: &str, body: &str) {
    let number = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).expect("hex");
    match part {
        "mem" => vector.mem = Some(body.replace('\n', " ")),
        "asm" => {
            let insns = asm::parse(body).unwrap_or_else(|error| panic!("{}: {error}", vector.name));
            vector.program = encode_all(&insns, Endian::Little);
        }
        "raw" => vector.program = body.lines().flat_map(|line| number(line).to_le_bytes()).collect(),
        "result" => vector.result = Some(number(body)),
        _ => assert!(body.is_empty(), "{}: text after {part}", vector.name),
    }
}

/// As the runner has it: the memory first, the program on standard input with two blanks between bytes.
fn run(mem: Option<&str>, args: &[&str], stdin: &[u8]) -> Output {
    let mut command = twinbpf();
    command.arg("conformance").args(mem).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin);
    child.wait_with_output().expect("ends")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}  ")).collect()
}

fn check(vector: &Vector, output: &Output) -> Result<(), String> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let fine = match vector.result {
        Some(r0) => output.status.success() && stdout == format!("{r0:x}\n"),
        None => output.status.code() == Some(1) && stdout.is_empty() && stderr.starts_with("twinbpf: "),
    };
    if fine { Ok(()) } else { Err(format!("{}: {:?}: {stdout}{stderr}", vector.name, output.status.code())) }
}

fn check_all(engine: &str) {
    let vectors = vectors();
    assert!(vectors.len() >= 19, "{} vectors", vectors.len());
    let wanted = |vector: &&Vector| vector.engines.is_empty() || vector.engines.iter().any(|name| name == engine);
    let failures: Vec<String> = vectors
        .iter()
        .filter(wanted)
        .filter_map(|vector| {
            let output = run(vector.mem.as_deref(), &["--engine", engine], hex(&vector.program).as_bytes());
            check(vector, &output).err()
        })
        .collect();
    assert!(failures.is_empty(), "{engine}:\n{}", failures.join("\n"));
}

fn vectors_on_the_interpreter() {
    check_all("interp");
}

fn vectors_in_native_code() {
    if common::runs_native() {
        check_all("jit");
    }
}

fn vectors_in_the_kernel() {
    let output = run(None, &["--engine", "kernel"], b"b700000000000000 9500000000000000");
    if !output.status.success() {
        return skip(&format!("no programs in this kernel: {}", String::from_utf8_lossy(&output.stderr)));
    }
    check_all("kernel");
}

/// How ubpf's fuzzer calls a plugin, and what other plugins tolerate.
fn programs_as_arguments() {
    let program = "79 10 00 00 00 00 00 00 95 00 00 00 00 00 00 00";
    let swapped = ["--program", program, "--debug"];
    for (mem, args) in [(Some("2a00000000000000"), &swapped[..2]), (Some("2a 00 00 00 00 00 00 00"), &swapped)] {
        let output = run(mem, args, b"");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "2a\n", "{output:?}");
    }
    let output = run(Some(""), &["--program", "bf10000000000000 9500000000000000"], b"");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{output:?}");
}

fn objects_on_standard_input() {
    let object = fs::read(corpus().join("embed/double.bpf.o")).expect("an object");
    let output = run(Some("0700000000000000 0900000000000000"), &["--elf"], hex(&object).as_bytes());
    // It has no main, and calls a function of its host: the message says what is missing.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr.contains("report") || stderr.contains("no program"), "{stderr}");
}

fn invalid_input_is_reported() {
    let cases: [(&[&str], &[u8], &str); 4] = [
        (&[], b"", "0 bytes are no program"),
        (&[], b"b7 00 00", "3 bytes are no program"),
        (&[], b"byebye", "'by' is not a byte in hex"),
        (&["abc", "--program", "9500000000000000"], b"", "memory: 'abc' has an odd number of hex digits"),
    ];
    for (args, stdin, wanted) in cases {
        let output = run(None, args, stdin);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains(wanted), "{wanted}: {stderr}");
    }
}

harness::tests! {
    vectors_on_the_interpreter,
    vectors_in_native_code,
    vectors_in_the_kernel,
    programs_as_arguments,
    objects_on_standard_input,
    invalid_input_is_reported,
}
