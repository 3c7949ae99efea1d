//! Putting instructions into a stream: jumps, calls and addresses of functions across the place keep their targets.

use std::fmt;

use super::opcode::{CALL, EXIT, GOTOL, GOTOX, LDDW};
use super::{Endian, Raw};

/// `src` of a call of a function of the program, and of an `lddw` of its address.
const LOCAL: u8 = 1;
const FUNCTION: u8 = 4;

/// What a splice did to places in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Index of the first slot that changed.
    pub at: usize,
    /// Slots that went away.
    pub removed: usize,
    /// Slots that came.
    pub inserted: usize,
}

impl Moved {
    /// Where the instruction of a slot is now; `None` if it went away.
    pub fn insn(&self, pc: usize) -> Option<usize> {
        match pc {
            pc if pc < self.at => Some(pc),
            pc if pc < self.at + self.removed => None,
            pc => Some(pc - self.removed + self.inserted),
        }
    }

    /// Where something begins now that began at a slot: a function, a source line. What is inserted at its beginning
    /// belongs to it. `None` if the slot went away without anything in its place.
    pub fn start(&self, pc: usize) -> Option<usize> {
        if pc == self.at && (self.inserted > 0 || self.removed == 0) { Some(pc) } else { self.insn(pc) }
    }
}

/// A splice that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpliceError {
    /// The place is not in the stream, or inside an `lddw`.
    Place {
        /// The first slot.
        at: usize,
    },
    /// An instruction that stays leads into what goes away.
    Target {
        /// Slot of the instruction that stays.
        pc: usize,
    },
    /// A jump would be longer than its field.
    Far {
        /// Slot of the jump.
        pc: usize,
    },
}

impl fmt::Display for SpliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpliceError::Place { at } => write!(f, "instruction {at} is no place to change the program"),
            SpliceError::Target { pc } => write!(f, "instruction {pc} leads into what is removed"),
            SpliceError::Far { pc } => write!(f, "the jump at {pc} would be too long"),
        }
    }
}

impl std::error::Error for SpliceError {}

/// How an instruction names another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    /// By the distance in `off`.
    Off,
    /// By the distance in `imm`: to an instruction, or to the beginning of a function.
    Imm { function: bool },
}

fn link(raw: Raw) -> Option<Link> {
    match (raw.opcode, raw.src()) {
        (CALL, LOCAL) | (LDDW, FUNCTION) => Some(Link::Imm { function: true }),
        (CALL | EXIT | GOTOX | LDDW, _) => None,
        (GOTOL, _) => Some(Link::Imm { function: false }),
        (opcode, _) if matches!(opcode & 7, 5 | 6) => Some(Link::Off),
        _ => None,
    }
}

/// How far the target of an instruction is from the one after it.
fn distance(raw: Raw, link: Link) -> i64 {
    match link {
        Link::Off => i64::from(raw.off),
        Link::Imm { .. } => i64::from(raw.imm),
    }
}

/// The slot to which the instruction of a slot jumps, or where the function begins that it names. `None`: there is none, or it lies
/// before the stream.
///
/// # Panics
/// There is no such slot.
pub fn target_of(insns: &[Raw], pc: usize) -> Option<usize> {
    let raw = insns[pc];
    let link = link(raw).filter(|_| !is_second_half(insns, pc))?;
    usize::try_from(pc as i64 + 1 + distance(raw, link)).ok()
}

fn is_second_half(insns: &[Raw], pc: usize) -> bool {
    pc.checked_sub(1).and_then(|before| insns.get(before)).is_some_and(|raw| raw.opcode == LDDW)
}

/// Replaces `remove` slots from `at` on. A jump to `at` leads to the first slot after the inserted ones, unless they replace others;
/// calls of a function that begins there, and falling into it, lead to its first new instruction. Distances inside the
/// inserted instructions must be right already.
///
/// # Errors
/// Nothing is changed then.
pub fn splice(insns: &mut Vec<Raw>, at: usize, remove: usize, insert: &[Raw]) -> Result<Moved, SpliceError> {
    let moved = Moved { at, removed: remove, inserted: insert.len() };
    let end = at.checked_add(remove).filter(|end| *end <= insns.len()).ok_or(SpliceError::Place { at })?;
    if is_second_half(insns, at) || is_second_half(insns, end) {
        return Err(SpliceError::Place { at });
    }
    let mut result = Vec::with_capacity(insns.len() - remove + insert.len());
    for (pc, raw) in insns.iter().enumerate() {
        if pc == at {
            result.extend_from_slice(insert);
        }
        let Some(now) = moved.insn(pc) else { continue };
        let half = is_second_half(insns, pc);
        result.push(match link(*raw).filter(|_| !half) {
            Some(link) => relink(*raw, link, pc, now, moved)?,
            None => *raw,
        });
    }
    if at == insns.len() {
        result.extend_from_slice(insert);
    }
    *insns = result;
    Ok(moved)
}

fn relink(raw: Raw, link: Link, pc: usize, now: usize, moved: Moved) -> Result<Raw, SpliceError> {
    // A target before the stream is left for validation to refuse.
    let Ok(target) = usize::try_from(pc as i64 + 1 + distance(raw, link)) else { return Ok(raw) };
    let starts = matches!(link, Link::Imm { function: true }) || moved.removed > 0;
    let target = if starts { moved.start(target) } else { moved.insn(target) };
    let target = target.ok_or(SpliceError::Target { pc })?;
    let distance = target as i64 - now as i64 - 1;
    let far = |_| SpliceError::Far { pc };
    Ok(match link {
        Link::Off => Raw { off: i16::try_from(distance).map_err(far)?, ..raw },
        Link::Imm { .. } => Raw { imm: i32::try_from(distance).map_err(far)?, ..raw },
    })
}

/// The splice that makes one stream of another: what they have in common at beginning and end stays.
pub fn difference(old: &[Raw], new: &[Raw]) -> Moved {
    let same = |pair: &(&Raw, &Raw)| pair.0.to_bytes(Endian::Little) == pair.1.to_bytes(Endian::Little);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let head = old[..old.len() - tail].iter().zip(&new[..new.len() - tail]).take_while(same).count();
    Moved { at: head, removed: old.len() - tail - head, inserted: new.len() - tail - head }
}
