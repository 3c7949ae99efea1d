//! Addresses for things that are not memory: functions and maps.
//!
//! A slot is an address in a range of its own outside the arena, so it can neither be read nor confused with
//! data, and checking one is a subtraction. Where programs are trusted, C code can call the address of a function.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock};

use super::fault::MemError;
use super::free::FreeList;
use super::sys::{Reservation, memory_file};

/// Bytes of jumps that are mapped at a time.
const CHUNK: u64 = 64 << 10;

/// A dense table of addresses.
#[derive(Debug)]
pub struct HandleTable {
    what: &'static str,
    reservation: Reservation,
    stride: u64,
    capacity: u32,
    free: Mutex<FreeList>,
    /// In a table of functions that C code can call: bytes of it that hold jumps, so far.
    jumps: Option<Mutex<u64>>,
}

/// Slots of one owner, given back on drop.
#[derive(Debug)]
pub struct HandleRange {
    table: Arc<HandleTable>,
    first: u32,
    count: u32,
}

impl HandleTable {
    /// A table of `capacity` slots that lie `stride` bytes apart. `what` names the slots in errors.
    pub fn new(what: &'static str, stride: u64, capacity: u32) -> Result<Arc<HandleTable>, MemError> {
        let bytes = stride as usize * capacity as usize;
        let (reservation, _) = Reservation::new(bytes, 1, 0)?;
        let free = Mutex::new(FreeList::new(0, u64::from(capacity)));
        Ok(Arc::new(HandleTable { what, reservation, stride, capacity, free, jumps: None }))
    }

    /// A table whose addresses C code can call: each slot that is taken holds a jump to
    /// [`call_back`](crate::recover::call_back).
    pub(super) fn callable(what: &'static str, stride: u64, capacity: u32) -> Result<Arc<HandleTable>, MemError> {
        assert_eq!(stride, JUMP as u64, "a jump fits");
        let mut table = HandleTable::new(what, stride, capacity)?;
        Arc::get_mut(&mut table).expect("the table is not shared yet").jumps = Some(Mutex::new(0));
        Ok(table)
    }

    /// Address of slot 0.
    pub fn base(&self) -> u64 {
        self.reservation.at(0) as u64
    }

    /// Bytes between slots.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The slot at this address, taken or not.
    pub fn slot(&self, addr: u64) -> Option<u32> {
        let off = addr.wrapping_sub(self.base());
        (off < self.stride * u64::from(self.capacity) && off.is_multiple_of(self.stride))
            .then(|| (off / self.stride) as u32)
    }

    /// Address of a slot.
    pub fn addr(&self, slot: u32) -> u64 {
        assert!(slot < self.capacity, "slot inside the table");
        self.base() + u64::from(slot) * self.stride
    }

    /// Takes `count` consecutive slots.
    pub fn reserve(self: &Arc<Self>, count: u32) -> Result<HandleRange, MemError> {
        let first = self.free.lock().expect("no panic while held").take(u64::from(count));
        let first = first.ok_or(MemError::Handles(self.what))? as u32;
        let range = HandleRange { table: Arc::clone(self), first, count };
        self.place_jumps(first + count)?;
        Ok(range)
    }

    /// Sees to it that all slots before `end` hold jumps.
    fn place_jumps(&self, end: u32) -> io::Result<()> {
        let Some(jumps) = &self.jumps else { return Ok(()) };
        let mut placed = jumps.lock().expect("no panic while held");
        while *placed < u64::from(end) * self.stride {
            self.reservation.place_code(*placed as usize, CHUNK as usize, jump_file()?)?;
            *placed += CHUNK;
        }
        Ok(())
    }
}

/// Bytes of a jump.
const JUMP: usize = 32;

/// A file of jumps, one like the other: `lea rax, [rip - 7]` gives a jump its own address.
fn jump_file() -> io::Result<&'static File> {
    static FILE: OnceLock<File> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file);
    }
    let mut jump = [0xcc; JUMP];
    jump[..9].copy_from_slice(&[0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0x49, 0xbb]);
    jump[9..17].copy_from_slice(&(crate::recover::call_back() as u64).to_le_bytes());
    jump[17..20].copy_from_slice(&[0x41, 0xff, 0xe3]);
    let mut file = memory_file(c"twinbpf-functions")?;
    file.write_all(&jump.repeat(CHUNK as usize / JUMP))?;
    Ok(FILE.get_or_init(|| file))
}

impl HandleRange {
    /// Address of the `index`th slot of this range.
    pub fn addr(&self, index: u32) -> u64 {
        assert!(index < self.count, "index inside the range");
        self.table.addr(self.first + index)
    }

    /// Which slot of this range an address is.
    pub fn index(&self, addr: u64) -> Option<u32> {
        let slot = self.table.slot(addr)?;
        (slot >= self.first && slot - self.first < self.count).then(|| slot - self.first)
    }

    /// Number of slots.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Drop for HandleRange {
    fn drop(&mut self) {
        if self.count > 0 {
            let mut free = self.table.free.lock().expect("no panic while held");
            free.give(u64::from(self.first), u64::from(self.count));
        }
    }
}
