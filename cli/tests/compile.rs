//! `twinbpf compile`: what comes out runs on each machine, and in `run` and `exec` only where it fits.

mod common;
#[path = "../../benches/src/workload/mod.rs"]
#[allow(dead_code, unused_imports, reason = "peers of the benches use the rest")]
#[allow(missing_docs, unreachable_pub, reason = "a module of another package")]
mod workload;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{cases, corpus, harness, installed, skip, stderr, twinbpf};
use tempfile::TempDir;
use workload::WORKLOADS;

/// Target, C compiler, and what runs its programs.
const MACHINES: [(&str, &str, Option<&str>); 3] = [
    ("x86_64", "cc", None),
    ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc", Some("qemu-aarch64")),
    ("riscv64", "riscv64-linux-gnu-gcc", Some("qemu-riscv64")),
];

fn compile<S: AsRef<OsStr>>(object: &str, output: &Path, args: &[S]) -> Output {
    let mut command = twinbpf();
    command.current_dir(corpus()).arg("compile").arg(object).args(args).arg("-o").arg(output);
    command.output().unwrap()
}

fn succeed(what: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {:?}\n{text}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles an object of the corpus into a shared library.
fn library(folder: &TempDir, object: &str, args: &[&str]) -> PathBuf {
    let (file, library) = (folder.path().join("x.o"), folder.path().join("x.so"));
    succeed(object, &compile(object, &file, args));
    common::link(&file, &library);
    library
}

/// A C program that runs every workload over its block, read from a file, and prints the results.
fn host() -> String {
    let declarations: String = WORKLOADS.iter().map(|it| format!("TWINBPF_PROGRAM({}_prog);\n", it.name)).collect();
    let table: String = WORKLOADS.iter().map(|it| format!("\t{{ \"{0}\", {0}_prog }},\n", it.name)).collect();
    format!(
        r#"#include <stdio.h>
#include <twinbpf/context.h>
{declarations}
static const struct {{ const char *name; uint64_t (*run)(struct twinbpf_context *); }} workloads[] = {{
{table}}};
static _Alignas(16) unsigned char stack[65536], block[{block}];

int main(int argc, char **argv)
{{
	for (size_t i = 0; argc == 2 && i < sizeof(workloads) / sizeof(*workloads); i++) {{
		struct twinbpf_context cx;
		char path[4096];
		snprintf(path, sizeof(path), "%s/%s.block", argv[1], workloads[i].name);
		FILE *file = fopen(path, "rb");
		if (!file || fread(block, 1, sizeof(block), file) != sizeof(block))
			return 1;
		fclose(file);
		twinbpf_init(&cx, stack, sizeof(stack), TWINBPF_FRAME);
		cx.regs[1] = (uintptr_t)block;
		printf("%s %llu\n", workloads[i].name, (unsigned long long)workloads[i].run(&cx));
	}}
	return 0;
}}
"#,
        block = workload::BLOCK
    )
}

/// All workloads for a machine, linked into one static program and run there.
fn workloads(target: &str, cc: &str, emulator: Option<&str>, memory: Option<&str>) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut objects = Vec::new();
    for workload in WORKLOADS {
        fs::write(path(&format!("{}.block", workload.name)), workload.block()).unwrap();
        let object = path(&format!("{}.o", workload.name));
        let prefix = format!("{}_", workload.name);
        let args = ["--target", target, "--prefix", &prefix].into_iter().chain(memory);
        let output = compile(&format!("bench/{}.bpf.o", workload.name), &object, &args.collect::<Vec<_>>());
        succeed(workload.name, &output);
        objects.push(object);
    }
    fs::write(path("main.c"), host()).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut link = Command::new(cc);
    link.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-static", "-o"]).arg(path("main")).arg("-I");
    succeed(cc, &link.arg(include).arg(path("main.c")).args(&objects).output().unwrap());
    let mut run = match emulator {
        Some(emulator) => Command::new(emulator),
        None => Command::new("env"),
    };
    let output = run.arg(path("main")).arg(folder.path()).output().unwrap();
    let wanted: String = WORKLOADS.iter().map(|it| format!("{} {}\n", it.name, it.expected())).collect();
    assert_eq!(succeed(target, &output), wanted, "{target}, {memory:?}");
}

fn workloads_run_on_every_machine() {
    for (target, cc, emulator) in MACHINES {
        let native = emulator.is_none();
        if native && !cfg!(target_arch = "x86_64") {
            continue;
        }
        if let Some(missing) = [Some(cc), emulator].into_iter().flatten().find(|program| !installed(program)) {
            skip(&format!("{target}: {missing} is not installed"));
            continue;
        }
        for memory in [None, Some("--trust"), Some("--strict")] {
            workloads(target, cc, emulator, memory);
        }
    }
}

fn the_example_of_the_guide_runs() {
    if !installed("cc") {
        return skip("cc is not installed");
    }
    if !cfg!(target_arch = "x86_64") {
        return skip("the object is for x86-64");
    }
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/native.md")).unwrap();
    let example = guide.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example in C");
    fs::write(path("main.c"), example).unwrap();
    let object = path("double.o");
    succeed("double", &compile("embed/double.bpf.o", &object, &["--trust", "--host", "report"]));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(path("main")).arg("-I").arg(include);
    succeed("cc", &cc.arg(path("main.c")).arg(object).output().unwrap());
    assert_eq!(succeed("main", &Command::new(path("main")).output().unwrap()), "14\n18\n");
}

fn a_target_without_compiler_is_an_error() {
    let folder = TempDir::new().unwrap();
    let error = |target: &str| {
        let output = compile("bench/sha256.bpf.o", &folder.path().join("x.o"), &["--target", target]);
        assert_eq!(output.status.code(), Some(125), "{target}");
        stderr(&output)
    };
    for target in ["s390x-unknown-linux-gnu", "powerpc64-unknown-linux-gnu", "s390x"] {
        let words = error(target);
        assert!(words.contains("is big-endian and takes no little-endian BPF code"), "{words}");
    }
    for target in ["wasm32", "powerpc64le-unknown-linux-gnu", "aarch64-apple-darwin", "i686"] {
        let words = error(target);
        assert!(words.contains("targets are x86_64, aarch64, riscv64"), "{words}");
    }
    let words = error("z80");
    assert!(words.contains("write it as aarch64-unknown-linux-gnu"), "{words}");
    assert!(!folder.path().join("x.o").exists());
}

fn objects_hold_no_address_of_the_compiler() {
    let folder = TempDir::new().unwrap();
    let [first, second] = ["1.o", "2.o"].map(|name| folder.path().join(name));
    let mut compiled = 0;
    for (index, case) in cases().iter().enumerate() {
        let Some(object) = case.args.iter().find(|arg| arg.contains(".bpf.o")) else { continue };
        let target = ["x86_64", "aarch64", "riscv64"][index % 3];
        // Addresses differ from process to process. What cannot be compiled is the business of other tests.
        if compile(object, &first, &["--target", target, "--trust", "--lib", "libc.so.6"]).status.success() {
            succeed(object, &compile(object, &second, &["--target", target, "--trust", "--lib", "libc.so.6"]));
            assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "{object} for {target}");
            compiled += 1;
        }
    }
    assert!(compiled > 100, "{compiled} objects");
}

fn run(object: &str, args: &[&str], library: &Path) -> Output {
    twinbpf().current_dir(corpus()).arg("run").args(args).arg(object).arg("--compiled").arg(library).output().unwrap()
}

fn code_is_used_where_it_fits_only() {
    if !common::runs_native() {
        return skip(common::NO_NATIVE_CODE);
    }
    let folder = TempDir::new().unwrap();
    let object = "scripts/callbacks.bpf.o";
    let sandbox = library(&folder, object, &[]);
    let golden = fs::read_to_string(corpus().join("scripts/callbacks.out")).unwrap();
    assert_eq!(succeed(object, &run(object, &[], &sandbox)), golden);
    let refused = |output: Output, words: &str| {
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let text = stderr(&output);
        assert!(text.contains(words), "{text}");
    };
    let words = "was not made of these bytes of scripts/hello.bpf.o but of scripts/callbacks.bpf.o; compile it again";
    refused(run("scripts/hello.bpf.o", &[], &sandbox), words);
    refused(run(object, &["--strict"], &sandbox), "memory was sandbox and is strict here");
    refused(run(object, &["--max-insns", "9999"], &sandbox), "fuel was no and is yes here");
    refused(run(object, &["--stack-size", "1024"], &sandbox), "stack was 576 and is 1088 here");
    refused(run(object, &[], Path::new("nowhere.so")), "cannot load nowhere.so");
    refused(run(object, &["--engine", "interp"], &sandbox), "cannot be used with");

    let strict = library(&folder, object, &["--strict", "--fuel", "--opt-level", "none"]);
    assert_eq!(succeed(object, &run(object, &["--strict", "--max-insns", "1000000"], &strict)), golden);
    refused(run(object, &[], &strict), "memory was strict and is sandbox here");
    refused(run(object, &["--strict", "--max-insns", "99"], &strict), "the limit is 99 instructions");
}

fn the_object_itself_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("hello.bpf.o");
    fs::copy(corpus().join("scripts/hello.bpf.o"), &copy).unwrap();
    let words = stderr(&compile(copy.to_str().unwrap(), &copy, &["--trust"]));
    assert!(words.contains("is the object to be compiled"), "{words}");
    assert_eq!(fs::read(&copy).unwrap(), fs::read(corpus().join("scripts/hello.bpf.o")).unwrap());
}

fn a_library_of_something_else_is_refused() {
    if !common::runs_native() {
        return skip(common::NO_NATIVE_CODE);
    }
    let folder = TempDir::new().unwrap();
    let link = |text: &str| {
        let (source, library) = (folder.path().join("x.c"), folder.path().join("other.so"));
        fs::write(&source, text).unwrap();
        let output = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output().unwrap();
        succeed("cc", &output);
        stderr(&run("scripts/hello.bpf.o", &[], &library))
    };
    let words = link("int twinbpf;");
    assert!(words.contains("it has no symbol twinbpf_compiled"), "{words}");
    let words = link("const char twinbpf_compiled[64] = \"something\";");
    assert!(words.contains("its symbol twinbpf_compiled is none of twinbpf's"), "{words}");
    let words = link("const char twinbpf_compiled[64] = \"twinbpf\\0\\7\";");
    assert!(words.contains("its format is version 7, and only 4 can be loaded"), "{words}");
    let words = link("const char twinbpf_compiled[64] = \"twinbpf\\0\\4\\0\\0\\0\\x40\\0\\0\\0\\xff\\xff\\xff\";");
    assert!(words.contains("its description is damaged"), "{words}");
}

fn one_program_of_several_can_be_compiled() {
    if !common::runs_native() {
        return skip(common::NO_NATIVE_CODE);
    }
    let folder = TempDir::new().unwrap();
    let one = library(&folder, "embed/endure.bpf.o:fine", &[]);
    let exec = |program: &str| {
        let program = format!("embed/endure.bpf.o:{program}");
        let mut command = twinbpf();
        command.current_dir(corpus()).args(["exec", &program, "--json", "--compiled"]).arg(&one).output().unwrap()
    };
    let text = succeed("fine", &exec("fine"));
    assert!(text.contains("\"r0\":1"), "{text}");
    let words = stderr(&exec("wild"));
    assert!(words.contains("has no program wild; it has fine"), "{words}");
}

#[cfg(target_arch = "x86_64")]
fn verified_code_runs_and_changed_code_does_not() {
    if !common::runs_native() {
        return skip(common::NO_NATIVE_CODE);
    }
    let object = "scripts/callbacks.bpf.o";
    let golden = fs::read_to_string(corpus().join("scripts/callbacks.out")).unwrap();
    for engine in ["jit", "auto"] {
        let args = ["run", "--verify-native", "--engine", engine, object];
        assert_eq!(succeed(object, &twinbpf().current_dir(corpus()).args(args).output().unwrap()), golden);
    }
    let folder = TempDir::new().unwrap();
    let library = library(&folder, object, &[]);
    assert_eq!(succeed(object, &run(object, &["--verify-native"], &library)), golden);

    // `pop rbp` before a return as `pop rcx`: the caller's frame is lost.
    let mut bytes = fs::read(&library).unwrap();
    let ret = [0x48, 0x89, 0xec, 0x5d, 0xc3];
    let all: Vec<usize> = (0..bytes.len() - ret.len()).filter(|at| bytes[*at..].starts_with(&ret)).collect();
    assert!(!all.is_empty());
    all.iter().for_each(|at| bytes[at + 3] = 0x59);
    let changed = folder.path().join("changed.so");
    fs::write(&changed, bytes).unwrap();
    let output = run(object, &["--verify-native"], &changed);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let text = stderr(&output);
    assert!(text.contains("changed.so") && text.contains("`ret`") && text.contains("rbp"), "{text}");
}

harness::tests! {
    workloads_run_on_every_machine,
    the_example_of_the_guide_runs,
    a_target_without_compiler_is_an_error,
    objects_hold_no_address_of_the_compiler,
    code_is_used_where_it_fits_only,
    the_object_itself_is_not_overwritten,
    a_library_of_something_else_is_refused,
    one_program_of_several_can_be_compiled,
    #[cfg(target_arch = "x86_64")]
    verified_code_runs_and_changed_code_does_not,
}
