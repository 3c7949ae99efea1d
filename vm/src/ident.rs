//! Identities of images and of their programs, unique in this process: what was made for one image is not taken for
//! another's.

use std::sync::atomic::{AtomicU64, Ordering};

/// An image. No two have the same, also after one is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageId {
    /// Of the first program.
    first: u64,
}

/// A program of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramId(u64);

impl ImageId {
    /// A new one, for so many programs.
    pub(crate) fn new(programs: usize) -> ImageId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ImageId { first: NEXT.fetch_add(programs.max(1) as u64, Ordering::Relaxed) }
    }

    /// Its program with this index, which must be below the number it was made for.
    pub(crate) fn program(self, index: usize) -> ProgramId {
        ProgramId(self.first + index as u64)
    }

    /// The index of a program, of as many as it was made for; `None` for a program of another image.
    pub(crate) fn index(self, program: ProgramId, programs: usize) -> Option<usize> {
        let index = program.0.wrapping_sub(self.first);
        (index < programs as u64).then_some(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_their_own_image_only() {
        let (one, none, two) = (ImageId::new(3), ImageId::new(0), ImageId::new(2));
        assert!(one != none && none != two);
        assert_eq!(one.index(one.program(2), 3), Some(2));
        assert_eq!(two.index(two.program(0), 2), Some(0));
        assert_eq!(one.index(two.program(0), 3), None);
        assert_eq!(two.index(one.program(2), 2), None);
    }
}
