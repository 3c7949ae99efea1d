//! Bodies of structs and unions, laid out as the BTF says.
//!
//! The compiler for BPF places members by the rules of the System V ABI, which are those of the kernel on 64-bit
//! machines: each at the next multiple of its alignment, bitfields where their type would not be straddled. Members
//! are written one after the other while that gives the offsets of the BTF. Where a member is farther away, unnamed
//! bitfields fill the gap, which do not change the alignment of the whole; where one is nearer than its alignment
//! allows, or the size is odd, the whole is packed.

use super::super::query::MAX_DEPTH;
use super::super::{BtfError, Composite, Member, Type, TypeId};
use super::Printer;
use super::names::clean;
use std::fmt::Write as _;

/// Alignment and packing of each struct and union, as it is written.
#[derive(Debug)]
pub(super) struct Shapes(Vec<Shape>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shape {
    /// Bytes; 0 if not known yet.
    align: u8,
    packed: bool,
    /// Members overlap: only the bytes are written.
    opaque: bool,
}

impl Shapes {
    pub(super) fn new(last: u32) -> Shapes {
        Shapes(vec![Shape::default(); last as usize + 1])
    }
}

/// How a compiler places one member; all in bits.
#[derive(Clone, Copy, Debug)]
struct Placing {
    /// Offset of the first bit.
    start: u64,
    bits: u64,
    align: u64,
    is_bitfield: bool,
}

impl Placing {
    /// Where it comes to lie after a member that ends at `cursor`.
    fn after(&self, cursor: u64, packed: bool) -> u64 {
        match (self.is_bitfield, packed) {
            (true, true) => cursor,
            (true, false) if cursor % self.align + self.bits <= self.align => cursor,
            (_, true) => cursor.next_multiple_of(8),
            (_, false) => cursor.next_multiple_of(self.align),
        }
    }

    fn end(&self) -> u64 {
        self.start + self.bits
    }
}

impl<'a> Printer<'a> {
    /// Finds out how a struct or union has to be written; all types inside it are known already.
    pub(super) fn find_shape(&mut self, id: TypeId, found: &Composite<'a>, is_union: bool) -> Result<(), BtfError> {
        let size = u64::from(found.size) * 8;
        let mut align = 8;
        let mut packed = false;
        let mut opaque = false;
        let mut cursor = 0;
        for member in found.members() {
            let placing = self.placing(&member)?;
            align = align.max(placing.align);
            packed |= placing.after(placing.start, false) != placing.start;
            opaque |= placing.start < cursor || placing.end() > size || is_union && placing.start != 0;
            opaque |= !placing.is_bitfield && placing.start % 8 != 0;
            cursor = if is_union { 0 } else { placing.end() };
        }
        packed |= size % align != 0;
        if opaque || packed {
            align = 8;
        }
        if let Some(shape) = self.shapes.0.get_mut(id.0 as usize) {
            *shape = Shape { align: (align / 8) as u8, packed, opaque };
        }
        Ok(())
    }

    fn placing(&self, member: &Member<'_>) -> Result<Placing, BtfError> {
        let is_bitfield = member.bits != 0 || self.btf.is_bitfield_int(member.type_id);
        let align = u64::from(self.align_of(member.type_id)?) * 8;
        let (start, bits) = match is_bitfield {
            true => self.btf.bits_of(member).map_or((0, 0), |(start, bits)| (u64::from(start), u64::from(bits))),
            false => (u64::from(member.bit_offset), u64::from(self.btf.size_of(member.type_id)?) * 8),
        };
        Ok(Placing { start, bits, align, is_bitfield })
    }

    /// Alignment of a type as it is written, in bytes.
    fn align_of(&self, id: TypeId) -> Result<u8, BtfError> {
        let mut at = id;
        for _ in 0..MAX_DEPTH {
            let size = match self.btf.get(at)? {
                Type::Ptr(_) => 8,
                Type::Int(int) => int.size,
                Type::Float { size } => size,
                Type::Enum(found) | Type::Enum64(found) => found.size,
                Type::Struct(_) | Type::Union(_) => {
                    let shape = self.shapes.0.get(at.0 as usize).copied().unwrap_or_default();
                    return Ok(shape.align.max(1));
                }
                Type::Array(array) => {
                    at = array.elem;
                    continue;
                }
                Type::Typedef(to) | Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) | Type::TypeTag(to) => {
                    at = to;
                    continue;
                }
                Type::Void | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto(_) => 1,
                Type::Var { .. } | Type::Datasec(_) | Type::DeclTag { .. } => 1,
            };
            return Ok(size.clamp(1, 16).next_power_of_two() as u8);
        }
        Err(BtfError::TooDeep { id, limit: MAX_DEPTH })
    }

    /// The braces of a struct or union and what is in them.
    pub(super) fn body(
        &mut self,
        id: TypeId,
        found: &Composite<'a>,
        is_union: bool,
        level: usize,
    ) -> Result<(), BtfError> {
        let shape = self.shapes.0.get(id.0 as usize).copied().unwrap_or_default();
        let size = u64::from(found.size) * 8;
        if shape.opaque {
            let _ = write!(self.out, "{{\n{0}\tchar __opaque[{1}];\n{0}}}", "\t".repeat(level), found.size);
            return Ok(());
        }
        self.check_length(id)?;
        self.records = true;
        self.out.push_str("{\n");
        let mut cursor = 0;
        for member in found.members() {
            let placing = self.placing(&member)?;
            if placing.after(cursor, shape.packed) != placing.start {
                self.pad(cursor, placing.start, level + 1);
            }
            self.indent(level + 1);
            let name = if member.name.is_empty() { member.name.into() } else { clean(member.name) };
            self.declare(member.type_id, &name, level + 1)?;
            if placing.is_bitfield {
                let colon = if name.is_empty() { " : " } else { ": " };
                let _ = write!(self.out, "{colon}{}", placing.bits);
            }
            self.out.push_str(";\n");
            cursor = if is_union { cursor.max(placing.end()) } else { placing.end() };
        }
        if cursor.next_multiple_of(u64::from(shape.align.max(1)) * 8) < size {
            self.pad_end(cursor, size, is_union, level + 1);
        }
        self.indent(level);
        self.out.push_str(if shape.packed { "} __attribute__((packed))" } else { "}" });
        self.check_length(id)
    }

    /// Bitfields without a name from one bit to another, as far as the text may go.
    fn pad(&mut self, from: u64, to: u64, level: usize) {
        let mut at = from;
        while at < to && self.out.len() <= self.limit {
            let end = to.min((at / 64 + 1) * 64);
            self.indent(level);
            let _ = writeln!(self.out, "long: {};", end - at);
            at = end;
        }
    }

    /// What makes the whole as large as it is.
    fn pad_end(&mut self, from: u64, to: u64, is_union: bool, level: usize) {
        if !is_union || to <= 64 {
            return self.pad(if is_union { 0 } else { from }, to, level);
        }
        self.indent(level);
        self.out.push_str("struct {\n");
        self.pad(0, to, level + 1);
        self.indent(level);
        self.out.push_str("};\n");
    }
}
