//! References of instructions: relocations of code sections, and calls that need none.
//!
//! The shapes are those of libbpf's `bpf_program__record_reloc`: the opcode and the symbol decide, the type of
//! the relocation does not. A relocation that means nothing is kept as an error and fails its program.

use twinbpf_isa::Raw;
use twinbpf_isa::opcode::{CALL, LDDW};

use std::collections::HashSet;

use super::externs::Externs;
use super::functions::{Functions, is_code};
use super::maps::Maps;
use super::spec::{Notes, ProgramSpec, Reference};
use crate::elf::{DefinedIn, Elf, Reloc, RelocTable, Symbol};
use crate::error::{Cause, RelocFault};

/// `R_BPF_NONE`.
const NONE: u32 = 0;
/// Stands for the slot of every relocation outside its section.
const STRAY: usize = usize::MAX;
/// `src` of a call inside the object.
pub(super) const PSEUDO_CALL: u8 = 1;
/// `src` of an `lddw` of a function's address.
pub(super) const PSEUDO_FUNC: u8 = 4;

/// What relocations can refer to.
pub(super) struct Targets<'a> {
    pub(super) elf: &'a Elf<'a>,
    pub(super) maps: &'a Maps,
    pub(super) externs: &'a Externs,
}

/// Why a place holds nothing to refer to.
#[derive(Debug)]
pub(super) enum Fault {
    /// The relocation is wrong.
    Reloc(RelocFault),
    /// What it refers to is.
    Target(Cause),
}

impl Fault {
    /// As an error, given how to make one of a relocation.
    pub(super) fn cause(self, of_reloc: impl Fn(RelocFault) -> Cause) -> Cause {
        match self {
            Fault::Reloc(why) => of_reloc(why),
            Fault::Target(cause) => cause,
        }
    }
}

impl From<RelocFault> for Fault {
    fn from(why: RelocFault) -> Fault {
        Fault::Reloc(why)
    }
}

/// Fills in the references of every function.
pub(super) fn resolve(functions: &mut Functions, targets: &Targets, notes: &mut Notes) {
    let mut seen = HashSet::new();
    for table in &targets.elf.relocs {
        let section = targets.elf.sections.get(table.target);
        if section.is_some_and(is_code) {
            resolve_table(functions, targets, table, &mut seen, notes);
        }
    }
    resolve_local(functions);
    functions.finish_inner();
}

fn resolve_table(
    functions: &mut Functions,
    targets: &Targets,
    table: &RelocTable,
    seen: &mut HashSet<(usize, usize)>,
    notes: &mut Notes,
) {
    let Some(section) = targets.elf.sections.get(table.target) else { return };
    if table.explicit_addend {
        notes.accepted(&section.name, format!("relocations with addends in '{}'", table.name));
    }
    let mut outside = HashSet::new();
    for reloc in table.relocs.iter().filter(|reloc| reloc.kind != NONE) {
        let slot = usize::try_from(reloc.offset / 8).unwrap_or(usize::MAX);
        if !seen.insert((table.target, slot)) {
            notes.skipped(&section.name, format!("a second relocation at offset {:#x}", reloc.offset));
            continue;
        }
        let owners: Vec<usize> = functions.all_containing(table.target, slot).collect();
        if reloc.offset >= section.data.len() as u64 {
            // It could have been meant for any of them; one is enough to say so.
            if seen.insert((table.target, STRAY)) {
                let why = RelocFault::Offset("an instruction inside it");
                functions.fail_section(table.target, &reloc_cause(targets.elf, table.target, reloc, why));
            }
        } else if owners.is_empty() {
            let text = format!("a relocation at offset {:#x}, which is in no function", reloc.offset);
            notes.skipped(&section.name, text);
        }
        for owner in owners {
            let Some(spec) = functions.specs.get(owner) else { continue };
            let pc = slot.saturating_sub(spec.start);
            let insns = (spec.insns.get(pc).copied(), spec.insns.get(pc + 1).copied());
            let found = classify(functions, targets, insns, reloc);
            let fail = |why| reloc_cause(targets.elf, table.target, reloc, why);
            let found = found.map_err(|fault| fault.cause(fail));
            if let Ok(Reference::Call(callee)) = found {
                note_callee(functions, callee, &mut outside, notes);
            }
            if let Some(spec) = functions.specs.get_mut(owner) {
                spec.refs.insert(pc, found);
            }
        }
    }
}

/// libbpf calls only what is in `.text`.
fn note_callee(functions: &Functions, callee: usize, outside: &mut HashSet<usize>, notes: &mut Notes) {
    let Some(spec) = functions.specs.get(callee) else { return };
    if !spec.section.starts_with(".text") && outside.insert(callee) {
        notes.accepted(&spec.section, format!("'{}' is called, though it is not in .text", spec.name));
    }
}

/// What the relocation of the first of `insns` refers to.
fn classify(
    functions: &mut Functions,
    targets: &Targets,
    (raw, next): (Option<Raw>, Option<Raw>),
    reloc: &Reloc,
) -> Result<Reference, Fault> {
    let raw = raw.filter(|_| reloc.offset.is_multiple_of(8)).ok_or(RelocFault::Offset("an instruction"))?;
    let symbol = targets.elf.symbols.get(reloc.symbol).ok_or(RelocFault::Symbol(reloc.symbol))?;
    match raw.opcode {
        CALL => Ok(call(functions, targets, &raw, reloc, symbol)?),
        LDDW => load(functions, targets, (&raw, next.as_ref()), reloc, symbol),
        other => Err(RelocFault::Opcode(other).into()),
    }
}

/// The error of a relocation.
pub(super) fn reloc_cause(elf: &Elf, section: usize, reloc: &Reloc, why: RelocFault) -> Cause {
    let section = elf.sections.get(section).map_or_else(|| "".into(), |section| section.name.clone());
    let symbol = elf.symbols.get(reloc.symbol).map(|symbol| match symbol.defined_in {
        DefinedIn::Section(section_index) if symbol.name.is_empty() => {
            elf.sections.get(section_index).map_or_else(|| "".into(), |section| section.name.clone())
        }
        DefinedIn::Section(_) | DefinedIn::Undefined | DefinedIn::Common | DefinedIn::Reserved => symbol.name.clone(),
    });
    Cause::Reloc { section, offset: reloc.offset, symbol: symbol.unwrap_or_else(|| "".into()), why }
}

fn call(
    functions: &mut Functions,
    targets: &Targets,
    raw: &Raw,
    reloc: &Reloc,
    symbol: &Symbol,
) -> Result<Reference, RelocFault> {
    let section_index = match symbol.defined_in {
        DefinedIn::Undefined => return extern_reference(targets, reloc),
        DefinedIn::Section(section_index) => section_index,
        DefinedIn::Common | DefinedIn::Reserved => return Err(RelocFault::NoSection),
    };
    let section = targets.elf.sections.get(section_index).ok_or(RelocFault::CallToData)?;
    if !is_code(section) {
        return Err(RelocFault::CallToData);
    }
    // `imm` counts instructions from the symbol, less one; an explicit addend counts bytes.
    let target = match reloc.addend {
        Some(addend) => i128::from(symbol.value) + i128::from(addend),
        None => i128::from(symbol.value) + 8 * (i128::from(raw.imm) + 1),
    };
    let slot = usize::try_from(target).ok().filter(|target| target.is_multiple_of(8)).map(|target| target / 8);
    let found = slot.and_then(|slot| functions.called(section_index, slot));
    let missing = || RelocFault::NotFunctionStart { section: section.name.clone(), offset: clamp(target) };
    found.map(Reference::Call).ok_or_else(missing)
}

fn load(
    functions: &Functions,
    targets: &Targets,
    (low, high): (&Raw, Option<&Raw>),
    reloc: &Reloc,
    symbol: &Symbol,
) -> Result<Reference, Fault> {
    let high = high.ok_or(RelocFault::Offset("a whole 64-bit load"))?;
    let inline = i64::from(high.imm) << 32 | i64::from(low.imm.cast_unsigned());
    let addend = reloc.addend.unwrap_or(inline);
    match symbol.defined_in {
        DefinedIn::Undefined if addend != 0 => Err(RelocFault::Unsupported("offsets into an undefined symbol").into()),
        DefinedIn::Undefined => Ok(extern_reference(targets, reloc)?),
        DefinedIn::Section(section_index) => {
            address(functions, targets, section_index, i128::from(symbol.value) + i128::from(addend))
        }
        DefinedIn::Common | DefinedIn::Reserved => Err(RelocFault::NoSection.into()),
    }
}

fn extern_reference(targets: &Targets, reloc: &Reloc) -> Result<Reference, RelocFault> {
    targets.externs.of_symbol(reloc.symbol).map(Reference::Extern).ok_or(RelocFault::Symbol(reloc.symbol))
}

/// What is at byte `offset` of a section.
pub(super) fn address(
    functions: &Functions,
    targets: &Targets,
    section_index: usize,
    offset: i128,
) -> Result<Reference, Fault> {
    let section = targets
        .elf
        .sections
        .get(section_index)
        .ok_or_else(|| RelocFault::Section(format!("{section_index}").into()))?;
    let name = || section.name.clone();
    if let Some(map) = targets.maps.data_of(section_index) {
        let map = map.clone().map_err(Fault::Target)?;
        // One past the end is a valid C pointer.
        let inside = u32::try_from(offset).ok().filter(|off| u64::from(*off) <= section.size);
        let outside = || RelocFault::OutOfData { section: name(), offset: clamp(offset), size: section.size };
        return Ok(Reference::MapValue { map, off: inside.ok_or_else(outside)? });
    }
    if targets.maps.has_section(section_index) {
        let found = u64::try_from(offset).ok().and_then(|offset| targets.maps.at(section_index, offset));
        let missing = || RelocFault::NoMap { section: name(), offset: clamp(offset) };
        return match found.ok_or_else(missing)? {
            Ok(map) => Ok(Reference::Map(*map)),
            Err(cause) => Err(Fault::Target(cause.clone())),
        };
    }
    if is_code(section) {
        let slot = usize::try_from(offset).ok().filter(|offset| offset.is_multiple_of(8)).map(|offset| offset / 8);
        let found = slot.and_then(|slot| functions.starting(section_index, slot));
        let inside = || RelocFault::NotFunctionStart { section: name(), offset: clamp(offset) };
        return Ok(Reference::Address(found.ok_or_else(inside)?));
    }
    Err(RelocFault::Section(name()).into())
}

fn clamp(offset: i128) -> i64 {
    offset.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Calls and function addresses inside one section, which clang resolves itself.
fn resolve_local(functions: &mut Functions) {
    for index in 0..functions.specs.len() {
        let (Some(spec), Some(&section)) = (functions.specs.get(index), functions.homes.get(index)) else { return };
        if spec.inside.is_some() {
            continue;
        }
        let named: Vec<(usize, bool, i64)> = local_targets(spec).collect();
        let name = spec.section.clone();
        for (pc, address, target) in named {
            let callee = usize::try_from(target).ok().and_then(|slot| functions.called(section, slot));
            let reference = match callee {
                Some(callee) if address => Ok(Reference::Address(callee)),
                Some(callee) => Ok(Reference::Call(callee)),
                None => Err(Cause::NoFunction { section: name.clone(), target }),
            };
            if let Some(spec) = functions.specs.get_mut(index) {
                spec.refs.insert(pc, reference);
            }
        }
    }
}

/// Instructions that name a slot of their own section: pc, whether its address is loaded, the slot.
fn local_targets(spec: &ProgramSpec) -> impl Iterator<Item = (usize, bool, i64)> {
    spec.insns.iter().enumerate().filter(|(pc, _)| !spec.refs.contains_key(pc)).filter_map(|(pc, raw)| {
        let address = match (raw.opcode, raw.src()) {
            (CALL, PSEUDO_CALL) => false,
            (LDDW, PSEUDO_FUNC) => true,
            _ => return None,
        };
        Some((pc, address, spec.start as i64 + pc as i64 + i64::from(raw.imm) + 1))
    })
}
