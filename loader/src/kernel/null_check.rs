//! Where a program compares a pointer that a helper returned with null.
//!
//! Linux 6.1 does not know that memory of a ring buffer which was compared with null once is not null (`reg_type_not_null` in
//! `kernel/bpf/verifier.c`): after a check of ours it follows both ways of the program's own one, and finds the record unreleased
//! on one of them. So what is inserted shares the program's check.

use std::collections::BTreeSet;

use twinbpf_isa::opcode::{ATOMIC, CLASS, JEQ_IMM, JNE_IMM, LDDW, MODE, MOV_REG};
use twinbpf_isa::{Raw, target_of};

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
    /// The check that follows a call in a straight line, to which no [target](targets) leads. `None`: there is none, or it has no
    /// two registers.
    pub(super) fn after(insns: &[Raw], targets: &BTreeSet<usize>, call: usize) -> Option<NullCheck> {
        // Registers with the pointer, and those of 1 to 5 that were written.
        let (mut copies, mut written) = (vec![0], [false; 11]);
        let mut pc = call + 1;
        loop {
            let raw = *insns.get(pc)?;
            match raw.opcode & CLASS {
                5 | 6 => break,
                // Loads, and arithmetic.
                0 | 1 | 4 | 7 => {
                    let is_copy = raw.opcode == MOV_REG && raw.off == 0 && copies.contains(&raw.src());
                    copies.retain(|reg| *reg != raw.dst());
                    if is_copy {
                        copies.push(raw.dst());
                    }
                    *written.get_mut(usize::from(raw.dst()))? = true;
                }
                // Stores. Atomics may write registers.
                _ if raw.opcode & MODE == ATOMIC => return None,
                _ => {}
            }
            pc += if raw.opcode == LDDW { 2 } else { 1 };
        }
        let jump = insns[pc];
        let is_check = matches!(jump.opcode, JEQ_IMM | JNE_IMM) && jump.imm == 0 && copies.contains(&jump.dst());
        // Where another path joins, the result may be another call's.
        if !is_check || targets.range(call + 1..pc).next().is_some() {
            return None;
        }
        let mut free = (1..=5).filter(|reg| !written[usize::from(*reg)]);
        let free = [free.next()?, free.next()?];
        Some(NullCheck { pc, jumps_if_null: jump.opcode == JEQ_IMM, reg: jump.dst(), free })
    }
}

/// Slots to which something jumps.
pub(super) fn targets(insns: &[Raw]) -> BTreeSet<usize> {
    (0..insns.len()).filter_map(|pc| target_of(insns, pc)).collect()
}

#[cfg(test)]
mod tests {
    use twinbpf_isa::opcode::CALL;
    use twinbpf_isa::{Insn, asm};

    use super::*;

    fn check(text: &str) -> Option<NullCheck> {
        let insns: Vec<Raw> = asm::parse(text).expect("instructions").into_iter().map(Insn::encode).collect();
        let call = insns.iter().position(|raw| raw.opcode == CALL).unwrap();
        NullCheck::after(&insns, &targets(&insns), call)
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
