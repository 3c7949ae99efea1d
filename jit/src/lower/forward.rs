//! Store-to-load forwarding: a load from the frame takes the value that the same block has stored there or loaded from
//! there.
//!
//! This is for words that do not become variables ([`stack_slots`](super::stack_slots)), because the function is too long or copies
//! r10. A store to any other memory may be one to the frame, and so may a call: both forget all words. The stores stay, so memory is always
//! as the interpreter would have it. Cranelift's alias analysis does not do this with the optimiser: a sequence point, which all other
//! accesses have, ends what it knows.

use cranelift_codegen::ir::Value;
use smallvec::SmallVec;
use twinbpf_isa::Size;

/// Words that are remembered, the last ones: with more, values live so long that they are spilled instead.
const WORDS: usize = 8;

/// The mutant that takes no store by a pointer for one to the frame.
pub(crate) const MUTANT: &str = "stores_by_pointers_spare_the_frame";

/// Contents of the frame that the current block knows: offset, size, value. A value has the type of its size.
#[derive(Default)]
pub(super) struct Frame {
    words: SmallVec<[(i16, Size, Value); WORDS]>,
}

impl Frame {
    /// Others may have written.
    pub(super) fn forget(&mut self) {
        self.words.clear();
    }

    /// Notes that bytes are written; `value` is what they are then.
    pub(super) fn store(&mut self, off: i16, size: Size, value: Value) {
        let range = |off: i16, size: Size| (i32::from(off), i32::from(off) + size.bytes() as i32);
        let (start, end) = range(off, size);
        self.words.retain(|(off, size, _)| {
            let (from, to) = range(*off, *size);
            to <= start || end <= from
        });
        if matches!(size, Size::W | Size::Dw) {
            self.note(off, size, value);
        }
    }

    /// Notes what a load gives.
    pub(super) fn note(&mut self, off: i16, size: Size, value: Value) {
        if self.words.len() == WORDS {
            self.words.remove(0);
        }
        self.words.push((off, size, value));
    }

    /// What is there.
    pub(super) fn get(&self, off: i16, size: Size) -> Option<Value> {
        self.words.iter().find(|known| (known.0, known.1) == (off, size)).map(|known| known.2)
    }
}
