//! C++ can include the public headers: `context.h` in a host that calls compiled programs, `script.h` in a script.
//!
//! Needs g++ and clang++-19; skips with a reason without them, unless `TWINBPF_CI=1`.

mod support;

use std::path::Path;
use std::process::Command;

use support::{harness, installed, skip};

/// The first version of C++ that the headers know, and a later one.
const STANDARDS: [&str; 2] = ["-std=c++17", "-std=gnu++20"];

/// A header with what uses it.
const HOST: (&str, &str) = ("context.cc", include_str!("cpp_headers/context.cc"));
const SCRIPT: (&str, &str) = ("script.cc", include_str!("cpp_headers/script.cc"));

/// Every header of `include/twinbpf`, by name.
fn headers() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/twinbpf");
    let entries = std::fs::read_dir(folder).expect("the headers");
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

/// Checks a source with a compiler, everything that it has to say being an error.
fn check(compiler: &str, options: &[&str], (name, text): (&str, &str)) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cpp-headers-{compiler}"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let source = directory.join(name);
    std::fs::write(&source, text).expect("a source file");
    for standard in STANDARDS {
        let output = Command::new(compiler)
            .args(["-x", "c++", "-Wall", "-Wextra", "-Werror", standard])
            .args(options)
            .arg("-I")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
            .arg(&source)
            .output()
            .expect("the compiler runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler} {standard} {options:?} {name}: {said}");
    }
}

fn cpp_takes_each_header() {
    let headers = headers();
    assert_eq!(headers, ["context.h", "perf.h", "perf_script.h", "script.h", "trace.h"]);
    if !installed("g++") {
        return skip("g++ is not installed");
    }
    for header in headers {
        check("g++", &["-fsyntax-only"], (&format!("{header}.cc"), &format!("#include <twinbpf/{header}>\n")));
    }
    check("g++", &["-fsyntax-only"], HOST);
    check("g++", &["-fsyntax-only"], SCRIPT);
}

fn cpp_scripts_compile_for_bpf() {
    if !installed("clang++-19") {
        return skip("clang++-19 is not installed");
    }
    check("clang++-19", &["-fsyntax-only"], HOST);
    // -O2 expands what the header inlines, as C++ must for BPF.
    let bpf = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-fno-exceptions", "-fno-rtti", "-c", "-o", "/dev/null"];
    check("clang++-19", &bpf, SCRIPT);
}

/// A program that C++ declares has the name that the object file has.
fn cpp_calls_programs_by_their_names() {
    if !installed("g++") {
        return skip("g++ is not installed");
    }
    let declaration = "#include <twinbpf/context.h>\nTWINBPF_PROGRAM(sum);\n\
        uint64_t call(struct twinbpf_context *cx) { return sum(cx); }\n";
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp-headers-g++");
    check("g++", &["-S", "-o", directory.join("call.s").to_str().expect("a path")], ("call.cc", declaration));
    let assembly = std::fs::read_to_string(directory.join("call.s")).expect("assembly");
    let calls = |name: &str| assembly.split_whitespace().any(|word| word.split('@').next() == Some(name));
    assert!(calls("sum"), "{assembly}");
}

harness::tests! {
    cpp_takes_each_header,
    cpp_scripts_compile_for_bpf,
    cpp_calls_programs_by_their_names,
}
