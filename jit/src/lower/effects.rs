//! Which registers an instruction reads and writes, and where control continues after it.

use twinbpf_isa::{AtomicOp, Insn, Operand, Reg};
use twinbpf_vm::image::Link;

/// Registers as a bit set: bit n is rn. r10 is never in one.
pub type Regs = u16;

/// r0 to r9.
pub(crate) const ALL: Regs = 0x3ff;
/// r1 to r5.
pub(crate) const ARGS: Regs = 0x3e;
/// r6 to r9: what a call leaves as it is.
pub(crate) const KEPT: Regs = 0x3c0;
/// What a callee finds in the context, not in registers: all but r1 to r4.
pub(crate) const REST: Regs = ALL & !0x1e;
/// r0 to r5: what a call overwrites.
const CLOBBERED: Regs = ARGS | 1;

pub(crate) fn bit(reg: Reg) -> Regs {
    (1 << reg.index()) & ALL
}

fn operand(src: Operand) -> Regs {
    match src {
        Operand::Reg(reg) => bit(reg),
        Operand::Imm(_) => 0,
    }
}

/// Registers of an instruction: those it reads, then those it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Those it reads.
    pub uses: Regs,
    /// Those it writes.
    pub defs: Regs,
}

/// What the registers of an instruction depend on besides its fields.
pub trait Callees {
    /// Registers that a function of the image reads before it writes them.
    fn reads(&self, function: u32) -> Regs;
    /// Number of arguments that a host function takes.
    fn params(&self, host: u32) -> usize;
    /// Registers that are live when a function returns.
    fn exit(&self) -> Regs;
}

/// The effects of an instruction that refers to this.
pub fn effects(insn: Insn, link: Link, callees: &impl Callees) -> Effects {
    let (uses, defs) = match insn {
        // The operand of a unary operation is an immediate.
        Insn::Alu { op, dst, src, .. } => {
            let left = if op.reads_dst() { bit(dst) } else { 0 };
            (left | operand(src), bit(dst))
        }
        Insn::Endian { dst, .. } => (bit(dst), bit(dst)),
        Insn::LoadImm { dst, .. } => (0, bit(dst)),
        Insn::LoadImmHi { .. } | Insn::Goto { .. } | Insn::Gotol { .. } | Insn::MayGoto { .. } => (0, 0),
        Insn::Load { dst, base, .. } | Insn::LoadAcquire { dst, base, .. } => (bit(base), bit(dst)),
        Insn::Store { base, src, .. } => (bit(base) | operand(src), 0),
        Insn::StoreRelease { base, src, .. } => (bit(base) | bit(src), 0),
        Insn::Atomic { op, base, src, .. } => match op {
            AtomicOp::Add | AtomicOp::Or | AtomicOp::And | AtomicOp::Xor => (bit(base) | bit(src), 0),
            AtomicOp::FetchAdd | AtomicOp::FetchOr | AtomicOp::FetchAnd | AtomicOp::FetchXor | AtomicOp::Xchg => {
                (bit(base) | bit(src), bit(src))
            }
            AtomicOp::Cmpxchg => (bit(base) | bit(src) | bit(Reg::R0), bit(Reg::R0)),
        },
        // The packet may not have the bytes; then the function returns.
        Insn::LoadPacket { src, .. } => (src.map_or(0, bit) | callees.exit() & !1, CLOBBERED),
        Insn::Branch { dst, src, .. } => (bit(dst) | operand(src), 0),
        Insn::Gotox { dst } => (bit(dst), 0),
        Insn::Call { .. } => match link {
            Link::Function(function) => (callees.reads(function), CLOBBERED),
            Link::Host(host) => (ARGS & ((2 << callees.params(host)) - 1), CLOBBERED),
            Link::TailCall => (bit(Reg::R1) | bit(Reg::R2) | bit(Reg::R3), CLOBBERED),
            Link::None | Link::Value(_) | Link::Trap(_) => (0, CLOBBERED),
        },
        // What the callee reads is unknown.
        Insn::Callx { dst } => (bit(dst) | ALL, CLOBBERED),
        Insn::AddrSpaceCast { dst, src, .. } => (bit(src), bit(dst)),
        Insn::Exit => (callees.exit(), 0),
    };
    Effects { uses, defs }
}

/// Registers that an instruction writes, whatever it refers to.
pub(crate) fn defs(insn: Insn) -> Regs {
    struct Any;
    impl Callees for Any {
        fn reads(&self, _: u32) -> Regs {
            ALL
        }
        fn params(&self, _: u32) -> usize {
            5
        }
        fn exit(&self) -> Regs {
            ALL
        }
    }
    effects(insn, Link::None, &Any).defs
}

/// Successors of an instruction in the control-flow graph of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Successors {
    /// The next instruction.
    FallThrough,
    /// The next instruction, after a callee has returned.
    Call,
    /// The next instruction, or this flat pc.
    Branch(u32),
    /// This flat pc.
    Jump(u32),
    /// Any label of the function.
    Computed,
    /// None in this function.
    Exit,
}

impl Successors {
    /// The flat pc that the instruction names.
    pub(crate) fn target(self) -> Option<u32> {
        match self {
            Successors::Branch(target) | Successors::Jump(target) => Some(target),
            Successors::FallThrough | Successors::Call | Successors::Computed | Successors::Exit => None,
        }
    }
}

/// Successors of the instruction at a flat pc.
pub(crate) fn successors(insn: Insn, link: Link, pc: u32) -> Successors {
    let target = |off: i32| (pc as i32 + 1 + off) as u32;
    match insn {
        Insn::Branch { off, .. } | Insn::MayGoto { off } => Successors::Branch(target(off.into())),
        Insn::Goto { off } => Successors::Jump(target(off.into())),
        Insn::Gotol { off } => Successors::Jump(target(off)),
        Insn::Gotox { .. } => Successors::Computed,
        Insn::Exit => Successors::Exit,
        Insn::Call { .. } if matches!(link, Link::Trap(_)) => Successors::Exit,
        Insn::Call { .. } | Insn::Callx { .. } => Successors::Call,
        Insn::Alu { .. }
        | Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::Load { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadAcquire { .. }
        | Insn::StoreRelease { .. }
        | Insn::LoadPacket { .. }
        | Insn::AddrSpaceCast { .. } => Successors::FallThrough,
    }
}
