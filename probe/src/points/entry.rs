//! Parameters at a function's first instruction, against the calling convention.
//!
//! LLVM keeps the last of several values that a variable gets without an instruction between them. A parameter that the
//! function first assigns to therefore has the assigned value from the entry on: in `f(int a, int b) { a = b; ... }` the
//! debug information says that `a` is in the register of `b`. gcc numbers such states (views), and so is not concerned.
//!
//! LLVM also passes members in place of the pointer to their structure (argument promotion), and then marks the function as
//! one with a convention of its own. After `p = p->next` what is in the register of `p` is then what was passed as a member.

use gimli::AttributeValue;
use gimli::constants as dw;

use crate::debug::Die;
use crate::elf::Symbol;
use crate::error::Refusal;
use crate::expr::{Binary, Expr, Unary};
use crate::locate::{Location, Piece};
use crate::scope::{self, Variable};
use crate::site::Site;
use crate::types::{Encoding, Shape, Types};

/// Most structures in a structure that are looked through.
const MOST_RECORDS: usize = 64;

/// The place of a parameter, unless the calling convention says that callers do not pass it there.
pub(super) fn passed<'a>(
    site: &Site<'_, 'a>,
    variable: &Variable,
    place: Location<'a>,
) -> Result<Location<'a>, Refusal> {
    let binary = site.binary;
    let unit = site.function.unit;
    let is_concerned = variable.is_parameter && site.is_entry() && site.copy.is_none() && binary.is_llvm(unit);
    if !is_concerned {
        return Ok(place);
    }
    let (parameters, is_external) = declared(site)?;
    let is_changed = is_changed(site)?;
    // Rust's own convention lets LLVM change what is passed to any function.
    let is_external = is_external && !is_changed && !is_internalised(site) && !binary.is_rust(unit);
    if is_changed && parameters.iter().any(|parameter| !is_scalar(site, parameter))
        || !is_external && binary.may_promote(unit) && leads_to_itself(site, variable)?
    {
        return Err(Refusal::Promoted);
    }
    let Some(own) = parameters.iter().position(|parameter| parameter.name == variable.name) else { return Ok(place) };
    let value = match &place {
        Location::Value(value) => value,
        Location::Pieces(pieces) => {
            let shifts = !binary.is_rust(unit);
            let is_passed = follows(site, &parameters, own, &place) && (!shifts || are_in_place(site, pieces));
            return if is_passed { Ok(moved(place)) } else { Err(Refusal::Assigned) };
        }
        _ => return Ok(place),
    };
    let part = part_of(site, value);
    let right = if is_external {
        match expected(site, &parameters[..=own])? {
            Some(expected) => part == Some((expected, 0)),
            // Callers pass no constants and compute nothing.
            None => part.is_some() || matches!(value, Expr::Register(_)),
        }
    } else {
        // Unused parameters are not passed to it, so that others move up, in their order.
        match (part, value) {
            (Some(_), _) => follows(site, &parameters, own, &place),
            (None, Expr::Constant(value)) => return Err(Refusal::Constant(value.cast_signed())),
            (None, _) => false,
        }
    };
    if right { Ok(place) } else { Err(Refusal::Assigned) }
}

/// Whether the registers of a parameter come after those of the ones before it and before those of the others, and those of
/// its pieces are in order.
fn follows(site: &Site<'_, '_>, parameters: &[Variable], own: usize, place: &Location<'_>) -> bool {
    let of = |parameter: &Variable| site.place(parameter.die).map(|place| parts(site, &place)).unwrap_or_default();
    let parts = parts(site, place);
    let (Some((first, _)), Some((last, _))) = (parts.first(), parts.last()) else { return true };
    parts.is_sorted_by(|one, other| one < other)
        && parameters[..own].iter().flat_map(of).all(|(other, _)| other < *first)
        && parameters[own + 1..].iter().flat_map(of).all(|(other, _)| other > *last)
}

/// Whether each piece is at those bits of its register that the convention for C has it at.
fn are_in_place(site: &Site<'_, '_>, pieces: &[Piece<'_>]) -> bool {
    let mut at = 0;
    pieces.iter().all(|piece| {
        let begin = at;
        at += piece.bits;
        match &piece.place {
            Location::Value(value) => part_of(site, value).is_none_or(|(_, shift)| shift + piece.skip == begin % 64),
            _ => true,
        }
    })
}

/// The registers that integers are passed in of which a place has parts, and the first bit of each part.
fn parts(site: &Site<'_, '_>, place: &Location<'_>) -> Vec<(usize, u64)> {
    match place {
        Location::Value(value) => part_of(site, value).into_iter().collect(),
        Location::Pieces(pieces) => {
            let part = |piece: &Piece<'_>| match &piece.place {
                Location::Value(value) => part_of(site, value).map(|(index, shift)| (index, shift + piece.skip)),
                _ => None,
            };
            pieces.iter().filter_map(part).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether the compiler says that callers do not call the function as the convention has it.
fn is_changed(site: &Site<'_, '_>) -> Result<bool, Refusal> {
    let debug = site.binary.debug();
    for die in site.binary.index().chain(debug, site.function) {
        let convention = debug.entry(die)?.attr_value(dw::DW_AT_calling_convention);
        if convention == Some(AttributeValue::CallingConvention(dw::DW_CC_nocall)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether link-time optimisation made the function a local one, whatever the source says.
fn is_internalised(site: &Site<'_, '_>) -> bool {
    let mut symbols = site.binary.symbols_at(site.entry).peekable();
    symbols.peek().is_some() && symbols.all(Symbol::is_local)
}

/// Whether it is no pointer, nor passed by one: nothing else can be passed in its place.
fn is_scalar(site: &Site<'_, '_>, parameter: &Variable) -> bool {
    let ty = scope::type_of(site, parameter.die).ok().flatten();
    ty.is_some_and(|ty| matches!(Types { binary: site.binary }.shape(ty), Ok(Shape::Scalar { .. })))
}

/// Whether it is a pointer to a structure with pointers to the same: what `p = p->next` needs.
fn leads_to_itself(site: &Site<'_, '_>, variable: &Variable) -> Result<bool, Refusal> {
    let types = Types { binary: site.binary };
    let shape = |ty: Option<Die>| ty.map(|ty| types.shape(ty)).transpose();
    let Some(Shape::Pointer { to, .. }) = shape(scope::type_of(site, variable.die)?)? else { return Ok(false) };
    let Some(Shape::Record(record)) = shape(to)? else { return Ok(false) };
    let (mut left, mut records) = (MOST_RECORDS, vec![record]);
    while let Some(at) = records.pop() {
        let Some(less) = left.checked_sub(1) else { return Ok(true) };
        left = less;
        for (die, entry) in types.children(at)? {
            let ty = types.type_of(die.unit, &entry)?.filter(|_| entry.tag() == dw::DW_TAG_member);
            match shape(ty)? {
                Some(Shape::Record(inner)) => records.push(inner),
                Some(Shape::Pointer { to, .. }) => match shape(to)? {
                    Some(Shape::Record(found)) if found == record => return Ok(true),
                    None => return Ok(true),
                    Some(Shape::Other(name)) if name == "void" => return Ok(true),
                    Some(_) => {}
                },
                Some(_) | None => {}
            }
        }
    }
    Ok(false)
}

/// Pieces of a structure that are parts of registers; the others are nowhere.
fn moved(place: Location<'_>) -> Location<'_> {
    match place {
        Location::Pieces(pieces) => {
            let each = pieces.into_iter().map(|piece| Piece { place: moved(piece.place), ..piece });
            Location::Pieces(each.collect())
        }
        Location::Value(value) if !is_part(&value) => Location::Nowhere,
        other => other,
    }
}

/// Whether a value is a register or bits of one.
fn is_part(value: &Expr) -> bool {
    match value {
        Expr::Register(_) => true,
        Expr::Unary(Unary::Zero(_) | Unary::Sign(_), of) => is_part(of),
        Expr::Binary(Binary::And, of, mask) if is_mask(mask) => is_part(of),
        Expr::Binary(Binary::Shl | Binary::Shr | Binary::Shra, of, by) => {
            is_part(of) && matches!(**by, Expr::Constant(_))
        }
        _ => false,
    }
}

/// The parameters as the source declares them, and whether other files may call the function.
fn declared(site: &Site<'_, '_>) -> Result<(Vec<Variable>, bool), Refusal> {
    let debug = site.binary.debug();
    let chain = site.binary.index().chain(debug, site.function);
    let mut is_external = false;
    for die in &chain {
        is_external |= debug.entry(*die)?.has_attr(dw::DW_AT_external);
    }
    let own = scope::variables(site, site.function)?;
    let own = own.into_iter().filter(|variable| variable.is_parameter);
    Ok((own.collect(), is_external))
}

/// Which of the registers that integers are passed in a value is, whole or cut, and from which bit on.
fn part_of(site: &Site<'_, '_>, value: &Expr) -> Option<(usize, u64)> {
    match value {
        Expr::Register(register) => Some((site.machine().passes().iter().position(|number| *number == register.0)?, 0)),
        Expr::Unary(Unary::Zero(_) | Unary::Sign(_), of) => part_of(site, of),
        // LLVM's words for the same.
        Expr::Binary(Binary::And, of, mask) if is_mask(mask) => part_of(site, of),
        Expr::Binary(Binary::Shr | Binary::Shra, of, by) => match **by {
            Expr::Constant(by @ 0..64) => part_of(site, of).map(|(index, shift)| (index, shift + by)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether it has ones up to some bit only.
fn is_mask(expr: &Expr) -> bool {
    matches!(expr, Expr::Constant(mask) if mask & mask.wrapping_add(1) == 0)
}

/// The index of the register of the last of these parameters; `None` where it depends on more than their sizes.
fn expected(site: &Site<'_, '_>, parameters: &[Variable]) -> Result<Option<usize>, Refusal> {
    let types = Types { binary: site.binary };
    let is_simple = |ty: Die| -> Result<Option<bool>, Refusal> {
        Ok(match types.shape(ty)? {
            Shape::Scalar { encoding: Encoding::Float, size, .. } if size <= 8 => Some(false),
            Shape::Scalar { size, .. } if size <= 8 => Some(true),
            Shape::Pointer { .. } => Some(true),
            Shape::Scalar { .. } | Shape::Record(_) | Shape::Array(_) | Shape::Declared(_) | Shape::Other(_) => None,
        })
    };
    // A result in memory has its address in the first register.
    let result = scope::type_of(site, site.function)?;
    let mut used = match result.map(is_simple).transpose()? {
        None | Some(Some(_)) => 0,
        Some(None) => return Ok(None),
    };
    for parameter in parameters {
        let Some(ty) = scope::type_of(site, parameter.die)? else { return Ok(None) };
        match is_simple(ty)? {
            Some(true) => used += 1,
            Some(false) => {}
            None => return Ok(None),
        }
    }
    let last = parameters.last().map(|parameter| scope::type_of(site, parameter.die)).transpose()?.flatten();
    Ok(match last.map(is_simple).transpose()?.flatten() {
        Some(true) => Some(used - 1),
        Some(false) | None => None,
    })
}
