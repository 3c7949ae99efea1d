//! Bytes that live as long as what was read from them: files, decompressed sections.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

/// The bytes of a file: owned, or mapped.
pub trait File: AsRef<[u8]> + Send + Sync {
    /// A part has been searched, and little of it is read again: a mapping can give its memory back.
    fn searched(&self, part: Range<usize>) {
        let _ = part;
    }
}

impl File for Vec<u8> {}

/// A file to be read.
pub type Bytes = Box<dyn File>;

/// Keeps bytes until it is dropped. Grows through a shared reference, so that what borrows from it can add to it.
#[derive(Default)]
pub struct Store(OnceLock<Box<(Bytes, Store)>>);

impl Store {
    /// An empty store.
    pub fn new() -> Store {
        Store::default()
    }

    /// Keeps bytes and lends them.
    pub fn keep(&self, bytes: Bytes) -> &[u8] {
        let mut at = self;
        let mut node = Box::new((bytes, Store::default()));
        loop {
            match at.0.set(node) {
                Ok(()) => return at.0.get().map_or(&[], |kept| (*kept.0).as_ref()),
                Err(taken) => node = taken,
            }
            match at.0.get() {
                Some(kept) => at = &kept.1,
                None => return &[],
            }
        }
    }

    /// Tells the file that has `part` that it has been searched.
    pub(crate) fn searched(&self, part: &[u8]) {
        let mut at = self;
        while let Some(kept) = at.0.get() {
            let whole = (*kept.0).as_ref();
            let from = part.as_ptr().addr().checked_sub(whole.as_ptr().addr());
            if let Some(from) = from.filter(|from| from.saturating_add(part.len()) <= whole.len()) {
                return kept.0.searched(from..from + part.len());
            }
            at = &kept.1;
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // One after the other: a list of thousands of files must not nest as many calls.
        let mut next = self.0.take();
        while let Some(mut node) = next {
            next = node.1.0.take();
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Noted(Vec<u8>, Arc<Mutex<Vec<Range<usize>>>>);

    impl AsRef<[u8]> for Noted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl File for Noted {
        fn searched(&self, part: Range<usize>) {
            self.1.lock().unwrap().push(part);
        }
    }

    #[test]
    fn the_file_that_has_a_part_gives_it_back() {
        let (store, first, second) = (Store::new(), Arc::default(), Arc::default());
        store.keep(Box::new(Noted(vec![1; 64], Arc::clone(&first))));
        store.keep(Box::new(vec![2; 64]));
        let bytes = store.keep(Box::new(Noted(vec![3; 64], Arc::clone(&second))));
        store.searched(&bytes[8..24]);
        store.searched(&bytes[60..]);
        store.searched(&[4; 64]);
        assert_eq!(*second.lock().unwrap(), [8..24, 60..64]);
        assert!(first.lock().unwrap().is_empty());
    }
}
