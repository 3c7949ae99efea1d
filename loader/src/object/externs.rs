//! Undefined symbols: what they are, by their place in BTF and by how they are used.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use twinbpf_btf::{Btf, Type};
use twinbpf_isa::opcode::CALL;
use twinbpf_isa::program::{Extern, ExternKind};

use super::functions::is_code;
use super::types::Types;
use crate::elf::{Bind, DefinedIn, Elf};

/// The undefined symbols.
#[derive(Debug, Default)]
pub(super) struct Externs {
    pub(super) list: Vec<Extern>,
    by_symbol: BTreeMap<usize, usize>,
}

impl Externs {
    /// Finds them.
    pub(super) fn collect(elf: &Elf, types: &Types) -> Externs {
        let called = called(elf);
        let kinds = types.btf.as_ref().ok().and_then(|btf| btf.as_deref()).map(kinds).unwrap_or_default();
        let btf = types.btf.as_ref().ok().and_then(|btf| btf.as_deref());
        let mut externs = Externs::default();
        for (index, symbol) in elf.symbols.iter().enumerate() {
            if symbol.defined_in != DefinedIn::Undefined || symbol.name.is_empty() {
                continue;
            }
            let name = &symbol.name;
            let is_function = |found: &Type<'_>| matches!(found, Type::Func { .. });
            let signature = btf.and_then(|btf| btf.signature(btf.find(name, is_function)?));
            let kind = match kinds.get(name) {
                Some(kind) => kind.clone(),
                None if signature.is_some() || called.contains(&index) => ExternKind::Function,
                None => ExternKind::Ksym,
            };
            externs.by_symbol.insert(index, externs.list.len());
            externs.list.push(Extern { name: name.clone(), weak: symbol.bind == Bind::Weak, kind, signature });
        }
        externs
    }

    /// The extern that a symbol is.
    pub(super) fn of_symbol(&self, symbol: usize) -> Option<usize> {
        self.by_symbol.get(&symbol).copied()
    }
}

/// What `.kconfig` and `.ksyms` declare.
fn kinds(btf: &Btf) -> HashMap<Arc<str>, ExternKind> {
    let mut kinds = HashMap::new();
    for (section, kind) in [(".kconfig", ExternKind::Kconfig), (".ksyms", ExternKind::Ksym)] {
        for var in btf.datasec(section).iter().flat_map(|section| section.vars()) {
            let kind = if var.is_func { ExternKind::Function } else { kind.clone() };
            kinds.insert(var.name.into(), kind);
        }
    }
    kinds
}

/// Symbols that some call refers to.
fn called(elf: &Elf) -> HashSet<usize> {
    let mut called = HashSet::new();
    for table in &elf.relocs {
        let Some(section) = elf.sections.get(table.target).filter(|section| is_code(section)) else { continue };
        for reloc in &table.relocs {
            let opcode = usize::try_from(reloc.offset).ok().and_then(|offset| section.data.get(offset));
            if opcode == Some(&CALL) {
                called.insert(reloc.symbol);
            }
        }
    }
    called
}
