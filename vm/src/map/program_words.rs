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
/// map.set_program(2, 0).expect("a slot");
/// let words = map.program_words().expect("a prog array");
/// assert_eq!(words.address(2), words.range().map(|range| range.start + 16));
/// # Ok::<(), twinbpf_vm::mem::MemError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProgramWords(Arc<HiddenSlab>);

impl ProgramWords {
    pub(super) fn new(words: &Arc<HiddenSlab>) -> ProgramWords {
        ProgramWords(Arc::clone(words))
    }

    /// Where in this process the word of a slot is that has had a program.
    pub fn address(&self, index: u32) -> Option<u64> {
        let (block, off) = self.0.has(index).then(|| self.0.at(index))?;
        Some(ptr::from_ref::<AtomicU64>(block.atomic(off)).expose_provenance() as u64)
    }

    /// Addresses of all words, once a slot has had a program. Those of slots that had none may have no memory.
    pub fn range(&self) -> Option<Range<u64>> {
        let first = self.address(0)?;
        Some(first..first + u64::from(self.0.memory().len()))
    }
}
