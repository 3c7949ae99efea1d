//! The contexts of programs at functions: the kernel's `struct pt_regs`, as far as a program reads it.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use twinbpf_hook::Registers;
use twinbpf_isa::Insn;
use twinbpf_vm::mem::Block;

use crate::error::Error;
use crate::instance::Instance;

/// Words of the kernel's `struct pt_regs`.
const WORDS: usize = 21;

/// Memory in the arena for a context.
pub(super) struct Context {
    words: NonNull<[AtomicU64; WORDS]>,
    // After what refers to it.
    block: Block,
}

impl Context {
    pub(super) fn new<T: Send + 'static>(instance: &Instance<T>) -> Result<Context, Error> {
        let block = instance.context(&[0; WORDS * size_of::<u64>()])?;
        let words = NonNull::from(block.atomic::<AtomicU64>(0)).cast();
        Ok(Context { words, block })
    }

    /// Its address for programs.
    #[inline(always)]
    pub(super) fn addr(&self) -> u64 {
        self.block.addr()
    }

    /// Gives the program what it can read.
    #[inline(always)]
    pub(super) fn store(&self, reads: ContextReads, registers: &Registers) {
        // SAFETY: the block is as long, and lives as long.
        let words = unsafe { self.words.as_ref() };
        let mut index = reads.start;
        while index < reads.end
            && let (Some(word), Some(register)) = (words.get(index), registers.words().get(index))
        {
            word.store(*register, Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
    }
}

/// The words of its context that a program can read.
#[derive(Clone, Copy)]
pub(super) struct ContextReads {
    start: usize,
    end: usize,
}

impl ContextReads {
    pub(super) const ALL: ContextReads = ContextReads { start: 0, end: WORDS };
    /// What the trampoline for arguments has: from r10 to rdi, and no more.
    const ARGUMENTS: Range<usize> = 7..15;

    pub(super) fn of(function: &[Insn]) -> ContextReads {
        const WORD: i32 = size_of::<u64>() as i32;
        let Some(reads) = twinbpf_isa::context_reads(function) else { return ContextReads::ALL };
        let within = |range: &Range<i32>| range.start >= 0 && range.end <= WORDS as i32 * WORD;
        if !reads.iter().all(within) {
            return ContextReads::ALL;
        }
        let start = reads.iter().map(|range| range.start / WORD).min().unwrap_or(0);
        let end = reads.iter().map(|range| (range.end + WORD - 1) / WORD).max().unwrap_or(0);
        ContextReads { start: start as usize, end: end as usize }
    }

    pub(super) fn is_within_arguments(self) -> bool {
        self.start == self.end || self.start >= Self::ARGUMENTS.start && self.end <= Self::ARGUMENTS.end
    }
}
