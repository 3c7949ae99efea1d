//! Where a program compares a pointer that a helper returned with null.
//!
//! Linux 6.1 does not know that memory of a ring buffer which was compared with null once is not null (`reg_type_not_null` in
//! `kernel/bpf/verifier.c`): after a check of ours it follows both ways of the program's own one, and finds the record unreleased
//! on one of them. So what is inserted shares the program's check.

use std::ops::Range;

use twinbpf_isa::Raw;

/// The first slot of a 64-bit immediate.
const LDDW: u8 = 0x18;
/// `dst = src`.
const MOV: u8 = 0xbf;
/// `if dst == 0`, `if dst != 0`, with an immediate.
const JEQ: u8 = 0x15;
const JNE: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const GOTOL: u8 = 0x06;

/// The check after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NullCheck {
    /// The jump.
    pub(super) pc: usize,
    /// It is taken for null.
    pub(super) jumps_if_null: bool,
    /// The register that it compares.
    pub(super) reg: u8,
    /// Two registers in which nothing is: the call clobbered them.
    pub(super) free: [u8; 2],
}

impl NullCheck {
    /// The check that follows a call in a straight line. `None`: there is none, or it has no two registers.
    pub(super) fn after(insns: &[Raw], call: usize) -> Option<NullCheck> {
        // Registers with the pointer, and those of 1 to 5 that were written.
        let (mut copies, mut written) = (vec![0], [false; 11]);
        let mut pc = call + 1;
        loop {
            let raw = *insns.get(pc)?;
            match raw.opcode & 7 {
                5 | 6 => break,
                // Loads, and arithmetic.
                0 | 1 | 4 | 7 => {
                    let is_copy = raw.opcode == MOV && raw.off == 0 && copies.contains(&raw.src());
                    copies.retain(|reg| *reg != raw.dst());
                    if is_copy {
                        copies.push(raw.dst());
                    }
                    *written.get_mut(usize::from(raw.dst()))? = true;
                }
                // Stores. Atomics may write registers.
                _ if raw.opcode & 0xe0 == 0xc0 => return None,
                _ => {}
            }
            pc += if raw.opcode == LDDW { 2 } else { 1 };
        }
        let jump = insns[pc];
        let is_check = matches!(jump.opcode, JEQ | JNE) && jump.imm == 0 && copies.contains(&jump.dst());
        if !is_check || leads_into(insns, call + 1..pc) {
            return None;
        }
        let mut free = (1..=5).filter(|reg| !written[usize::from(*reg)]);
        let free = [free.next()?, free.next()?];
        Some(NullCheck { pc, jumps_if_null: jump.opcode == JEQ, reg: jump.dst(), free })
    }
}

/// Whether a jump leads to one of these instructions.
fn leads_into(insns: &[Raw], range: Range<usize>) -> bool {
    let mut pc = 0;
    while let Some(raw) = insns.get(pc) {
        let jumps = matches!(raw.opcode & 7, 5 | 6) && !matches!(raw.opcode, CALL | EXIT);
        let distance = if raw.opcode == GOTOL { i64::from(raw.imm) } else { i64::from(raw.off) };
        let target = usize::try_from(pc as i64 + 1 + distance);
        if jumps && target.is_ok_and(|target| range.contains(&target)) {
            return true;
        }
        pc += if raw.opcode == LDDW { 2 } else { 1 };
    }
    false
}

#[cfg(test)]
mod tests {
    use twinbpf_isa::{Insn, asm};

    use super::*;

    fn check(text: &str) -> Option<NullCheck> {
        let insns: Vec<Raw> = asm::parse(text).expect("instructions").into_iter().map(Insn::encode).collect();
        let call = insns.iter().position(|raw| raw.opcode == CALL).unwrap();
        NullCheck::after(&insns, call)
    }

    #[test]
    fn a_check_of_the_result_or_a_copy_is_found() {
        let found = |pc, jumps_if_null, reg, free| Some(NullCheck { pc, jumps_if_null, reg, free });
        assert_eq!(check("call 131\nif r0 == 0 goto end\nend:\nexit"), found(1, true, 0, [1, 2]));
        assert_eq!(check("call 131\nr6 = r0\nr1 = 7 ll\nif r6 != 0 goto end\nend:\nexit"), found(4, false, 6, [2, 3]));
        assert_eq!(
            check("call 131\nr2 = r0\n*(u64 *)(r10 - 8) = r0\nif r0 == 0 goto +0\nexit"),
            found(3, true, 0, [1, 3])
        );
    }

    #[test]
    fn other_code_has_none() {
        let cases = [
            "call 131\nexit",
            "call 131\nif r0 == 1 goto +0\nexit",
            "call 131\nr6 = r0\nr6 = 1\nif r6 == 0 goto +0\nexit",
            "call 131\ncall 5\nif r0 == 0 goto +0\nexit",
            "call 131\nr1 = 0\nr2 = 0\nr3 = 0\nr4 = 0\nif r0 == 0 goto +0\nexit",
            // Another path joins before the check.
            "if r1 == 0 goto on\ncall 131\non:\nr6 = r0\nif r6 == 0 goto +0\nexit",
            "call 131",
        ];
        for text in cases {
            assert_eq!(check(text), None, "{text}");
        }
    }
}
