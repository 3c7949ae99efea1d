//! Programs to be compiled, and what compiles them.
#![expect(unsafe_code, reason = "programs of the benches are trusted")]

use std::process::Command;
use std::sync::Arc;

use twinbpf_isa::program::Program;
use twinbpf_isa::{Endian, Policy, encode_all};
use twinbpf_jit::{Code, JitError, Memory, Options};
use twinbpf_loader::{LinkOptions, Object};
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::mem::Arena;

use crate::clock::wall_ns;
use crate::peers::native::clang;
use crate::peers::{Run, Runner, rbpf, sbpf};
use crate::workload::{Dialect, corpus, program};

/// A workload of exactly 64 instructions.
///
/// # Panics
///
/// When it has become another number.
pub fn small(dialect: Dialect) -> Program {
    let program = program("memcpy64", dialect);
    assert_eq!(program.insns.len(), 64, "the workload's instructions");
    program
}

/// The object of `corpus/bench/large.c`, made now.
pub fn large() -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("large.o");
    let mut command = Command::new(clang());
    command.args(["-O2", "-target", "bpf", "-mcpu=v3", "-fno-builtin", "-c", "-o"]).arg(&path);
    let output = command.arg(corpus().join("bench/large.c")).output();
    let output = output.map_err(|error| format!("{}: {error}", clang()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::read(&path).map_err(|error| error.to_string())
}

/// The program of that object.
pub fn large_program(object: &[u8]) -> Result<Program, String> {
    let object = Object::open("large.o", object).map_err(|error| error.to_string())?;
    let linked = object.link(&LinkOptions::default()).map_err(|error| error.to_string())?;
    linked.programs.into_iter().next().ok_or_else(|| "no program".to_owned())
}

/// Compiles a program that refers to nothing for good, and frees the code: a run returns the number of instructions.
pub fn in_twinbpf(program: &Program, options: Options) -> Result<Runner, String> {
    compiled_by(program, options, Code::compile_all)
}

/// The same for the first tier.
pub fn in_first_tier(program: &Program, options: Options) -> Result<Runner, String> {
    compiled_by(program, options, |code| code.compile_first_tier(0))
}

fn compiled_by(
    program: &Program,
    options: Options,
    compile: impl Fn(&Code) -> Result<(), JitError> + 'static,
) -> Result<Runner, String> {
    let arena = match options.memory {
        // SAFETY: the code is never called.
        Memory::Trusted => unsafe { Arena::trusted(1 << 20) },
        Memory::Sandbox | Memory::Strict => Arena::new(1 << 20),
    };
    let arena = arena.map_err(|error| error.to_string())?;
    let insns = program.insns.len() as u64;
    let valid = program.clone().validate(&Policy::default(), &|_| true).map_err(|error| error.to_string())?;
    let resolve = Resolve { maps: &[], values: &[], externs: &[], helper: &|_| None, labels: &[], pointed: &[] };
    let image = Arc::new(Image::new(&arena, vec![valid], resolve).map_err(|error| error.to_string())?);
    Ok(Box::new(move || {
        let code = Code::new(Arc::clone(&image), options).map_err(|error| error.to_string())?;
        compile(&code).map_err(|error| error.to_string())?;
        Ok(insns)
    }))
}

/// The same in rbpf, its checks of the program included.
pub fn in_rbpf(program: &Program, engine: rbpf::Engine) -> Runner {
    let insns = program.insns.len() as u64;
    let code: &'static [u8] = encode_all(&program.insns, Endian::Little).leak();
    Box::new(move || rbpf::compile(code, engine).map(|_| insns))
}

/// The same in solana-sbpf, its checks of the program included.
pub fn in_sbpf(program: &Program, engine: sbpf::Engine) -> Runner {
    let insns = program.insns.len() as u64;
    let code = encode_all(&program.insns, Endian::Little);
    Box::new(move || sbpf::compiled(&code, &[], engine).map(|_| insns))
}

/// A backend with warm caches: before each sample as many runs are not measured.
pub fn warm(machine: Runner) -> Runner {
    Box::new(Warm(machine))
}

struct Warm(Runner);

impl Run for Warm {
    fn run(&mut self) -> Result<u64, String> {
        self.0.run()
    }

    fn time(&mut self, runs: u64) -> Result<u64, String> {
        self.0.time(runs)?;
        self.0.time(runs)
    }
}

/// A machine measured by the clock on the wall: for work that several threads share.
pub struct Wall<F>(pub F);

impl<F: FnMut() -> Result<u64, String>> Run for Wall<F> {
    fn run(&mut self) -> Result<u64, String> {
        (self.0)()
    }

    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let start = wall_ns();
        for _ in 0..runs {
            std::hint::black_box(self.run()?);
        }
        Ok(wall_ns() - start)
    }
}
