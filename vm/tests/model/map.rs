//! The hash table of the machine, over the memory of the model.

#[path = "../../src/map/fifo.rs"]
mod fifo;
#[path = "../../src/map/free_slots.rs"]
mod free_slots;
#[path = "../../src/map/hidden_slab.rs"]
#[expect(dead_code, reason = "offsets are links of tries")]
mod hidden_slab;
#[path = "../../src/map/index.rs"]
mod index;
#[path = "../../src/map/lock.rs"]
mod lock;
#[path = "../../src/map/planes.rs"]
mod planes;
#[path = "../../src/map/slab.rs"]
mod slab;
#[path = "../../src/map/spread.rs"]
mod spread;
#[path = "../../src/map/store.rs"]
#[expect(dead_code, reason = "iteration and values of other CPUs are tested elsewhere")]
mod store;
#[path = "../../src/map/writers.rs"]
mod writers;

use std::sync::Arc;

pub(crate) use twinbpf_vm::map::Errno;

use crate::mem::Arena;
use store::{Extra, Store};

/// Atomics of the model, and numbers that make tables small.
mod sync {
    pub(super) use crate::machine::yield_now as spin_loop;
    pub(super) use crate::machine::{AtomicU32, Ordering, fence, yield_now};

    pub(super) const TRIES: u32 = 2;
    pub(super) const SPINS: u32 = 1;
    pub(super) const FIRST: u32 = 2;
    pub(super) const STEP: u32 = 1;

    /// The number itself: even and odd ones are in two chains, as long as there are only those.
    #[derive(Clone, Debug, Default)]
    pub(super) struct DefaultHashBuilder(());

    #[derive(Default)]
    pub(super) struct Number(u64);

    impl std::hash::BuildHasher for DefaultHashBuilder {
        type Hasher = Number;

        fn build_hasher(&self) -> Number {
            Number(0)
        }
    }

    impl std::hash::Hasher for Number {
        fn write(&mut self, bytes: &[u8]) {
            self.0 = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        }

        fn finish(&self) -> u64 {
            self.0 << 33
        }
    }
}

mod cell {
    pub(super) struct Cell<'a> {
        pub(super) block: &'a crate::mem::Block,
        pub(super) off: u32,
        #[expect(dead_code, reason = "no value of the model has a lock")]
        pub(super) lock: Option<u32>,
    }

    impl Cell<'_> {
        pub(super) fn load(&self, out: &mut [u8]) {
            self.block.load(self.off, out);
        }

        pub(super) fn init(&self, value: &[u8]) {
            self.store(value);
        }

        pub(super) fn store(&self, value: &[u8]) {
            self.block.store(self.off, value);
        }
    }
}

/// What a map is made of.
pub(crate) struct MapSpec {
    name: Arc<str>,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    spin_lock: Option<u32>,
}

impl MapSpec {
    fn program_writable(&self) -> bool {
        true
    }
}

/// How the values of a map are, and so how they are replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Values {
    /// Two words, under the lock of a bucket.
    Shared,
    /// Two words of each CPU. All threads are on the first.
    PerCpu,
    /// A word.
    OnePiece,
}

/// A hash map of numbers.
pub(crate) struct Hash {
    store: Store,
    values: Values,
}

/// A number as a key of two words, of which the first decides on the chain.
fn key(number: u32) -> [u8; 8] {
    (u64::from(!number) << 32 | u64::from(number)).to_ne_bytes()
}

impl Hash {
    pub(crate) fn new(max_entries: u32, values: Values) -> Hash {
        let (cpus, value_size) = (if values == Values::PerCpu { 2 } else { 1 }, Self::size(values) as u32);
        let spec = MapSpec { name: "model".into(), key_size: 8, value_size, max_entries, spin_lock: None };
        let store = Store::new(&spec, &Arc::new(Arena), cpus, Extra { replaces: true, ..Extra::default() });
        Hash { store: store.expect("the model has memory"), values }
    }

    fn size(values: Values) -> usize {
        if values == Values::OnePiece { 4 } else { 8 }
    }

    pub(crate) fn get(&self, key: u32) -> Option<u64> {
        let mut value = [0; 8];
        self.store.load(&self::key(key), 0, &mut value[..Self::size(self.values)]).ok()?;
        Some(u64::from_le_bytes(value))
    }

    /// What remains of a value in this map.
    pub(crate) fn holds(&self, value: u64) -> u64 {
        if self.values == Values::OnePiece { u64::from(value as u32) } else { value }
    }

    /// As `Hash::update` of an element that is there, without its bucket: whether it was there.
    pub(crate) fn replace(&self, key: u32, value: u64) -> bool {
        let value = &value.to_le_bytes()[..Self::size(self.values)];
        self.values != Values::Shared && self.store.replace(&self::key(key), 0, value).is_some()
    }

    /// As `Hash::update` with these two flags.
    pub(crate) fn put(&self, key: u32, value: u64, only_new: bool) -> Result<(), Errno> {
        if !only_new && self.replace(key, value) {
            return Ok(());
        }
        let (key, value) = (self::key(key), &value.to_le_bytes()[..Self::size(self.values)]);
        let mut entry = self.store.entry(&key)?;
        match entry.slot() {
            Some(_) if only_new => Err(Errno::EEXIST),
            Some(slot) => {
                entry.change();
                self.store.store(slot, 0, value);
                Ok(())
            }
            None => {
                let slot = self.store.take_any()?;
                self.store.init(slot, 0, value);
                entry.insert(&key, slot, || ());
                Ok(())
            }
        }
    }

    pub(crate) fn delete(&self, key: u32) -> Result<(), Errno> {
        self.store.delete(&self::key(key))
    }

    /// A walk over all slots.
    pub(crate) fn walk(&self) -> Vec<u32> {
        let (mut found, mut numbers) = ([0; 8], Vec::new());
        for slot in 0..self.store.slots() {
            if self.store.key(slot, &mut found) {
                let number = u64::from_ne_bytes(found) as u32;
                assert_eq!(found, key(number), "words of one key");
                numbers.push(number);
            }
        }
        numbers
    }

    pub(crate) fn len(&self) -> u32 {
        self.store.len()
    }
}
