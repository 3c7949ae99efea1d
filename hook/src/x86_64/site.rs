//! The data of a hooked function that trampolines read.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::{Entry, FastPath};

/// What the callbacks of a list need from the trampoline that runs it.
pub(super) struct Needs;

impl Needs {
    /// Vector registers are saved.
    pub(super) const VECTORS: u32 = 1;
    /// The return address is replaced.
    pub(super) const RETURN: u32 = 2;
    /// With them those of AVX-512.
    pub(super) const WIDE: u32 = 4;
    /// With them mxcsr, which takes longer than all of them.
    pub(super) const FLOATS: u32 = 8;
    /// The first callback has a fast path.
    pub(super) const FAST_PATH: u32 = 16;
}

/// A callback with its data, or the end of a list.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) entry: Option<Entry>,
    pub(super) data: *mut c_void,
    pub(super) fast_path: Option<FastPath>,
}

/// What a list begins with. Its links follow, the last one empty.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) needs: u64,
    reserved: [u64; 2],
}

/// A list of callbacks: never changed, replaced as a whole, and released when no thread can read it any more.
pub(super) struct List(Box<[Link]>);

// SAFETY: links have data that callbacks can use on every thread.
#[expect(unsafe_code, reason = "pointers that callers of `Callback::new` promise something about")]
unsafe impl Send for List {}
// SAFETY: as above, and a list never changes.
#[expect(unsafe_code, reason = "as above")]
unsafe impl Sync for List {}

impl List {
    pub(super) fn new(needs: u32, links: &[Link]) -> List {
        // The head has the size of a link.
        const { assert!(size_of::<Head>() == size_of::<Link>()) };
        let head = Link { entry: None, data: std::ptr::without_provenance_mut(0), fast_path: None };
        let mut all = vec![head];
        all.extend_from_slice(links);
        all.push(head);
        let mut list = List(all.into_boxed_slice());
        let first: *mut Link = list.0.as_mut_ptr();
        list.set_head(first.cast(), needs);
        list
    }

    #[expect(unsafe_code, reason = "the head lies in the place of the first link")]
    fn set_head(&mut self, first: *mut Head, needs: u32) {
        // SAFETY: it is the first of the box, of the same size and alignment.
        unsafe { first.write(Head { needs: u64::from(needs), reserved: [0; 2] }) };
    }

    /// What trampolines read.
    pub(super) fn head(&self) -> *mut Head {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// The data of one hooked function, beside its stub and never released. Trampolines know its layout.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Site {
    /// What the stub calls: one of four trampolines, or a direct one.
    pub(super) target: AtomicPtr<c_void>,
    /// Where the stub jumps to then: `body`, or what finds that in a call whose return is pending.
    pub(super) resume: AtomicPtr<c_void>,
    /// The first instructions of the function at their other place, the function past its pad, or what replaces it.
    pub(super) body: AtomicPtr<c_void>,
    /// The function's address.
    pub(super) address: AtomicU64,
    /// A direct trampoline that runs after the callbacks, or null.
    pub(super) direct: AtomicPtr<c_void>,
    /// The callbacks at entry, for trampolines with arguments those that these can serve, then for those with registers.
    /// Never null once the stub is reachable.
    pub(super) lists: [AtomicPtr<Head>; 2],
    /// The callbacks at return.
    pub(super) returns: AtomicPtr<Head>,
    /// A [`Summary`](super::summary::Summary), for other processes.
    pub(super) summary: AtomicU64,
    /// The first callback, for them too.
    pub(super) callback: AtomicU64,
    /// Calls that ran no callback, as their thread was in one.
    pub(super) skipped: AtomicU64,
    /// Returns without callbacks, as no pending return was free.
    pub(super) lost_returns: AtomicU64,
}

impl Site {
    /// Calls and returns that ran no callback.
    pub(super) fn lost(&self) -> (u64, u64) {
        (self.skipped.load(Ordering::Relaxed), self.lost_returns.load(Ordering::Relaxed))
    }
}
