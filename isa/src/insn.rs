//! One decoded instruction per 8-byte slot.

use super::{AluOp, AtomicOp, Cond, Shape, Width};

/// Largest `src` of an `lddw`.
pub(super) const LDDW_KINDS: u8 = 6;

/// Size of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// 1 byte (`BPF_B`).
    B,
    /// 2 bytes, a half word (`BPF_H`).
    H,
    /// 4 bytes, a word (`BPF_W`).
    W,
    /// 8 bytes, a double word (`BPF_DW`).
    Dw,
}

impl Size {
    /// Every size, smallest first.
    pub const ALL: [Size; 4] = [Size::B, Size::H, Size::W, Size::Dw];

    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Size::B => 1,
            Size::H => 2,
            Size::W => 4,
            Size::Dw => 8,
        }
    }
}

/// Byte order conversions, RFC 9669 section 4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// `le16`..`le64`: on a little-endian machine, truncation.
    ToLe,
    /// `be16`..`be64`: on a little-endian machine, a byte swap and truncation.
    ToBe,
    /// `bswap16`..`bswap64`, on every machine.
    Swap,
}

/// A register, `r0` to `r10`. The constructor is the only place a register number is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(u8);

impl Reg {
    /// Return value, and the result of a call.
    pub const R0: Reg = Reg(0);
    /// The first argument.
    pub const R1: Reg = Reg(1);
    /// The second argument.
    pub const R2: Reg = Reg(2);
    /// The third argument.
    pub const R3: Reg = Reg(3);
    /// The fourth argument.
    pub const R4: Reg = Reg(4);
    /// The fifth argument.
    pub const R5: Reg = Reg(5);
    /// The first of four registers that a call preserves; legacy packet access expects the context here.
    pub const R6: Reg = Reg(6);
    /// Frame pointer, read only.
    pub const FP: Reg = Reg(10);

    /// `r<n>`, if it exists.
    pub const fn new(n: u8) -> Option<Reg> {
        if n <= 10 { Some(Reg(n)) } else { None }
    }

    /// Its number, 0 to 10.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The second operand of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The value of a register.
    Reg(Reg),
    /// A 32-bit immediate; 64-bit operations sign-extend it.
    Imm(i32),
}

/// What the immediate of a `call` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A kernel helper, by number (`src` 0).
    Helper,
    /// A function of this program, relative to the next instruction (`src` 1).
    Local,
    /// A function outside the object: a kernel function by BTF id, or in the VM a host function (`src` 2).
    Extern,
}

/// One decoded instruction. Encoding is its exact inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "fields carry the names of RFC 9669 section 3.1; the variants say what they mean")]
pub enum Insn {
    /// Arithmetic: `r1 += r2`, `w3 s/= 7`.
    Alu { width: Width, op: AluOp, dst: Reg, src: Operand },
    /// Byte order: `r1 = be16 r1`. `bits` is 16, 32 or 64.
    Endian { order: ByteOrder, bits: u8, dst: Reg },
    /// First half of `lddw`, the lower 32 bits. `kind` (0 to 6) says what the 64-bit immediate means, RFC 9669 section 5.4.
    LoadImm { dst: Reg, kind: u8, imm: i32 },
    /// Second half of `lddw`: the upper 32 bits.
    LoadImmHi { imm: i32 },
    /// `r0 = *(u32 *)(r1 + 4)`, or `s32` with `signed`.
    Load { size: Size, signed: bool, dst: Reg, base: Reg, off: i16 },
    /// `*(u8 *)(r1 - 1) = r2`, or an immediate.
    Store { size: Size, base: Reg, off: i16, src: Operand },
    /// Atomic read-modify-write of 4 or 8 bytes.
    Atomic { width: Width, op: AtomicOp, base: Reg, off: i16, src: Reg },
    /// `r0 = load_acquire((u64 *)(r1 + 0))`.
    LoadAcquire { size: Size, dst: Reg, base: Reg, off: i16 },
    /// `store_release((u64 *)(r1 + 0), r0)`.
    StoreRelease { size: Size, base: Reg, off: i16, src: Reg },
    /// Legacy packet access `r0 = *(u16 *)skb[imm]`, plus `src` for the indirect form. Never 8 bytes.
    LoadPacket { size: Size, src: Option<Reg>, imm: i32 },
    /// `if r1 == r2 goto +5`.
    Branch { width: Width, cond: Cond, dst: Reg, src: Operand, off: i16 },
    /// `goto +5`, 16-bit offset.
    Goto { off: i16 },
    /// `gotol +5`, 32-bit offset.
    Gotol { off: i32 },
    /// `gotox r1`: jump to the instruction whose address is in the register.
    Gotox { dst: Reg },
    /// `may_goto +5`: taken once the loop budget is used up.
    MayGoto { off: i16 },
    /// `call 5`, `call pc+7`, or a function outside the object (`off` is the kernel's fd_array index).
    Call { kind: CallKind, off: i16, imm: i32 },
    /// `callx r1`: calls the function whose address the register holds.
    Callx { dst: Reg },
    /// `r1 = addr_space_cast(r2, 0, 1)`; `imm` is `dst_as << 16 | src_as`.
    AddrSpaceCast { dst: Reg, src: Reg, imm: i32 },
    /// Return from the function.
    Exit,
}

impl Insn {
    /// Whether there is a slot that decodes to it. It is the one that [`Insn::encode`] gives then.
    #[inline]
    pub const fn is_encodable(self) -> bool {
        match self {
            Insn::Alu { width, op, src, .. } => {
                let shape = op.row().shape;
                shape.has_form(width, matches!(src, Operand::Reg(_)))
                    && (!matches!(shape, Shape::Unary) || matches!(src, Operand::Imm(0)))
            }
            Insn::Endian { bits, .. } => matches!(bits, 16 | 32 | 64),
            Insn::LoadImm { kind, .. } => kind <= LDDW_KINDS,
            Insn::Load { size, signed, .. } => !signed || !matches!(size, Size::Dw),
            Insn::LoadPacket { size, .. } => !matches!(size, Size::Dw),
            Insn::Call { kind, off, .. } => off == 0 || matches!(kind, CallKind::Extern),
            Insn::LoadImmHi { .. }
            | Insn::Store { .. }
            | Insn::Atomic { .. }
            | Insn::LoadAcquire { .. }
            | Insn::StoreRelease { .. }
            | Insn::Branch { .. }
            | Insn::Goto { .. }
            | Insn::Gotol { .. }
            | Insn::Gotox { .. }
            | Insn::MayGoto { .. }
            | Insn::Callx { .. }
            | Insn::AddrSpaceCast { .. }
            | Insn::Exit => true,
        }
    }
}
