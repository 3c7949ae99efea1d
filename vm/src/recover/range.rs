//! Which addresses are generated code. Read by signal handlers, so without locks; written under one.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

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
/// Held by who writes.
static WRITER: Mutex<()> = Mutex::new(());

impl Piece {
    const fn new() -> Piece {
        let slots =
            [const { Slot { version: AtomicU64::new(0), start: AtomicU64::new(0), len: AtomicU64::new(0) } }; PIECE];
        Piece { slots, next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Piece> {
        // SAFETY: null, or a piece that `CodeRange::new` has leaked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(Some(&FIRST), |piece| piece.next()).flat_map(|piece| &piece.slots)
}

impl Slot {
    fn write(&self, start: u64, len: u64) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// A slot that changes meanwhile does not hold code that anybody runs.
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
    /// small ones: a handler looks through all.
    pub fn new(start: u64, len: u64) -> CodeRange {
        let _writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots().find(|slot| slot.len.load(Ordering::Relaxed) == 0).unwrap_or_else(|| {
            let piece: &'static Piece = Box::leak(Box::new(Piece::new()));
            let last = std::iter::successors(Some(&FIRST), |piece| piece.next()).last().expect("there is a first");
            last.next.store(std::ptr::from_ref(piece).cast_mut(), Ordering::Release);
            &piece.slots[0]
        });
        slot.write(start, len);
        CodeRange { slot }
    }
}

impl Drop for CodeRange {
    fn drop(&mut self) {
        let _writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot.write(0, 0);
    }
}

/// Whether an address is generated code.
pub(super) fn is_code(pc: u64) -> bool {
    slots().any(|slot| slot.contains(pc))
}
