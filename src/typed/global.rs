//! A global variable of a program.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use twinbpf_loader::Variable;
use twinbpf_vm::map::{Errno, MapOps};
use twinbpf_vm::mem::{AtomicCell, Block};

use super::BtfType;

/// A global variable that all instances of an [`InstancePre`](crate::InstancePre) share: see
/// [`InstancePre::global`](crate::InstancePre::global). It can be used from every thread while programs run.
///
/// ```
/// # use twinbpf::{Config, Engine, Global, Linker, Object};
/// # let object = Object::open("poll.bpf.o", include_bytes!("../../corpus/embed/poll.bpf.o"))?;
/// # let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
/// let flag: Global<u64> = pre.global("flag")?;
/// let other = flag.clone();
/// std::thread::spawn(move || other.set(&7)).join().expect("no panic")?;
/// assert_eq!(flag.get(), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Global<V> {
    map: Arc<dyn MapOps>,
    name: Arc<str>,
    off: u32,
    types: PhantomData<fn() -> V>,
}

impl<V: BtfType> Global<V> {
    /// `None` if the map's memory does not have it.
    pub(super) fn new(variable: &Variable, map: &Arc<dyn MapOps>) -> Option<Global<V>> {
        let start = map.spec().data.as_ref().map_or(0, |data| data.start);
        let off = start.checked_add(variable.off)?;
        let fits = off.checked_add(variable.size)? <= map.memory()?.len();
        let name = Arc::clone(&variable.name);
        fits.then(|| Global { map: Arc::clone(map), name, off, types: PhantomData })
    }

    /// Name of the variable.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value now. One of 1, 2, 4 or 8 bytes is read at once if it is aligned, as C aligns variables; where a program
    /// writes a larger one meanwhile, part of it may be old.
    pub fn get(&self) -> V {
        let mut value = V::new_zeroed();
        match (self.cell(), value.as_mut_bytes()) {
            (Some(cell), bytes) => bytes.copy_from_slice(&cell.acquire().to_le_bytes()[..size_of::<V>()]),
            (None, bytes) => self.block().read(self.off, bytes),
        }
        value
    }

    /// Changes it, at once as [`Global::get`] reads it.
    ///
    /// # Errors
    /// `EPERM` if it is `const`: native code may have its value already. Set it before linking, with
    /// [`Object::set_variable`](crate::Object::set_variable).
    pub fn set(&self, value: &V) -> Result<(), Errno> {
        if !self.map.spec().program_writable() {
            return Err(Errno::EPERM);
        }
        match self.cell() {
            Some(cell) => {
                let mut bytes = [0; 8];
                bytes[..size_of::<V>()].copy_from_slice(value.as_bytes());
                cell.release(u64::from_le_bytes(bytes));
            }
            None => self.block().write(self.off, value.as_bytes()),
        }
        Ok(())
    }

    fn block(&self) -> &Block {
        self.map.memory().expect("checked when it was made")
    }

    /// The variable as an atomic cell, if it can be one.
    fn cell(&self) -> Option<Cell<'_>> {
        let (block, off) = (self.block(), self.off);
        if !(block.addr() + u64::from(off)).is_multiple_of(size_of::<V>().max(1) as u64) {
            return None;
        }
        match size_of::<V>() {
            1 => Some(Cell::Byte(block.atomic(off))),
            2 => Some(Cell::Half(block.atomic(off))),
            4 => Some(Cell::Word(block.atomic(off))),
            8 => Some(Cell::Double(block.atomic(off))),
            _ => None,
        }
    }
}

enum Cell<'a> {
    Byte(&'a AtomicU8),
    Half(&'a AtomicU16),
    Word(&'a AtomicU32),
    Double(&'a AtomicU64),
}

impl Cell<'_> {
    fn acquire(&self) -> u64 {
        match self {
            Cell::Byte(cell) => cell.acquire(),
            Cell::Half(cell) => cell.acquire(),
            Cell::Word(cell) => cell.acquire(),
            Cell::Double(cell) => cell.acquire(),
        }
    }

    fn release(&self, value: u64) {
        match self {
            Cell::Byte(cell) => cell.release(value),
            Cell::Half(cell) => cell.release(value),
            Cell::Word(cell) => cell.release(value),
            Cell::Double(cell) => cell.release(value),
        }
    }
}

impl<V> Clone for Global<V> {
    fn clone(&self) -> Global<V> {
        let (map, name) = (Arc::clone(&self.map), Arc::clone(&self.name));
        Global { map, name, off: self.off, types: PhantomData }
    }
}

impl<V> fmt::Debug for Global<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Global").field(&self.name).finish()
    }
}
