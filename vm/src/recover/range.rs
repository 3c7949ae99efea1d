//! Which addresses are generated code. Read by signal handlers, so without locks; and written without, as a process may
//! be forked while another of its threads writes.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// Ranges of one piece of the registry; pieces are never freed, so that a handler can always read them.
const PIECE: usize = 64;

/// One range, or none if `len` is 0. `version` is odd while it is being written.
struct Slot {
    version: AtomicU64,
    start: AtomicU64,
    len: AtomicU64,
}

struct Piece {
    slots: [Slot; PIECE],
    next: AtomicPtr<Piece>,
}

static FIRST: Piece = Piece::new();

impl Piece {
    const fn new() -> Piece {
        let slots =
            [const { Slot { version: AtomicU64::new(0), start: AtomicU64::new(0), len: AtomicU64::new(0) } }; PIECE];
        Piece { slots, next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Piece> {
        // SAFETY: null, or a piece that `CodeRange::new` has leaked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The next piece, which is made if there is none.
    fn append(&self) -> &'static Piece {
        let new = Box::into_raw(Box::new(Piece::new()));
        match self.next.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked, from here on.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: the new one was made above and never shared; the other one is leaked.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(Some(&FIRST), |piece| piece.next()).flat_map(|piece| &piece.slots)
}

impl Slot {
    /// Takes a slot that is free; false if it is not, or another thread takes it.
    fn claim(&self, start: u64, len: u64) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let free = version.is_multiple_of(2) && self.len.load(Ordering::Relaxed) == 0;
        // The version says that the slot is as it was when it was found free.
        let claimed =
            free && self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if claimed {
            self.write(version, start, len);
        }
        claimed
    }

    /// Writes a slot of which the version is odd since it was `version`.
    fn write(&self, version: u64, start: u64, len: u64) {
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// Frees a slot that the caller has claimed.
    fn release(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        self.write(version, 0, 0);
    }

    /// A slot that changes meanwhile does not hold code that is running.
    fn contains(&self, pc: u64) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        pc.wrapping_sub(start) < len && version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version
    }
}

/// Addresses of generated code, from when this is made until it is dropped.
#[derive(Debug)]
pub struct CodeRange {
    slot: &'static Slot,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}+{:#x}", self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed))
    }
}

impl CodeRange {
    /// Faults at `len` bytes from `start` are those of generated code. Few and large ranges are better than many
    /// small ones: a handler searches all.
    ///
    /// # Safety
    /// There is generated code there, or nothing that runs: a fault of an instruction in the range ends the call of
    /// generated code around it, and leaves all frames above that.
    pub unsafe fn new(start: u64, len: u64) -> CodeRange {
        let mut piece = &FIRST;
        loop {
            if let Some(slot) = piece.slots.iter().find(|slot| slot.claim(start, len)) {
                return CodeRange { slot };
            }
            piece = piece.next().unwrap_or_else(|| piece.append());
        }
    }
}

impl Drop for CodeRange {
    fn drop(&mut self) {
        self.slot.release();
    }
}

/// Whether an address is generated code.
pub(super) fn is_code(pc: u64) -> bool {
    slots().any(|slot| slot.contains(pc))
}
