//! Map definitions of the time before BTF: `struct bpf_map_def` of libbpf 0.x and `struct bpf_elf_map` of iproute2.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_vm::map::{MapKind, MapSpec};

use crate::elf::{Elf, Read, SymbolKind};
use crate::error::Cause;

/// Bytes of iproute2's definition, the only larger one whose tail has one meaning.
const IPROUTE2_BYTES: usize = 36;
/// `inner_idx` of a map that is in no slot.
const NO_SLOT: u32 = u32::MAX;
/// `PIN_GLOBAL_NS` and `PIN_OBJECT_NS`; 0 is none.
const PIN_NONE: u32 = 0;

/// One definition.
#[derive(Debug)]
pub(super) struct Definition {
    /// Byte offset in the section.
    pub(super) offset: u64,
    pub(super) spec: Result<MapSpec, Cause>,
    pub(super) extra: Option<Extra>,
}

/// What iproute2 adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extra {
    pub(super) id: u32,
    inner_id: u32,
    inner_slot: u32,
}

/// One definition for each symbol of the section; it reaches to the next symbol.
pub(super) fn read(elf: &Elf, section: usize) -> Vec<Definition> {
    let mut symbols: Vec<_> = elf.symbols_in(section).filter(|symbol| symbol.kind != SymbolKind::Section).collect();
    symbols.retain(|symbol| !symbol.name.is_empty());
    symbols.sort_by_key(|symbol| symbol.value);
    symbols.dedup_by_key(|symbol| symbol.value);
    let bytes = elf.sections.get(section).map(|section| section.data).unwrap_or_default();
    let mut definitions = Vec::new();
    for (index, symbol) in symbols.iter().enumerate() {
        let end = symbols.get(index + 1).map_or(bytes.len() as u64, |next| next.value);
        let range = usize::try_from(symbol.value).ok().zip(usize::try_from(end).ok());
        let bytes = range.and_then(|(start, end)| bytes.get(start..end)).unwrap_or_default();
        let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| elf.endian.u32(*word)).take(9).collect();
        definitions.push(definition(symbol.name.clone(), symbol.value, &words, bytes.len()));
    }
    definitions
}

fn definition(name: Arc<str>, offset: u64, words: &[u32], size: usize) -> Definition {
    let extra = match words.get(5..9) {
        Some(&[id, _, inner_id, inner_slot]) if size == IPROUTE2_BYTES => Some(Extra { id, inner_id, inner_slot }),
        _ => None,
    };
    let pinned = extra.is_some() && words.get(6).is_some_and(|pinning| *pinning != PIN_NONE);
    let spec = match *words {
        [kind, key_size, value_size, max_entries, ref rest @ ..] => match MapKind::new(kind) {
            Some(kind) => {
                let flags = rest.first().copied().unwrap_or(0);
                Ok(map([key_size, value_size, max_entries, flags], name, kind, pinned))
            }
            None => Err(Cause::Map { map: name, why: format!("there is no map type {kind}") }),
        },
        _ => Err(Cause::Map { map: name, why: format!("a definition has at least 16 bytes, this one {size}") }),
    };
    Definition { offset, spec, extra }
}

fn map([key_size, value_size, max_entries, flags]: [u32; 4], name: Arc<str>, kind: MapKind, pinned: bool) -> MapSpec {
    MapSpec { flags, pinned, ..MapSpec::new(name, kind, key_size, value_size, max_entries) }
}

/// Which definition holds which: (offset of the outer, offset of the inner, slot). Every map with the id that
/// the outer one names is in it, at its `inner_idx`; the first is the template.
pub(super) fn nested(definitions: &[Definition]) -> Vec<(u64, u64, Option<u32>)> {
    let mut by_id: HashMap<u32, Vec<(u64, Option<u32>)>> = HashMap::new();
    for definition in definitions {
        if let Some(extra) = definition.extra.filter(|extra| extra.id != 0) {
            let slot = (extra.inner_slot != NO_SLOT).then_some(extra.inner_slot);
            by_id.entry(extra.id).or_default().push((definition.offset, slot));
        }
    }
    let outers = definitions.iter().filter(|definition| match &definition.spec {
        Ok(spec) => matches!(spec.kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps),
        Err(_) => false,
    });
    let pairs = outers.flat_map(|outer| {
        let inner = outer.extra.and_then(|extra| by_id.get(&extra.inner_id));
        inner.into_iter().flatten().map(|(inner, slot)| (outer.offset, *inner, *slot))
    });
    // Hostile definitions could hold each other, all in all.
    pairs.filter(|(outer, inner, _)| outer != inner).take(4 * definitions.len()).collect()
}
