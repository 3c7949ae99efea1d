//! Parameters at a function's first instruction, against the calling convention.
//!
//! LLVM keeps the last of several values that a variable gets without an instruction between them. A parameter that the
//! function first assigns to therefore has the assigned value from the entry on: in `f(int a, int b) { a = b; ... }` the
//! debug information says that `a` is in the register of `b`. gcc numbers such states (views), and so is not concerned.

use gimli::constants as dw;

use crate::debug::Die;
use crate::error::Refusal;
use crate::expr::{Binary, Expr, Unary};
use crate::locate::{Location, Piece};
use crate::scope::{self, Variable};
use crate::site::Site;
use crate::types::{Encoding, Shape, Types};

/// The place of a parameter, unless the calling convention says that callers do not pass it there.
pub(super) fn passed<'a>(
    site: &Site<'_, 'a>,
    variable: &Variable,
    place: Location<'a>,
) -> Result<Location<'a>, Refusal> {
    let binary = site.binary;
    let unit = site.function.unit;
    let is_concerned = variable.is_parameter && site.is_entry() && site.copy.is_none() && binary.is_llvm(unit);
    if !is_concerned || binary.is_rust(unit) {
        return Ok(place);
    }
    let (parameters, is_external) = declared(site)?;
    let value = match &place {
        Location::Value(value) => value,
        Location::Pieces(_) => return Ok(moved(place, is_external)),
        _ => return Ok(place),
    };
    let Some(own) = parameters.iter().position(|parameter| parameter.name == variable.name) else { return Ok(place) };
    let index = register_index(site, value);
    let right = if is_external {
        match expected(site, &parameters[..=own])? {
            Some(expected) => index == Some(expected),
            // Callers pass no constants and compute nothing.
            None => index.is_some() || matches!(value, Expr::Register(_)),
        }
    } else {
        // Unused parameters are not passed to it, so that others move up, in their order.
        let indices = parameters.iter().map(|parameter| match site.place(parameter.die) {
            Ok(Location::Value(value)) => register_index(site, &value),
            Ok(_) | Err(_) => None,
        });
        let indices: Vec<Option<usize>> = indices.collect();
        let follows = |index: usize| {
            let mut before = indices[..own].iter().flatten();
            let mut after = indices[own + 1..].iter().flatten();
            before.all(|other| *other < index) && after.all(|other| *other > index)
        };
        match (index, value) {
            (Some(index), _) => follows(index),
            (None, value) => matches!(value, Expr::Constant(_)),
        }
    };
    if right { Ok(place) } else { Err(Refusal::Assigned) }
}

/// Pieces of a structure that are parts of registers; the others are nowhere.
fn moved(place: Location<'_>, is_external: bool) -> Location<'_> {
    let is_passed = |value: &Expr| is_part(value) || (!is_external && matches!(value, Expr::Constant(_)));
    match place {
        Location::Pieces(pieces) => {
            let each = pieces.into_iter().map(|piece| Piece { place: moved(piece.place, is_external), ..piece });
            Location::Pieces(each.collect())
        }
        Location::Value(value) if !is_passed(&value) => Location::Nowhere,
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

/// Which of the registers that integers are passed in a value is, whole or cut.
fn register_index(site: &Site<'_, '_>, value: &Expr) -> Option<usize> {
    match value {
        Expr::Register(register) => site.machine().passes().iter().position(|number| *number == register.0),
        Expr::Unary(Unary::Zero(_) | Unary::Sign(_), of) => register_index(site, of),
        // LLVM's words for the same.
        Expr::Binary(Binary::And, of, mask) if is_mask(mask) => register_index(site, of),
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
