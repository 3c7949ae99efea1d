//! Pointers inside data sections (`R_BPF_64_ABS64`): string tables, function tables, addresses of maps.
//!
//! libbpf ignores them; a table compiled for it holds zeroes.

use super::code::{Targets, address, reloc_cause};
use super::functions::Functions;
use super::spec::{DataPointer, Notes, Reference};
use crate::elf::{DefinedIn, Elf, Read, Reloc};
use crate::error::{Cause, RelocFault};

/// `R_BPF_NONE`.
const NONE: u32 = 0;
/// `R_BPF_64_64`, which old LLVM also uses in data.
const R64_64: u32 = 1;
/// `R_BPF_64_ABS64`.
const ABS64: u32 = 2;

/// Every pointer of every data map.
pub(super) fn pointers(functions: &Functions, targets: &Targets, notes: &mut Notes) -> Vec<DataPointer> {
    let mut found = Vec::new();
    for (section, map) in targets.maps.data_sections() {
        for table in targets.elf.relocs_of(section) {
            notes.accepted(&table.name, "pointers inside data");
            for reloc in table.relocs.iter().filter(|reloc| reloc.kind != NONE) {
                let target = pointer(functions, targets, section, reloc);
                let off = u32::try_from(reloc.offset).unwrap_or(u32::MAX);
                found.push(DataPointer { map, off, target });
            }
        }
    }
    found
}

fn pointer(functions: &Functions, targets: &Targets, section: usize, reloc: &Reloc) -> Result<Reference, Cause> {
    let fail = |why| reloc_cause(targets.elf, section, reloc, why);
    let inline =
        inline_addend(targets.elf, section, reloc).ok_or_else(|| fail(RelocFault::Offset("8 bytes of data")))?;
    if !matches!(reloc.kind, R64_64 | ABS64) {
        return Err(fail(RelocFault::Unsupported("relocations of data other than 64-bit pointers")));
    }
    let symbol = targets.elf.symbols.get(reloc.symbol).ok_or_else(|| fail(RelocFault::Symbol(reloc.symbol)))?;
    let addend = reloc.addend.unwrap_or(inline);
    match symbol.defined_in {
        DefinedIn::Undefined if addend != 0 => Err(fail(RelocFault::Unsupported("offsets into an undefined symbol"))),
        DefinedIn::Undefined => {
            let found = targets.externs.of_symbol(reloc.symbol).map(Reference::Extern);
            found.ok_or_else(|| fail(RelocFault::Symbol(reloc.symbol)))
        }
        DefinedIn::Section(section_index) => {
            let offset = i128::from(symbol.value) + i128::from(addend);
            address(functions, targets, section_index, offset).map_err(|fault| fault.cause(fail))
        }
        DefinedIn::Common | DefinedIn::Reserved => Err(fail(RelocFault::NoSection)),
    }
}

/// The 8 bytes that the pointer replaces.
fn inline_addend(elf: &Elf, section: usize, reloc: &Reloc) -> Option<i64> {
    let data = elf.sections.get(section)?.data;
    let rest = data.get(usize::try_from(reloc.offset).ok()?..)?;
    Some(elf.endian.u64(*rest.first_chunk::<8>()?).cast_signed())
}
