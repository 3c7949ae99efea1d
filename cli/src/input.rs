//! Which program runs once on what input: what `exec` and `bench` have in common.

use anyhow::{Context, Result, bail};
use twinbpf::{Instance, PacketKind, packet_kind};
use twinbpf_loader::{Object, ProgramSpec, Role};
use twinbpf_vm::mem::Block;

use crate::load;

/// The program that was named, or all there are.
pub(crate) fn programs<'a>(object: &'a Object, name: Option<&str>) -> Result<Vec<&'a ProgramSpec>> {
    if let Some(name) = name {
        let names = || object.programs.iter().map(|spec| &*spec.name).collect::<Vec<_>>().join(", ");
        let index = object.program(name);
        let index =
            index.with_context(|| format!("{}: there is no program '{name}'; it has {}", object.name, names()))?;
        return Ok(vec![&object.programs[index]]);
    }
    let entries: Vec<&ProgramSpec> = object.programs.iter().filter(|spec| spec.role == Role::Entry).collect();
    if entries.is_empty() {
        bail!("{}: no program", object.name);
    }
    Ok(entries)
}

/// The program that was named, or the only one there is.
pub(crate) fn choose<'a>(object: &'a Object, name: Option<&str>) -> Result<&'a ProgramSpec> {
    match programs(object, name)?.as_slice() {
        [only] => Ok(only),
        several => {
            let names: Vec<String> = several.iter().map(|spec| format!("{}:{}", object.name, spec.name)).collect();
            bail!("{}: several programs, choose one: {}", object.name, names.join(", "))
        }
    }
}

/// What a program gets in r1.
pub(crate) enum Input {
    None,
    Context(Vec<u8>),
    Packet(PacketKind, Vec<u8>),
}

impl Input {
    /// What `--ctx` and `--packet` say, for this program.
    pub(crate) fn new(ctx: Option<&str>, packet: Option<&str>, spec: &ProgramSpec) -> Result<Input> {
        if let Some(ctx) = ctx {
            return Ok(Input::Context(load::bytes(ctx).context("--ctx")?));
        }
        let kind = packet_kind(spec);
        let Some(packet) = packet else {
            if kind.is_some() && spec.attach.prog_type().is_some() {
                bail!(
                    "program {} (section {}) gets a packet: give one with --packet HEX or @FILE",
                    spec.name,
                    spec.section
                );
            }
            return Ok(Input::None);
        };
        let bytes = load::bytes(packet).context("--packet")?;
        match kind {
            Some(kind) => Ok(Input::Packet(kind, bytes)),
            None => bail!(
                "program {} (section {}) gets no packet; give its context with --ctx HEX or @FILE",
                spec.name,
                spec.section
            ),
        }
    }

    /// A fresh copy of it in the memory of the instance: what keeps it there, and the arguments of the program.
    pub(crate) fn give(&self, instance: &mut Instance<()>) -> Result<(Option<Block>, Vec<u64>)> {
        Ok(match self {
            Input::None => (None, vec![]),
            Input::Context(bytes) => {
                let block = instance.context(bytes)?;
                let args = vec![block.addr(), bytes.len() as u64];
                (Some(block), args)
            }
            Input::Packet(kind, bytes) => (None, vec![instance.set_packet(*kind, bytes)?]),
        })
    }
}
