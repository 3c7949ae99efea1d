//! Which bytes of its context a function reads.

use std::ops::Range;

use super::{AluOp, Insn, Operand, Reg, Width};

/// Registers by number: those that may hold the context.
type Holders = u16;

/// Arguments of a call.
const ARGUMENTS: Holders = 0b11_1110;
/// What a call leaves undefined.
const CLOBBERED: Holders = 0b11_1111;

/// The bytes that a function reads of what its first argument points to, by their offsets, in no order. `None`: its address
/// goes where it is not followed, into memory, arithmetic or a call.
///
/// What the function itself stores there counts for nothing.
pub fn context_reads(function: &[Insn]) -> Option<Vec<Range<i32>>> {
    let mut reads = Vec::new();
    let mut known: Vec<Option<Holders>> = vec![None; function.len()];
    let mut work: Vec<(usize, Holders)> = vec![(0, bit(Reg::R1))];
    while let Some((pc, holders)) = work.pop() {
        // A jump out of the function is none that is followed.
        let known = known.get_mut(pc)?;
        if known.is_some_and(|known| holders & !known == 0) {
            continue;
        }
        let holders = holders | known.unwrap_or(0);
        *known = Some(holders);
        let insn = function[pc];
        let after = step(insn, holders, &mut reads)?;
        let jump = |off: i32| usize::try_from(pc as i64 + 1 + i64::from(off)).ok();
        match insn {
            Insn::Exit => {}
            Insn::Goto { off } => work.push((jump(off.into())?, after)),
            Insn::Gotol { off } => work.push((jump(off)?, after)),
            Insn::Branch { off, .. } | Insn::MayGoto { off } => {
                work.extend([(jump(off.into())?, after), (pc + 1, after)]);
            }
            _ => work.push((pc + 1, after)),
        }
    }
    Some(reads)
}

fn bit(reg: Reg) -> Holders {
    1 << reg.index()
}

/// What holds the context after an instruction. `None`: it goes elsewhere.
fn step(insn: Insn, holders: Holders, reads: &mut Vec<Range<i32>>) -> Option<Holders> {
    let holds = |reg: Reg| holders & bit(reg) != 0;
    let operand_holds = |operand: Operand| matches!(operand, Operand::Reg(reg) if holds(reg));
    let without = |reg: Reg| holders & !bit(reg);
    match insn {
        Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Reg(src) } if holds(src) => {
            Some(holders | bit(dst))
        }
        Insn::Alu { op: AluOp::Mov, dst, src, .. } => (!operand_holds(src)).then(|| without(dst)),
        Insn::Alu { dst, src, .. } => (!holds(dst) && !operand_holds(src)).then_some(holders),
        Insn::Endian { dst, .. } => (!holds(dst)).then_some(holders),
        Insn::Load { size, dst, base, off, .. } | Insn::LoadAcquire { size, dst, base, off } => {
            if holds(base) {
                reads.push(off.into()..i32::from(off) + size.bytes() as i32);
            }
            Some(without(dst))
        }
        Insn::Store { src, .. } => (!operand_holds(src)).then_some(holders),
        Insn::StoreRelease { src, .. } => (!holds(src)).then_some(holders),
        Insn::Atomic { base, src, .. } => (![base, src, Reg::R0].into_iter().any(holds)).then_some(holders),
        Insn::LoadPacket { .. } | Insn::Gotox { .. } => None,
        Insn::Call { .. } => (holders & ARGUMENTS == 0).then_some(holders & !CLOBBERED),
        Insn::Callx { dst } => (holders & ARGUMENTS == 0 && !holds(dst)).then_some(holders & !CLOBBERED),
        Insn::AddrSpaceCast { dst, src, .. } => (!holds(src)).then(|| without(dst)),
        Insn::LoadImm { dst, .. } => Some(without(dst)),
        Insn::LoadImmHi { .. }
        | Insn::Branch { .. }
        | Insn::Goto { .. }
        | Insn::Gotol { .. }
        | Insn::MayGoto { .. }
        | Insn::Exit => Some(holders),
    }
}

#[cfg(test)]
mod tests {
    use super::context_reads;
    use crate::asm::parse;

    fn reads(text: &str) -> Option<Vec<(i32, i32)>> {
        let mut reads = context_reads(&parse(text).unwrap())?;
        reads.sort_by_key(|range| (range.start, range.end));
        reads.dedup();
        Some(reads.into_iter().map(|range| (range.start, range.end)).collect())
    }

    #[test]
    fn loads_by_the_context_are_found() {
        let text = "r6 = r1\nr2 = *(u32 *)(r1 + 48)\nif r2 == 0 goto +2\nr1 = 7\ncall 5\nr0 = *(u64 *)(r6 + 8)\n\
                    r6 = r0\nr0 = *(u8 *)(r6 + 2)\nexit";
        assert_eq!(reads(text), Some(vec![(8, 16), (48, 52)]));
        assert_eq!(reads("r0 = 1\nexit"), Some(vec![]));
        // Of a loop, whichever way it is entered.
        let text = "r2 = 0\ngoto +1\nr2 = r1\nif r2 == 0 goto -2\nr0 = *(u16 *)(r2 + 4)\nexit";
        assert_eq!(reads(text), Some(vec![(4, 6)]));
        // What a program stores there is its own.
        assert_eq!(reads("*(u32 *)(r1 + 4) = 1\nr0 = 0\nexit"), Some(vec![]));
    }

    #[test]
    fn a_context_that_goes_elsewhere_is_not_followed() {
        for text in [
            "r1 += 8\nr0 = *(u8 *)(r1 + 0)\nexit",
            "r0 = r1\nr0 &= 7\nexit",
            "w0 = w1\nexit",
            "*(u64 *)(r10 - 8) = r1\nr0 = 0\nexit",
            "call 5\nr0 = 0\nexit",
            "r2 = r1\nr1 = 0\ncall pc+1\nexit\nr0 = 0\nexit",
            "r2 = *(u8 *)(r3 + 0)\nlock *(u64 *)(r1 + 0) += r2\nr0 = 0\nexit",
            "r0 = 0",
        ] {
            assert_eq!(reads(text), None, "{text}");
        }
    }
}
