//! Identities of operations.

use twinbpf_isa::{AluOp, AtomicOp, ByteOrder, Cond, Insn, Operand, Size, Width};

/// Identity of an operation: an instruction without its operand values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The flag says that the right operand is an immediate.
    Alu(Width, AluOp, bool),
    Endian(ByteOrder, Bits),
    LoadImm,
    /// The flag says that it sign-extends.
    Load(Size, bool),
    /// The flag says that it stores an immediate.
    Store(Size, bool),
    Atomic(Width, AtomicOp),
    Acquire(Size),
    Release(Size),
    Branch(Width, Cond, bool),
    Goto,
    MayGoto,
    /// Into address space 0, which is what code dereferences.
    CastKernel,
    /// Into another address space, which is what code stores.
    CastUser,
    Event,
}

/// Operand size of a byte order conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bits {
    B16,
    B32,
    B64,
}

impl Kind {
    /// Indices are below this.
    pub(super) const COUNT: usize = 16 * Kind::ROOM;
    /// Room for the kinds that a variant has: the rows of the longest table in four forms each.
    const ROOM: usize = 128;

    /// A number of its own for each kind.
    #[inline(always)]
    pub(super) fn index(self) -> usize {
        let at = |variant: usize, row: usize, flags: [bool; 2]| {
            variant * Kind::ROOM + row * 4 + usize::from(flags[0]) * 2 + usize::from(flags[1])
        };
        let wide = |width| width == Width::W64;
        match self {
            Kind::Alu(width, op, imm) => at(0, op as usize, [wide(width), imm]),
            Kind::Endian(order, bits) => at(1, order as usize * 3 + bits as usize, [false; 2]),
            Kind::LoadImm => at(2, 0, [false; 2]),
            Kind::Load(size, signed) => at(3, size as usize, [signed, false]),
            Kind::Store(size, imm) => at(4, size as usize, [imm, false]),
            Kind::Atomic(width, op) => at(5, op as usize, [wide(width), false]),
            Kind::Acquire(size) => at(6, size as usize, [false; 2]),
            Kind::Release(size) => at(7, size as usize, [false; 2]),
            Kind::Branch(width, cond, imm) => at(8, cond as usize, [wide(width), imm]),
            Kind::Goto => at(9, 0, [false; 2]),
            Kind::MayGoto => at(10, 0, [false; 2]),
            Kind::CastKernel => at(11, 0, [false; 2]),
            Kind::CastUser => at(12, 0, [false; 2]),
            Kind::Event => at(13, 0, [false; 2]),
        }
    }

    #[inline(always)]
    pub(super) fn of(insn: Insn) -> Kind {
        let imm = |operand| matches!(operand, Operand::Imm(_));
        match insn {
            Insn::Alu { width, op, src, .. } => Kind::Alu(width, op, imm(src)),
            Insn::Endian { order, bits, .. } => Kind::Endian(
                order,
                match bits {
                    16 => Bits::B16,
                    32 => Bits::B32,
                    _ => Bits::B64,
                },
            ),
            Insn::LoadImm { .. } => Kind::LoadImm,
            Insn::Load { size, signed, .. } => Kind::Load(size, signed),
            Insn::Store { size, src, .. } => Kind::Store(size, imm(src)),
            Insn::Atomic { width, op, .. } => Kind::Atomic(width, op),
            Insn::LoadAcquire { size, .. } => Kind::Acquire(size),
            Insn::StoreRelease { size, .. } => Kind::Release(size),
            Insn::Branch { width, cond, src, .. } => Kind::Branch(width, cond, imm(src)),
            Insn::Goto { .. } | Insn::Gotol { .. } => Kind::Goto,
            Insn::MayGoto { .. } => Kind::MayGoto,
            Insn::AddrSpaceCast { imm, .. } => {
                if imm >> 16 == 0 {
                    Kind::CastKernel
                } else {
                    Kind::CastUser
                }
            }
            Insn::LoadPacket { .. }
            | Insn::LoadImmHi { .. }
            | Insn::Gotox { .. }
            | Insn::Call { .. }
            | Insn::Callx { .. }
            | Insn::Exit => Kind::Event,
        }
    }

    /// Whether the operand `x` is a jump target.
    pub(super) const fn jumps(self) -> bool {
        match self {
            Kind::Branch(..) | Kind::Goto | Kind::MayGoto => true,
            Kind::Alu(..)
            | Kind::Endian(..)
            | Kind::LoadImm
            | Kind::Load(..)
            | Kind::Store(..)
            | Kind::Atomic(..)
            | Kind::Acquire(_)
            | Kind::Release(_)
            | Kind::CastKernel
            | Kind::CastUser
            | Kind::Event => false,
        }
    }

    /// Its mnemonic in the assembler of the RFC, with the width of arithmetic, and `imm` if the right operand is an immediate.
    pub(super) fn mnemonic(self) -> String {
        let right = |imm| if imm { " imm" } else { "" };
        let unit = |size| match size {
            Size::B => "b",
            Size::H => "h",
            Size::W => "w",
            Size::Dw => "dw",
        };
        match self {
            Kind::Alu(width, op, imm) => format!("{}{}{}", op.row().mnemonic, width.bits(), right(imm)),
            Kind::Endian(order, bits) => {
                let name = match order {
                    ByteOrder::ToLe => "le",
                    ByteOrder::ToBe => "be",
                    ByteOrder::Swap => "bswap",
                };
                format!("{name}{}", 16 << bits as u32)
            }
            Kind::LoadImm => "lddw".to_owned(),
            Kind::Load(size, signed) => format!("ldx{}{}", if signed { "s" } else { "" }, unit(size)),
            Kind::Store(size, imm) => format!("st{}{}", if imm { "" } else { "x" }, unit(size)),
            Kind::Atomic(width, op) => format!("atomic_{}{}", op.row().mnemonic, width.bits()),
            Kind::Acquire(size) => format!("load_acquire_{}", unit(size)),
            Kind::Release(size) => format!("store_release_{}", unit(size)),
            Kind::Branch(Width::W32, cond, imm) => format!("{}32{}", cond.row().mnemonic, right(imm)),
            Kind::Branch(Width::W64, cond, imm) => format!("{}{}", cond.row().mnemonic, right(imm)),
            Kind::Goto => "ja".to_owned(),
            Kind::MayGoto => "may_goto".to_owned(),
            Kind::CastKernel | Kind::CastUser => "addr_space_cast".to_owned(),
            Kind::Event => "call".to_owned(),
        }
    }
}
