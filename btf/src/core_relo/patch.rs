//! The instruction that a relocation changes (`bpf_core_patch_insn`).

use twinbpf_isa::Raw;
use twinbpf_isa::opcode::{self, CALL, CLASS, LDDW, SIZE, SOURCE};

use super::error::CoreError;
use super::value::Change;

/// Helper number of the call that stands for an instruction without a meaning: `0xbad2310`, "bad relo".
const POISON: i32 = 195_896_080;

/// Changes the first of `insns`; says whether it was poisoned.
///
/// Field sizes that do not fit each other poison a load or store, too.
pub fn patch(insns: &mut [Raw], change: &Change) -> Result<bool, CoreError> {
    let Some(insn) = insns.first_mut() else { return Err(CoreError::Insn { opcode: 0 }) };
    let opcode = insn.opcode;
    let expect = |have: i64| match change.validate && have.cast_unsigned() != change.old {
        true => Err(CoreError::Unexpected { have, want: change.old.cast_signed() }),
        false => Ok(()),
    };
    match opcode & CLASS {
        // Arithmetic of either width with an immediate.
        4 | 7 if opcode & SOURCE == 0 => {
            let Some(new) = change.new else { return Ok(poison(insns)) };
            expect(insn.imm.into())?;
            insn.imm = new as i32;
        }
        // Loads and stores.
        1..=3 => {
            let Some(new) = change.new else { return Ok(poison(insns)) };
            expect(insn.off.into())?;
            let off = i16::try_from(new).map_err(|_| CoreError::Range(new))?;
            if change.bad_size {
                return Ok(poison(insns));
            }
            insn.off = off;
            if change.old_size != change.new_size {
                insn.opcode = resize(opcode, change)?;
            }
        }
        0 => {
            let high = insns.get(1).copied().unwrap_or(Raw { opcode: 1, ..Raw::default() });
            let low = insns[0];
            let plain = low.opcode == LDDW && low.src() == 0 && low.off == 0;
            if !plain || high.opcode != 0 || high.regs != 0 || high.off != 0 {
                return Err(CoreError::Insn { opcode });
            }
            let Some(new) = change.new else { return Ok(poison(insns)) };
            expect(i64::from(high.imm) << 32 | i64::from(low.imm.cast_unsigned()))?;
            insns[0].imm = new as i32;
            insns[1].imm = (new >> 32) as i32;
        }
        _ => return Err(CoreError::Insn { opcode }),
    }
    Ok(false)
}

fn resize(opcode: u8, change: &Change) -> Result<u8, CoreError> {
    let have = opcode::bytes(opcode) as u32;
    if have != change.old_size {
        return Err(CoreError::MemSize { have, want: change.old_size });
    }
    let bits = opcode::size(change.new_size as usize);
    let bits = bits.ok_or(CoreError::MemSize { have: 0, want: change.new_size })?;
    Ok(opcode & !SIZE | bits)
}

/// Makes the first instruction, with both its slots, one that no verifier accepts.
fn poison(insns: &mut [Raw]) -> bool {
    let slots = if insns.first().is_some_and(|insn| insn.opcode == LDDW) { 2 } else { 1 };
    insns.iter_mut().take(slots).for_each(|insn| *insn = invalid_call(POISON));
    true
}

/// A call of a helper that does not exist.
pub fn invalid_call(number: i32) -> Raw {
    Raw { opcode: CALL, imm: number, ..Raw::default() }
}
