//! Programs that are nearly valid: one field of one slot is off.

use twinbpf_isa::{Insn, Raw};

use super::{Case, Choices};

/// A valid program with one slot changed. What it is then is for a validator to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearValid {
    /// The slots, which need not decode.
    pub slots: Vec<Raw>,
    /// The one that is changed.
    pub pc: usize,
    /// What was changed.
    pub what: &'static str,
}

const IMMS: [i32; 14] = [0, 1, -1, 2, 16, 31, 32, 63, 64, 0xf1, 0x100, 0x110, i32::MAX, i32::MIN];

/// Changes a field of a slot of the program.
pub fn near_valid(case: &Case, choices: &mut Choices<'_>) -> NearValid {
    let mut slots: Vec<Raw> = case.main.iter().map(|insn| insn.encode()).collect();
    let pc = choices.below(slots.len());
    let raw = &mut slots[pc];
    let before = *raw;
    let what = match choices.below(6) {
        0 => {
            raw.opcode = choices.word() as u8;
            "opcode"
        }
        1 => {
            raw.opcode ^= 1 << choices.below(8);
            "bit of the opcode"
        }
        2 => {
            raw.regs = raw.regs & 0xf0 | choices.below(16) as u8;
            "dst"
        }
        3 => {
            raw.regs = raw.regs & 0x0f | (choices.below(16) as u8) << 4;
            "src"
        }
        4 => {
            raw.off = choices.pick(&[0, 1, -1, 8, 16, 32, i16::MAX, i16::MIN, raw.off.wrapping_add(1)]);
            "off"
        }
        _ => {
            let imm = choices.imm();
            let edge = choices.pick(&IMMS);
            raw.imm = choices.pick(&[edge, imm, raw.imm.wrapping_add(1)]);
            "imm"
        }
    };
    if *raw == before {
        raw.regs ^= 0x10;
    }
    NearValid { slots, pc, what }
}

impl NearValid {
    /// Its instructions, if every slot is one.
    pub fn decode(&self) -> Option<Vec<Insn>> {
        self.slots.iter().map(|raw| Insn::decode(*raw).ok()).collect()
    }
}
