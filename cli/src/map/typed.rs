//! A map with the types of its keys and values: elements to text and JSON.

use anyhow::{Result, bail};
use twinbpf_btf::{Btf, TypeId, format_value, json_value};
use twinbpf_isa::Endian;
use twinbpf_kernel::Map;
use twinbpf_kernel::map::MapTypes;
use twinbpf_loader::maps::fields;
use twinbpf_vm::map::{Entry, Field, MapKind, compare};

use super::{explain, not_listed, not_written, things};
use crate::args::ShowArgs;
use crate::hex::hex;

/// The byte order of the running kernel.
pub(super) const ENDIAN: Endian = if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big };

/// See the module documentation.
pub(super) struct Typed {
    map: Map,
    types: Option<MapTypes>,
    key_fields: Vec<Field>,
    value_fields: Vec<Field>,
}

/// An element as the kernel copies it.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) key: Vec<u8>,
    /// Its value, or those of all CPUs.
    pub(super) copied: Vec<u8>,
}

impl Typed {
    pub(super) fn new(map: Map) -> Result<Typed> {
        let types = map.types()?;
        let scalars = |id: Option<TypeId>| match (&types, id) {
            (Some(types), Some(id)) => fields(&types.btf, id),
            _ => Vec::new(),
        };
        let key_fields = scalars(types.as_ref().and_then(|types| types.key));
        let value_fields = scalars(types.as_ref().and_then(|types| types.value));
        Ok(Typed { map, types, key_fields, value_fields })
    }

    /// Names of the types of key and value.
    pub(super) fn names(map: &Map) -> Result<(Option<String>, Option<String>), twinbpf_kernel::Error> {
        let types = map.types()?;
        let name = |id: Option<TypeId>| Some(types.as_ref()?.btf.type_name(id?));
        Ok((name(types.as_ref().and_then(|types| types.key)), name(types.as_ref().and_then(|types| types.value))))
    }

    /// The map, for messages.
    pub(super) fn description(&self) -> String {
        let info = self.map.info();
        format!("map {} ({}, number {})", info.name, info.kind.name(), info.id)
    }

    pub(super) fn has_keys(&self) -> bool {
        self.map.info().key_size > 0
    }

    pub(super) fn key_type(&self) -> Option<(&Btf, TypeId)> {
        let types = self.types.as_ref()?;
        Some((&types.btf, types.key?))
    }

    pub(super) fn value_type(&self) -> Option<(&Btf, TypeId)> {
        let types = self.types.as_ref()?;
        Some((&types.btf, types.value?))
    }

    pub(super) fn key_size(&self) -> usize {
        self.map.info().key_size as usize
    }

    pub(super) fn value_size(&self) -> usize {
        self.map.info().value_size as usize
    }

    pub(super) fn kind(&self) -> MapKind {
        self.map.info().kind
    }

    pub(super) fn entry<'a>(&self, element: &'a Element) -> Entry<'a> {
        Entry::new(&element.key, &element.copied, self.map.info().value_size)
    }

    /// Every element, by key.
    pub(super) fn entries(&self) -> Result<Vec<Element>> {
        if let Some(why) = not_listed(self.kind()) {
            bail!("{}: {why}", self.description());
        }
        let all = explain(self.map.entries(), self)?;
        let mut all: Vec<Element> = all.into_iter().map(|(key, copied)| Element { key, copied }).collect();
        all.sort_by(|one, two| compare(&self.key_fields, &one.key, &two.key));
        // A walk that others disturb may see an element twice.
        all.dedup_by(|two, one| one.key == two.key);
        Ok(all)
    }

    pub(super) fn lookup(&self, key: &[u8]) -> Result<Option<Element>> {
        if let (Some(why), true) = (not_listed(self.kind()), self.has_keys() || !self.is_sequence()) {
            bail!("{}: {why}", self.description());
        }
        Ok(explain(self.map.lookup(key), self)?.map(|copied| Element { key: key.to_vec(), copied }))
    }

    fn is_sequence(&self) -> bool {
        matches!(self.kind(), MapKind::Queue | MapKind::Stack)
    }

    /// Whether elements can be written at all.
    pub(super) fn check_written(&self) -> Result<()> {
        let why = not_listed(self.kind()).filter(|_| !self.is_sequence()).or_else(|| not_written(&self.map));
        why.map_or(Ok(()), |why| bail!("{}: {why}", self.description()))
    }

    /// Writes a value to all CPUs that it has one for.
    pub(super) fn update(&self, key: &[u8], value: &[Vec<u8>], flags: u64) -> Result<()> {
        let mut bytes = Vec::new();
        for one in value {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes.extend(one);
        }
        bytes.resize(self.map.copy_size(), 0);
        explain(self.map.update(key, &bytes, flags), self)
    }

    /// How many values an element has.
    pub(super) fn copies(&self) -> usize {
        self.map.copy_size().checked_div(self.value_size().next_multiple_of(8)).unwrap_or(1).max(1)
    }

    pub(super) fn key_text(&self, key: &[u8]) -> String {
        self.index(key).map_or_else(|| plain(self.key_type(), key), |index| index.to_string())
    }

    /// Whether keys are slots.
    pub(super) fn is_array(&self) -> bool {
        is_array(self.kind())
    }

    /// How many elements it may have.
    pub(super) fn most(&self) -> u32 {
        self.map.info().max_entries
    }

    /// Keys of arrays without a type are numbers all the same.
    fn index(&self, key: &[u8]) -> Option<u32> {
        if self.key_type().is_some() || !self.is_array() {
            return None;
        }
        key.try_into().ok().map(u32::from_ne_bytes)
    }

    fn value_text(&self, value: &[u8]) -> String {
        if let (Some(thing), Ok(number)) = (things(self.kind()), value.try_into()) {
            return format!("{thing} {}", u32::from_ne_bytes(number));
        }
        if self.kind() == MapKind::StackTrace {
            let words = value.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
            let frames: Vec<String> =
                words.take_while(|address| *address != 0).map(|address| format!("{address:#x}")).collect();
            return format!("{{ {} }}", frames.join(", "));
        }
        plain(self.value_type(), value)
    }

    /// The value, or those of all CPUs.
    pub(super) fn values(&self, element: &Element, sum: bool) -> String {
        if !self.kind().is_per_cpu() || sum {
            return self.value_text(&self.entry(element).summed(&self.value_fields));
        }
        let each = self.entry(element).values().enumerate();
        let each = each.map(|(cpu, value)| format!("cpu {cpu}: {}", self.value_text(value)));
        each.collect::<Vec<_>>().join("\n")
    }

    /// An element as a line, or as one for each CPU below that of the key.
    pub(super) fn element(&self, element: &Element, args: &ShowArgs) -> String {
        if args.json {
            return format!("{{{}}}", self.json(element, args.sum));
        }
        let (key, values) = (self.key_text(&element.key), self.values(element, args.sum));
        if values.contains('\n') || (self.kind().is_per_cpu() && !args.sum) {
            return format!("{key}:\n  {}", values.replace('\n', "\n  "));
        }
        format!("{key}: {values}")
    }

    /// Members of a JSON object.
    pub(super) fn json(&self, element: &Element, sum: bool) -> String {
        let key = self.index(&element.key).map(|index| index.to_string());
        let key = key.unwrap_or_else(|| json(self.key_type(), &element.key));
        let values = self.json_values(element, sum);
        if self.has_keys() { format!("\"key\":{key},{values}") } else { values }
    }

    pub(super) fn json_values(&self, element: &Element, sum: bool) -> String {
        let one = |value: &[u8]| match (things(self.kind()), value.try_into()) {
            (Some(thing), Ok(number)) => format!("{{\"{thing}\":{}}}", u32::from_ne_bytes(number)),
            (_, _) => json(self.value_type(), value),
        };
        if !self.kind().is_per_cpu() || sum {
            return format!("\"value\":{}", one(&self.entry(element).summed(&self.value_fields)));
        }
        let each = self.entry(element).values().enumerate();
        let each = each.map(|(cpu, value)| format!("{{\"cpu\":{cpu},\"value\":{}}}", one(value)));
        format!("\"values\":[{}]", each.collect::<Vec<_>>().join(","))
    }
}

/// Whether keys are slots.
fn is_array(kind: MapKind) -> bool {
    use MapKind::{
        Array, ArrayOfMaps, CgroupArray, Cpumap, Devmap, InsnArray, PercpuArray, ProgArray, ReuseportSockarray,
        StackTrace, Xskmap,
    };
    matches!(
        kind,
        Array
            | PercpuArray
            | ProgArray
            | ArrayOfMaps
            | CgroupArray
            | Cpumap
            | Devmap
            | InsnArray
            | ReuseportSockarray
            | StackTrace
            | Xskmap
    )
}

/// By type, or as it is entered without one.
fn plain(of: Option<(&Btf, TypeId)>, bytes: &[u8]) -> String {
    match of {
        Some((btf, id)) => format_value(btf, id, bytes, ENDIAN),
        None => format!("hex:{}", hex(bytes)),
    }
}

fn json(of: Option<(&Btf, TypeId)>, bytes: &[u8]) -> String {
    match of {
        Some((btf, id)) => json_value(btf, id, bytes, ENDIAN),
        None => format!("\"{}\"", hex(bytes)),
    }
}
