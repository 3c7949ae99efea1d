//! The scalars inside a type, flattened: how the machine sorts and prints keys and values without knowing BTF.

use std::sync::Arc;

use twinbpf_btf::{Btf, Composite, MAX_DEPTH, Member, Type, TypeId};
use twinbpf_vm::map::{Field, FieldKind};

/// Arrays of more elements become one field of bytes.
const MAX_ELEMENTS: u32 = 128;
/// Types of more scalars become one field of bytes.
const MAX_FIELDS: usize = 1024;
/// Scalars returned by one [`Layouts`]; later types become one field of bytes.
const MAX_TOTAL: usize = 1 << 14;
/// Types visited by one [`Layouts`]; bounds nests of empty structs.
const MAX_VISITS: usize = 1 << 16;
/// Longest dotted name.
const MAX_NAME: usize = 256;

/// Makes field lists, within a common bound: hostile BTF may define thousands of maps of one large struct.
#[derive(Debug)]
pub struct Layouts<'a> {
    btf: &'a Btf,
    left: usize,
    visits: usize,
}

/// The scalars of a type in memory order; empty if the type has no size.
pub fn fields(btf: &Btf, id: TypeId) -> Vec<Field> {
    Layouts::new(btf).fields(id)
}

impl<'a> Layouts<'a> {
    /// For the types of `btf`.
    pub fn new(btf: &'a Btf) -> Layouts<'a> {
        Layouts { btf, left: MAX_TOTAL, visits: 0 }
    }

    /// The scalars of a type in memory order; empty if the type has no size.
    ///
    /// Nested structs give dotted names, arrays `name[i]`. `char[N]` is a string; unions, `unsigned char[N]`,
    /// floats, integers over 8 bytes and the bytes that hold bitfields are byte strings.
    pub fn fields(&mut self, id: TypeId) -> Vec<Field> {
        let Ok(size) = self.btf.size_of(id) else { return Vec::new() };
        if size == 0 {
            return Vec::new();
        }
        let limit = self.left.min(MAX_FIELDS);
        let mut walk = Walk { btf: self.btf, size, limit, visits: self.visits, fields: Vec::new() };
        if limit == 0 || walk.add(id, "", 0, 0).is_none() {
            walk.fields = vec![Field { name: "".into(), off: 0, size, kind: FieldKind::Bytes }];
        }
        self.visits = walk.visits;
        let mut fields = walk.fields;
        fields.sort_by_key(|field| field.off);
        self.left = self.left.saturating_sub(fields.len());
        fields
    }
}

/// One flattening. Its methods return `None` once a bound is hit.
struct Walk<'a> {
    btf: &'a Btf,
    size: u32,
    limit: usize,
    visits: usize,
    fields: Vec<Field>,
}

impl Walk<'_> {
    fn add(&mut self, id: TypeId, name: &str, off: u32, depth: usize) -> Option<()> {
        self.visits += 1;
        if depth > MAX_DEPTH || self.visits > MAX_VISITS || name.len() > MAX_NAME {
            return None;
        }
        let (id, found) = self.btf.resolve(id).ok()?;
        let size = self.btf.size_of(id).ok()?;
        let scalar = |signed| match (size, signed) {
            (1 | 2 | 4 | 8, true) => FieldKind::Signed,
            (1 | 2 | 4 | 8, false) => FieldKind::Unsigned,
            _ => FieldKind::Bytes,
        };
        match found {
            Type::Int(int) => self.push(name, off, size, scalar(int.signed && !int.is_bool)),
            Type::Enum(found) | Type::Enum64(found) => self.push(name, off, size, scalar(found.signed)),
            Type::Ptr(_) => self.push(name, off, size, FieldKind::Unsigned),
            Type::Float { size: 4 | 8 } => self.push(name, off, size, FieldKind::Float),
            Type::Float { .. } | Type::Union(_) => self.push(name, off, size, FieldKind::Bytes),
            Type::Array(array) if self.btf.is_char(array.elem) => self.push(name, off, size, FieldKind::String),
            Type::Array(array) => {
                if array.len > MAX_ELEMENTS || self.is_byte(array.elem) {
                    return self.push(name, off, size, FieldKind::Bytes);
                }
                let step = self.btf.size_of(array.elem).ok()?;
                (0..array.len).try_for_each(|index| {
                    let off = off.checked_add(step.checked_mul(index)?)?;
                    self.add(array.elem, &format!("{name}[{index}]"), off, depth + 1)
                })
            }
            Type::Struct(found) => self.members(found, name, off, depth),
            Type::Void | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto(_) | Type::Var { .. } => None,
            Type::Datasec(_) | Type::DeclTag { .. } => None,
            Type::Typedef(_) | Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_) => None,
        }
    }

    fn members(&mut self, found: Composite<'_>, name: &str, off: u32, depth: usize) -> Option<()> {
        for member in found.members() {
            let name = join(name, member.name, matches!(self.btf.resolve(member.type_id), Ok((_, Type::Union(_)))));
            if member.bits != 0 || member.bit_offset % 8 != 0 || self.btf.is_bitfield_int(member.type_id) {
                self.bitfield(&member, &name, off)?;
            } else {
                self.add(member.type_id, &name, off.checked_add(member.bit_offset / 8)?, depth + 1)?;
            }
        }
        Some(())
    }

    /// The bytes of a bitfield; bitfields that share bytes share the field, named after the first.
    fn bitfield(&mut self, member: &Member<'_>, name: &str, off: u32) -> Option<()> {
        self.visits += 1;
        let (first_bit, bits) = self.btf.bits_of(member)?;
        let start = off.checked_add(first_bit / 8)?;
        let end = off.checked_add(first_bit.checked_add(bits)?.div_ceil(8))?;
        if let Some(last) = self.fields.last_mut()
            && last.kind == FieldKind::Bytes
            && (last.off..last.off + last.size).contains(&start)
        {
            last.size = last.size.max(end - last.off);
            return (last.off.checked_add(last.size)? <= self.size).then_some(());
        }
        self.push(name, start, end - start, FieldKind::Bytes)
    }

    fn push(&mut self, name: &str, off: u32, size: u32, kind: FieldKind) -> Option<()> {
        if size == 0 {
            return Some(());
        }
        if self.fields.len() >= self.limit || off.checked_add(size)? > self.size || name.len() > MAX_NAME {
            return None;
        }
        self.fields.push(Field { name: Arc::from(name), off, size, kind });
        Some(())
    }

    fn is_byte(&self, id: TypeId) -> bool {
        let Ok((_, Type::Int(int))) = self.btf.resolve(id) else { return false };
        int.size == 1 && !int.signed && !int.is_bool
    }
}

fn join(prefix: &str, name: &str, is_union: bool) -> String {
    match (prefix.is_empty(), name.is_empty()) {
        (true, false) => name.to_owned(),
        (false, false) => format!("{prefix}.{name}"),
        // The members of an anonymous struct belong to the one around it; a union is one field and needs a name.
        (true, true) if is_union => "(anon)".to_owned(),
        (false, true) if is_union => format!("{prefix}.(anon)"),
        (_, true) => prefix.to_owned(),
    }
}
