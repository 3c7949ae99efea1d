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
#[path = "../../src/map/seen_keys.rs"]
#[expect(dead_code, reason = "iteration is tested elsewhere")]
mod seen_keys;
#[path = "../../src/map/slab.rs"]
mod slab;
#[path = "../../src/map/spread.rs"]
mod spread;
#[path = "../../src/map/store.rs"]
#[expect(dead_code, reason = "iteration and values of other CPUs are tested elsewhere")]
mod store;

use std::sync::Arc;

pub(crate) use twinbpf_vm::map::{Entry, Errno};

use crate::mem::Arena;
use store::{Extra, Store};

/// Atomics of the model, and numbers that make tables small.
mod sync {
    pub(super) use crate::machine::yield_now as spin_loop;
    pub(super) use crate::machine::{AtomicU32, Ordering, fence, yield_now};

    pub(super) const TRIES: u32 = 2;
    pub(super) const SPINS: u32 = 1;
    pub(super) const FIRST: u32 = 2;

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

/// A hash map of numbers.
pub(crate) struct Hash(Store);

/// A number as a key of two words, of which the first decides on the chain.
fn key(number: u32) -> [u8; 8] {
    (u64::from(!number) << 32 | u64::from(number)).to_ne_bytes()
}

impl Hash {
    pub(crate) fn new(max_entries: u32) -> Hash {
        let spec = MapSpec { name: "model".into(), key_size: 8, value_size: 8, max_entries, spin_lock: None };
        Hash(Store::new(&spec, &Arc::new(Arena), 1, Extra::default()).expect("the model has memory"))
    }

    pub(crate) fn get(&self, key: u32) -> Option<u64> {
        let mut value = [0; 8];
        self.0.load(&self::key(key), 0, &mut value).ok()?;
        Some(u64::from_ne_bytes(value))
    }

    /// As `Hash::update` with these two flags.
    pub(crate) fn put(&self, key: u32, value: u64, only_new: bool) -> Result<(), Errno> {
        let (key, value) = (self::key(key), value.to_ne_bytes());
        let mut entry = self.0.entry(&key)?;
        match entry.slot() {
            Some(_) if only_new => Err(Errno::EEXIST),
            Some(slot) => {
                entry.change();
                let cell = self.0.value(slot, 0);
                cell.block.store(cell.off, &value);
                Ok(())
            }
            None => {
                let slot = self.0.take_any()?;
                entry.insert(&key, slot, || self.0.init(slot, 0, &value));
                Ok(())
            }
        }
    }

    pub(crate) fn delete(&self, key: u32) -> Result<(), Errno> {
        self.0.delete(&self::key(key))
    }

    /// A walk over all slots.
    pub(crate) fn walk(&self) -> Vec<u32> {
        let (mut found, mut numbers) = ([0; 8], Vec::new());
        for slot in 0..self.0.slots() {
            if self.0.key(slot, &mut found) {
                let number = u64::from_ne_bytes(found) as u32;
                assert_eq!(found, key(number), "words of one key");
                numbers.push(number);
            }
        }
        numbers
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.len()
    }
}
