//! Opcodes of slots that are not decoded: whole ones by the names of `linux/bpf_common.h`, and masks of their parts. The decoder
//! has the parts themselves.

use super::code::{self, ALU64, JMP, JMP32, LD, STX, X, size_bits};
use super::{AluOp, Cond, Size};

/// The bits of an opcode that are its class.
pub const CLASS: u8 = 0x07;
/// The bits of an access that are its size.
pub const SIZE: u8 = 0x18;
/// The bits of an access that are its mode; [`ATOMIC`] is one of a store.
pub const MODE: u8 = code::MODE;
/// Mode of stores: an atomic operation.
pub const ATOMIC: u8 = code::ATOMIC;
/// Set where the second operand of arithmetic, or of a jump, is a register.
pub const SOURCE: u8 = X;

/// `lddw`, the first slot of a 64-bit immediate.
pub const LDDW: u8 = code::IMM | size_bits(Size::Dw) | LD;
/// `call`, of a helper, a function of the program or one of the kernel.
pub const CALL: u8 = code::CALL << 4 | JMP;
/// `callx`, of the function whose address a register holds.
pub const CALLX: u8 = CALL | X;
/// `exit`, which returns to the caller.
pub const EXIT: u8 = code::EXIT << 4 | JMP;
/// `goto`, whose distance is the offset.
pub const GOTO: u8 = code::JA << 4 | JMP;
/// `gotol`, whose distance is the immediate.
pub const GOTOL: u8 = code::JA << 4 | JMP32;
/// `gotox`, to the address that a register holds.
pub const GOTOX: u8 = GOTO | X;
/// `may_goto`, a jump once the loop has turned too often.
pub const MAY_GOTO: u8 = code::JCOND << 4 | JMP;
/// `dst = imm`, of 64 bits.
pub const MOV_IMM: u8 = AluOp::Mov.row().code << 4 | ALU64;
/// `dst = src`, of 64 bits.
pub const MOV_REG: u8 = MOV_IMM | X;
/// `dst += imm`, of 64 bits.
pub const ADD_IMM: u8 = AluOp::Add.row().code << 4 | ALU64;
/// `if dst == imm`, of 64 bits.
pub const JEQ_IMM: u8 = Cond::Eq.row().code << 4 | JMP;
/// `if dst != imm`, of 64 bits.
pub const JNE_IMM: u8 = Cond::Ne.row().code << 4 | JMP;
/// `if dst s>= imm`, of 64 bits.
pub const JSGE_IMM: u8 = Cond::Sge.row().code << 4 | JMP;
/// An atomic operation on 64 bits; the immediate says which.
pub const ATOMIC_DW: u8 = ATOMIC | size_bits(Size::Dw) | STX;

/// Bytes of an access.
pub const fn bytes(opcode: u8) -> usize {
    [4, 2, 1, 8][(opcode >> 3 & 3) as usize]
}

/// Size bits of an access of so many bytes.
pub fn size(bytes: usize) -> Option<u8> {
    let size = [Size::B, Size::H, Size::W, Size::Dw].into_iter().find(|size| size.bytes() == bytes)?;
    Some(size_bits(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Insn, asm};

    /// The opcode of an instruction's first slot.
    fn of(text: &str) -> u8 {
        let insns = asm::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        Insn::encode(insns[0]).opcode
    }

    #[test]
    fn names_are_those_of_instructions() {
        let all = [
            (LDDW, "r1 = 7 ll"),
            (CALL, "call 1"),
            (CALLX, "callx r1"),
            (EXIT, "exit"),
            (GOTO, "goto +0"),
            (GOTOL, "gotol +0"),
            (GOTOX, "gotox r1"),
            (MAY_GOTO, "may_goto +0"),
            (MOV_IMM, "r1 = 7"),
            (MOV_REG, "r1 = r2"),
            (ADD_IMM, "r1 += 7"),
            (JEQ_IMM, "if r1 == 7 goto +0"),
            (JNE_IMM, "if r1 != 7 goto +0"),
            (JSGE_IMM, "if r1 s>= 7 goto +0"),
            (ATOMIC_DW, "lock *(u64 *)(r1 + 0) += r2"),
        ];
        for (opcode, text) in all {
            assert_eq!(opcode, of(text), "{text}");
        }
    }

    #[test]
    fn accesses_have_the_size_of_their_type() {
        for (name, count) in [("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8)] {
            let opcode = of(&format!("r1 = *({name} *)(r2 + 0)"));
            assert_eq!((bytes(opcode), size(count)), (count, Some(opcode & SIZE)), "{name}");
        }
        assert_eq!([0, 3, 16].map(size), [None; 3]);
    }
}
