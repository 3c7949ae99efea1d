//! Out-of-arena accesses of trusted programs: any address, by accesses whose faults are recovered.
//!
//! An operation of the interpreter works on a copy in the view itself: [`View::lend`] points the window of its base
//! register there, [`View::take_back`] writes the copy to where it came from.
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use std::sync::atomic::Ordering;

use super::checked_copy::Text;
use super::fault::{Access, Fault, FaultReason};
use super::view::View;
use crate::recover;
use twinbpf_isa::{Size, Width};

/// Bytes copied at a time before more memory is taken for them.
const CHUNK: u64 = 64 << 10;
const PAGE: u64 = 4096;

/// One access as the program made it, and what became of it.
fn fault(addr: u64, len: u64, access: Access) -> impl Fn(recover::Fault) -> Fault {
    move |fault| Fault { addr, len, access, reason: FaultReason::Signal(fault.signal) }
}

fn load(addr: u64, size: Size) -> Result<u64, recover::Fault> {
    // SAFETY: views of a trusted arena only come here; the maker of the arena lets its programs read any memory.
    unsafe { recover::load(addr, size) }
}

fn store(addr: u64, size: Size, value: u64) -> Result<(), recover::Fault> {
    // SAFETY: as in `load`; the maker of the arena lets its programs write any memory.
    unsafe { recover::store(addr, size, value) }
}

fn compare_exchange(addr: u64, width: Width, old: u64, new: u64) -> Result<u64, recover::Fault> {
    // SAFETY: as in `store`.
    unsafe { recover::compare_exchange(addr, width, old, new) }
}

/// The largest access at `addr` that is aligned and not longer than `len`.
fn piece(addr: u64, len: usize) -> Size {
    let fits = |bytes: usize| addr.is_multiple_of(bytes as u64) && len >= bytes;
    match (fits(8), fits(4), fits(2)) {
        (true, _, _) => Size::Dw,
        (false, true, _) => Size::W,
        (false, false, true) => Size::H,
        (false, false, false) => Size::B,
    }
}

impl View {
    /// Whether a trusted program may make an access that the arena refuses.
    pub fn is_out_of_arena(&self, fault: &Fault) -> bool {
        self.is_trusted()
            && match &fault.reason {
                FaultReason::Null | FaultReason::ReadOnly(_) | FaultReason::Signal(_) => false,
                FaultReason::Foreign(_)
                | FaultReason::NoRegion(_)
                | FaultReason::Overflow { .. }
                | FaultReason::DeadFrame
                | FaultReason::Closed(_) => true,
            }
    }

    /// Makes the next access through `reg` one to a copy of `size` bytes at `addr`. `old`: the operation reads them,
    /// though it is a store.
    ///
    /// # Errors
    /// They cannot be read.
    ///
    /// # Panics
    /// If the view is not trusted.
    pub(crate) fn lend(&mut self, reg: usize, addr: u64, size: Size, access: Access, old: bool) -> Result<u64, Fault> {
        assert!(self.is_trusted(), "only a trusted view leaves the arena");
        let value = match access == Access::Read || old {
            true => load(addr, size).map_err(fault(addr, size.bytes() as u64, access))?,
            false => 0,
        };
        self.copy_cell().store(value, Ordering::Relaxed);
        self.point_at_copy(reg, addr, size, access);
        Ok(value)
    }

    /// After [`View::lend`] and one operation: writes what it has stored. With `old`, only if that is still there;
    /// false if it is not.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn take_back(
        &mut self,
        reg: usize,
        addr: u64,
        size: Size,
        access: Access,
        old: Option<u64>,
    ) -> Result<bool, Fault> {
        assert!(self.is_trusted(), "only a trusted view leaves the arena");
        self.point_at_nothing(reg, access);
        let new = self.copy_cell().load(Ordering::Relaxed);
        let width = match size {
            Size::B | Size::H => None,
            Size::W => Some((Width::W32, new & 0xffff_ffff)),
            Size::Dw => Some((Width::W64, new)),
        };
        let result = match (access, old, width) {
            (Access::Read, _, _) => Ok(true),
            (Access::Write, Some(old), Some((width, new))) => {
                compare_exchange(addr, width, old, new).map(|found| found == old)
            }
            (Access::Write, _, _) => store(addr, size, new).map(|()| true),
        };
        result.map_err(fault(addr, size.bytes() as u64, access))
    }

    /// Copies from any address.
    pub(super) fn read_out_of_arena(&self, addr: u64, out: &mut [u8]) -> Result<(), Fault> {
        let (mut at, mut left) = (addr, &mut *out);
        while !left.is_empty() {
            let size = piece(at, left.len());
            let value = load(at, size).map_err(fault(at, size.bytes() as u64, Access::Read))?;
            let (part, rest) = left.split_at_mut(size.bytes());
            part.copy_from_slice(&value.to_le_bytes()[..size.bytes()]);
            (at, left) = (at.wrapping_add(size.bytes() as u64), rest);
        }
        Ok(())
    }

    /// Copies to any address.
    pub(super) fn write_out_of_arena(&self, addr: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (mut at, mut left) = (addr, bytes);
        while !left.is_empty() {
            let size = piece(at, left.len());
            let (part, rest) = left.split_at(size.bytes());
            let mut value = [0; 8];
            value[..part.len()].copy_from_slice(part);
            let stored = store(at, size, u64::from_le_bytes(value));
            stored.map_err(fault(at, size.bytes() as u64, Access::Write))?;
            (at, left) = (at.wrapping_add(size.bytes() as u64), rest);
        }
        Ok(())
    }

    /// Sets bytes at any address.
    pub(super) fn fill_out_of_arena(&self, addr: u64, len: u64, byte: u8) -> Result<(), Fault> {
        let chunk = [byte; 4096];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(chunk.len() as u64);
            self.write_out_of_arena(addr.wrapping_add(done), &chunk[..step as usize])?;
            done += step;
        }
        Ok(())
    }

    /// Bytes at any address. Memory is taken as they are found to be there.
    pub(super) fn bytes_out_of_arena(&self, addr: u64, len: u64) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            let done = bytes.len();
            bytes.resize(done + CHUNK.min(len - done as u64) as usize, 0);
            self.read_out_of_arena(addr.wrapping_add(done as u64), &mut bytes[done..])?;
        }
        Ok(bytes)
    }

    /// A C string at any address.
    pub(super) fn c_str_out_of_arena(&self, addr: u64, max: u64) -> Result<Text, Fault> {
        let mut bytes = Text::new();
        while (bytes.len() as u64) < max {
            let at = addr.wrapping_add(bytes.len() as u64);
            let byte = load(at, Size::B).map_err(fault(at, 1, Access::Read))? as u8;
            if byte == 0 {
                break;
            }
            bytes.push(byte);
        }
        Ok(bytes)
    }

    /// Whether bytes at any address can be accessed, by a probe of each page. Writing is tried with what
    /// is there.
    pub(super) fn check_out_of_arena(&self, addr: u64, len: u64, access: Access) -> Result<(), Fault> {
        let fault = fault(addr, len, access);
        let mut done = 0;
        while done < len {
            let at = addr.wrapping_add(done);
            match access {
                Access::Read => {
                    load(at, Size::B).map_err(&fault)?;
                }
                Access::Write => {
                    let cell = at & !7;
                    let old = load(cell, Size::Dw).map_err(&fault)?;
                    compare_exchange(cell, Width::W64, old, old).map_err(&fault)?;
                }
            }
            let step = PAGE - at % PAGE;
            done = done.saturating_add(step);
        }
        Ok(())
    }
}
