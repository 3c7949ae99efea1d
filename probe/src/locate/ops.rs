//! DWARF expressions, run on symbols in place of a thread's state: what they would compute, as an expression of ours.

use gimli::constants as dw;
use gimli::{AttributeValue, Encoding, Expression, Operation, UnitOffset};

use super::{Extent, Location, Piece, Site};
use crate::debug::Die;
use crate::elf::Slice;
use crate::error::Refusal;
use crate::expr::{Binary, Expr, Unary};
use crate::machine::Register;

type Op<'a> = Operation<Slice<'a>>;

/// Most operations of one expression.
const MOST_OPERATIONS: usize = 512;

/// Type of a value on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// 64 bits without a sign of their own.
    Generic,
    /// An integer; the value is extended to 64 bits as its sign says.
    Integer { bits: u8, signed: bool },
}

/// What an operation that ends a location left.
enum Ended<'a> {
    Location(Location<'a>),
    /// The value on top of the stack is the value, no address.
    Top,
}

struct Run<'s, 'b, 'a> {
    site: &'s Site<'b, 'a>,
    unit: usize,
    extent: Extent,
    encoding: Encoding,
    stack: Vec<(Expr, Type)>,
    ended: Option<Ended<'a>>,
    pieces: Vec<Piece<'a>>,
}

/// The place that a location describes.
pub(super) fn place<'a>(
    site: &Site<'_, 'a>,
    unit: usize,
    expression: Expression<Slice<'a>>,
    extent: Extent,
) -> Result<Location<'a>, Refusal> {
    let encoding = site.binary.debug().unit(unit)?.unit.encoding();
    Run::new(site, unit, encoding, extent).run(expression)
}

/// The place that an expression describes in which no frame and no unit counts.
pub(super) fn plain<'a>(
    site: &Site<'_, 'a>,
    unit: usize,
    expression: Expression<Slice<'a>>,
    encoding: Encoding,
) -> Result<Location<'a>, Refusal> {
    Run::new(site, unit, encoding, Extent::Range).run(expression)
}

fn says(what: &str) -> Refusal {
    Refusal::Operation(what.to_owned())
}

impl<'s, 'b, 'a> Run<'s, 'b, 'a> {
    fn new(site: &'s Site<'b, 'a>, unit: usize, encoding: Encoding, extent: Extent) -> Run<'s, 'b, 'a> {
        Run { site, unit, extent, encoding, stack: Vec::new(), ended: None, pieces: Vec::new() }
    }

    fn run(mut self, expression: Expression<Slice<'a>>) -> Result<Location<'a>, Refusal> {
        if expression.0.is_empty() {
            return Ok(Location::Nowhere);
        }
        let mut ops = expression.operations(self.encoding);
        let mut count = 0;
        while let Some(op) = ops.next()? {
            count += 1;
            if count > MOST_OPERATIONS {
                return Err(Refusal::TooComplex("expressions"));
            }
            if self.ended.is_some() && !matches!(op, Operation::Piece { .. }) {
                return Err(says("an operation after the end of a location"));
            }
            self.step(op)?;
            if self.stack.last().is_some_and(|(top, _)| !top.is_small()) {
                return Err(Refusal::TooComplex("expressions"));
            }
        }
        if self.pieces.is_empty() {
            return self.finish();
        }
        if self.ended.is_some() || !self.stack.is_empty() {
            return Err(says("a location after its last piece"));
        }
        Ok(Location::Pieces(self.pieces))
    }

    /// The location that is complete now.
    fn finish(&mut self) -> Result<Location<'a>, Refusal> {
        let top = self.stack.pop();
        match (self.ended.take(), top) {
            (None, Some((address, _))) => Ok(Location::Memory(address)),
            (None, None) => Ok(Location::Nowhere),
            (Some(Ended::Top), Some((value, _))) => Ok(Location::Value(value)),
            (Some(Ended::Top), None) => Err(says("a value of an empty stack")),
            (Some(Ended::Location(place)), _) => Ok(place),
        }
    }

    fn push(&mut self, value: Expr) {
        self.stack.push((value, Type::Generic));
    }

    fn pop(&mut self) -> Result<(Expr, Type), Refusal> {
        self.stack.pop().ok_or_else(|| says("an operation on an empty stack"))
    }

    #[rustfmt::skip] // One operation a line.
    fn step(&mut self, op: Op<'a>) -> Result<(), Refusal> {
        // exhaustive match
        match op {
            Operation::Deref { base_type, size, space: false } => self.deref(base_type, size)?,
            Operation::Deref { space: true, .. } => return Err(says("DW_OP_xderef, memory of another address space")),
            Operation::Drop => drop(self.pop()?),
            Operation::Pick { index } => self.pick(usize::from(index))?,
            Operation::Swap => self.rotate(2)?,
            Operation::Rot => self.rotate(3)?,
            Operation::Abs => self.unary(Unary::Abs)?,
            Operation::Neg => self.unary(Unary::Neg)?,
            Operation::Not => self.unary(Unary::Not)?,
            Operation::And => self.binary(Binary::And, Binary::And)?,
            Operation::Div => self.binary(Binary::Div, Binary::DivU)?,
            Operation::Minus => self.binary(Binary::Sub, Binary::Sub)?,
            Operation::Mod => self.modulo()?,
            Operation::Mul => self.binary(Binary::Mul, Binary::Mul)?,
            Operation::Or => self.binary(Binary::Or, Binary::Or)?,
            Operation::Plus => self.binary(Binary::Add, Binary::Add)?,
            Operation::PlusConstant { value } => {
                let (top, ty) = self.pop()?;
                self.stack.push((extend(top.add(value.cast_signed()), ty), ty));
            }
            Operation::Shl => self.binary(Binary::Shl, Binary::Shl)?,
            Operation::Shr => self.shift_right()?,
            Operation::Shra => self.binary(Binary::Shra, Binary::Shra)?,
            Operation::Xor => self.binary(Binary::Xor, Binary::Xor)?,
            Operation::Eq => self.compare(Binary::Eq, Binary::Eq)?,
            Operation::Ne => self.compare(Binary::Ne, Binary::Ne)?,
            Operation::Ge => self.compare(Binary::Ge, Binary::GeU)?,
            Operation::Gt => self.compare(Binary::Gt, Binary::GtU)?,
            Operation::Le => self.compare(Binary::Le, Binary::LeU)?,
            Operation::Lt => self.compare(Binary::Lt, Binary::LtU)?,
            Operation::Bra { .. } => return Err(says("DW_OP_bra, a branch")),
            Operation::Skip { .. } => return Err(says("DW_OP_skip, a jump")),
            Operation::UnsignedConstant { value } => self.push(Expr::Constant(value)),
            Operation::SignedConstant { value } => self.push(Expr::Constant(value.cast_unsigned())),
            Operation::Register { register } => self.register(Register(register.0))?,
            Operation::RegisterOffset { register, offset, base_type } => {
                self.register_offset(Register(register.0), offset, base_type)?;
            }
            Operation::FrameOffset { offset } => {
                let address = self.site.frame_offset(offset, self.extent)?;
                self.push(address);
            }
            Operation::Nop => {}
            Operation::PushObjectAddress => return Err(says("DW_OP_push_object_address, which depends on the object")),
            Operation::Call { .. } => return Err(says("DW_OP_call, another expression")),
            Operation::VariableValue { .. } => return Err(says("DW_OP_GNU_variable_value, the value of another variable")),
            Operation::TLS => return Err(says("DW_OP_form_tls_address: it is thread-local, at an address that a probe cannot compute")),
            Operation::CallFrameCFA => {
                let cfa = self.site.cfa()?;
                self.push(cfa);
            }
            Operation::Piece { size_in_bits, bit_offset } => self.piece(size_in_bits, bit_offset.unwrap_or(0))?,
            Operation::ImplicitValue { data } => self.ended = Some(Ended::Location(Location::Bytes(data.slice()))),
            Operation::StackValue => self.ended = Some(Ended::Top),
            Operation::ImplicitPointer { value, byte_offset } => {
                let target = self.site.binary.debug().refer(self.unit, AttributeValue::DebugInfoRef(value))?;
                self.ended = Some(Ended::Location(Location::Pointer(target, byte_offset)));
            }
            Operation::EntryValue { expression } => self.entry_value(Expression(expression))?,
            Operation::ParameterRef { .. } => return Err(says("DW_OP_GNU_parameter_ref, an argument that callers no longer pass")),
            Operation::Address { address } => self.push(Expr::Address(address)),
            Operation::AddressIndex { index } => {
                let unit = self.site.binary.debug().unit(self.unit)?;
                let address = unit.dwarf.address(&unit.unit, index)?;
                self.push(Expr::Address(address));
            }
            Operation::ConstantIndex { index } => {
                let unit = self.site.binary.debug().unit(self.unit)?;
                let value = unit.dwarf.address(&unit.unit, index)?;
                self.push(Expr::Constant(value));
            }
            Operation::TypedLiteral { base_type, value } => self.literal(base_type, value.slice())?,
            Operation::Convert { base_type } => self.convert(base_type)?,
            Operation::Reinterpret { base_type } => self.convert(base_type)?,
            Operation::Uninitialized => return Err(says("DW_OP_GNU_uninit: it has no value yet")),
            Operation::WasmLocal { .. } | Operation::WasmGlobal { .. } | Operation::WasmStack { .. } => {
                return Err(says("DW_OP_WASM_location, a place of WebAssembly"));
            }
        }
        Ok(())
    }

    fn general(&self, register: Register) -> Result<Register, Refusal> {
        let machine = self.site.machine();
        if machine.is_general(register) { Ok(register) } else { Err(Refusal::Register(machine.name(register))) }
    }

    fn register(&mut self, register: Register) -> Result<(), Refusal> {
        let register = self.general(register)?;
        if self.site.is_entry() && self.site.machine().is_preserved(register) {
            return Err(says(&format!("%{}, which cannot hold an argument yet", self.site.machine().name(register))));
        }
        self.ended = Some(Ended::Location(Location::Value(Expr::Register(register))));
        Ok(())
    }

    fn register_offset(&mut self, register: Register, offset: i64, base: UnitOffset) -> Result<(), Refusal> {
        let register = self.general(register)?;
        let ty = self.base_type(base)?;
        let is_frame = register == self.site.machine().stack_pointer() || self.site.machine().is_preserved(register);
        if self.extent == Extent::Scope && is_frame && ty == Type::Generic && self.site.in_prologue() {
            let address = self.site.framed(register, offset, self.extent)?;
            self.push(address);
            return Ok(());
        }
        self.stack.push((extend(Expr::Register(register).add(offset), ty), ty));
        Ok(())
    }

    fn entry_value(&mut self, expression: Expression<Slice<'a>>) -> Result<(), Refusal> {
        let mut ops = expression.operations(self.encoding);
        let (register, offset) = match (ops.next()?, ops.next()?) {
            (Some(Operation::Register { register }), None) => (Register(register.0), 0),
            (Some(Operation::RegisterOffset { register, offset, base_type }), None) if base_type.0 == 0 => {
                (Register(register.0), offset)
            }
            _ => return Err(says("DW_OP_entry_value of more than a register")),
        };
        let register = self.general(register)?;
        let value = if self.site.is_entry() { Expr::Register(register) } else { Expr::Entry(register) };
        self.push(value.add(offset));
        Ok(())
    }

    fn deref(&mut self, base: UnitOffset, size: u8) -> Result<(), Refusal> {
        let (address, _) = self.pop()?;
        let ty = self.base_type(base)?;
        if !(1..=8).contains(&size) {
            return Err(says("memory of more than 8 bytes"));
        }
        self.stack.push((extend(address.load(size), ty), ty));
        Ok(())
    }

    fn pick(&mut self, index: usize) -> Result<(), Refusal> {
        let at = self.stack.len().checked_sub(index + 1).ok_or_else(|| says("an operation on an empty stack"))?;
        self.stack.push(self.stack[at].clone());
        Ok(())
    }

    /// The top goes below the `count - 1` values under it.
    fn rotate(&mut self, count: usize) -> Result<(), Refusal> {
        let at = self.stack.len().checked_sub(count).ok_or_else(|| says("an operation on an empty stack"))?;
        self.stack[at..].rotate_right(1);
        Ok(())
    }

    fn unary(&mut self, op: Unary) -> Result<(), Refusal> {
        let (of, ty) = self.pop()?;
        self.stack.push((extend(Expr::unary(op, of), ty), ty));
        Ok(())
    }

    /// Both operands have the same type; generic ones count as signed where that matters.
    fn operands(&mut self) -> Result<(Expr, Expr, Type), Refusal> {
        let ((right, _), (left, ty)) = (self.pop()?, self.pop()?);
        Ok((left, right, ty))
    }

    fn binary(&mut self, signed: Binary, unsigned: Binary) -> Result<(), Refusal> {
        let (left, right, ty) = self.operands()?;
        let op = if matches!(ty, Type::Integer { signed: false, .. }) { unsigned } else { signed };
        self.stack.push((extend(Expr::binary(op, left, right), ty), ty));
        Ok(())
    }

    /// Of generic values the remainder is unsigned, unlike the quotient.
    fn modulo(&mut self) -> Result<(), Refusal> {
        let generic = self.stack.last().is_none_or(|(_, ty)| *ty == Type::Generic);
        if generic { self.binary(Binary::ModU, Binary::ModU) } else { self.binary(Binary::Mod, Binary::ModU) }
    }

    /// Zeros come in: of a signed one only its own bits count.
    fn shift_right(&mut self) -> Result<(), Refusal> {
        let (left, right, ty) = self.operands()?;
        let left = match ty {
            Type::Integer { bits, signed: true } => Expr::unary(Unary::Zero(bits), left),
            Type::Integer { signed: false, .. } | Type::Generic => left,
        };
        self.stack.push((extend(Expr::binary(Binary::Shr, left, right), ty), ty));
        Ok(())
    }

    fn compare(&mut self, signed: Binary, unsigned: Binary) -> Result<(), Refusal> {
        self.binary(signed, unsigned)?;
        if let Some((_, ty)) = self.stack.last_mut() {
            *ty = Type::Generic;
        }
        Ok(())
    }

    fn convert(&mut self, base: UnitOffset) -> Result<(), Refusal> {
        let (value, _) = self.pop()?;
        let ty = self.base_type(base)?;
        self.stack.push((extend(value, ty), ty));
        Ok(())
    }

    fn literal(&mut self, base: UnitOffset, bytes: &[u8]) -> Result<(), Refusal> {
        let ty = self.base_type(base)?;
        let mut value = [0; 8];
        let part = value.get_mut(..bytes.len()).ok_or_else(|| says("a constant of more than 8 bytes"))?;
        part.copy_from_slice(bytes);
        self.stack.push((extend(Expr::Constant(u64::from_le_bytes(value)), ty), ty));
        Ok(())
    }

    fn piece(&mut self, bits: u64, skip: u64) -> Result<(), Refusal> {
        let place = self.finish()?;
        if !self.stack.is_empty() {
            return Err(says("a piece with further values on the stack"));
        }
        self.pieces.push(Piece { bits, skip, place });
        Ok(())
    }

    fn base_type(&self, base: UnitOffset) -> Result<Type, Refusal> {
        if super::list::is_generic(base) {
            return Ok(Type::Generic);
        }
        let entry = self.site.binary.debug().entry(Die { unit: self.unit, offset: base })?;
        let size = entry.attr(dw::DW_AT_byte_size).and_then(|size| size.udata_value()).unwrap_or(0);
        let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(dw::DW_AT_encoding) else {
            return Err(says("a type without an encoding"));
        };
        let signed = match encoding {
            dw::DW_ATE_signed | dw::DW_ATE_signed_char => true,
            dw::DW_ATE_unsigned
            | dw::DW_ATE_unsigned_char
            | dw::DW_ATE_boolean
            | dw::DW_ATE_address
            | dw::DW_ATE_UTF => false,
            dw::DW_ATE_float => return Err(says("arithmetic of floating-point numbers")),
            _ => return Err(says("arithmetic of an unusual type")),
        };
        match size {
            1 | 2 | 4 | 8 => Ok(Type::Integer { bits: u8::try_from(size * 8).unwrap_or(64), signed }),
            _ => Err(says("arithmetic of more than 8 bytes")),
        }
    }
}

fn extend(value: Expr, ty: Type) -> Expr {
    match ty {
        Type::Generic | Type::Integer { bits: 64, .. } => value,
        Type::Integer { bits, signed: true } => Expr::unary(Unary::Sign(bits), value),
        Type::Integer { bits, signed: false } => Expr::unary(Unary::Zero(bits), value),
    }
}
