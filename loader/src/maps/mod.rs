//! Map definitions in BTF: what each variable of `.maps` says about the map it stands for, and [the
//! scalars](Layouts) of keys and values.
//!
//! A definition is a struct whose members are the keys; an array length encodes an integer, a pointer a type
//! (`__uint`, `__type`, `__array` of `bpf_helpers.h`). Conditions and their order follow libbpf's
//! `parse_btf_map_def`. Two deliberate differences: one bad definition is that map's error and not the object's,
//! and an unknown key is reported beside the map, so that a tool can still show the rest; who links the object
//! refuses it as libbpf does.
//!
//! Not done here: ring buffer sizes are not rounded up to pages and a perf event array's zero capacity is not
//! made the number of CPUs, since that depends on the machine; and `values` is filled from ELF relocations, which
//! the loader matches against [`MapDecl::slots`].

use std::collections::{BTreeMap, HashSet};

use twinbpf_btf::{Btf, Linkage, Member, Type, TypeId, VarInfo};
use twinbpf_vm::map::{MapKind, MapSpec};

mod error;
mod fields;

#[cfg(test)]
mod tests;

pub use error::MapError;
pub use fields::{Layouts, fields};

/// Keys a definition can have before it is refused as nonsense.
const MAX_KEYS: usize = 64;

/// One variable of `.maps`.
#[derive(Clone, Debug, PartialEq)]
pub struct MapDecl {
    /// Name of the variable, and of the map.
    pub name: String,
    /// Id of its type of kind `VAR`.
    pub var_id: TypeId,
    /// Offset that BTF gives; clang writes 0 and leaves the truth to the symbol table.
    pub offset: u32,
    /// Bytes of the variable.
    pub size: u32,
    /// The map, or why the definition makes none.
    pub spec: Result<MapSpec, MapError>,
    /// Type of the key, if written with `__type`.
    pub key_type: Option<TypeId>,
    /// Type of the value, if written with `__type`.
    pub value_type: Option<TypeId>,
    /// The same types of the inner map.
    pub inner_types: (Option<TypeId>, Option<TypeId>),
    /// Where `values` lies, if there is one.
    pub slots: Option<Slots>,
    /// The first unknown key. libbpf refuses such a map (`-ENOTSUP`); so must a linker.
    pub unknown: Option<UnknownKey>,
}

/// The initialised part of a map of maps or a prog array: 8-byte pointers inside the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// What they point to.
    pub kind: SlotsKind,
    /// Byte offset of slot 0 inside the variable.
    pub offset: u32,
    /// Number of slots that the initialiser wrote.
    pub count: u32,
}

/// What slots point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsKind {
    /// Inner maps of a map of maps.
    Maps,
    /// Programs of a prog array.
    Programs,
}

/// An unknown key of a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("map '{map}' has an unknown key '{key}'")]
pub struct UnknownKey {
    /// Name of the map.
    pub map: String,
    /// Name of the unknown key.
    pub key: String,
}

/// The maps of the `.maps` section, in its order; none if there is no such section.
pub fn map_specs(btf: &Btf) -> Vec<MapDecl> {
    let Some(section) = btf.datasec(".maps") else { return Vec::new() };
    let mut layouts = Layouts::new(btf);
    // A variable stands in its section once; hostile BTF may repeat it to blow the list up.
    let mut seen = HashSet::new();
    let vars = section.vars().filter(|var| !var.is_func && seen.insert(var.var_id));
    vars.map(|var| declare(btf, &mut layouts, &var)).collect()
}

fn declare(btf: &Btf, layouts: &mut Layouts<'_>, var: &VarInfo<'_>) -> MapDecl {
    let mut definition = Definition::new(btf, var.name.to_owned(), false);
    let spec = match check_var(btf, var) {
        Ok(()) => definition.read(var.type_id).and_then(|()| definition.spec(layouts)),
        Err(error) => Err(error),
    };
    let slots = definition.values.map(|(kind, offset)| {
        let count = var.size.saturating_sub(offset) / 8;
        Slots { kind, offset, count }
    });
    let inner = definition.inner.as_deref();
    MapDecl {
        name: var.name.to_owned(),
        var_id: var.var_id,
        offset: var.offset,
        size: var.size,
        spec,
        key_type: definition.key.id,
        value_type: definition.value.id,
        inner_types: inner.map_or((None, None), |inner| (inner.key.id, inner.value.id)),
        slots,
        unknown: definition.unknown,
    }
}

fn check_var(btf: &Btf, var: &VarInfo<'_>) -> Result<(), MapError> {
    let linkage = match var.linkage {
        Linkage::Global => None,
        Linkage::Static => Some("static"),
        Linkage::Extern => Some("extern"),
    };
    if let Some(linkage) = linkage {
        return Err(MapError::Linkage { map: var.name.to_owned(), linkage });
    }
    match btf.resolve(var.type_id) {
        Ok((_, Type::Struct(found))) if found.size > var.size => {
            Err(MapError::Size { map: var.name.to_owned(), size: found.size, var: var.size })
        }
        Ok(_) => Ok(()),
        Err(source) => Err(MapError::Btf { map: var.name.to_owned(), key: "type of the variable", source }),
    }
}

/// A size that two keys may give.
#[derive(Clone, Copy, Debug, Default)]
struct Sized {
    size: Option<u32>,
    id: Option<TypeId>,
}

/// What has been read of a definition.
#[derive(Debug)]
struct Definition<'a> {
    btf: &'a Btf,
    name: String,
    is_inner: bool,
    number: Option<u32>,
    key: Sized,
    value: Sized,
    max_entries: u32,
    flags: u32,
    numa_node: u32,
    pinned: bool,
    extra: u64,
    values: Option<(SlotsKind, u32)>,
    inner: Option<Box<Definition<'a>>>,
    unknown: Option<UnknownKey>,
}

impl<'a> Definition<'a> {
    fn new(btf: &'a Btf, name: String, is_inner: bool) -> Definition<'a> {
        Definition {
            btf,
            name,
            is_inner,
            number: None,
            key: Sized::default(),
            value: Sized::default(),
            max_entries: 0,
            flags: 0,
            numa_node: 0,
            pinned: false,
            extra: 0,
            values: None,
            inner: None,
            unknown: None,
        }
    }

    fn read(&mut self, id: TypeId) -> Result<(), MapError> {
        let Ok((_, Type::Struct(found))) = self.btf.resolve(id) else {
            return Err(MapError::NotStruct { map: self.name.clone(), found: self.btf.type_name(id) });
        };
        let count = found.len();
        if count > MAX_KEYS {
            return Err(MapError::TooManyKeys { map: self.name.clone(), count, limit: MAX_KEYS });
        }
        for (index, member) in found.members().enumerate() {
            self.member(&member, index + 1 == count)?;
        }
        Ok(())
    }

    fn member(&mut self, member: &Member<'_>, is_last: bool) -> Result<(), MapError> {
        match member.name {
            "type" => self.number = Some(self.integer(member)?),
            "max_entries" => self.max_entries = self.integer(member)?,
            "map_flags" => self.flags = self.integer(member)?,
            "numa_node" => self.numa_node = self.integer(member)?,
            "key_size" => self.key = self.sized("key_size", self.key, self.integer(member)?, None)?,
            "value_size" => self.value = self.sized("value_size", self.value, self.integer(member)?, None)?,
            "key" => {
                let (size, id) = self.pointed("key", member)?;
                self.key = self.sized("key_size", self.key, size, Some(id))?;
            }
            "value" => {
                let (size, id) = self.pointed("value", member)?;
                self.value = self.sized("value_size", self.value, size, Some(id))?;
            }
            "pinning" => self.pinning(member)?,
            "map_extra" => self.extra = self.long(member)?,
            "values" => self.values(member, is_last)?,
            key => {
                let map = &self.name;
                self.unknown.get_or_insert_with(|| UnknownKey { map: map.clone(), key: key.to_owned() });
            }
        }
        Ok(())
    }

    /// `int (*key)[N]`: N.
    fn integer(&self, member: &Member<'_>) -> Result<u32, MapError> {
        if let Ok((_, Type::Ptr(to))) = self.btf.resolve(member.type_id)
            && let Ok((_, Type::Array(array))) = self.btf.resolve(to)
        {
            return Ok(array.len);
        }
        let (key, found) = (member.name.to_owned(), self.btf.type_name(member.type_id));
        Err(MapError::Integer { map: self.name.clone(), key, found })
    }

    /// [`Definition::integer`], or `enum { x = N } key`: N.
    fn long(&self, member: &Member<'_>) -> Result<u64, MapError> {
        if let Ok((_, Type::Enum(found) | Type::Enum64(found))) = self.btf.resolve(member.type_id)
            && let (1, Some(only)) = (found.len(), found.get(0))
        {
            return Ok(only.value as u64);
        }
        self.integer(member).map(u64::from)
    }

    /// `T *key`: size and id of T.
    fn pointed(&self, key: &'static str, member: &Member<'_>) -> Result<(u32, TypeId), MapError> {
        let Ok((_, Type::Ptr(to))) = self.btf.resolve(member.type_id) else {
            let found = self.btf.type_name(member.type_id);
            return Err(MapError::NotPointer { map: self.name.clone(), key, found });
        };
        let size = self.btf.size_of(to);
        let size = size.map_err(|source| MapError::Btf { map: self.name.clone(), key, source })?;
        Ok((size, to))
    }

    fn sized(&self, key: &'static str, old: Sized, size: u32, id: Option<TypeId>) -> Result<Sized, MapError> {
        match old.size {
            Some(first) if first != size => {
                Err(MapError::Conflict { map: self.name.clone(), key, first, second: size })
            }
            Some(_) | None => Ok(Sized { size: Some(size), id: id.or(old.id) }),
        }
    }

    fn pinning(&mut self, member: &Member<'_>) -> Result<(), MapError> {
        if self.is_inner {
            return Err(MapError::InnerPinned { map: self.name.clone() });
        }
        match self.integer(member)? {
            0 => self.pinned = false,
            1 => self.pinned = true,
            value => return Err(MapError::Pinning { map: self.name.clone(), value }),
        }
        Ok(())
    }

    /// `T *values[]`, with T an inner map's struct or a function.
    fn values(&mut self, member: &Member<'_>, is_last: bool) -> Result<(), MapError> {
        let map = self.name.clone();
        if self.is_inner {
            return Err(MapError::Nested { map });
        }
        if !is_last {
            return Err(MapError::ValuesNotLast { map });
        }
        let (kind, want) = match self.number.and_then(MapKind::new) {
            Some(MapKind::ArrayOfMaps | MapKind::HashOfMaps) => (SlotsKind::Maps, "struct { ... }"),
            Some(MapKind::ProgArray) => (SlotsKind::Programs, "int (void *)"),
            other => {
                let kind = other.map_or("unknown", MapKind::name).to_owned();
                return Err(MapError::ValuesKind { map, kind });
            }
        };
        let Some(target) = self.slot_target(member.type_id, kind) else {
            return Err(MapError::ValuesType { map, found: self.btf.type_name(member.type_id), want });
        };
        self.value = self.sized("value_size", self.value, 4, None)?;
        self.values = Some((kind, member.bit_offset / 8));
        if kind == SlotsKind::Maps {
            let mut inner = Definition::new(self.btf, format!("{map}.inner"), true);
            let result = inner.read(target);
            self.unknown = self.unknown.take().or(inner.unknown.take());
            self.inner = Some(Box::new(inner));
            result?;
        }
        Ok(())
    }

    fn slot_target(&self, id: TypeId, kind: SlotsKind) -> Option<TypeId> {
        let (_, Type::Array(array)) = self.btf.resolve(id).ok()? else { return None };
        let (_, Type::Ptr(to)) = self.btf.resolve(array.elem).ok()? else { return None };
        let (target, found) = self.btf.resolve(to).ok()?;
        let fits = match kind {
            SlotsKind::Maps => matches!(found, Type::Struct(_)),
            SlotsKind::Programs => matches!(found, Type::FuncProto(_)),
        };
        (array.len == 0 && fits).then_some(target)
    }

    fn spec(&self, layouts: &mut Layouts<'_>) -> Result<MapSpec, MapError> {
        let map = || self.name.clone();
        let number = self.number.ok_or_else(|| MapError::NoType { map: map() })?;
        let kind = MapKind::new(number).ok_or_else(|| MapError::Kind { map: map(), number })?;
        let inner = self.inner.as_ref().map(|inner| inner.spec(layouts)).transpose()?;
        let mut fields = |sized: Sized| sized.id.map_or_else(Vec::new, |id| layouts.fields(id));
        Ok(MapSpec {
            name: self.name.as_str().into(),
            kind,
            key_size: self.key.size.unwrap_or(0),
            value_size: self.value.size.unwrap_or(0),
            max_entries: self.max_entries,
            flags: self.flags,
            extra: self.extra,
            numa_node: self.numa_node,
            pinned: self.pinned,
            inner: inner.map(Box::new),
            slots: Vec::new(),
            elements: Vec::new(),
            entries: BTreeMap::new(),
            data: None,
            key_fields: fields(self.key),
            value_fields: fields(self.value),
            spin_lock: self.value.id.and_then(|id| self.spin_lock(id)),
        })
    }

    /// Where the lock is: a direct member of the value, as kernel/bpf/btf.c `btf_find_struct_field` finds it.
    fn spin_lock(&self, value: TypeId) -> Option<u32> {
        let (_, Type::Struct(found)) = self.btf.resolve(value).ok()? else { return None };
        let is_lock = |member: &Member<'_>| {
            let Ok((id, Type::Struct(_))) = self.btf.resolve(member.type_id) else { return false };
            self.btf.name(id) == "bpf_spin_lock" && member.bit_offset.is_multiple_of(32)
        };
        found.members().find(is_lock).map(|member| member.bit_offset / 8)
    }
}
