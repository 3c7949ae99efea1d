//! Values of `.struct_ops`: tables of functions that the kernel calls, each a variable of the object.

use std::sync::Arc;

use twinbpf_btf::{Type, TypeId};

use super::code::{Targets, address};
use super::functions::Functions;
use super::spec::Reference;
use super::types::Types;
use crate::elf::{DefinedIn, Elf, Section, SectionType};

/// A variable in `.struct_ops` or `.struct_ops.link`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructOps {
    /// Name of the variable, and of the map that it becomes.
    pub name: Arc<str>,
    /// Name of its ELF section.
    pub section: Arc<str>,
    /// Its struct, for example `tcp_congestion_ops`.
    pub type_id: TypeId,
    /// Created by default: the section's name does not begin with `?`.
    pub autocreate: bool,
    /// Registered by a link (`.struct_ops.link`), not by writing the map.
    pub link: bool,
    /// Initial bytes, without functions.
    pub bytes: Vec<u8>,
    /// Byte offset of a member, and the function there, by index in [`Object::programs`](super::Object::programs).
    pub functions: Vec<(u32, usize)>,
}

/// The name of a section of such values without its `?`, and whether they are registered by a link.
fn section_kind(section: &Section) -> Option<bool> {
    match section.name.trim_start_matches('?') {
        _ if section.kind != SectionType::ProgBits => None,
        ".struct_ops" => Some(false),
        ".struct_ops.link" => Some(true),
        _ => None,
    }
}

/// Every value, in the order of sections and BTF. One that BTF or the symbol table does not describe is left out.
pub(super) fn collect(elf: &Elf, types: &Types, functions: &Functions, targets: &Targets) -> Vec<StructOps> {
    let mut found = Vec::new();
    let Ok(Some(btf)) = &types.btf else { return found };
    for (index, section) in elf.sections.iter().enumerate() {
        let Some(link) = section_kind(section) else { continue };
        let Some(described) = btf.datasec(&section.name) else { continue };
        for var in described.vars() {
            let Some(symbol) = elf.symbols_in(index).find(|symbol| &*symbol.name == var.name) else { continue };
            let Ok((type_id, Type::Struct(of))) = btf.resolve(var.type_id) else { continue };
            let start = usize::try_from(symbol.value).unwrap_or(usize::MAX);
            let end = start.saturating_add(of.size as usize);
            let Some(bytes) = section.data.get(start..end) else { continue };
            let mut value = StructOps {
                name: symbol.name.clone(),
                section: section.name.clone(),
                type_id,
                autocreate: !section.name.starts_with('?'),
                link,
                bytes: bytes.to_vec(),
                functions: Vec::new(),
            };
            for reloc in elf.relocs_of(index).flat_map(|table| &table.relocs) {
                let fits = |off: &u64| off.checked_add(8).is_some_and(|end| end <= u64::from(of.size));
                let off = reloc.offset.checked_sub(symbol.value).filter(fits);
                let symbol = elf.symbols.get(reloc.symbol);
                let (Some(off), Some(symbol)) = (off.and_then(|off| u32::try_from(off).ok()), symbol) else { continue };
                let DefinedIn::Section(section_index) = symbol.defined_in else { continue };
                let inline = bytes.get(off as usize..).and_then(|rest| rest.first_chunk());
                let inline = inline.map_or(0, |bytes| i64::from_le_bytes(*bytes));
                let target = i128::from(symbol.value) + i128::from(reloc.addend.unwrap_or(inline));
                if let Ok(Reference::Address(function)) = address(functions, targets, section_index, target) {
                    value.functions.push((off, function));
                    value.bytes[off as usize..off as usize + 8].fill(0);
                }
            }
            found.push(value);
        }
    }
    found
}
