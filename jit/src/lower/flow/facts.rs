//! What is certain about registers at a point of a path through the code: constants, and how pairs of operands
//! compare.

use smallvec::SmallVec;
use twinbpf_isa::{AluOp, Cond, Insn, Operand, Reg, Width};

use crate::lower::effects::{bit, defs};

/// Comparisons that are remembered.
const MOST: usize = 4;

/// Possible results of a comparison of two numbers, as a set: equal, or any of less and greater, unsigned and signed.
type Orders = u8;

const EQUAL: Orders = 1;
const LESS_SLESS: Orders = 2;
const LESS_SGREATER: Orders = 4;
const GREATER_SLESS: Orders = 8;
const GREATER_SGREATER: Orders = 16;
const EVERY: Orders = 31;

/// What a conditional jump compares, and how.
pub(super) type Branch = (Width, Cond, Reg, Operand);

#[derive(Clone, Copy)]
struct Comparison {
    /// Width and operands.
    of: (Width, Reg, Operand),
    orders: Orders,
}

#[derive(Default)]
pub(super) struct Facts {
    constants: [Option<u64>; 10],
    comparisons: SmallVec<[Comparison; MOST]>,
}

impl Facts {
    /// What an instruction leaves of them, and adds.
    pub(super) fn apply(&mut self, insn: Insn) {
        let result = match insn {
            Insn::Alu { width, op, dst, src } => self.result(width, op, dst, src),
            _ => None,
        };
        let defs = defs(insn);
        for (reg, constant) in self.constants.iter_mut().enumerate() {
            if defs & 1 << reg != 0 {
                *constant = result;
            }
        }
        let depends = |reg: Reg| bit(reg) & defs != 0;
        self.comparisons.retain(|known| {
            let (_, dst, src) = known.of;
            !depends(dst) && !matches!(src, Operand::Reg(src) if depends(src))
        });
        if let Insn::Alu { width, op: AluOp::Or, dst, src: Operand::Imm(1.. | ..=-1) } = insn {
            self.assume((width, Cond::Ne, dst, Operand::Imm(0)), true);
        }
    }

    fn result(&self, width: Width, op: AluOp, dst: Reg, src: Operand) -> Option<u64> {
        let b = self.value(src);
        let a = || self.value(Operand::Reg(dst));
        let result = match op {
            AluOp::Mov => b?,
            AluOp::And => a()? & b?,
            AluOp::Or => a()? | b?,
            AluOp::Xor => a()? ^ b?,
            _ => return None,
        };
        Some(narrow(width, result))
    }

    /// The 64 bits of an operand.
    fn value(&self, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Imm(imm) => Some(i64::from(imm) as u64),
            Operand::Reg(reg) => self.constants.get(reg.index()).copied().flatten(),
        }
    }

    /// Adds that a branch has been taken, or has not.
    pub(super) fn assume(&mut self, (width, cond, dst, src): Branch, taken: bool) {
        let Some(taking) = orders(cond) else { return };
        let orders = if taken { taking } else { EVERY & !taking };
        if let (EQUAL, Width::W64, Some(value)) = (orders, width, self.value(src))
            && let Some(constant) = self.constants.get_mut(dst.index())
        {
            *constant = Some(value);
        }
        let of = (width, dst, src);
        if let Some(known) = self.comparisons.iter_mut().find(|known| known.of == of) {
            known.orders &= orders;
            return;
        }
        if self.comparisons.len() == MOST {
            self.comparisons.remove(0);
        }
        self.comparisons.push(Comparison { of, orders });
    }

    /// Whether it is certain that a register of this width is not zero.
    pub(super) fn nonzero(&self, width: Width, reg: Reg) -> bool {
        if let Some(value) = self.value(Operand::Reg(reg)) {
            return narrow(width, value) != 0;
        }
        // Zero would compare otherwise.
        self.comparisons.iter().any(|known| match known.of {
            (of, dst, Operand::Imm(imm)) if (of, dst) == (width, reg) => {
                known.orders & compare(width, 0, i64::from(imm) as u64) == 0
            }
            _ => false,
        })
    }

    /// Whether a branch is taken, where that is certain.
    pub(super) fn decide(&self, (width, cond, dst, src): Branch) -> Option<bool> {
        let values = self.value(Operand::Reg(dst)).zip(self.value(src));
        let Some(taking) = orders(cond) else {
            return values.map(|(a, b)| narrow(width, a & b) != 0);
        };
        let known = match values {
            Some((a, b)) => compare(width, a, b),
            None => self.comparisons.iter().find(|known| known.of == (width, dst, src))?.orders,
        };
        match (known & !taking, known & taking) {
            (0, _) => Some(true),
            (_, 0) => Some(false),
            _ => None,
        }
    }
}

/// The conditional jump that an instruction is.
pub(super) fn branch(insn: Insn) -> Option<Branch> {
    match insn {
        Insn::Branch { width, cond, dst, src, .. } => Some((width, cond, dst, src)),
        _ => None,
    }
}

fn narrow(width: Width, value: u64) -> u64 {
    match width {
        Width::W32 => u64::from(value as u32),
        Width::W64 => value,
    }
}

/// Those with which a branch is taken; none for a test of bits.
fn orders(cond: Cond) -> Option<Orders> {
    let (less, sless) = (LESS_SLESS | LESS_SGREATER, LESS_SLESS | GREATER_SLESS);
    Some(match cond {
        Cond::Eq => EQUAL,
        Cond::Ne => EVERY & !EQUAL,
        Cond::Lt => less,
        Cond::Le => less | EQUAL,
        Cond::Gt => EVERY & !(less | EQUAL),
        Cond::Ge => EVERY & !less,
        Cond::Slt => sless,
        Cond::Sle => sless | EQUAL,
        Cond::Sgt => EVERY & !(sless | EQUAL),
        Cond::Sge => EVERY & !sless,
        Cond::Set => return None,
    })
}

/// The result of comparing two numbers.
fn compare(width: Width, a: u64, b: u64) -> Orders {
    let (a, b) = (narrow(width, a), narrow(width, b));
    let signed = match width {
        Width::W32 => (a as i32).cmp(&(b as i32)),
        Width::W64 => (a as i64).cmp(&(b as i64)),
    };
    match (a.cmp(&b).is_lt(), signed.is_lt()) {
        _ if a == b => EQUAL,
        (true, true) => LESS_SLESS,
        (true, false) => LESS_SGREATER,
        (false, true) => GREATER_SLESS,
        (false, false) => GREATER_SGREATER,
    }
}
