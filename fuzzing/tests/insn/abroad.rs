//! The cases compiled ahead of time, in a C program on each machine that there is a compiler for and that this is not.
//!
//! Left out: what must trap, for that would end the C program; and what asks the machine for something, as calls of
//! computed addresses do.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use twinbpf_isa::Insn;
use twinbpf_isa::program::Program;
use twinbpf_jit::aot::{self, AotError, Cpu, Origin, Target, TargetError};
use twinbpf_jit::{Memory, Options};
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::mem::Arena;

use crate::build::{self, DUMP, Prologue};
use crate::case::{Case, Expect, Run, Value};
use crate::native::{Shared, shared};
use crate::run::{self, Outcome};
use crate::support::{installed, skip};

/// Target, C compiler, and what runs its programs.
const MACHINES: [(&str, &str, &str); 2] =
    [("aarch64", "aarch64-linux-gnu-gcc", "qemu-aarch64"), ("riscv64", "riscv64-linux-gnu-gcc", "qemu-riscv64")];

/// The host functions of the cases, in C.
const HOSTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <twinbpf/context.h>
#define HOST(name, ...) static struct twinbpf_pair name(void *env, struct twinbpf_context *cx, ##__VA_ARGS__)
#define GIVE(x) (void)env; (void)cx; return (struct twinbpf_pair){ (uint64_t)(x), 0 }
HOST(host_sum, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) { GIVE(a + b * 2 + c * 3 + d * 4 + e * 5); }
HOST(host_s32, uint64_t a) { GIVE((int64_t)(int32_t)a); }
HOST(host_u8, uint64_t a) { GIVE((uint8_t)a); }
HOST(host_one) { GIVE(1); }
HOST(host_two) { GIVE(2); }
HOST(host_first) { GIVE(1111); }
HOST(host_second) { GIVE(2222); }
"#;

/// Reads runs from standard input: program, length, which registers are relative to the memory, the block. Writes the
/// address of the memory, r0 and the block.
const MAIN: &str = r#"
static _Alignas(64) unsigned char stack[65536], block[1 << 20];

int main(void)
{
	uint64_t head[3];
	while (fread(head, sizeof(head), 1, stdin) == 1) {
		struct twinbpf_context cx;
		uint64_t *regs = (uint64_t *)block, out[2] = { (uintptr_t)block + 80, 0 };
		if (head[0] >= sizeof(programs) / sizeof(*programs) || head[1] > sizeof(block))
			return 1;
		if (fread(block, head[1], 1, stdin) != 1)
			return 2;
		for (int i = 0; i < 10; i++)
			regs[i] += head[2] >> i & 1 ? out[0] : 0;
		twinbpf_init(&cx, stack, sizeof(stack), TWINBPF_FRAME);
		cx.hosts = hosts;
		cx.regs[1] = (uintptr_t)block;
		out[1] = programs[head[0]](&cx);
		fwrite(out, sizeof(out), 1, stdout);
		fwrite(block, head[1], 1, stdout);
	}
	return 0;
}
"#;

/// Whether a C program can run this.
fn travels(program: &Program) -> bool {
    let stays = |(pc, insn): (usize, &Insn)| match insn {
        Insn::Callx { .. } | Insn::Gotox { .. } | Insn::LoadPacket { .. } => true,
        Insn::LoadImm { .. } => program.bindings.contains_key(&pc),
        _ => false,
    };
    !program.insns.iter().enumerate().any(stays)
}

fn chosen<'a>(shared: &'a Shared<'a>, memory: Memory) -> impl Iterator<Item = (&'a Case, &'a Run)> {
    let strays = move |run: &Run| match memory {
        Memory::Sandbox => run.strays.sandbox,
        Memory::Strict => run.strays.strict,
        Memory::Trusted => run.strays.trusted,
    };
    let fine = move |run: &Run| {
        let Expect::State(_) = run.expect else { return false };
        run.input.insns.is_none() && run.input.depth.is_none() && !strays(run)
    };
    shared.runs.iter().copied().filter(move |(_, run)| fine(run))
}

/// A run as the C program reads it.
fn record(index: usize, run: &Run) -> Vec<u8> {
    let mut relative = 0_u64;
    let mut block = Vec::new();
    for reg in 0..10 {
        if let Some(Value::Mem(_)) = run.input.regs[reg] {
            relative |= 1 << reg;
        }
        block.extend(build::initial(&run.input, reg, 0).to_le_bytes());
    }
    block.extend(&run.input.mem);
    let mut bytes = Vec::new();
    for word in [index as u64, block.len() as u64, relative] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(block);
    bytes
}

fn must(what: &str, output: Output) -> Vec<u8> {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {:?} {text}", output.status);
    output.stdout
}

/// Builds a C program of an object file.
fn link(folder: &Path, cc: &str, names: &[String], image: &Image) -> PathBuf {
    let mut text = HOSTS.to_owned();
    names.iter().for_each(|name| writeln!(text, "TWINBPF_PROGRAM({name});").expect("a string takes it"));
    let programs: Vec<&str> = names.iter().map(String::as_str).collect();
    let hosts: Vec<String> =
        image.hosts().iter().map(|host| format!("{{ (const void *)host_{}, 0 }}", host.name())).collect();
    let _ = write!(
        text,
        "static uint64_t (*const programs[])(struct twinbpf_context *) = {{ {} }};\n\
         static const struct twinbpf_host hosts[] = {{ {} }};\n{MAIN}",
        programs.join(", "),
        hosts.join(", ")
    );
    let (source, program) = (folder.join("main.c"), folder.join("main"));
    fs::write(&source, text).expect("a source file");
    let mut command = Command::new(cc);
    command.args(["-O1", "-static", "-w", "-o"]).arg(&program).arg(&source).arg(folder.join("cases.o"));
    command.arg("-I").arg(crate::support::corpus().with_file_name("include"));
    must(cc, command.output().expect("the C compiler runs"));
    program
}

/// All cases on one machine. False if this build has no compiler for it.
fn check(shared: &[Shared<'_>], (target, cc, emulator): (&str, &str, &str), memory: Memory) -> bool {
    let fits = |it: &&Shared<'_>| travels(&it.program) && chosen(it, memory).next().is_some();
    let all: Vec<&Shared<'_>> = shared.iter().filter(fits).collect();
    assert!(all.len() > 800, "{} programs", all.len());
    let arena = match memory {
        Memory::Trusted => run::trusted_arena(1 << 26),
        Memory::Sandbox | Memory::Strict => Arena::new(1 << 26),
    };
    let (externs, helper) = (run::externs(), |id| run::helper(id));
    let resolve = Resolve { maps: &[], values: &[], externs: &externs, helper: &helper, labels: &[], pointed: &[] };
    let programs: Vec<_> = all.iter().map(|shared| shared.program.clone()).collect();
    let names: Vec<String> = programs.iter().map(|program| program.name.to_string()).collect();
    let image = Image::new(&arena.expect("address space"), programs, resolve).expect("an image");
    // Cranelift's own checks take longer than compiling, and say nothing of the target that tests of this machine do not.
    let options = Options { memory, verify: false, ..Options::default() };
    let origin = Origin { object: "cases", digest: 0, maps: &[], externs: &[] };
    let compiler = Target::new(Some(target), Cpu::Baseline).expect("a target");
    let object = match aot::object(&image, options, &compiler, origin, "") {
        Ok(object) => object,
        Err(AotError::Target(TargetError::Disabled { .. })) => return false,
        Err(error) => panic!("{target}: {error}"),
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("abroad-{target}-{memory:?}"));
    fs::create_dir_all(&folder).expect("a directory");
    fs::write(folder.join("cases.o"), object).expect("an object file");
    let program = link(&folder, cc, &names, &image);
    let runs =
        all.iter().enumerate().flat_map(|(index, shared)| chosen(shared, memory).map(move |(_, run)| (index, run)));
    let input: Vec<u8> = runs.flat_map(|(index, run)| record(index, run)).collect();
    fs::write(folder.join("runs"), input).expect("a file");
    let mut command = Command::new(emulator);
    command.arg(program).stdin(fs::File::open(folder.join("runs")).expect("just written"));
    let output = must(target, command.output().expect("the program runs"));
    compare(&all, memory, &output, target);
    true
}

/// Compares what the C program wrote with what the cases say.
fn compare(all: &[&Shared<'_>], memory: Memory, mut output: &[u8], target: &str) {
    let mut failures = Vec::new();
    for shared in all {
        for (case, run) in chosen(shared, memory) {
            let (words, rest) = output.split_at(16 + DUMP);
            let (mem, rest) = rest.split_at(run.input.mem.len());
            output = rest;
            let word = |at: usize| u64::from_le_bytes(words[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
            let regs = std::array::from_fn(|reg| word(2 + reg));
            let outcome = Outcome::foreign(word(0), word(1), regs, mem.to_vec());
            let result = run::compare(&outcome, &shared.body, run);
            failures.extend(result.err().map(|what| format!("{}: {what}", case.name(run))));
        }
    }
    assert!(output.is_empty(), "{} bytes too many", output.len());
    let shown = failures.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{target}, {memory:?}: {} runs fail, the first of them:\n{shown}", failures.len());
}

pub(crate) fn every_case_on_other_machines() {
    let cases = crate::corpus();
    let shared = shared(&cases, Prologue::Loads);
    for machine in MACHINES {
        let (target, cc, emulator) = machine;
        if let Some(missing) = [cc, emulator].into_iter().find(|program| !installed(program)) {
            skip(&format!("{target}: {missing} is not installed"));
            continue;
        }
        for memory in [Memory::Trusted, Memory::Sandbox] {
            if !check(&shared, machine, memory) {
                skip(&format!("{target}: this build has no compiler for it; test the whole workspace"));
                break;
            }
        }
    }
}
