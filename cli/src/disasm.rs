//! `twinbpf disasm`: linked instructions in the notation of the kernel's verifier.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use twinbpf::{EngineKind, PassRun};
use twinbpf_isa::program::{Binding, Program};
use twinbpf_isa::{CallKind, Insn, disasm_with};
use twinbpf_loader::{LinkOptions, Linked, Object};
use twinbpf_trace::{errln, terminal};
use twinbpf_vm::helper;
use twinbpf_vm::image::Image;
use twinbpf_vm::interp::SuperinstructionSet;

use crate::args::{DisasmArgs, split_program};
use crate::check::count;
use crate::load;

pub(crate) fn disasm(args: &DisasmArgs) -> Result<ExitCode> {
    let (path, name) = split_program(&args.program);
    if args.native || args.stats {
        return instantiated(args, &path, name);
    }
    let object = load::open(&path, &args.load)?;
    let entries = name.iter().map(|name| (*name).to_owned()).collect();
    let linked = object.link(&LinkOptions { entries, ..LinkOptions::default() })?;
    let wanted = |program: &Program| name.is_none_or(|name| &*program.name == name);
    let mut out = terminal::stdout();
    let mut failed = false;
    for failure in &linked.failures {
        let failing = object.programs.get(failure.spec).map_or("", |spec| &*spec.name);
        if name.is_none_or(|name| name == failing) {
            errln!("twinbpf: {:#}", failure.error);
            failed = true;
        }
    }
    for program in linked.programs.iter().filter(|program| wanted(program)) {
        print(&mut out, &object, &linked, program, args.source)?;
    }
    if failed {
        bail!("{}: not every program could be linked", object.name);
    }
    Ok(ExitCode::SUCCESS)
}

/// What native code and threaded code are like. That needs everything that running needs.
fn instantiated(args: &DisasmArgs, path: &Path, name: Option<&str>) -> Result<ExitCode> {
    let objects = load::open_all(&[path], &args.load)?;
    let config = load::config(&args.load, &args.limits, &args.compile);
    let engine = load::engine_with(config.engine(EngineKind::Interp), &args.load)?;
    let mut linker = load::linker(&engine, &args.load)?;
    twinbpf_trace::functions(&mut linker);
    let pre = match name {
        Some(name) => linker.instantiate_programs(&objects[0], &[name])?,
        None => linker.instantiate_pre(&objects[0])?,
    };
    let mut out = terminal::stdout();
    for program in pre.programs().filter(|program| name.is_none_or(|name| name == *program)) {
        writeln!(out, "{}: program {program}", objects[0].name)?;
        if !args.native {
            superinstructions(&mut out, pre.image(), program, engine.config().superinstructions)?;
            continue;
        }
        let entry = pre.program(program).expect("one of its programs");
        for (function, listing) in pre.listing(entry)? {
            match args.stats {
                true => stats(&mut out, &function, &listing.passes)?,
                false => writeln!(out, "{function}:\n{}", listing.text.trim_end())?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each superinstruction of each function of a program.
fn superinstructions(out: &mut impl Write, image: &Image, program: &str, set: SuperinstructionSet) -> Result<()> {
    let uses = set.uses(image);
    let program = image.program_index(program);
    for (index, function) in image.functions().iter().enumerate() {
        if Some(function.program as usize) != program {
            continue;
        }
        writeln!(out, "{}:", function.name)?;
        let own: Vec<_> = uses.iter().filter(|uses| uses.function == index).collect();
        match own.is_empty() {
            true => writeln!(out, "  no superinstruction")?,
            false => writeln!(out, "  {:<20} {:>8}", "superinstruction", "places")?,
        }
        for uses in own {
            writeln!(out, "  {:<20} {:>8}", uses.name, uses.count)?;
        }
    }
    Ok(())
}

/// A line for each pass over a function.
fn stats(out: &mut impl Write, function: &str, runs: &[PassRun]) -> Result<()> {
    writeln!(out, "{function}:")?;
    if runs.is_empty() {
        writeln!(out, "  no pass ran")?;
        return Ok(());
    }
    writeln!(out, "  {:<20} {:>8} {:>10}", "pass", "changes", "us")?;
    for run in runs {
        writeln!(out, "  {:<20} {:>8} {:>10.1}", run.name, run.changes, run.time.as_secs_f64() * 1e6)?;
    }
    Ok(())
}

fn print(out: &mut impl Write, object: &Object, linked: &Linked, program: &Program, source: bool) -> Result<()> {
    writeln!(
        out,
        "{}: program {} (section {}), {}, {}",
        object.name,
        program.name,
        program.section,
        count(program.insns.len(), "instruction"),
        count(program.functions.len(), "function")
    )?;
    let mut last = None;
    let above = |pc: usize| {
        let mut lines = Vec::new();
        if let Some(function) = program.functions.iter().find(|function| function.start == pc) {
            lines.push(format!("{}:", function.name));
        }
        if let Some(line) = program.lines.iter().find(|line| source && line.pc == pc)
            && last.replace((&line.file, line.line)) != Some((&line.file, line.line))
        {
            lines.push(format!("{}:{}: {}", line.file, line.line, line.text.trim()));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    };
    let beside = |pc: usize| match (program.insns.get(pc), program.bindings.get(&pc)) {
        (_, Some(binding)) => Some(describe(linked, program, *binding)),
        (Some(Insn::Call { kind: CallKind::Helper, imm, .. }), None) => helper::name(*imm),
        (Some(Insn::Call { kind: CallKind::Local, imm, .. }), None) => {
            let target = (pc as i64 + 1 + i64::from(*imm)) as usize;
            program.function_at(target).map(|function| function.name.to_string())
        }
        (_, None) => None,
    };
    writeln!(out, "{}", disasm_with(&program.insns, above, beside))?;
    Ok(())
}

/// What an instruction refers to, in words.
fn describe(linked: &Linked, program: &Program, binding: Binding) -> String {
    let map = |index: usize| linked.maps.get(index).map_or("?", |map| &*map.name);
    match binding {
        Binding::Map(index) => format!("map {}", map(index)),
        Binding::MapValue { map: index, off } => format!("{} + {off}", map(index)),
        Binding::Function(pc) => match program.function_at(pc) {
            Some(function) => format!("function {}", function.name),
            None => format!("function at {pc}"),
        },
        Binding::Extern(index) => linked.externs.get(index).map_or_else(String::new, |symbol| symbol.name.to_string()),
    }
}
