//! Identities of operations.

use twinbpf_isa::{AluOp, AtomicOp, ByteOrder, Cond, Insn, Operand, Size, Width};

/// Identity of an operation: an instruction without its operand values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Alu(Width, AluOp, Right),
    Endian(ByteOrder, Bits),
    LoadImm,
    Load(Size, Extension),
    Store(Size, Right),
    Atomic(Width, AtomicOp),
    Acquire(Size),
    Release(Size),
    Branch(Width, Cond, Right),
    Goto,
    MayGoto,
    /// Into address space 0, which is what code dereferences.
    CastKernel,
    /// Into another address space, which is what code stores.
    CastUser,
    Event,
}

/// The right operand, or the value that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Right {
    Reg,
    Imm,
}

impl Right {
    pub(super) const fn new(imm: bool) -> Right {
        if imm { Right::Imm } else { Right::Reg }
    }

    fn of(operand: Operand) -> Right {
        Right::new(matches!(operand, Operand::Imm(_)))
    }
}

/// How a load fills the upper bits of its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extension {
    Zero,
    Sign,
}

impl Extension {
    pub(super) const fn new(signed: bool) -> Extension {
        if signed { Extension::Sign } else { Extension::Zero }
    }
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
        let at = |variant: usize, row: usize, form: usize| variant * Kind::ROOM + row * 4 + form;
        let form = |width: Width, right: Right| width as usize * 2 + right as usize;
        match self {
            Kind::Alu(width, op, right) => at(0, op as usize, form(width, right)),
            Kind::Endian(order, bits) => at(1, order as usize * 3 + bits as usize, 0),
            Kind::LoadImm => at(2, 0, 0),
            Kind::Load(size, extension) => at(3, size as usize, extension as usize),
            Kind::Store(size, right) => at(4, size as usize, right as usize),
            Kind::Atomic(width, op) => at(5, op as usize, width as usize),
            Kind::Acquire(size) => at(6, size as usize, 0),
            Kind::Release(size) => at(7, size as usize, 0),
            Kind::Branch(width, cond, right) => at(8, cond as usize, form(width, right)),
            Kind::Goto => at(9, 0, 0),
            Kind::MayGoto => at(10, 0, 0),
            Kind::CastKernel => at(11, 0, 0),
            Kind::CastUser => at(12, 0, 0),
            Kind::Event => at(13, 0, 0),
        }
    }

    #[inline(always)]
    pub(super) fn of(insn: Insn) -> Kind {
        match insn {
            Insn::Alu { width, op, src, .. } => Kind::Alu(width, op, Right::of(src)),
            Insn::Endian { order, bits, .. } => Kind::Endian(
                order,
                match bits {
                    16 => Bits::B16,
                    32 => Bits::B32,
                    _ => Bits::B64,
                },
            ),
            Insn::LoadImm { .. } => Kind::LoadImm,
            Insn::Load { size, signed, .. } => Kind::Load(size, Extension::new(signed)),
            Insn::Store { size, src, .. } => Kind::Store(size, Right::of(src)),
            Insn::Atomic { width, op, .. } => Kind::Atomic(width, op),
            Insn::LoadAcquire { size, .. } => Kind::Acquire(size),
            Insn::StoreRelease { size, .. } => Kind::Release(size),
            Insn::Branch { width, cond, src, .. } => Kind::Branch(width, cond, Right::of(src)),
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
        let right = |right| if right == Right::Imm { " imm" } else { "" };
        let unit = |size| match size {
            Size::B => "b",
            Size::H => "h",
            Size::W => "w",
            Size::Dw => "dw",
        };
        match self {
            Kind::Alu(width, op, operand) => format!("{}{}{}", op.row().mnemonic, width.bits(), right(operand)),
            Kind::Endian(order, bits) => {
                let name = match order {
                    ByteOrder::ToLe => "le",
                    ByteOrder::ToBe => "be",
                    ByteOrder::Swap => "bswap",
                };
                format!("{name}{}", 16 << bits as u32)
            }
            Kind::LoadImm => "lddw".to_owned(),
            Kind::Load(size, Extension::Zero) => format!("ldx{}", unit(size)),
            Kind::Load(size, Extension::Sign) => format!("ldxs{}", unit(size)),
            Kind::Store(size, Right::Reg) => format!("stx{}", unit(size)),
            Kind::Store(size, Right::Imm) => format!("st{}", unit(size)),
            Kind::Atomic(width, op) => format!("atomic_{}{}", op.row().mnemonic, width.bits()),
            Kind::Acquire(size) => format!("load_acquire_{}", unit(size)),
            Kind::Release(size) => format!("store_release_{}", unit(size)),
            Kind::Branch(Width::W32, cond, operand) => format!("{}32{}", cond.row().mnemonic, right(operand)),
            Kind::Branch(Width::W64, cond, operand) => format!("{}{}", cond.row().mnemonic, right(operand)),
            Kind::Goto => "ja".to_owned(),
            Kind::MayGoto => "may_goto".to_owned(),
            Kind::CastKernel | Kind::CastUser => "addr_space_cast".to_owned(),
            Kind::Event => "call".to_owned(),
        }
    }
}
