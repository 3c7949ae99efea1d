//! Where the symbol table puts what BTF describes: clang leaves sizes of sections and offsets of variables open.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use twinbpf_btf::TypeId;

use super::types::Types;
use crate::elf::Elf;

/// Sections and variables of an object's BTF, as they lie in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SymbolLayout {
    /// Bytes of each section that BTF describes.
    pub(crate) sections: HashMap<Arc<str>, u32>,
    /// Offset of each variable in its section.
    pub(crate) vars: HashMap<TypeId, u32>,
    /// Variables that are invisible outside the object.
    pub(crate) hidden: HashSet<TypeId>,
}

impl SymbolLayout {
    pub(super) fn collect(elf: &Elf, types: &Types) -> SymbolLayout {
        let mut layout = SymbolLayout::default();
        let Ok(Some(btf)) = &types.btf else { return layout };
        for (name, described) in btf.datasecs() {
            let named = elf.sections.iter().enumerate().find(|(_, section)| &*section.name == name);
            let Some((index, section)) = named else { continue };
            layout.sections.insert(section.name.clone(), u32::try_from(section.size).unwrap_or(u32::MAX));
            let symbols: HashMap<&str, _> = elf.symbols_in(index).map(|symbol| (&*symbol.name, symbol)).collect();
            for var in described.vars() {
                let Some(symbol) = symbols.get(var.name) else { continue };
                layout.vars.insert(var.var_id, u32::try_from(symbol.value).unwrap_or(u32::MAX));
                if symbol.hidden {
                    layout.hidden.insert(var.var_id);
                }
            }
        }
        layout
    }
}
