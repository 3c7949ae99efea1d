//! The slots of a set of hooks: who may use an instance, without waiting.
//!
//! A slot belongs to the first thread that takes it, which marks it by plain stores. When another thread needs a slot and
//! none is free, one that belongs to a thread becomes shared for good: its owner is taken away, every thread passes a
//! memory barrier ([`twinbpf_hook::barrier`]), so that the thread that was the owner either is seen in the slot or sees that it
//! is no longer the owner; from then on the slot is taken by an atomic exchange.
#![expect(unsafe_code, reason = "an instance that one call at a time uses")]

use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use super::context::Context;
use crate::instance::Instance;

thread_local! {
    /// The slot that this thread had last. Its address is the thread's identity.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// No address of a thread: the slot is of none yet, of all, or about to be.
const NONE: usize = 0;
const SHARED: usize = 1;
const BECOMES_SHARED: usize = 2;

/// An instance with memory for its context.
struct Slot<T> {
    owner: AtomicUsize,
    /// The owner is in it. Only that thread writes here.
    in_use_by_owner: AtomicBool,
    /// Another thread is, once it is shared.
    taken: AtomicBool,
    inner: UnsafeCell<(Instance<T>, Context)>,
}

pub(super) struct Slots<T>(Box<[Slot<T>]>);

// SAFETY: `take` gives what is inside to one call at a time, and an instance may run on any thread.
unsafe impl<T: Send> Sync for Slots<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Slots<T> {}

/// A slot that is this call's until it is dropped.
pub(super) struct Taken<'a, T> {
    slot: &'a Slot<T>,
    mark: &'a AtomicBool,
}

impl<T> Taken<'_, T> {
    pub(super) fn get(&mut self) -> &mut (Instance<T>, Context) {
        // SAFETY: `take` gave it to this call alone.
        unsafe { &mut *self.slot.inner.get() }
    }

    /// Leaves it taken, for [`Slots::kept`].
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.mark.store(false, Ordering::Release);
    }
}

impl<T> Slots<T> {
    pub(super) fn new(instances: Vec<(Instance<T>, Context)>) -> Slots<T> {
        let slot = |inner| Slot {
            owner: AtomicUsize::new(NONE),
            in_use_by_owner: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            inner: UnsafeCell::new(inner),
        };
        Slots(instances.into_iter().map(slot).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A slot for this call alone: the one that the thread had last, or another that is free.
    #[inline]
    pub(super) fn take(&self) -> Option<Taken<'_, T>> {
        LAST.with(|last| {
            let thread = ptr::from_ref(last).addr();
            self.0.get(last.get()).and_then(|slot| slot.take_own(thread)).or_else(|| self.take_other(last, thread))
        })
    }

    /// The slot that the thread had last, where it is its own and free.
    #[inline(always)]
    pub(super) fn take_last(&self) -> Option<Taken<'_, T>> {
        LAST.with(|last| self.0.get(last.get())?.take_own(ptr::from_ref(last).addr()))
    }

    /// The slot that [`Slots::take_last`] gave this thread.
    ///
    /// # Safety
    ///
    /// It was kept ([`Taken::keep`]), and the thread has taken none since.
    pub(super) unsafe fn kept(&self) -> Option<Taken<'_, T>> {
        let slot = self.0.get(LAST.get())?;
        Some(Taken { slot, mark: &slot.in_use_by_owner })
    }

    #[cold]
    fn take_other(&self, last: &Cell<usize>, thread: usize) -> Option<Taken<'_, T>> {
        let find = |take: fn(&Slot<T>, usize) -> Option<Taken<'_, T>>| {
            self.0.iter().enumerate().find_map(|(index, slot)| {
                let taken = take(slot, thread)?;
                last.set(index);
                Some(taken)
            })
        };
        find(Slot::own)
            .or_else(|| find(|slot, _| slot.take_shared()))
            .or_else(|| find(|slot, _| slot.take_from_owner()))
    }
}

impl<T> Slot<T> {
    /// For its owner, unless a signal handler interrupts a call that has it.
    #[inline(always)]
    fn take_own(&self, thread: usize) -> Option<Taken<'_, T>> {
        let is_own = || self.owner.load(Ordering::Relaxed) == thread;
        if !is_own() || self.in_use_by_owner.load(Ordering::Relaxed) {
            return None;
        }
        self.in_use_by_owner.store(true, Ordering::Relaxed);
        // The barrier between the store and the load is on the side of the thread that takes the slot away.
        compiler_fence(Ordering::SeqCst);
        let taken = Taken { slot: self, mark: &self.in_use_by_owner };
        is_own().then_some(taken)
    }

    /// For a thread that becomes the owner where there is none yet, or is it.
    fn own(&self, thread: usize) -> Option<Taken<'_, T>> {
        let _ = self.owner.compare_exchange(NONE, thread, Ordering::AcqRel, Ordering::Relaxed);
        self.take_own(thread)
    }

    fn take_shared(&self) -> Option<Taken<'_, T>> {
        if self.owner.load(Ordering::Acquire) != SHARED
            || self.taken.load(Ordering::Relaxed)
            || self.taken.swap(true, Ordering::Acquire)
        {
            return None;
        }
        let taken = Taken { slot: self, mark: &self.taken };
        (!self.in_use_by_owner.load(Ordering::Acquire)).then_some(taken)
    }

    /// Makes a slot of another thread shared, for a call that takes it where that thread is not in it.
    fn take_from_owner(&self) -> Option<Taken<'_, T>> {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner <= BECOMES_SHARED
            || self.owner.compare_exchange(owner, BECOMES_SHARED, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return None;
        }
        twinbpf_hook::barrier();
        self.owner.store(SHARED, Ordering::Release);
        self.take_shared()
    }
}
