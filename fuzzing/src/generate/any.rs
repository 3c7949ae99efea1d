//! Instructions without any plan: what each field of a slot may be, as long as the decoder takes it. Whether they make a
//! program is for validation to say.

use twinbpf_isa::{Insn, Raw};

use super::Choices;

/// Offsets and immediates that mean something to many instructions.
const OFFS: [i16; 6] = [1, 8, 16, 32, -1, -8];
const KINDS: [i32; 12] = [1, 16, 32, 64, 0x40, 0x50, 0xa0, 0xe1, 0xf1, 0x100, 0x110, 0x41];
const LARGE: [i32; 6] = [-1, i32::MAX, i32::MIN, 0xffff, 0x1234_5678, -128];

/// So many slots. The second half of an `lddw` is after the first, but for the last slot.
pub fn any_insns(choices: &mut Choices<'_>, count: usize) -> Vec<Insn> {
    let mut insns: Vec<Insn> = (0..count).map(|_| any_insn(choices)).collect();
    for pc in 1..count {
        if let Insn::LoadImm { dst, imm, .. } = insns[pc - 1] {
            insns[pc - 1] = Insn::LoadImm { dst, kind: 0, imm };
            insns[pc] = Insn::LoadImmHi { imm: imm >> 8 };
        }
    }
    insns
}

/// A slot that decodes, with fields that are often meaningful.
fn any_insn(choices: &mut Choices<'_>) -> Insn {
    loop {
        let (dst, src) = (choices.below(11) as u8, choices.below(11) as u8);
        let off = match choices.below(4) {
            0 => 0,
            1 => choices.pick(&OFFS),
            2 => choices.below(24) as i16 - 8,
            _ => -8 * choices.below(65) as i16,
        };
        let imm = match choices.below(4) {
            0 => 0,
            1 => choices.pick(&KINDS),
            2 => choices.below(64) as i32 - 16,
            _ => choices.pick(&LARGE),
        };
        let mut regs = src << 4 | dst;
        if choices.once_in(4) {
            regs &= choices.pick(&[0x0f, 0xf0, 0x00]);
        }
        let opcode = choices.below(256) as u8;
        if let Ok(insn) = Insn::decode(Raw { opcode, regs, off, imm }) {
            return insn;
        }
    }
}
