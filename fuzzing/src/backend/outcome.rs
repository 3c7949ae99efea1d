//! What a run of a case leaves behind, and how two runs differ.

use std::fmt::Write as _;

use twinbpf_jit::JitError;
use twinbpf_vm::trap::TrapCode;

use crate::generate::world::{ARRAYS_SIZE, CONTEXT_SIZE, MEMORY, REGS_OUT, STACK_OUT, STATE_SIZE, VALUE};

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It ran; `None` for an input that means nothing to this engine.
    Ended(Vec<Option<Outcome>>),
    /// It was not accepted, and why.
    Refused(String),
    /// The engine made a mistake before it could run it, and says so: a finding, whatever others do.
    Failed(String),
    /// It is nothing for this engine.
    Skipped,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this r0.
    Returned(u64),
    /// With a trap, at this instruction of this program, where that is known.
    Trapped(TrapCode, Option<usize>),
}

/// All that a run leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Only the lower half of r0 is known.
    pub narrow: bool,
    /// The state map: registers, stack words, memory.
    pub state: [u8; STATE_SIZE],
    /// Bytes of the context.
    pub context: [u8; CONTEXT_SIZE],
    /// The array, and the per-CPU one for each CPU, as far as they are used.
    pub array: [u8; ARRAYS_SIZE],
    /// Keys and values of the hash table, sorted.
    pub hash: Vec<(u32, [u8; VALUE])>,
    /// Instructions, where they are counted.
    pub executed: Option<u64>,
    /// Only a digest of state and context is known.
    pub digest: Option<u64>,
}

/// A digest of state and context that programs can compute, too.
pub fn digest(state: &[u8], context: &[u8]) -> u64 {
    let words = state.chunks_exact(8).chain(context.chunks_exact(8));
    words.fold(0, |sum: u64, word| {
        (sum ^ u64::from_le_bytes(word.try_into().expect("eight bytes"))).wrapping_mul(DIGEST_FACTOR as u64)
    })
}

/// Odd, and an immediate.
pub(crate) const DIGEST_FACTOR: i32 = 0x5bd1_e995;

impl Outcome {
    /// Whether both saw the same, as far as both can see.
    pub fn agrees(&self, other: &Outcome) -> bool {
        if let (Some(sum), _) | (_, Some(sum)) = (self.digest, other.digest) {
            return [self, other].iter().all(|it| it.digest.unwrap_or_else(|| digest(&it.state, &it.context)) == sum);
        }
        let ends = match (self.end, other.end) {
            (End::Returned(one), End::Returned(two)) if self.narrow || other.narrow => one as u32 == two as u32,
            (End::Trapped(one, here), End::Trapped(two, there)) if here.is_none() || there.is_none() => one == two,
            (one, two) => one == two,
        };
        let counts = match (self.executed, other.executed) {
            (Some(one), Some(two)) => one == two,
            (None, _) | (_, None) => true,
        };
        let maps = self.array == other.array && self.hash == other.hash;
        ends && counts && maps && self.state == other.state && self.context == other.context
    }

    /// Whether the program left its memory, or had a function leave it, which engines detect differently.
    pub fn strays(&self) -> bool {
        matches!(self.end, End::Trapped(TrapCode::OutOfBounds | TrapCode::ReadOnly | TrapCode::BadArgument, _))
    }

    /// The differences of another outcome, a line each.
    pub fn difference(&self, other: &Outcome) -> String {
        let mut text = String::new();
        if let (Some(sum), _) | (_, Some(sum)) = (self.digest, other.digest) {
            let _ = writeln!(text, "digest of the state {sum:#x}");
            return text;
        }
        if self.end != other.end {
            let _ = writeln!(text, "end {:x?} | {:x?}", self.end, other.end);
        }
        if let (Some(one), Some(two)) = (self.executed, other.executed)
            && one != two
        {
            let _ = writeln!(text, "instructions {one} | {two}");
        }
        for (at, (one, two)) in self.state.chunks_exact(8).zip(other.state.chunks_exact(8)).enumerate() {
            if one != two {
                let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                let _ = writeln!(text, "{} {:#x} | {:#x}", location(at * 8), word(one), word(two));
            }
        }
        for (name, one, two) in
            [("context", &self.context[..], &other.context[..]), ("array", &self.array[..], &other.array[..])]
        {
            if let Some(at) = one.iter().zip(two).position(|(one, two)| one != two) {
                let _ = writeln!(text, "{name} + {at} {:#x} | {:#x}", one[at], two[at]);
            }
        }
        if self.hash != other.hash {
            let _ = writeln!(text, "hash {:x?} | {:x?}", self.hash, other.hash);
        }
        text
    }
}

/// What a word of the state is.
fn location(at: usize) -> String {
    match at {
        REGS_OUT..STACK_OUT => format!("r{}", (at - REGS_OUT) / 8),
        STACK_OUT..224 => format!("stack word {}", (at - STACK_OUT) / 8),
        MEMORY.. => format!("memory + {}", at - MEMORY),
        _ => format!("state + {at}"),
    }
}

/// What becomes of a case that the compiler does not compile: its mistakes are findings, its limits are none.
pub(super) fn not_compiled(error: &JitError) -> Ran {
    let why = format!("not compiled: {error}");
    if matches!(error, JitError::Internal(_) | JitError::Rejected { .. }) {
        Ran::Failed(why)
    } else {
        Ran::Refused(why)
    }
}
