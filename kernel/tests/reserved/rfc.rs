//! What RFC 9669 defines, written down from its text and from nothing else.

use crate::probe::{CALL, HELPER, LDDW, Probe, Whole};

/// Whether the RFC leaves it to others: what a reference means (section 5.4), which functions exist (4.3.1), and how
/// large a frame is.
pub(crate) fn is_silent(probe: &Probe) -> bool {
    let frame = probe.base() == Some(10) && !(-512..=-8).contains(&probe.off);
    let reference = probe.opcode == LDDW && (3..=6).contains(&probe.src);
    let function = probe.opcode == CALL && probe.src == 2;
    frame || reference || function
}

/// Whether the instruction is defined. "Unused fields shall be cleared to zero" (section 3.1).
pub(crate) fn defines(probe: &Probe, whole: &Whole) -> bool {
    // Section 2.3 of the ABI and section 3.1: r0 to r10, of which r10 is read only.
    if probe.dst > 10 {
        return false;
    }
    match probe.opcode & 7 {
        0 => load(probe),
        1 => load_register(probe),
        2 => probe.src == 0 && probe.opcode & 0xe0 == MEM,
        3 => store_register(probe),
        4 | 7 => arithmetic(probe),
        _ => jump(probe, whole),
    }
}

/// Section 5, table 10: mode modifiers.
const ABS: u8 = 0x20;
const IND: u8 = 0x40;
const MEM: u8 = 0x60;
const MEMSX: u8 = 0x80;
const ATOMIC: u8 = 0xc0;
/// Section 5, table 11: size modifiers.
const W: u8 = 0x00;
const H: u8 = 0x08;
const B: u8 = 0x10;
const DW: u8 = 0x18;

/// Class LD: sections 5.4 and 5.5.
fn load(probe: &Probe) -> bool {
    let (mode, size) = (probe.opcode & 0xe0, probe.opcode & 0x18);
    match mode {
        0 if size == DW => {
            let second = probe.second.is_some_and(|(opcode, regs, off, _)| opcode == 0 && regs == 0 && off == 0);
            probe.dst < 10 && probe.src <= 6 && probe.off == 0 && second
        }
        ABS => matches!(size, W | H | B) && probe.dst == 0 && probe.src == 0 && probe.off == 0,
        IND => matches!(size, W | H | B) && probe.dst == 0 && probe.src <= 10 && probe.off == 0,
        _ => false,
    }
}

/// Class LDX: sections 5.1 and 5.2.
fn load_register(probe: &Probe) -> bool {
    let size = probe.opcode & 0x18;
    let mode = match probe.opcode & 0xe0 {
        MEM => true,
        MEMSX => size != DW,
        _ => false,
    };
    mode && probe.dst < 10 && probe.src <= 10 && probe.imm == 0
}

/// Class STX: sections 5.1 and 5.3.
fn store_register(probe: &Probe) -> bool {
    match probe.opcode & 0xe0 {
        MEM => probe.src <= 10 && probe.imm == 0,
        ATOMIC if matches!(probe.opcode & 0x18, W | DW) => {
            let (add, or, and, xor, fetch) = (0x00, 0x40, 0x50, 0xa0, 0x01);
            let (xchg, cmpxchg) = (0xe0 | fetch, 0xf0 | fetch);
            if [add, or, and, xor, cmpxchg].contains(&probe.imm) {
                return probe.src <= 10;
            }
            // The old value goes to src.
            let fetches = [add | fetch, or | fetch, and | fetch, xor | fetch, xchg].contains(&probe.imm);
            fetches && probe.src < 10
        }
        _ => false,
    }
}

/// Classes ALU and ALU64: section 4.1 and 4.2.
fn arithmetic(probe: &Probe) -> bool {
    let wide = probe.opcode & 7 == 7;
    let register = probe.opcode & 8 != 0;
    let operand = if register { probe.src <= 10 && probe.imm == 0 } else { probe.src == 0 };
    let rest = match probe.opcode >> 4 {
        // ADD SUB MUL OR AND LSH RSH XOR ARSH
        0x0 | 0x1 | 0x2 | 0x4 | 0x5 | 0x6 | 0x7 | 0xa | 0xc => operand && probe.off == 0,
        // DIV MOD, and with offset 1 SDIV SMOD
        0x3 | 0x9 => operand && matches!(probe.off, 0 | 1),
        // NEG has no operand.
        0x8 => !register && probe.src == 0 && probe.imm == 0 && probe.off == 0,
        // MOV, and with a register and an offset MOVSX: "MOVSX is only defined for register source operands"
        0xb => operand && (probe.off == 0 || register && moves(probe.off, wide)),
        // END: the source bit of ALU says which order, in ALU64 it is reserved.
        0xd => (!wide || !register) && probe.src == 0 && probe.off == 0 && matches!(probe.imm, 16 | 32 | 64),
        _ => false,
    };
    rest && probe.dst < 10
}

fn moves(off: i16, wide: bool) -> bool {
    matches!(off, 8 | 16) || wide && off == 32
}

/// Classes JMP and JMP32: section 4.3.
fn jump(probe: &Probe, whole: &Whole) -> bool {
    let narrow = probe.opcode & 7 == 6;
    let register = probe.opcode & 8 != 0;
    let next = whole.at as i64 + 1;
    let by_off = whole.has_target(next + i64::from(probe.off));
    let nothing = probe.dst == 0 && probe.src == 0;
    match probe.opcode >> 4 {
        // JA: by offset in JMP, by immediate in JMP32
        0x0 if register => false,
        0x0 if narrow => nothing && probe.off == 0 && whole.has_target(next + i64::from(probe.imm)),
        0x0 => nothing && probe.imm == 0 && by_off,
        // JEQ JGT JGE JSET JNE JSGT JSGE, JLT JLE JSLT JSLE
        0x1..=0x7 | 0xa..=0xd => by_off && if register { probe.src <= 10 && probe.imm == 0 } else { probe.src == 0 },
        // CALL: by number, or by distance
        0x8 if !narrow && !register && probe.dst == 0 && probe.off == 0 => match probe.src {
            0 => probe.imm == HELPER,
            1 => whole.has_function(next + i64::from(probe.imm)),
            _ => false,
        },
        // EXIT
        0x9 => !narrow && !register && nothing && probe.off == 0 && probe.imm == 0,
        _ => false,
    }
}
