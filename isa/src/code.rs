//! Wire form to [`Insn`] and back. What the tables do not say (classes, modes, the fields each form uses) is
//! said here once, as constants that both directions share.

use super::insn::LDDW_KINDS;
use super::{AluOp, AtomicOp, ByteOrder, CallKind, Cond, Endian, Insn, Operand, Raw, Reg, Shape, Size, Width};

/// Instruction classes, opcode bits 2:0 (RFC 9669 section 3.2).
pub(super) const LD: u8 = 0;
const LDX: u8 = 1;
const ST: u8 = 2;
pub(super) const STX: u8 = 3;
const ALU: u8 = 4;
pub(super) const JMP: u8 = 5;
pub(super) const JMP32: u8 = 6;
pub(super) const ALU64: u8 = 7;

/// Modes of loads and stores, opcode bits 7:5 (section 5).
pub(super) const IMM: u8 = 0x00;
const ABS: u8 = 0x20;
const IND: u8 = 0x40;
const MEM: u8 = 0x60;
const MEMSX: u8 = 0x80;
pub(super) const ATOMIC: u8 = 0xc0;
pub(super) const MODE: u8 = 0xe0;

/// The source is a register.
pub(super) const X: u8 = 0x08;

/// Codes of the `ALU` and `JMP` classes that are in no table, opcode bits 7:4.
const END: u8 = 0xd;
pub(super) const JA: u8 = 0x0;
pub(super) const CALL: u8 = 0x8;
pub(super) const EXIT: u8 = 0x9;
pub(super) const JCOND: u8 = 0xe;

/// The offset that turns a 64-bit register `mov` into `addr_space_cast`.
const CAST: i16 = 1;
/// Immediates of the atomics that are not read-modify-write.
const LOAD_ACQUIRE: i32 = 0x100;
const STORE_RELEASE: i32 = 0x110;

/// A field of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Destination register, bits 0 to 3 of byte 1.
    Dst,
    /// Source register, bits 4 to 7 of byte 1.
    Src,
    /// Signed 16-bit offset, bytes 2 and 3.
    Off,
    /// Signed 32-bit immediate, bytes 4 to 7.
    Imm,
}

impl Field {
    /// Every field, in the order of their bits.
    pub const ALL: [Field; 4] = [Field::Dst, Field::Src, Field::Off, Field::Imm];

    /// As the RFC spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Field::Dst => "dst",
            Field::Src => "src",
            Field::Off => "off",
            Field::Imm => "imm",
        }
    }

    fn of(self, raw: Raw) -> i32 {
        match self {
            Field::Dst => raw.dst().into(),
            Field::Src => raw.src().into(),
            Field::Off => raw.off.into(),
            Field::Imm => raw.imm,
        }
    }
}

/// Why eight bytes are not an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No instruction has this opcode.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// Registers end at r10.
    #[error("opcode {opcode:#04x} names register r{number}, there are only r0 to r10")]
    Register {
        /// Of the instruction.
        opcode: u8,
        /// 11 to 15.
        number: u8,
    },
    /// A field that this instruction does not use is not zero.
    #[error("opcode {opcode:#04x} does not use {}, it must be 0 and is {value}", field.name())]
    Reserved {
        /// Of the instruction.
        opcode: u8,
        /// The field that holds it.
        field: Field,
        /// Value of the field, sign-extended.
        value: i32,
    },
    /// A field that selects a form holds a value that selects none.
    #[error("opcode {opcode:#04x} has no form with {} = {value:#x}", field.name())]
    Form {
        /// Of the instruction.
        opcode: u8,
        /// The field that holds it.
        field: Field,
        /// Value of the field, sign-extended.
        value: i32,
    },
    /// The bytes end inside a slot.
    #[error("{0} bytes left over, an instruction is 8 bytes")]
    Truncated(usize),
}

/// Decodes a section's worth of instructions. On failure, the pc and what is wrong with it.
pub fn decode_all(bytes: &[u8], order: Endian) -> Result<Vec<Insn>, (usize, DecodeError)> {
    let (slots, rest) = bytes.as_chunks::<8>();
    let insns = slots.iter().enumerate();
    let insns = insns
        .map(|(pc, slot)| Insn::decode(Raw::from_bytes(*slot, order)).map_err(|error| (pc, error)))
        .collect::<Result<Vec<Insn>, _>>()?;
    if rest.is_empty() { Ok(insns) } else { Err((slots.len(), DecodeError::Truncated(rest.len()))) }
}

/// Inverse of [`decode_all`].
pub fn encode_all(insns: &[Insn], order: Endian) -> Vec<u8> {
    insns.iter().flat_map(|insn| insn.encode().to_bytes(order)).collect()
}

impl Raw {
    fn unknown<T>(self) -> Result<T, DecodeError> {
        Err(DecodeError::Opcode(self.opcode))
    }

    fn no_form<T>(self, field: Field) -> Result<T, DecodeError> {
        Err(DecodeError::Form { opcode: self.opcode, field, value: field.of(self) })
    }

    /// All fields but these must be zero.
    fn uses(self, fields: &[Field]) -> Result<(), DecodeError> {
        let reserved = Field::ALL.into_iter().find(|&field| !fields.contains(&field) && field.of(self) != 0);
        match reserved {
            Some(field) => Err(DecodeError::Reserved { opcode: self.opcode, field, value: field.of(self) }),
            None => Ok(()),
        }
    }

    fn reg(self, number: u8) -> Result<Reg, DecodeError> {
        Reg::new(number).ok_or(DecodeError::Register { opcode: self.opcode, number })
    }

    fn dst_reg(self) -> Result<Reg, DecodeError> {
        self.reg(self.dst())
    }

    fn src_reg(self) -> Result<Reg, DecodeError> {
        self.reg(self.src())
    }

    /// The second operand, with the field it does not use checked. The offset is the caller's to check.
    fn operand(self) -> Result<Operand, DecodeError> {
        if self.opcode & X != 0 {
            self.uses(&[Field::Dst, Field::Src, Field::Off])?;
            Ok(Operand::Reg(self.src_reg()?))
        } else {
            self.uses(&[Field::Dst, Field::Off, Field::Imm])?;
            Ok(Operand::Imm(self.imm))
        }
    }

    fn size(self) -> Size {
        match self.opcode >> 3 & 3 {
            0 => Size::W,
            1 => Size::H,
            2 => Size::B,
            _ => Size::Dw,
        }
    }
}

pub(super) const fn size_bits(size: Size) -> u8 {
    match size {
        Size::W => 0x00,
        Size::H => 0x08,
        Size::B => 0x10,
        Size::Dw => 0x18,
    }
}

impl Insn {
    /// The instruction in a slot. Every field it does not use must be zero, so [`Insn::encode`] gives back the
    /// same slot. Whether the instruction makes sense where it stands is for [`validate`](crate::validate).
    pub fn decode(raw: Raw) -> Result<Insn, DecodeError> {
        match raw.opcode & 7 {
            LD => decode_ld(raw),
            LDX => decode_ldx(raw),
            ST => decode_st(raw),
            STX => decode_stx(raw),
            ALU => decode_alu(raw, Width::W32),
            ALU64 => decode_alu(raw, Width::W64),
            JMP => decode_jmp(raw, Width::W64),
            _ => decode_jmp(raw, Width::W32),
        }
    }
}

fn decode_ld(raw: Raw) -> Result<Insn, DecodeError> {
    let (mode, size) = (raw.opcode & MODE, raw.size());
    match (mode, size) {
        (IMM, Size::Dw) => {
            raw.uses(&[Field::Dst, Field::Src, Field::Imm])?;
            if raw.src() > LDDW_KINDS {
                return raw.no_form(Field::Src);
            }
            Ok(Insn::LoadImm { dst: raw.dst_reg()?, kind: raw.src(), imm: raw.imm })
        }
        (IMM, Size::W) => {
            raw.uses(&[Field::Imm])?;
            Ok(Insn::LoadImmHi { imm: raw.imm })
        }
        (ABS, Size::B | Size::H | Size::W) => {
            raw.uses(&[Field::Imm])?;
            Ok(Insn::LoadPacket { size, src: None, imm: raw.imm })
        }
        (IND, Size::B | Size::H | Size::W) => {
            raw.uses(&[Field::Src, Field::Imm])?;
            Ok(Insn::LoadPacket { size, src: Some(raw.src_reg()?), imm: raw.imm })
        }
        _ => raw.unknown(),
    }
}

fn decode_ldx(raw: Raw) -> Result<Insn, DecodeError> {
    let (signed, size) = match (raw.opcode & MODE, raw.size()) {
        (MEM, size) => (false, size),
        (MEMSX, size @ (Size::B | Size::H | Size::W)) => (true, size),
        _ => return raw.unknown(),
    };
    raw.uses(&[Field::Dst, Field::Src, Field::Off])?;
    Ok(Insn::Load { size, signed, dst: raw.dst_reg()?, base: raw.src_reg()?, off: raw.off })
}

fn decode_st(raw: Raw) -> Result<Insn, DecodeError> {
    if raw.opcode & MODE != MEM {
        return raw.unknown();
    }
    raw.uses(&[Field::Dst, Field::Off, Field::Imm])?;
    Ok(Insn::Store { size: raw.size(), base: raw.dst_reg()?, off: raw.off, src: Operand::Imm(raw.imm) })
}

fn decode_stx(raw: Raw) -> Result<Insn, DecodeError> {
    let (size, off) = (raw.size(), raw.off);
    match raw.opcode & MODE {
        MEM => {
            raw.uses(&[Field::Dst, Field::Src, Field::Off])?;
            Ok(Insn::Store { size, base: raw.dst_reg()?, off, src: Operand::Reg(raw.src_reg()?) })
        }
        ATOMIC => {
            let (dst, src) = (raw.dst_reg()?, raw.src_reg()?);
            match (raw.imm, size) {
                (LOAD_ACQUIRE, size) => Ok(Insn::LoadAcquire { size, dst, base: src, off }),
                (STORE_RELEASE, size) => Ok(Insn::StoreRelease { size, base: dst, off, src }),
                (imm, Size::W) => decode_atomic(raw, Width::W32, imm, dst, src),
                (imm, Size::Dw) => decode_atomic(raw, Width::W64, imm, dst, src),
                (_, Size::B | Size::H) => raw.no_form(Field::Imm),
            }
        }
        _ => raw.unknown(),
    }
}

fn decode_atomic(raw: Raw, width: Width, imm: i32, base: Reg, src: Reg) -> Result<Insn, DecodeError> {
    match u8::try_from(imm).ok().and_then(|code| AtomicOp::find(code, 0)) {
        Some(op) => Ok(Insn::Atomic { width, op, base, off: raw.off, src }),
        None => raw.no_form(Field::Imm),
    }
}

fn decode_alu(raw: Raw, width: Width) -> Result<Insn, DecodeError> {
    let (code, reg_form) = (raw.opcode >> 4, raw.opcode & X != 0);
    if code == END {
        return decode_end(raw, width, reg_form);
    }
    if width == Width::W64 && reg_form && code == AluOp::Mov.row().code && raw.off == CAST {
        raw.uses(&[Field::Dst, Field::Src, Field::Off, Field::Imm])?;
        return Ok(Insn::AddrSpaceCast { dst: raw.dst_reg()?, src: raw.src_reg()?, imm: raw.imm });
    }
    let Some(op) = AluOp::find(code, raw.off) else {
        let known = AluOp::TABLE.iter().any(|row| row.code == code && (row.shape != Shape::Unary || !reg_form));
        return if known { raw.no_form(Field::Off) } else { raw.unknown() };
    };
    let shape = op.row().shape;
    if !shape.has_form(width, reg_form) {
        return if shape == Shape::Unary { raw.unknown() } else { raw.no_form(Field::Off) };
    }
    if shape == Shape::Unary {
        raw.uses(&[Field::Dst])?;
    }
    Ok(Insn::Alu { width, op, src: raw.operand()?, dst: raw.dst_reg()? })
}

fn decode_end(raw: Raw, width: Width, reg_form: bool) -> Result<Insn, DecodeError> {
    let order = match (width, reg_form) {
        (Width::W32, false) => ByteOrder::ToLe,
        (Width::W32, true) => ByteOrder::ToBe,
        (Width::W64, false) => ByteOrder::Swap,
        (Width::W64, true) => return raw.unknown(),
    };
    raw.uses(&[Field::Dst, Field::Imm])?;
    match raw.imm {
        16 | 32 | 64 => Ok(Insn::Endian { order, bits: raw.imm as u8, dst: raw.dst_reg()? }),
        _ => raw.no_form(Field::Imm),
    }
}

fn decode_jmp(raw: Raw, width: Width) -> Result<Insn, DecodeError> {
    let (code, reg_form) = (raw.opcode >> 4, raw.opcode & X != 0);
    if let Some(cond) = Cond::find(code, 0) {
        return Ok(Insn::Branch { width, cond, src: raw.operand()?, dst: raw.dst_reg()?, off: raw.off });
    }
    match (code, width, reg_form) {
        (JA, Width::W64, false) => {
            raw.uses(&[Field::Off])?;
            Ok(Insn::Goto { off: raw.off })
        }
        (JA, Width::W32, false) => {
            raw.uses(&[Field::Imm])?;
            Ok(Insn::Gotol { off: raw.imm })
        }
        (JA, Width::W64, true) => {
            raw.uses(&[Field::Dst])?;
            Ok(Insn::Gotox { dst: raw.dst_reg()? })
        }
        (CALL, Width::W64, false) => decode_call(raw),
        (CALL, Width::W64, true) => {
            raw.uses(&[Field::Dst])?;
            Ok(Insn::Callx { dst: raw.dst_reg()? })
        }
        (EXIT, Width::W64, false) => {
            raw.uses(&[])?;
            Ok(Insn::Exit)
        }
        (JCOND, Width::W64, false) => {
            raw.uses(&[Field::Off])?;
            Ok(Insn::MayGoto { off: raw.off })
        }
        _ => raw.unknown(),
    }
}

fn decode_call(raw: Raw) -> Result<Insn, DecodeError> {
    let kind = match raw.src() {
        0 => CallKind::Helper,
        1 => CallKind::Local,
        2 => CallKind::Extern,
        _ => return raw.no_form(Field::Src),
    };
    match kind {
        CallKind::Helper | CallKind::Local => raw.uses(&[Field::Src, Field::Imm])?,
        CallKind::Extern => raw.uses(&[Field::Src, Field::Off, Field::Imm])?,
    }
    Ok(Insn::Call { kind, off: raw.off, imm: raw.imm })
}

/// The fields of a slot under construction.
fn slot(opcode: u8, dst: Reg, src: u8, off: i16, imm: i32) -> Raw {
    Raw { opcode, regs: src << 4 | dst.index() as u8, off, imm }
}

/// A slot with a second operand, register or immediate.
fn with_operand(opcode: u8, dst: Reg, src: Operand, off: i16) -> Raw {
    match src {
        Operand::Reg(src) => slot(opcode | X, dst, src.index() as u8, off, 0),
        Operand::Imm(imm) => slot(opcode, dst, 0, off, imm),
    }
}

const fn alu_class(width: Width) -> u8 {
    match width {
        Width::W32 => ALU,
        Width::W64 => ALU64,
    }
}

const fn jmp_class(width: Width) -> u8 {
    match width {
        Width::W32 => JMP32,
        Width::W64 => JMP,
    }
}

const fn call_src(kind: CallKind) -> u8 {
    match kind {
        CallKind::Helper => 0,
        CallKind::Local => 1,
        CallKind::Extern => 2,
    }
}

fn encode_endian(order: ByteOrder, bits: u8, dst: Reg) -> Raw {
    let opcode = match order {
        ByteOrder::ToLe => ALU,
        ByteOrder::ToBe => ALU | X,
        ByteOrder::Swap => ALU64,
    };
    slot(END << 4 | opcode, dst, 0, 0, bits.into())
}

fn encode_store(size: Size, base: Reg, off: i16, src: Operand) -> Raw {
    match src {
        Operand::Reg(src) => slot(MEM | size_bits(size) | STX, base, src.index() as u8, off, 0),
        Operand::Imm(imm) => slot(MEM | size_bits(size) | ST, base, 0, off, imm),
    }
}

impl Insn {
    /// The slot of this instruction, exact inverse of [`Insn::decode`]. An `Insn` that no slot decodes to (a
    /// `movsx` of an immediate, say) encodes to something that does not decode back to it; validation refuses those.
    pub fn encode(self) -> Raw {
        let r0 = Reg::R0;
        match self {
            Insn::Alu { width, op, dst, src } => {
                with_operand(op.row().code << 4 | alu_class(width), dst, src, op.row().ext)
            }
            Insn::Endian { order, bits, dst } => encode_endian(order, bits, dst),
            Insn::LoadImm { dst, kind, imm } => slot(IMM | size_bits(Size::Dw) | LD, dst, kind & 0xf, 0, imm),
            Insn::LoadImmHi { imm } => slot(IMM | size_bits(Size::W) | LD, r0, 0, 0, imm),
            Insn::Load { size, signed, dst, base, off } => {
                let mode = if signed { MEMSX } else { MEM };
                slot(mode | size_bits(size) | LDX, dst, base.index() as u8, off, 0)
            }
            Insn::Store { size, base, off, src } => encode_store(size, base, off, src),
            Insn::Atomic { width, op, base, off, src } => {
                let size = if width == Width::W32 { Size::W } else { Size::Dw };
                slot(ATOMIC | size_bits(size) | STX, base, src.index() as u8, off, op.row().code.into())
            }
            Insn::LoadAcquire { size, dst, base, off } => {
                slot(ATOMIC | size_bits(size) | STX, dst, base.index() as u8, off, LOAD_ACQUIRE)
            }
            Insn::StoreRelease { size, base, off, src } => {
                slot(ATOMIC | size_bits(size) | STX, base, src.index() as u8, off, STORE_RELEASE)
            }
            Insn::LoadPacket { size, src, imm } => match src {
                Some(src) => slot(IND | size_bits(size) | LD, r0, src.index() as u8, 0, imm),
                None => slot(ABS | size_bits(size) | LD, r0, 0, 0, imm),
            },
            Insn::Branch { width, cond, dst, src, off } => {
                with_operand(cond.row().code << 4 | jmp_class(width), dst, src, off)
            }
            Insn::Goto { off } => slot(JA << 4 | JMP, r0, 0, off, 0),
            Insn::Gotol { off } => slot(JA << 4 | JMP32, r0, 0, 0, off),
            Insn::Gotox { dst } => slot(JA << 4 | X | JMP, dst, 0, 0, 0),
            Insn::MayGoto { off } => slot(JCOND << 4 | JMP, r0, 0, off, 0),
            Insn::Call { kind, off, imm } => slot(CALL << 4 | JMP, r0, call_src(kind), off, imm),
            Insn::Callx { dst } => slot(CALL << 4 | X | JMP, dst, 0, 0, 0),
            Insn::AddrSpaceCast { dst, src, imm } => {
                slot(AluOp::Mov.row().code << 4 | X | ALU64, dst, src.index() as u8, CAST, imm)
            }
            Insn::Exit => slot(EXIT << 4 | JMP, r0, 0, 0, 0),
        }
    }
}
