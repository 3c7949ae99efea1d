//! `twinbpf compile`: an object file for the C linker.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use twinbpf::EngineKind;
use twinbpf::Target;
use twinbpf_isa::program::{Signature, ValType};
use twinbpf_trace::errln;

use crate::args::{LimitArgs, ObjectFileArgs, split_program};
use crate::load;

pub(crate) fn compile(args: &ObjectFileArgs) -> Result<ExitCode> {
    let target = Target::new(args.target.as_deref(), args.cpu)?;
    let (path, name) = split_program(&args.program);
    let objects = load::open_all(&[&path], &args.load)?;
    let object = &objects[0];
    if args.output.canonicalize().is_ok_and(|output| path.canonicalize().is_ok_and(|path| path == output)) {
        bail!("{} is the object to be compiled; write to another file", args.output.display());
    }
    let config = load::config(&args.load, &LimitArgs::default(), &args.compile);
    // Any limit has the code count.
    let max_insns = args.fuel.then_some(u64::MAX);
    let engine = load::engine_with(config.engine(EngineKind::Interp).max_insns(max_insns), &args.load)?;
    let mut linker = load::linker(&engine, &args.load)?;
    twinbpf_trace::functions(&mut linker);
    for name in &args.host {
        let symbol = object.externs.iter().find(|symbol| *symbol.name == **name);
        let symbol = symbol.with_context(|| format!("--host {name}: {} calls no such function", object.name))?;
        let word = ValType::Int { size: 8, signed: false };
        let unknown = Signature { params: vec![word; 5], variadic: false, result: word };
        linker.elsewhere(name, symbol.signature.clone().unwrap_or(unknown));
    }
    let scripts: Vec<&str> = load::scripts(object).map(|spec| &*spec.name).collect();
    let pre = match name {
        Some(name) => linker.instantiate_programs(object, &[name])?,
        None if scripts.is_empty() => linker.instantiate_pre(object)?,
        None => linker.instantiate_programs(object, &scripts)?,
    };
    for warning in pre.warnings() {
        errln!("twinbpf: warning: {warning}");
    }
    let bytes = pre.object_file(&target, &args.prefix).with_context(|| object.name.to_string())?;
    fs::write(&args.output, bytes).with_context(|| format!("cannot write {}", args.output.display()))?;
    Ok(ExitCode::SUCCESS)
}
