//! The place of a variable at an address, as its location in DWARF says.

mod list;
mod ops;

use gimli::constants as dw;
use gimli::{AttributeValue, Expression};

use crate::cfi::Cfa;
use crate::code;
use crate::debug::{Die, Entry};
use crate::elf::Slice;
use crate::error::Refusal;
use crate::expr::Expr;
use crate::machine::Register;
use crate::site::{MOST_NESTED, Site};

/// Where a value is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Location<'a> {
    /// At this address.
    Memory(Expr),
    /// This is the value: the contents of a register, or computed.
    Value(Expr),
    /// These bytes are the value.
    Bytes(&'a [u8]),
    /// Its parts, from the first byte on.
    Pieces(Vec<Piece<'a>>),
    /// A pointer that exists nowhere, to this variable plus an offset.
    Pointer(Die, i64),
    /// Nowhere: it is optimised out.
    Nowhere,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece<'a> {
    /// Bits of it.
    pub(crate) bits: u64,
    /// Bits of its place before it.
    pub(crate) skip: u64,
    pub(crate) place: Location<'a>,
}

/// Whether a location holds in the whole scope of the variable or in a range of addresses. Compilers say the former
/// where the prologue has not stored the value yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Scope,
    Range,
}

impl<'a> Site<'_, 'a> {
    pub(crate) fn cfa(&self) -> Result<Expr, Refusal> {
        match self.binary.frames().cfa(self.pc) {
            Some(Cfa::Register(register, offset)) => Ok(Expr::Register(register).add(offset)),
            Some(Cfa::Expression(expression, encoding)) => {
                match ops::plain(self, self.function.unit, expression, encoding)? {
                    Location::Memory(address) => Ok(address),
                    _ => Err(Refusal::NoFrame(self.pc)),
                }
            }
            None => Err(Refusal::NoFrame(self.pc)),
        }
    }

    /// Memory at an offset from a register that the prologue sets up.
    pub(crate) fn framed(&self, register: Register, offset: i64, extent: Extent) -> Result<Expr, Refusal> {
        if !self.in_prologue() {
            let here = self.cfa_register(self.pc).ok_or(Refusal::NoFrame(self.pc))?;
            let body = self.body().and_then(|body| self.cfa_register(body));
            // In the epilogue, or between a push and its call, the register does not hold what the function holds it to.
            if here.0 != register || body.is_some_and(|body| body != here) {
                return Err(Refusal::NoFrame(self.pc));
            }
            if extent == Extent::Scope && offset >= here.1 {
                return self.canonical(offset - here.1, extent).map(|_| Expr::Register(register).add(offset));
            }
            return match self.copy_body().filter(|body| extent == Extent::Scope && self.pc < *body) {
                Some(end) => Err(Refusal::Prologue { pc: self.pc, end }),
                None => Ok(Expr::Register(register).add(offset)),
            };
        }
        let body = self.body().ok_or(Refusal::NoFrame(self.pc))?;
        match self.cfa_register(body) {
            Some((found, from)) if found == register => self.canonical(offset - from, extent),
            _ => Err(Refusal::NoFrame(self.pc)),
        }
    }

    /// Memory at an offset from the CFA.
    pub(crate) fn canonical(&self, offset: i64, extent: Extent) -> Result<Expr, Refusal> {
        if extent == Extent::Range {
            return Ok(self.cfa()?.add(offset));
        }
        if offset >= 0 {
            // LLVM's callers do not store what the function does not read.
            let unread = self.binary.is_llvm(self.function.unit)
                && self.binary.is_optimised(self.function)
                && !code::reads_arguments(self, offset);
            return if unread { Err(Refusal::NotPassed) } else { Ok(self.cfa()?.add(offset)) };
        }
        if self.in_prologue() {
            let end = self.body().unwrap_or(self.end);
            return Err(Refusal::Prologue { pc: self.pc, end });
        }
        Ok(self.cfa()?.add(offset))
    }

    /// The place of a variable.
    pub(crate) fn place(&self, variable: Die) -> Result<Location<'a>, Refusal> {
        let debug = self.binary.debug();
        let mut at = variable;
        for _ in 0..MOST_NESTED {
            let entry = debug.entry(at)?;
            if let Some(value) = entry.attr_value(dw::DW_AT_location) {
                return self.location(at, &entry, value);
            }
            if let Some(value) = entry.attr_value(dw::DW_AT_const_value) {
                return self.constant(at, value);
            }
            let origin =
                entry.attr_value(dw::DW_AT_abstract_origin).or_else(|| entry.attr_value(dw::DW_AT_specification));
            match origin {
                Some(origin) => at = debug.refer(at.unit, origin)?,
                None => return Err(Refusal::OptimisedOut),
            }
        }
        Err(Refusal::TooComplex("references"))
    }

    fn constant(&self, at: Die, value: AttributeValue<Slice<'a>>) -> Result<Location<'a>, Refusal> {
        if let AttributeValue::Block(bytes) = value {
            return Ok(Location::Bytes(bytes.slice()));
        }
        // Forms of a fixed size are extended with zeros, as gdb does; the type cuts the value.
        let negative = || value.sdata_value().map(i64::cast_unsigned);
        if let Some(value) = value.udata_value().or_else(negative) {
            return Ok(Location::Value(Expr::Constant(value)));
        }
        match self.binary.debug().unit(at.unit)?.string(value) {
            Some(text) => Ok(Location::Bytes(text)),
            None => Err(Refusal::Operation(format!("it is a constant of an unknown form, {value:?}"))),
        }
    }

    fn location(&self, at: Die, entry: &Entry<'a>, value: AttributeValue<Slice<'a>>) -> Result<Location<'a>, Refusal> {
        let (expression, extent) = match value.exprloc_value() {
            Some(expression) => (expression, Extent::Scope),
            None => (list::at(self, at.unit, entry, value)?, Extent::Range),
        };
        let place = ops::place(self, at.unit, expression, extent)?;
        match place {
            Location::Nowhere => Err(Refusal::OptimisedOut),
            place => Ok(place),
        }
    }

    /// What the offsets of variables in the frame are relative to.
    fn frame_offset(&self, offset: i64, extent: Extent) -> Result<Expr, Refusal> {
        let debug = self.binary.debug();
        let entry = debug.entry(self.function)?;
        let value = entry.attr_value(dw::DW_AT_frame_base).ok_or(Refusal::NoFrame(self.pc))?;
        let expression = match value.exprloc_value() {
            Some(expression) => expression,
            None => list::at(self, self.function.unit, &entry, value)?,
        };
        match self.frame_base(expression)? {
            Base::Cfa(base) => self.canonical(base.saturating_add(offset), extent),
            Base::Register(register, base) => self.framed(register, base.saturating_add(offset), extent),
        }
    }

    fn frame_base(&self, expression: Expression<Slice<'a>>) -> Result<Base, Refusal> {
        let unit = &self.binary.debug().unit(self.function.unit)?.unit;
        let mut ops = expression.operations(unit.encoding());
        let base = match ops.next()? {
            Some(gimli::Operation::CallFrameCFA) => Base::Cfa(0),
            Some(gimli::Operation::Register { register }) => Base::Register(Register(register.0), 0),
            Some(gimli::Operation::RegisterOffset { register, offset, .. }) => {
                Base::Register(Register(register.0), offset)
            }
            _ => return Err(Refusal::Operation("the frame base is computed in an unusual manner".to_owned())),
        };
        // LLVM adds a constant where the prologue probes a large frame page by page.
        match (&base, ops.next()?, ops.next()?, ops.next()?) {
            (_, None, ..) => Ok(base),
            (Base::Cfa(_), Some(gimli::Operation::SignedConstant { value }), Some(gimli::Operation::Plus), None) => {
                Ok(Base::Cfa(value))
            }
            _ => Err(Refusal::Operation("the frame base is computed in an unusual manner".to_owned())),
        }
    }
}

enum Base {
    Cfa(i64),
    Register(Register, i64),
}
