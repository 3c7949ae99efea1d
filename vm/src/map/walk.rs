//! Walks over the elements of a hash table, slot by slot.

use super::seen_keys::SeenKeys;
use super::store::Store;
use super::{Entry, Errno};

impl Store {
    /// As `MapOps::entries`, slot by slot: no key is searched for. Values have `size` bytes, and all of one key `copied` as
    /// [`Entry`] has them.
    pub(super) fn entries(&self, size: u32, copied: usize, each: &mut dyn FnMut(Entry<'_>) -> bool) {
        let noted = self.noted();
        let (mut key, mut seen) = (vec![0; self.key_size as usize], SeenKeys::default());
        let mut copied = vec![0; copied];
        let stride = copied.len() / self.cpus as usize;
        for slot in 0..self.slots() {
            let Some(held) = self.hold_slot(slot) else { continue };
            self.load_key(slot, &mut key);
            for (cpu, out) in (0..self.cpus).zip(copied.chunks_mut(stride.max(1))) {
                self.load_slot(slot, cpu, &mut out[..size as usize]);
            }
            drop(held);
            let first = seen.add(&key, || self.noted() != noted);
            if first && !each(Entry::new(&key, &copied, size)) {
                return;
            }
        }
    }

    /// Copies the key of the first element from `slot` on, and gives its slot.
    fn first_from(&self, slot: u32, out: &mut [u8]) -> Option<u32> {
        (slot..self.slots()).find(|slot| self.key(*slot, out))
    }

    /// `BPF_MAP_GET_NEXT_KEY`.
    pub(super) fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        if next.len() != self.key_size as usize {
            return Err(Errno::EINVAL);
        }
        let slot = key.and_then(|key| self.slot_of(key));
        let from = slot.map_or(0, |slot| slot + 1);
        self.first_from(from, next).map(|_| ()).ok_or(Errno::ENOENT)
    }

    /// All keys, each once.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        let (noted, mut seen) = (self.noted(), SeenKeys::default());
        let (mut keys, mut key) = (Vec::new(), vec![0; self.key_size as usize]);
        let mut from = 0;
        while let Some(slot) = self.first_from(from, &mut key) {
            if seen.add(&key, || self.noted() != noted) {
                keys.push(key.clone());
            }
            from = slot + 1;
        }
        keys
    }
}
