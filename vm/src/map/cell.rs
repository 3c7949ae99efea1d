//! One value in the arena, copied as the kernel's `copy_map_value` does: a spin lock inside is no data.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::Errno;
use crate::mem::Block;

/// How long `BPF_F_LOCK` waits for a lock that some program never gives back.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_BYTES: usize = 4;

/// Where a value is.
pub(super) struct Cell<'a> {
    pub(super) block: &'a Block,
    pub(super) off: u32,
    /// Offset of the spin lock in the value.
    pub(super) lock: Option<u32>,
}

impl Cell<'_> {
    /// Copies out; the lock reads as zero.
    pub(super) fn load(&self, out: &mut [u8]) {
        self.block.load(self.off, out);
        let at = self.lock.map_or(usize::MAX, |at| at as usize);
        if let Some(lock) = at.checked_add(LOCK_BYTES).and_then(|end| out.get_mut(at..end)) {
            lock.fill(0);
        }
    }

    /// Copies in, around the lock.
    #[inline]
    pub(super) fn store(&self, value: &[u8]) {
        let split = self.lock.map(|at| at as usize).filter(|at| at + LOCK_BYTES <= value.len());
        match split {
            None => self.block.store(self.off, value),
            Some(at) => {
                self.block.store(self.off, &value[..at]);
                let rest = at + LOCK_BYTES;
                self.block.store(self.off + rest as u32, &value[rest..]);
            }
        }
    }

    /// A new element: like `store`, with the lock open.
    pub(super) fn init(&self, value: &[u8]) {
        self.store(value);
        if let Some(at) = self.lock.filter(|at| *at as usize + LOCK_BYTES <= value.len()) {
            self.block.fill(self.off + at, LOCK_BYTES, 0);
        }
    }

    /// `store` while holding the lock (0 is open, 1 is taken, as `bpf_spin_lock` does it), if it is open: whether it was.
    /// `change` comes before the first byte is written. `EINVAL` if the value has no lock.
    pub(super) fn try_store_locked(&self, value: &[u8], change: impl FnOnce()) -> Result<bool, Errno> {
        let at = self.lock.filter(|at| at.is_multiple_of(4) && *at as usize + LOCK_BYTES <= value.len());
        let lock: &AtomicU32 = self.block.atomic(self.off + at.ok_or(Errno::EINVAL)?);
        if lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Ok(false);
        }
        change();
        self.store(value);
        lock.store(0, Ordering::Release);
        Ok(true)
    }

    /// The same once the lock is open.
    pub(super) fn store_locked(&self, value: &[u8]) -> Result<(), Errno> {
        patiently(|| self.try_store_locked(value, || ()))
    }
}

/// Tries what needs a spin lock of a value. `EBUSY` if it stays taken for a second, where the kernel would hang.
pub(super) fn patiently(mut attempt: impl FnMut() -> Result<bool, Errno>) -> Result<(), Errno> {
    let mut start = None;
    while !attempt()? {
        if start.get_or_insert_with(Instant::now).elapsed() > LOCK_PATIENCE {
            return Err(Errno::EBUSY);
        }
        std::thread::yield_now();
    }
    Ok(())
}
