//! Bytes that live as long as what was read from them: files, decompressed sections.

use std::fmt;
use std::sync::OnceLock;

/// The bytes of a file: owned, or mapped.
pub type Bytes = Box<dyn AsRef<[u8]> + Send + Sync>;

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
