//! Comparison of a Rust type's shape with the scalars that BTF has in a key, value or variable.

use std::fmt;

use twinbpf_vm::map::{Field, FieldKind};

use super::shape::{Kind, Shape};
use crate::error::bytes;

/// Longer arrays are not compared element by element, as BTF's are not.
const MAX_ELEMENTS: usize = 128;
/// Scalars of a type that are compared.
const MAX_LEAVES: usize = 4096;

/// A place where two types differ: what either has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) btf: String,
    pub(super) rust: String,
}

/// A scalar of a Rust type, or an array of bytes.
#[derive(Clone, Debug)]
struct Leaf {
    name: String,
    off: usize,
    size: usize,
    /// Its type as messages call it.
    type_name: &'static str,
    kind: LeafKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafKind {
    Unsigned,
    Signed,
    Float,
    Bytes,
    Opaque,
}

/// The first difference between a type of this shape and one with these fields, both of the same size. Without fields BTF
/// says nothing.
pub(super) fn difference(shape: &Shape, fields: &[Field]) -> Option<Difference> {
    let mut leaves = Vec::new();
    flatten(shape, "", 0, &mut leaves);
    leaves.sort_by_key(|leaf| leaf.off);
    fields.iter().find_map(|field| of_field(field, &leaves)).or_else(|| of_names(fields, &leaves))
}

fn flatten(shape: &Shape, name: &str, off: usize, leaves: &mut Vec<Leaf>) {
    let full = leaves.len() >= MAX_LEAVES;
    let mut push = |kind| {
        leaves.push(Leaf { name: name.to_owned(), off, size: shape.size, type_name: shape.name, kind });
    };
    match &shape.kind {
        _ if full => push(LeafKind::Opaque),
        Kind::Unsigned => push(LeafKind::Unsigned),
        Kind::Signed => push(LeafKind::Signed),
        Kind::Float => push(LeafKind::Float),
        Kind::Array { element, .. } if element.size == 1 => push(LeafKind::Bytes),
        Kind::Array { len, .. } if *len > MAX_ELEMENTS => push(LeafKind::Opaque),
        Kind::Array { element, len } => (0..*len).for_each(|index| {
            flatten(element, &format!("{name}[{index}]"), off + index * element.size, leaves);
        }),
        Kind::Struct(fields) => fields.iter().for_each(|field| {
            let name = if name.is_empty() { field.name.to_owned() } else { format!("{name}.{}", field.name) };
            flatten(&field.shape, &name, off + field.off, leaves);
        }),
        Kind::Opaque => push(LeafKind::Opaque),
    }
}

fn of_field(field: &Field, leaves: &[Leaf]) -> Option<Difference> {
    let (start, end) = (field.off as usize, field.off as usize + field.size as usize);
    let first = leaves.partition_point(|leaf| leaf.off + leaf.size <= start);
    let there = leaves[first..].iter().take_while(|leaf| leaf.off < end).filter(|leaf| leaf.kind != LeafKind::Opaque);
    let fits = |leaf: &Leaf| {
        let (inside, same) = (leaf.off >= start && leaf.off + leaf.size <= end, leaf.off == start);
        let same = same && leaf.off + leaf.size == end;
        match field.kind {
            // Unions, bit fields, long arrays: whatever the bytes are.
            FieldKind::Bytes => inside,
            FieldKind::String => inside && (leaf.kind == LeafKind::Bytes || leaf.size == 1),
            FieldKind::Float => same && leaf.kind == LeafKind::Float,
            FieldKind::Unsigned => same && leaf.kind == LeafKind::Unsigned,
            // C's `char` is signed in BTF and may be a `u8`.
            FieldKind::Signed => {
                same && (leaf.kind == LeafKind::Signed || leaf.kind == LeafKind::Unsigned && leaf.size == 1)
            }
        }
    };
    let other = there.into_iter().find(|leaf| !fits(leaf))?;
    Some(Difference { btf: of_btf(field), rust: other.to_string() })
}

/// A name that both have, at different places.
fn of_names(fields: &[Field], leaves: &[Leaf]) -> Option<Difference> {
    let named: std::collections::HashMap<&str, &Field> = fields.iter().map(|field| (&*field.name, field)).collect();
    leaves.iter().find_map(|leaf| {
        let field = named.get(&*leaf.name).filter(|field| field.off as usize != leaf.off)?;
        Some(Difference { btf: of_btf(field), rust: leaf.to_string() })
    })
}

fn of_btf(field: &Field) -> String {
    let what = match field.kind {
        FieldKind::Unsigned => "unsigned integer",
        FieldKind::Signed => "signed integer",
        FieldKind::Float => "floating-point number",
        FieldKind::String => "string",
        FieldKind::Bytes => "byte sequence",
    };
    let name = if field.name.is_empty() { String::new() } else { format!(" '{}'", field.name) };
    format!("{what}{name} of {} at offset {}", bytes(field.size as usize), field.off)
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.type_name)?;
        if !self.name.is_empty() {
            write!(f, " '{}'", self.name)?;
        }
        write!(f, " of {} at offset {}", bytes(self.size), self.off)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BtfType;
    use super::*;

    fn field(name: &str, off: u32, size: u32, kind: FieldKind) -> Field {
        Field { name: name.into(), off, size, kind }
    }

    fn scalar(size: u32, kind: FieldKind) -> Vec<Field> {
        vec![field("", 0, size, kind)]
    }

    fn fits<T: BtfType>(fields: &[Field]) -> bool {
        difference(&T::shape(), fields).is_none()
    }

    #[test]
    fn scalars_have_size_and_sign() {
        assert!(fits::<u32>(&scalar(4, FieldKind::Unsigned)) && fits::<i64>(&scalar(8, FieldKind::Signed)));
        assert!(!fits::<u32>(&scalar(4, FieldKind::Signed)) && !fits::<i32>(&scalar(4, FieldKind::Unsigned)));
        assert!(fits::<zerocopy::byteorder::big_endian::U16>(&scalar(2, FieldKind::Unsigned)));
        // BTF says `char` and `signed char` alike; an unsigned one is none of them.
        assert!(fits::<u8>(&scalar(1, FieldKind::Signed)) && !fits::<i8>(&scalar(1, FieldKind::Unsigned)));
        assert!(!fits::<f64>(&scalar(8, FieldKind::Unsigned)) && fits::<f64>(&scalar(8, FieldKind::Bytes)));
        assert!(fits::<f64>(&scalar(8, FieldKind::Float)) && !fits::<u64>(&scalar(8, FieldKind::Float)));
    }

    #[test]
    fn arrays_have_elements() {
        let words: Vec<Field> = (0..4).map(|i| field(&format!("[{i}]"), i * 4, 4, FieldKind::Unsigned)).collect();
        assert!(fits::<[u32; 4]>(&words) && !fits::<[i32; 4]>(&words));
        assert!(!fits::<[u64; 2]>(&words) && !fits::<[u8; 16]>(&words));
        assert!(fits::<[u8; 16]>(&scalar(16, FieldKind::String)) && !fits::<[u32; 4]>(&scalar(16, FieldKind::String)));
        assert!(fits::<[u32; 4]>(&scalar(16, FieldKind::Bytes)), "a union");
        assert!(fits::<[u32; 200]>(&scalar(800, FieldKind::Bytes)), "a long array");
    }

    #[test]
    fn nothing_is_compared_without_types() {
        assert!(fits::<[f64; 3]>(&[]));
    }

    #[test]
    fn names_that_both_have_are_at_the_same_place() {
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[repr(C)]
        struct Pair {
            target: u32,
            source: u32,
        }
        impl BtfType for Pair {
            fn shape() -> Shape {
                Shape::record::<Pair>([("target", 0, u32::shape()), ("source", 4, u32::shape())])
            }
        }
        let pair = |first, second| [field(first, 0, 4, FieldKind::Unsigned), field(second, 4, 4, FieldKind::Unsigned)];
        assert!(fits::<Pair>(&pair("target", "source")) && fits::<Pair>(&pair("to", "from")));
        let found = difference(&Pair::shape(), &pair("source", "target")).expect("they are swapped");
        assert_eq!(found.btf, "unsigned integer 'target' of 4 bytes at offset 4");
        assert_eq!(found.rust, "u32 'target' of 4 bytes at offset 0");
        let padded = [field("target", 0, 4, FieldKind::Unsigned)];
        assert!(fits::<Pair>(&padded), "what C does not use may be anything");
    }
}
