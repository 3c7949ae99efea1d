//! Bare instructions as the ELF file that they are not: a section `.text` with a symbol per function.
//!
//! What a function is, is found out from the calls alone. Nothing is checked: that is for linking, as with any object.

use std::collections::BTreeSet;

use twinbpf_isa::opcode::{CALL, LDDW};
use twinbpf_isa::{Endian, Raw};

use super::code::{PSEUDO_CALL, PSEUDO_FUNC};
use crate::elf::{Bind, DefinedIn, Elf, Section, SectionType, Symbol, SymbolKind};

pub(super) fn of_code(code: &[u8], endian: Endian) -> Elf<'_> {
    let (slots, _) = code.as_chunks::<8>();
    let data = slots.as_flattened();
    let section = Section {
        name: ".text".into(),
        kind: SectionType::ProgBits,
        alloc: true,
        exec: true,
        size: data.len() as u64,
        data,
    };
    let symbol = |slot: usize| Symbol {
        name: if slot == 0 { "main".into() } else { format!("function_{slot}").into() },
        value: slot as u64 * 8,
        size: 0,
        kind: SymbolKind::Func,
        bind: if slot == 0 { Bind::Global } else { Bind::Local },
        hidden: false,
        defined_in: DefinedIn::Section(0),
    };
    let symbols = starts(slots, endian).into_iter().map(symbol).collect();
    Elf::of_parts(endian, vec![section], symbols, Vec::new())
}

/// Slots where functions start: the first, and those that are called or have their address taken.
fn starts(slots: &[[u8; 8]], endian: Endian) -> BTreeSet<usize> {
    let targets = slots.iter().enumerate().filter_map(|(pc, slot)| {
        let raw = Raw::from_bytes(*slot, endian);
        let names = matches!((raw.opcode, raw.src()), (CALL, PSEUDO_CALL) | (LDDW, PSEUDO_FUNC));
        let target = usize::try_from(pc as i64 + 1 + i64::from(raw.imm)).ok()?;
        (names && target < slots.len()).then_some(target)
    });
    targets.chain([0]).collect()
}
