//! Where a prog array keeps its programs, for generated code that compares them.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::hidden_slab::HiddenSlab;

/// The words of a prog array, which stay as long as this: the index of each slot's program plus 1, or 0 without a program.
///
/// ```
/// use twinbpf_vm::map::{MapKind, MapSpec, create};
/// use twinbpf_vm::mem::Arena;
///
/// let map = create(MapSpec::new("programs", MapKind::ProgArray, 4, 4, 8), &Arena::new(1 << 20)?, 1).expect("a map");
/// let words = map.program_words().expect("a prog array");
/// assert_eq!(words.range(), words.address(0)..words.address(8));
/// # Ok::<(), twinbpf_vm::mem::MemError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProgramWords(Arc<HiddenSlab>);

impl ProgramWords {
    pub(super) fn new(words: &Arc<HiddenSlab>) -> ProgramWords {
        ProgramWords(Arc::clone(words))
    }

    /// Number of words. A map whose memory is limited has fewer than slots.
    pub fn count(&self) -> u32 {
        self.0.slots()
    }

    /// Where in this process the word of a slot is, or would be.
    pub fn address(&self, index: u32) -> u64 {
        let first = ptr::from_ref::<AtomicU64>(self.0.memory().atomic(0)).expose_provenance() as u64;
        first + 8 * u64::from(index)
    }

    /// Addresses of all words, which may be read.
    pub fn range(&self) -> Range<u64> {
        self.address(0)..self.address(self.count())
    }
}
