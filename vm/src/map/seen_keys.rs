//! Keys that a walk by slots has met: an element that goes and comes again meanwhile may be in two slots.

use std::collections::HashSet;

/// See the module documentation. Keys are bytes of one length, and searched only once the map has got an element during the walk.
#[derive(Debug, Default)]
pub(crate) struct SeenKeys {
    /// One after another, until they are searched.
    listed: Vec<u8>,
    searched: Option<HashSet<Vec<u8>>>,
}

impl SeenKeys {
    /// Adds a key. False if it was there already, which is only known where elements `came` since the walk began.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], came: impl FnOnce() -> bool) -> bool {
        if self.searched.is_none() && came() {
            self.searched = Some(self.listed.chunks_exact(key.len().max(1)).map(<[u8]>::to_vec).collect());
        }
        match &mut self.searched {
            Some(searched) => searched.insert(key.to_vec()),
            None => {
                self.listed.extend_from_slice(key);
                true
            }
        }
    }

    /// Forgets all, for another walk.
    pub(crate) fn clear(&mut self) {
        self.listed.clear();
        self.searched = None;
    }
}
