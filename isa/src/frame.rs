//! Moving the frame of a function: room at its top for code that is put before its first instruction.

use super::opcode::{ADD_IMM, CALL, CLASS, EXIT, GOTO, LDDW, MOV_REG, SOURCE};
use super::{Raw, SpliceError};

/// Why a program's frame cannot begin lower.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerFrameError {
    /// It has too many bytes.
    #[error("its frame leaves {left} bytes, of {needed} that are needed: keep less on the stack")]
    Room {
        /// Bytes that it leaves.
        left: i64,
        /// Bytes that are needed.
        needed: i64,
    },
    /// An instruction uses the frame pointer as a number.
    #[error("instruction {0} computes with the frame pointer, so that its frame cannot be moved")]
    Pointer(usize),
    /// A jump would be too long.
    #[error(transparent)]
    Splice(#[from] SpliceError),
}

/// Lets the frame of a function begin so many bytes lower: accesses by the frame pointer are changed in place. What is
/// returned are instructions to insert, by [`splice`](crate::splice()) from the last to the first, each at its slot. The
/// frame has `size` bytes.
///
/// # Errors
/// The frame is too large, or the frame pointer is used otherwise than as the base of accesses and of pointers. The
/// function may be half changed then.
pub fn lower_frame(function: &mut [Raw], size: u32, bytes: usize) -> Result<Vec<(usize, Raw)>, LowerFrameError> {
    let needed = bytes as i64;
    let check = |offset: i64| match i64::from(size) + offset {
        left if left < needed => Err(LowerFrameError::Room { left, needed }),
        _ => Ok(()),
    };
    let mut inserted = Vec::new();
    let mut pc = 0;
    while pc < function.len() {
        let Raw { opcode, off, .. } = function[pc];
        let (dst, src) = (function[pc].dst(), function[pc].src());
        match (opcode & CLASS, dst, src) {
            _ if opcode == LDDW => pc += 1,
            // Loads and stores, by the base.
            (1, _, 10) | (2, 10, _) => lower(&mut function[pc], bytes, check)?,
            (3, 10, src) if src != 10 => lower(&mut function[pc], bytes, check)?,
            (7, _, 10) if opcode == MOV_REG && off == 0 => {
                let next = function.get(pc + 1).filter(|next| next.opcode == ADD_IMM && next.dst() == dst);
                check(next.map_or(0, |next| i64::from(next.imm)))?;
                inserted.push((pc + 1, Raw { opcode: ADD_IMM, regs: dst, off: 0, imm: (-needed) as i32 }));
            }
            // In calls these bits say what is called.
            (5, ..) if matches!(opcode, CALL | EXIT | GOTO) => {}
            (3..=7, _, 10) if opcode & SOURCE != 0 || opcode & CLASS == 3 => return Err(LowerFrameError::Pointer(pc)),
            (3..=7, 10, _) => return Err(LowerFrameError::Pointer(pc)),
            _ => {}
        }
        pc += 1;
    }
    inserted.reverse();
    Ok(inserted)
}

/// Lowers the offset of an access.
fn lower(
    access: &mut Raw,
    bytes: usize,
    check: impl Fn(i64) -> Result<(), LowerFrameError>,
) -> Result<(), LowerFrameError> {
    check(i64::from(access.off))?;
    // Frames of any size have offsets of 16 bits.
    let (off, needed) = (i64::from(access.off), bytes as i64);
    let room = LowerFrameError::Room { left: off - i64::from(i16::MIN), needed };
    access.off = i16::try_from(off.saturating_sub(needed)).map_err(|_| room)?;
    Ok(())
}
