//! `twinbpf conformance`: the plugin that the runner of <https://github.com/Alan-Jowett/bpf_conformance> calls, once a test.
//!
//! It speaks that protocol and no more: bytes in, r0 out. Maps and packets do not occur in it.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use twinbpf::{EngineKind, Object};
use twinbpf_isa::{Endian, encode_all};
use twinbpf_loader::LinkOptions;
use twinbpf_trace::{Output, errln, terminal};

use crate::args::{ConformanceArgs, ConformanceEngine};
use crate::input::choose;
use crate::load;

/// What bare instructions are called in messages.
const NAME: &str = "program";
/// The function that the runner wants of an object.
const MAIN: &str = "main";
/// Most bytes of hex digits on standard input: a million instructions with two blanks after each byte.
const MAX_HEX: u64 = 1 << 25;
/// Status of a program that was refused or that trapped, as other plugins have it.
const STATUS_REFUSED: u8 = 1;

pub(crate) fn conformance(args: &ConformanceArgs) -> ExitCode {
    let printed = run(args).and_then(|r0| Ok(writeln!(terminal::stdout(), "{r0:x}")?));
    let Err(error) = printed else { return ExitCode::SUCCESS };
    errln!("twinbpf: {}", crate::story(&error));
    ExitCode::from(STATUS_REFUSED)
}

fn run(args: &ConformanceArgs) -> Result<u64> {
    let memory = args.memory.as_deref().map(load::bytes).transpose().context("memory")?.unwrap_or_default();
    let program = match &args.program {
        Some(hex) => load::bytes(hex).context("--program")?,
        None => load::bytes(&standard_input()?).context("standard input")?,
    };
    let object = if args.elf { Object::open("standard input", &program)? } else { bare(&program)? };
    let name = match object.program(MAIN) {
        Some(_) => MAIN,
        None => &choose(&object, None)?.name,
    };
    let kind = match args.engine {
        ConformanceEngine::Interp => EngineKind::Interp,
        ConformanceEngine::Jit => EngineKind::Jit,
        ConformanceEngine::Kernel => return in_kernel(&object, name, &memory),
    };
    let config = load::config(&args.load, &args.limits, &args.compile);
    let engine = load::engine_with(config.engine(kind), &args.load)?;
    let pre = load::linker(&engine, &args.load)?.instantiate_programs(&object, &[name])?;
    let entry = pre.program(name).expect("instantiated above");
    let mut instance = pre.instance_with_output((), Output::default().boxed())?;
    if memory.is_empty() {
        return Ok(instance.call(entry, &[0, 0])?);
    }
    let block = instance.context(&memory)?;
    Ok(instance.call(entry, &[block.addr(), memory.len() as u64])?)
}

fn bare(program: &[u8]) -> Result<Object> {
    if program.is_empty() || !program.len().is_multiple_of(8) {
        bail!("{} bytes are no program: each instruction has 8, and there is at least one", program.len());
    }
    Ok(Object::from_code(NAME, program, Endian::Little)?)
}

fn standard_input() -> Result<String> {
    let mut hex = String::new();
    let read = std::io::stdin().take(MAX_HEX + 1).read_to_string(&mut hex);
    if read.context("cannot read the program from standard input")? as u64 > MAX_HEX {
        bail!("the program on standard input has more than {MAX_HEX} bytes of hex digits");
    }
    Ok(hex)
}

/// Only what refers to nothing: the function is loaded without its maps.
fn in_kernel(object: &Object, name: &str, memory: &[u8]) -> Result<u64> {
    let mut linked = object.link(&LinkOptions { entries: vec![name.to_owned()], ..LinkOptions::default() })?;
    if let Some(at) = linked.failures.iter().position(|failure| *object.programs[failure.spec].name == *name) {
        return Err(linked.failures.swap_remove(at).error.into());
    }
    let program = linked.programs.iter().find(|program| *program.name == *name).expect("linked or failed");
    if let Some(pc) = program.bindings.keys().next() {
        bail!("{name}, insn {pc}: it refers to a map or a symbol, and the kernel engine runs bare instructions only");
    }
    Ok(twinbpf_kernel::run_function(&encode_all(&program.insns, Endian::Little), memory)?)
}
