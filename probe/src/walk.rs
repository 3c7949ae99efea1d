//! From an argument as written (`a->b[3].c`) to its value: types are followed, places with them.

use crate::debug::Die;
use crate::definition::{Argument, Base, Cast, Step};
use crate::error::Refusal;
use crate::expr::{Binary, Expr, Unary};
use crate::locate::{Location, Piece};
use crate::site::Site;
use crate::types::{Encoding, Member, Shape, Types};
use crate::value::{Bits, Value};

/// A place, and where in it.
#[derive(Clone, Debug)]
pub(crate) struct Spot<'a> {
    pub(crate) place: Location<'a>,
    /// Bits before it.
    bit: u64,
    is_piece: bool,
    is_implicit: bool,
    /// Whether LLVM says so, which is wrong for bit-fields that it has put together.
    doubts: bool,
}

impl<'a> Spot<'a> {
    pub(crate) fn new(place: Location<'a>, is_llvm: bool) -> Spot<'a> {
        Spot { place, bit: 0, is_piece: false, is_implicit: false, doubts: is_llvm }
    }

    fn at(self, bits: u64) -> Result<Spot<'a>, Refusal> {
        let bit =
            self.bit.checked_add(bits).ok_or_else(|| Refusal::Damaged("a member beyond all memory".to_owned()))?;
        Ok(match self.place {
            Location::Memory(address) => {
                let bytes = i64::try_from(bit / 8).unwrap_or(i64::MAX);
                Spot { place: Location::Memory(address.add(bytes)), bit: bit % 8, ..self }
            }
            _ => Spot { bit, ..self },
        })
    }

    /// The piece that has all the bits, if one has.
    fn piece(self, width: u64) -> Result<Spot<'a>, Refusal> {
        let Location::Pieces(pieces) = &self.place else { return Ok(self) };
        let mut from = 0u64;
        for piece in pieces {
            let end = from.saturating_add(piece.bits);
            if from <= self.bit && self.bit.saturating_add(width) <= end {
                let (is_implicit, doubts) = (self.is_implicit, self.doubts);
                let inner = Spot { place: piece.place.clone(), bit: 0, is_piece: true, is_implicit, doubts };
                return inner.at(piece.skip.saturating_add(self.bit - from))?.piece(width);
            }
            from = end;
        }
        Ok(self)
    }

    /// The bits as an expression, and which of its bits they are if not all from the first on. A bit-field comes with
    /// the bytes of its storage, which begin where the spot's bytes do.
    fn bits(&self, width: u64, storage: Option<u64>) -> Result<(Expr, Option<Bits>), Refusal> {
        let byte = |bits: u64| u8::try_from(bits).unwrap_or(64);
        match &self.place {
            Location::Memory(address) if storage.is_some() || self.bit != 0 => {
                let size = storage
                    .filter(|size| self.bit.saturating_add(width) <= size * 8)
                    .or_else(|| storage_of(self.bit, width));
                let size = size.ok_or_else(|| Refusal::Operation("a bit-field over nine bytes".to_owned()))?;
                let load = address.clone().load(byte(size));
                Ok((load, Some(Bits { offset: byte(self.bit), width: byte(width) })))
            }
            Location::Memory(address) => Ok((address.clone().load(byte(width.div_ceil(8))), None)),
            Location::Value(value) => {
                if self.bit.saturating_add(width) > 64 {
                    return Err(Refusal::Operation("only a part of it".to_owned()));
                }
                match storage {
                    Some(_) if self.doubts && !value.is_plain() => Err(doubtful()),
                    Some(_) => Ok((value.clone(), Some(Bits { offset: byte(self.bit), width: byte(width) }))),
                    None if self.bit == 0 => Ok((value.clone(), None)),
                    None => Ok((Expr::binary(Binary::Shr, value.clone(), Expr::Constant(self.bit)), None)),
                }
            }
            Location::Bytes(bytes) => {
                let value = constant(bytes, self.bit, width)?;
                Ok((Expr::Constant(value), storage.map(|_| Bits { offset: 0, width: byte(width) })))
            }
            Location::Pieces(pieces) => {
                let value = self.joined(pieces, width)?;
                if storage.is_some() && self.doubts {
                    return Err(doubtful());
                }
                Ok((value, storage.map(|_| Bits { offset: 0, width: byte(width) })))
            }
            Location::Pointer(..) => Err(Refusal::ImplicitPointer(String::new())),
            Location::Nowhere => Err(Refusal::OptimisedOut),
        }
    }

    /// Bits that are spread over several pieces.
    fn joined(&self, pieces: &[Piece<'a>], width: u64) -> Result<Expr, Refusal> {
        let mut value: Option<Expr> = None;
        let (mut from, mut done) = (0u64, 0u64);
        for piece in pieces {
            let end = from.saturating_add(piece.bits);
            let at = self.bit.saturating_add(done);
            if done < width && from <= at && at < end {
                let take = (end - at).min(width - done);
                let place = piece.place.clone();
                let spot = Spot { place, bit: 0, is_piece: true, is_implicit: false, doubts: self.doubts };
                let spot = spot.at(piece.skip.saturating_add(at - from))?;
                let (expr, bits) = spot.bits(take, None)?;
                let expr = match bits {
                    Some(bits) => Expr::binary(Binary::Shr, expr, Expr::Constant(bits.offset.into())),
                    None => expr,
                };
                let expr = Expr::unary(Unary::Zero(u8::try_from(take).unwrap_or(64)), expr);
                let expr = if done == 0 { expr } else { Expr::binary(Binary::Shl, expr, Expr::Constant(done)) };
                value = Some(match value {
                    Some(value) => Expr::binary(Binary::Or, value, expr),
                    None => expr,
                });
                done += take;
            }
            from = end;
        }
        value.filter(|_| done == width).ok_or_else(|| Refusal::Operation("only a part of it".to_owned()))
    }
}

fn doubtful() -> Refusal {
    Refusal::Operation("a computed unit of bit-fields, which LLVM computes wrongly".to_owned())
}

/// Bytes of the smallest storage that has a field.
fn storage_of(bit: u64, width: u64) -> Option<u64> {
    [1, 2, 4, 8].into_iter().find(|size| bit.saturating_add(width) <= size * 8)
}

fn constant(bytes: &[u8], bit: u64, width: u64) -> Result<u64, Refusal> {
    let begin = usize::try_from(bit / 8).unwrap_or(usize::MAX);
    let end = usize::try_from(bit.saturating_add(width).div_ceil(8)).unwrap_or(usize::MAX);
    let part = bytes.get(begin..end).filter(|part| part.len() <= 9);
    let part = part.ok_or_else(|| Refusal::Operation("only a part of it".to_owned()))?;
    let value = part.iter().rev().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
    let all = (value >> (bit % 8)) as u64;
    Ok(all & crate::expr::mask(u8::try_from(width).unwrap_or(64)))
}

/// An intermediate value: its place, its type, and what the type does not say.
struct Walk<'s, 'b, 'a> {
    site: &'s Site<'b, 'a>,
    types: Types<'b, 'a>,
    spot: Spot<'a>,
    ty: Option<Die>,
    /// The size of the type, where there is none: that of a register or symbol.
    untyped: u64,
    /// Bits of it and bytes of its storage, if it is a bit-field.
    field: Option<(u64, u64)>,
    /// Dimensions of the array that are indexed already.
    dimensions: usize,
    /// As written, up to here.
    text: String,
}

/// Where an argument begins: a variable, a register, a symbol or a result.
pub(crate) struct Start<'a> {
    pub(crate) spot: Spot<'a>,
    pub(crate) ty: Option<Die>,
    /// Bytes that count where there is no type; 0 for `void`.
    pub(crate) untyped: u64,
}

/// The value of an argument.
pub(crate) fn value<'a>(site: &Site<'_, 'a>, argument: &Argument, start: Start<'a>) -> Result<Value, Refusal> {
    let types = Types { binary: site.binary };
    let text = match &argument.base {
        Base::Variable(name) => name.clone(),
        Base::Return => "$retval".to_owned(),
        Base::Register(name) => format!("%{name}"),
        Base::Symbol(name) => format!("@{name}"),
    };
    let Start { spot, ty, untyped } = start;
    let mut walk = Walk { site, types, spot, ty, untyped, field: None, dimensions: 0, text };
    for step in &argument.steps {
        walk.references()?;
        match step {
            Step::Member(name) => walk.member(name)?,
            Step::Arrow(name) => walk.arrow(name)?,
            Step::Index(index) => walk.index(*index)?,
        }
    }
    walk.references()?;
    let value = walk.value(argument.cast)?;
    if value.expr.is_small() { Ok(value) } else { Err(Refusal::TooComplex("expressions")) }
}

impl<'a> Walk<'_, '_, 'a> {
    fn shape(&self) -> Result<Shape, Refusal> {
        if self.field.is_some() {
            return Err(Refusal::NoStep { ty: "a bit-field".to_owned(), what: "members" });
        }
        match self.ty {
            Some(ty) => self.types.shape(ty),
            None => Ok(Shape::Other("void".to_owned())),
        }
    }

    fn name(&self) -> String {
        self.types.name(self.ty)
    }

    /// A reference of C++ is what it refers to.
    fn references(&mut self) -> Result<(), Refusal> {
        while let (None, Some(ty)) = (self.field, self.ty) {
            match self.types.shape(ty)? {
                Shape::Pointer { to, is_reference: true } => self.follow(to)?,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// What the current pointer points to.
    fn target(&self) -> Result<Spot<'a>, Refusal> {
        let spot = self.spot.clone().piece(64)?;
        if let (&Location::Pointer(target, offset), 0) = (&spot.place, spot.bit) {
            let place = self.site.nested()?.place(target)?;
            let target = Spot { place, bit: 0, is_implicit: true, ..spot };
            let offset = u64::try_from(offset);
            let offset = offset.map_err(|_| Refusal::Operation("a pointer to before a variable".to_owned()))?;
            return target.at(offset.saturating_mul(8));
        }
        let (pointer, _) = spot.bits(64, None).map_err(|refusal| self.named(refusal))?;
        Ok(Spot { place: Location::Memory(pointer), bit: 0, ..spot })
    }

    /// Moves to what the current pointer points to.
    fn follow(&mut self, to: Option<Die>) -> Result<(), Refusal> {
        self.spot = self.target()?;
        (self.ty, self.dimensions) = (to, 0);
        Ok(())
    }

    fn named(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::ImplicitPointer(_) => Refusal::ImplicitPointer(self.text.clone()),
            other => other,
        }
    }

    fn member(&mut self, name: &str) -> Result<(), Refusal> {
        match self.shape()? {
            Shape::Record(record) => self.enter(record, name, "."),
            Shape::Declared(ty) => Err(Refusal::Incomplete(ty)),
            Shape::Pointer { .. } => Err(Refusal::Arrow { ty: self.name(), pointer: true, name: name.to_owned() }),
            Shape::Scalar { .. } | Shape::Array(_) | Shape::Other(_) => {
                Err(Refusal::NoStep { ty: self.name(), what: "members" })
            }
        }
    }

    fn arrow(&mut self, name: &str) -> Result<(), Refusal> {
        match self.shape()? {
            Shape::Pointer { to: Some(to), .. } => {
                // What it points to is known before the place is needed: a wrong name is the clearer error.
                let record = match self.types.shape(to)? {
                    Shape::Record(record) => record,
                    Shape::Declared(ty) => return Err(Refusal::Incomplete(ty)),
                    _ => return Err(Refusal::NoStep { ty: self.types.name(Some(to)), what: "members" }),
                };
                self.types.member(record, name)?;
                self.follow(Some(to))?;
                self.enter(record, name, "->")
            }
            Shape::Record(_) | Shape::Declared(_) => {
                Err(Refusal::Arrow { ty: self.name(), pointer: false, name: name.to_owned() })
            }
            Shape::Pointer { to: None, .. } | Shape::Scalar { .. } | Shape::Array(_) | Shape::Other(_) => {
                Err(Refusal::NoStep { ty: self.name(), what: "members" })
            }
        }
    }

    fn enter(&mut self, record: Die, name: &str, by: &str) -> Result<(), Refusal> {
        let Member { at, bits, ty } = self.types.member(record, name)?;
        (self.ty, self.field, self.dimensions) = (ty, None, 0);
        match (bits, ty) {
            (Some(width), Some(ty)) => {
                let storage = self.types.size(ty)?.unwrap_or(0);
                let whole = self.types.size(record)?.unwrap_or(0);
                let (begin, storage) = unit_of(at, width, storage, whole);
                self.spot = self.spot.clone().at(begin)?;
                self.spot.bit += at - begin;
                self.field = Some((width, storage));
            }
            _ => self.spot = self.spot.clone().at(at)?,
        }
        self.text = format!("{}{by}{name}", self.text);
        Ok(())
    }

    fn index(&mut self, index: u64) -> Result<(), Refusal> {
        let (element, stride, is_array) = match self.shape()? {
            Shape::Array(array) => {
                let (element, size) = self.types.element(array)?;
                let dimensions = self.types.dimensions(array)?;
                // The last array of a structure may say 0 or nothing.
                let most = dimensions.get(self.dimensions).copied().flatten().filter(|count| *count > 0);
                if most.is_some_and(|most| index >= most) {
                    return Err(Refusal::Index { index, ty: self.name() });
                }
                let inner = dimensions.get(self.dimensions + 1..).unwrap_or_default();
                let count = inner.iter().map(|count| count.unwrap_or(0)).fold(1, u64::saturating_mul);
                let is_last = inner.is_empty();
                (if is_last { Some(element) } else { self.ty }, size.saturating_mul(count), true)
            }
            Shape::Pointer { to: Some(to), .. } => match self.types.size(to)? {
                Some(size) if size > 0 => (Some(to), size, false),
                _ => return Err(Refusal::Incomplete(self.types.name(Some(to)))),
            },
            _ => return Err(Refusal::NoStep { ty: self.name(), what: "elements" }),
        };
        if is_array {
            self.dimensions = if element == self.ty { self.dimensions + 1 } else { 0 };
        } else {
            self.follow(element)?;
        }
        self.ty = element;
        let bits = index.checked_mul(stride).and_then(|bytes| bytes.checked_mul(8));
        let bits = bits.ok_or_else(|| Refusal::Index { index, ty: self.name() })?;
        self.spot = self.spot.clone().at(bits)?;
        self.text = format!("{}[{index}]", self.text);
        Ok(())
    }

    fn value(&self, cast: Option<Cast>) -> Result<Value, Refusal> {
        let ty = self.name();
        if let Some(Cast::String { user }) = cast {
            return self.string(user, ty);
        }
        let shape = match self.ty {
            Some(ty) => self.types.shape(ty)?,
            None if self.untyped == 0 => Shape::Other("void".to_owned()),
            None => Shape::Scalar { size: self.untyped, encoding: Encoding::Hex, signed: false },
        };
        let (size, encoding, signed) = match shape {
            Shape::Scalar { size, encoding, signed } => (size, encoding, signed),
            Shape::Pointer { .. } => (8, Encoding::Pointer, false),
            Shape::Record(record) => {
                let members = self.types.members(record)?.into_iter().map(|name| format!(".{name}")).collect();
                return Err(Refusal::Aggregate { ty, members });
            }
            Shape::Array(_) => return Err(Refusal::Array { ty }),
            Shape::Declared(ty) => return Err(Refusal::Incomplete(ty)),
            Shape::Other(ty) => return Err(Refusal::NoStep { ty, what: "value" }),
        };
        if !(1..=8).contains(&size) {
            return Err(Refusal::Wide { ty, size });
        }
        let letter = if signed { 's' } else { 'x' };
        let value = Value { encoding, signed, letter, ..self.scalar(size, ty)? };
        match cast {
            Some(Cast::Number { kind, bits }) => Ok(number(value, kind, bits)),
            Some(Cast::String { .. }) | None => Ok(value),
        }
    }

    fn scalar(&self, size: u64, ty: String) -> Result<Value, Refusal> {
        let (width, storage) = match self.field {
            Some((width, storage)) => (width, Some(storage)),
            None => (size.saturating_mul(8), None),
        };
        if !(1..=64).contains(&width) {
            return Err(Refusal::Damaged("a bit-field of no bits, or of too many".to_owned()));
        }
        let spot = self.spot.clone().piece(width)?;
        let (expr, bits) = spot.bits(width, storage).map_err(|refusal| self.named(refusal))?;
        let own = u8::try_from(size).unwrap_or(8);
        // A field counts in its container; of a longer load the lowest bytes do.
        let (expr, counted) = match (expr, bits) {
            (expr, None) => (narrowed(expr, own), own),
            (Expr::Load { address, size }, Some(_)) => (Expr::Load { address, size }, size),
            (expr, Some(_)) => (expr, 8),
        };
        let (is_piece, is_implicit) = (spot.is_piece, spot.is_implicit);
        Ok(Value {
            expr,
            bits,
            size: counted,
            encoding: Encoding::Hex,
            signed: false,
            letter: 'x',
            ty,
            is_piece,
            is_implicit,
        })
    }

    /// Bytes up to a zero: at the address that a pointer has, or in an array.
    fn string(&self, user: bool, ty: String) -> Result<Value, Refusal> {
        let refuse = |ty: String, why| {
            let cast = if user { "ustring" } else { "string" };
            Err(Refusal::Cast { ty, cast: cast.to_owned(), why })
        };
        let spot = match self.shape()? {
            Shape::Pointer { .. } => self.target()?,
            Shape::Array(_) => self.spot.clone(),
            // The address is in a register.
            _ if self.ty.is_none() && self.untyped == 8 => self.target()?,
            _ => return refuse(ty, "it is neither a pointer nor an array"),
        };
        let (is_piece, is_implicit) = (spot.is_piece, spot.is_implicit);
        let expr = match spot.place {
            Location::Memory(address) if spot.bit == 0 => address,
            Location::Nowhere => return Err(Refusal::OptimisedOut),
            _ => return refuse(ty, "its bytes are in no memory"),
        };
        let encoding = Encoding::String { user };
        Ok(Value { expr, bits: None, size: 8, encoding, signed: false, letter: 'x', ty, is_piece, is_implicit })
    }
}

/// Only the lowest bytes of a load.
fn narrowed(expr: Expr, bytes: u8) -> Expr {
    match expr {
        Expr::Load { address, size } if size > bytes => Expr::Load { address, size: bytes },
        expr => expr,
    }
}

/// Where the storage of a bit-field begins, in bits, and its bytes: an aligned unit of its type, if the field is in one
/// and the structure has all of it; else the smallest that has the field.
pub(crate) fn unit_of(at: u64, width: u64, unit: u64, whole: u64) -> (u64, u64) {
    if matches!(unit, 1 | 2 | 4 | 8) {
        let begin = at - at % (unit * 8);
        if at.saturating_add(width) <= begin.saturating_add(unit * 8)
            && begin.saturating_add(unit * 8) <= whole.saturating_mul(8)
        {
            return (begin, unit);
        }
    }
    let begin = at - at % 8;
    (begin, storage_of(at % 8, width).unwrap_or(8))
}

/// A value taken as a number: cut to fewer bits, or extended to more as its own type says.
pub(crate) fn number(value: Value, letter: char, bits: Option<u8>) -> Value {
    let own = value.bits.map_or(value.size.saturating_mul(8), |bits| bits.width);
    let wanted = bits.unwrap_or(own);
    let value = Value { letter, ..value };
    let (encoding, signed) = match letter {
        's' => (Encoding::Signed, true),
        'u' => (Encoding::Unsigned, false),
        _ => (Encoding::Hex, false),
    };
    if wanted > own {
        if value.signed && !signed {
            // C's conversion: the sign is extended, then read as a part of the number.
            let expr = match value.bits {
                Some(bits) => Expr::binary(Binary::Shr, value.expr, Expr::Constant(bits.offset.into())),
                None => value.expr,
            };
            let expr = Expr::unary(Unary::Sign(own), expr);
            return Value { expr, bits: None, size: wanted / 8, encoding, signed, ..value };
        }
        return Value { encoding, ..value };
    }
    match value {
        Value { bits: Some(field), .. } => {
            let bits = Some(Bits { width: wanted.min(field.width), ..field });
            Value { bits, encoding, signed, ..value }
        }
        Value { expr: Expr::Load { address, .. }, .. } => {
            Value { expr: address.load(wanted / 8), size: wanted / 8, encoding, signed, ..value }
        }
        value => Value { size: wanted / 8, encoding, signed, ..value },
    }
}
