//! `twinbpf btf`: types of kernels and objects, printed.

mod record;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use twinbpf_btf::{Btf, TypeId};
use twinbpf_trace::Output;

use crate::args::{BtfArgs, BtfCommand, BtfDumpArgs, BtfFormat};
use crate::load;
use crate::source::KERNEL;

pub(crate) fn btf(args: &BtfArgs) -> Result<ExitCode> {
    match &args.command {
        BtfCommand::Dump(args) => dump(args),
    }
}

fn dump(args: &BtfDumpArgs) -> Result<ExitCode> {
    let btf = read(args)?;
    let name = args.file.display();
    let roots = args.root.iter().map(|root| find(&btf, root)).collect::<Result<Vec<_>>>()?.concat();
    let roots = (!roots.is_empty()).then_some(roots.as_slice());
    let text = match (args.format, roots) {
        (BtfFormat::C, roots) => btf.to_c(roots).with_context(|| name.to_string())?,
        (BtfFormat::Raw, roots) => record::text(&btf, roots),
        (BtfFormat::Json, roots) => record::json(&btf, roots),
    };
    let mut output = Output::default();
    // What fails is kept for `finish`.
    let _ = output.write_all(text.as_bytes());
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The types in a file: BTF as it is, or a section of an object.
fn read(args: &BtfDumpArgs) -> Result<Arc<Btf>> {
    let path = &args.file;
    let name = path.display();
    let bytes = load::object_bytes(path, &args.load).map_err(|error| match path == Path::new(KERNEL) {
        true => error.context("this kernel shows no types (CONFIG_DEBUG_INFO_BTF); name a file with BTF"),
        false => error,
    })?;
    let Some(endian) = Btf::detect_endian(&bytes) else {
        let object = twinbpf::Object::open(&name.to_string(), &bytes)?;
        return match (object.btf, object.btf_error) {
            (Some(btf), _) => Ok(btf),
            (None, Some(error)) => Err(error).with_context(|| name.to_string()),
            (None, None) => bail!("{name}: no BTF; compile with -g"),
        };
    };
    // A module's types continue where the kernel's end, so alone they lead nowhere.
    match Btf::parse(&bytes, endian) {
        Ok(btf) => Ok(Arc::new(btf)),
        Err(error) => {
            let base = std::fs::read(&args.base).ok().and_then(|bytes| Btf::parse(&bytes, endian).ok());
            let split = base.and_then(|base| Btf::parse_split(&bytes, &Arc::new(base)).ok());
            split.map(Arc::new).ok_or(error).with_context(|| name.to_string())
        }
    }
}

/// The types of a name, `struct NAME` for one kind of them, or the one with a number.
fn find(btf: &Btf, root: &str) -> Result<Vec<TypeId>> {
    if let Ok(number) = root.parse() {
        btf.get(TypeId(number))?;
        return Ok(vec![TypeId(number)]);
    }
    let (kind, name) = root.split_once(' ').map_or((None, root), |(kind, name)| (Some(kind), name));
    let mut found: Vec<TypeId> = btf.ids_by_name(name).collect();
    found.retain(|&id| kind.is_none_or(|kind| btf.type_by_id(id).is_some_and(|found| found.kind_name() == kind)));
    if found.is_empty() {
        bail!("--root {root}: there is no such type");
    }
    Ok(found)
}
