//! Where a function's result is when it returns.
//!
//! Sources: System V ABI for x86-64 (3.2.3), AAPCS64 (6.9), RISC-V calling convention. Rust's own convention is not
//! stable: only single values are sure.

use gimli::AttributeValue;
use gimli::constants as dw;

use crate::debug::Die;
use crate::error::Refusal;
use crate::expr::Expr;
use crate::locate::{Location, Piece};
use crate::machine::Machine;
use crate::site::Site;
use crate::types::{Encoding, Shape, Types};

/// A part of a structure that is one value.
struct Leaf {
    at: u64,
    size: u64,
    is_float: bool,
}

/// Most values of a structure of 16 bytes, with bit-fields.
const MOST_LEAVES: usize = 128;

fn returns(what: &str) -> Refusal {
    Refusal::Return(what.to_owned())
}

/// The place of a result of that type.
pub(crate) fn place<'a>(site: &Site<'_, 'a>, ty: Option<Die>) -> Result<Location<'a>, Refusal> {
    let ty = ty.ok_or(Refusal::Void)?;
    let types = Types { binary: site.binary };
    let machine = site.machine();
    let [first, second] = machine.returns().map(Expr::Register);
    let float = match machine {
        Machine::X86_64 => "in the floating-point register %xmm0, which a probe cannot read",
        Machine::Aarch64 => "in the floating-point register %v0, which a probe cannot read",
        Machine::Riscv64 => "in the floating-point register %fa0, which a probe cannot read",
    };
    match types.shape(ty)? {
        Shape::Scalar { size, encoding: Encoding::Float, .. } if size <= 8 => Err(returns(float)),
        Shape::Scalar { encoding: Encoding::Float, .. } => Err(returns("in a floating-point register")),
        Shape::Scalar { size, .. } if size <= 8 => Ok(Location::Value(first)),
        Shape::Scalar { size: 16, .. } => Ok(pair(first, second)),
        Shape::Pointer { .. } => Ok(Location::Value(first)),
        Shape::Record(record) if site.binary.is_rust(record.unit) => {
            Err(returns("as Rust's own calling convention says, which changes"))
        }
        Shape::Record(record) => structure(site, &types, record),
        Shape::Declared(name) => Err(Refusal::Incomplete(name)),
        Shape::Other(name) if name == "void" => Err(Refusal::Void),
        Shape::Scalar { .. } | Shape::Array(_) | Shape::Other(_) => Err(returns("in an unknown place")),
    }
}

fn pair<'a>(first: Expr, second: Expr) -> Location<'a> {
    let piece = |value| Piece { bits: 64, skip: 0, place: Location::Value(value) };
    Location::Pieces(vec![piece(first), piece(second)])
}

fn structure<'a>(site: &Site<'_, 'a>, types: &Types<'_, 'a>, record: Die) -> Result<Location<'a>, Refusal> {
    let machine = site.machine();
    let [first, second] = machine.returns().map(Expr::Register);
    let in_memory = || match machine.returns_address() {
        true => Ok(Location::Memory(first.clone())),
        false => Err(returns("in memory of which the address is lost")),
    };
    let entry = site.binary.debug().entry(record)?;
    let by_reference = match entry.attr_value(dw::DW_AT_calling_convention) {
        Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_reference)) => true,
        Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_value)) => false,
        _ if site.binary.is_scoped(record.unit) => {
            return Err(returns("in registers or memory: the debug information does not say whether it can be copied"));
        }
        _ => false,
    };
    let size = types.size(record)?.ok_or_else(|| Refusal::Incomplete(types.name(Some(record))))?;
    if by_reference || size > 16 {
        return in_memory();
    }
    let mut leaves = Vec::new();
    let is_packed = !flatten(types, record, 0, &mut leaves, 16)?;
    if is_packed {
        return if machine == Machine::X86_64 { in_memory() } else { Err(returns("a packed structure")) };
    }
    let floats = |from: u64| {
        let mut inside = leaves.iter().filter(|leaf| leaf.at / 8 == from).peekable();
        inside.peek().is_some() && inside.all(|leaf| leaf.is_float)
    };
    if machine != Machine::X86_64 && leaves.iter().any(|leaf| leaf.is_float) {
        return Err(returns("in floating-point registers"));
    }
    // What is in a vector register cannot be read.
    let unreadable = |bits| Piece { bits, skip: 0, place: Location::Nowhere };
    let whole = |bits, value: &Expr| Piece { bits, skip: 0, place: Location::Value(value.clone()) };
    match (floats(0), size > 8, floats(1)) {
        (true, false, _) | (true, true, true) => {
            Err(returns("in the floating-point register %xmm0, which a probe cannot read"))
        }
        (false, false, _) => Ok(Location::Value(first)),
        (false, true, false) => Ok(pair(first, second)),
        (false, true, true) => Ok(Location::Pieces(vec![whole(64, &first), unreadable(64)])),
        (true, true, false) => Ok(Location::Pieces(vec![unreadable(64), whole(64, &first)])),
    }
}

/// Collects the values of a structure; `false` if one is not aligned.
fn flatten(
    types: &Types<'_, '_>,
    record: Die,
    base: u64,
    leaves: &mut Vec<Leaf>,
    left: usize,
) -> Result<bool, Refusal> {
    let left = left.checked_sub(1).ok_or(Refusal::TooComplex("types"))?;
    for (at, entry) in types.children(record)? {
        if !matches!(entry.tag(), dw::DW_TAG_member | dw::DW_TAG_inheritance) || entry.has_attr(dw::DW_AT_external) {
            continue;
        }
        let (place, field) = types.bits(at, &entry)?;
        let Some(ty) = types.type_of(at.unit, &entry)? else { continue };
        let at = base.saturating_add(place / 8);
        if field.is_some() {
            leaves.push(Leaf { at, size: 0, is_float: false });
        } else if !value(types, ty, at, leaves, left)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn value(types: &Types<'_, '_>, ty: Die, at: u64, leaves: &mut Vec<Leaf>, left: usize) -> Result<bool, Refusal> {
    let leaf = match types.shape(ty)? {
        Shape::Scalar { size, encoding, .. } => Leaf { at, size, is_float: encoding == Encoding::Float },
        Shape::Pointer { .. } => Leaf { at, size: 8, is_float: false },
        Shape::Record(record) => return flatten(types, record, at, leaves, left),
        Shape::Array(array) => {
            let (element, stride) = types.element(array)?;
            let count =
                types.dimensions(array)?.into_iter().map(|count| count.unwrap_or(0)).fold(1, u64::saturating_mul);
            for index in 0..count.min(17) {
                if !value(types, element, at.saturating_add(index * stride), leaves, left.saturating_sub(1))? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Shape::Declared(name) => return Err(Refusal::Incomplete(name)),
        Shape::Other(name) => return Err(Refusal::Operation(format!("it has a member of type {name}"))),
    };
    if leaves.len() >= MOST_LEAVES {
        return Err(Refusal::TooComplex("types"));
    }
    if leaf.is_float && leaf.size > 8 {
        return Err(returns("in a floating-point register of 80 bits"));
    }
    let aligned = leaf.size == 0 || leaf.at.is_multiple_of(leaf.size.min(16));
    leaves.push(leaf);
    Ok(aligned)
}
