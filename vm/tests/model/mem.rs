//! Memory of words of the model, with the names that the machine's memory has.

use std::sync::Arc;

use crate::machine::{AtomicU32, Ordering};

const WORD: usize = 4;

#[derive(Debug)]
pub(crate) struct Arena;

#[derive(Clone, Copy, Debug)]
pub(crate) enum RegionKind {
    Map,
}

#[derive(Debug)]
#[expect(dead_code, reason = "as the machine's")]
pub(crate) struct RegionSpec {
    pub(crate) label: Arc<str>,
    pub(crate) kind: RegionKind,
    pub(crate) element_size: u32,
    pub(crate) stride: u32,
    pub(crate) count: u32,
    pub(crate) writable: bool,
    pub(crate) owner: u32,
}

impl RegionSpec {
    pub(crate) fn new(label: String, kind: RegionKind, size: u32) -> RegionSpec {
        let label = label.into();
        RegionSpec { label, kind, element_size: size, stride: size, count: 1, writable: true, owner: 0 }
    }
}

#[derive(Debug)]
pub(crate) struct MemError;

impl std::fmt::Display for MemError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no memory")
    }
}

/// Each word is an atomic one, and read and written without an order: that must come from the words that are locks.
#[derive(Debug)]
pub(crate) struct Block(Vec<AtomicU32>, Arc<Arena>);

impl Arena {
    pub(crate) fn alloc(self: &Arc<Self>, spec: RegionSpec) -> Result<Block, MemError> {
        let words = spec.stride as usize / WORD * spec.count as usize;
        Ok(Block((0..words).map(|_| AtomicU32::new(0)).collect(), Arc::clone(self)))
    }

    pub(crate) fn alloc_hidden(self: &Arc<Self>, spec: RegionSpec) -> Result<Block, MemError> {
        self.alloc(spec)
    }

    pub(crate) fn reserve_hidden(self: &Arc<Self>, spec: RegionSpec) -> Result<Block, MemError> {
        self.alloc(spec)
    }
}

impl Block {
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.1
    }

    pub(crate) fn len(&self) -> u32 {
        (self.0.len() * WORD) as u32
    }

    pub(crate) fn grow(&self, _end: u64) -> Result<(), MemError> {
        Ok(())
    }

    pub(crate) fn has(&self, _end: u64) -> bool {
        true
    }

    pub(crate) fn words<const N: usize>(&self, off: u32) -> [&AtomicU32; N] {
        std::array::from_fn(|index| &self.0[off as usize / WORD + index])
    }

    fn range(&self, off: u32, len: usize) -> &[AtomicU32] {
        let first = off as usize / WORD;
        &self.0[first..first + len / WORD]
    }

    pub(crate) fn load(&self, off: u32, out: &mut [u8]) {
        for (word, bytes) in self.range(off, out.len()).iter().zip(out.as_chunks_mut().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    pub(crate) fn store(&self, off: u32, bytes: &[u8]) {
        for (word, bytes) in self.range(off, bytes.len()).iter().zip(bytes.as_chunks().0) {
            word.store(u32::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    pub(crate) fn fill(&self, off: u32, len: usize, byte: u8) {
        self.store(off, &vec![byte; len]);
    }

    pub(crate) fn equals(&self, off: u32, bytes: &[u8]) -> bool {
        let mut own = vec![0; bytes.len()];
        self.load(off, &mut own);
        own == bytes
    }

    pub(crate) fn addr(&self) -> u64 {
        0
    }
}
