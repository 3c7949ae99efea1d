//! Pending returns: a function whose return is hooked returns to a stub of its own.
//!
//! A region has stubs and as many records. The stub that a function returns to names its record, so that order plays no
//! part: coroutines, threads that take over a stack, tail calls and deep recursion find their original return address all
//! the same. Unwinders find it by the unwind information of all regions, from the address of the stub.
//!
//! ```text
//! lea  rsp, [rsp + 8]     in place of the return address
//! call [rsp - 40]         the function's body
//! push [stub + 24]        the address of this instruction
//! jmp  [region]           twinbpf_hook_return
//! ```
//!
//! Processors predict where `ret` leads by the calls before. So the stub calls the body: its `ret` leads to the stub, and that
//! of `twinbpf_hook_return` to the function's caller, as predicted. The trampoline has left two addresses below the
//! function's return address, in the red zone: that of the stub, to which `twinbpf_hook_resume` jumps, and that of the body. The
//! return address is the stub's also where a direct trampoline has overwritten these, and the body is entered by a jump.
//!
//! What `longjmp` or an exception left stays pending: [`refill`] frees it once its
//! place on the stack has another value.
//!
//! Nothing here takes memory from the C library: a callback may run in `malloc`.
#![expect(unsafe_code, reason = "executable memory, and records that trampolines link")]

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::breakpoints::INT3;
use super::layout::{Pending, RECORDS, REGION, RETURN, RETURNED, Thread};
use super::lock::Lock;
use super::site::Site;
use super::{entry_points, sys, threads, unwind};

/// Stubs of a region begin with this one, after the address that they jump to.
const FIRST: u64 = 1;
const STUBS: u64 = 2047;
/// Most regions: 524,032 pending returns.
const REGIONS: u64 = 256;
/// Free records that a thread takes at once: few, for many threads; enough for what is pending in most at a time.
const BATCH: u64 = 128;
/// In a record's link while it is pending: its frame is still there.
const ALIVE: usize = 4;
/// In place of a link: the return was made without freeing.
const LEFT: usize = 1;

/// The addresses reserved for regions; 0 before [`prepare`].
static BASE: AtomicU64 = AtomicU64::new(0);
/// Regions in use.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Regions when records were last searched for those that are pending no more.
static SEARCHED: AtomicU64 = AtomicU64::new(0);
/// Free records that no thread has: a list, changed under the lock.
static FREE: AtomicUsize = AtomicUsize::new(0);
static LOCK: Lock = Lock::new();

/// Reserves addresses and registers their unwind information, before the first function is hooked at its return. The
/// registry is locked.
pub(super) fn prepare() -> io::Result<()> {
    if BASE.load(Ordering::Acquire) != 0 {
        return Ok(());
    }
    let start = sys::reserve((REGIONS + 1) * REGION)?;
    let base = start.next_multiple_of(REGION);
    unwind::register(unwind::of_returns(base, REGIONS * REGION));
    BASE.store(base, Ordering::Release);
    Ok(())
}

/// Pending returns for `thread`: the first is returned and the others are its free ones. Null, and counted, where there are
/// none. Runs in a callback's place, whatever other locks threads hold.
pub(super) extern "C" fn refill(thread: &Thread, site: &Site) -> *const Pending {
    let free = LOCK.take().map_or(0, |_guard| {
        let count = COUNT.load(Ordering::Relaxed);
        let is_time = count >= 2 * SEARCHED.load(Ordering::Relaxed).max(1) || count == REGIONS;
        if FREE.load(Ordering::Relaxed) == 0 && is_time {
            SEARCHED.store(count, Ordering::Relaxed);
            FREE.store(reclaim(thread), Ordering::Relaxed);
        }
        if FREE.load(Ordering::Relaxed) == 0 {
            FREE.store(grow(), Ordering::Relaxed);
        }
        take()
    });
    if free == 0 {
        site.lost_returns.fetch_add(1, Ordering::Relaxed);
    }
    thread.free.store(ptr::with_exposed_provenance_mut(free), Ordering::Relaxed);
    ptr::with_exposed_provenance(free)
}

/// In the child of `fork`, without the thread that was in [`refill`]: what it had in its hands is lost, some 100 records or a
/// region, and the rest is as it was.
pub(super) fn in_child() {
    if LOCK.free_in_child() {
        FREE.store(0, Ordering::Relaxed);
    }
}

/// The record of the stub of a region in use that a return address leads to.
fn record_of(returned: u64) -> Option<&'static Pending> {
    let base = BASE.load(Ordering::Acquire);
    let stub = returned.checked_sub(base + RETURNED)?;
    let used = stub < COUNT.load(Ordering::Acquire) * REGION && stub.is_multiple_of(RETURN);
    if !used || !(FIRST..FIRST + STUBS).contains(&(stub % REGION / RETURN)) {
        return None;
    }
    let record: *const Pending = ptr::with_exposed_provenance((base + stub + RECORDS) as usize);
    // SAFETY: regions in use stay, and any bytes are a record.
    Some(unsafe { &*record })
}

/// Where functions return to in the stubs of a region, with their records.
fn stubs(region: u64) -> impl Iterator<Item = (u64, &'static Pending)> {
    let base = BASE.load(Ordering::Acquire) + region * REGION;
    let returned = (FIRST..FIRST + STUBS).map(move |index| base + index * RETURN + RETURNED);
    returned.filter_map(|returned| Some((returned, record_of(returned)?)))
}

/// Puts a record before `next` in a list of free ones.
fn link(record: &Pending, next: usize) -> usize {
    record.place.store(0, Ordering::Relaxed);
    record.link.store(next, Ordering::Relaxed);
    ptr::from_ref(record).expose_provenance()
}

/// [`BATCH`] free records, or fewer, or 0.
fn take() -> usize {
    let first = FREE.load(Ordering::Relaxed);
    let mut last = first;
    for _ in 1..BATCH {
        match at(last).map(|record| record.link.load(Ordering::Relaxed)) {
            Some(next) if next != 0 => last = next,
            _ => break,
        }
    }
    if let Some(last) = at(last) {
        FREE.store(last.link.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
    first
}

/// The record at an address of a list.
fn at(address: usize) -> Option<&'static Pending> {
    // SAFETY: lists have records of regions, which stay, and 0.
    unsafe { ptr::with_exposed_provenance::<Pending>(address).as_ref() }
}

/// A new region's records, linked; 0 where there is none.
fn grow() -> usize {
    let count = COUNT.load(Ordering::Relaxed);
    let base = BASE.load(Ordering::Acquire);
    if count == REGIONS || base == 0 || !map(base + count * REGION) {
        return 0;
    }
    COUNT.store(count + 1, Ordering::Release);
    stubs(count).fold(0, |next, (_, record)| link(record, next))
}

/// Makes a region of reserved addresses: stubs, and room for records.
fn map(base: u64) -> bool {
    const { assert!(size_of::<Pending>() as u64 == RETURN && (FIRST + STUBS) * RETURN == REGION - RECORDS) };
    if sys::protect(base, REGION, libc::PROT_READ | libc::PROT_WRITE).is_err() {
        return false;
    }
    let to_trampoline = (entry_points::twinbpf_hook_return as *const () as u64).to_le_bytes();
    let write = |offset: u64, code: &[u8]| {
        let at: *mut u8 = ptr::with_exposed_provenance_mut((base + offset) as usize);
        // SAFETY: the region is ours, writable, and longer.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), at, code.len()) };
    };
    write(0, &to_trampoline);
    let end = (FIRST + STUBS) * RETURN;
    (FIRST * RETURN..end).step_by(RETURN as usize).for_each(|offset| write(offset, &stub(base, offset)));
    sys::protect(base, end, libc::PROT_READ | libc::PROT_EXEC).is_ok()
}

/// The stub at an offset of a region.
fn stub(base: u64, offset: u64) -> [u8; RETURN as usize] {
    const CALL: [u8; RETURNED as usize] = [0x48, 0x8d, 0x64, 0x24, 8, 0xff, 0x54, 0x24, 0xd8];
    const PUSH: [u8; 6] = [0xff, 0x35, 9, 0, 0, 0];
    let mut code = [INT3; RETURN as usize];
    let (jump, own) = (CALL.len() + PUSH.len(), code.len() - 8);
    code[..CALL.len()].copy_from_slice(&CALL);
    code[CALL.len()..jump].copy_from_slice(&PUSH);
    code[jump..jump + 2].copy_from_slice(&[0xff, 0x25]);
    let to_region = -(offset as i32 + jump as i32 + 6);
    code[jump + 2..jump + 6].copy_from_slice(&to_region.to_le_bytes());
    code[own..].copy_from_slice(&(base + offset + RETURNED).to_le_bytes());
    code
}

/// Whether the frame of a pending return is still there: its return address is that in the stub.
fn is_on_stack(returned: u64, place: u64) -> bool {
    let mut bytes = [0; 8];
    sys::read(place, &mut bytes) && returned == u64::from_le_bytes(bytes)
}

/// Frees the records of this thread, and of those that have ended, whose frames are gone: a list, or 0.
///
/// Those of others are theirs: they may be about to put a stub on the stack. One that another thread frees
/// meanwhile, as it runs the stack on which it is, has no place any more before its stub is overwritten.
fn reclaim(thread: &Thread) -> usize {
    let own = ptr::from_ref(thread).addr();
    let mut free = threads::take_from_ended(join);
    // The last other owner, and whether it has ended.
    let known = Cell::new((0, false));
    let has_ended = |owner: usize| {
        if known.get().0 != owner {
            known.set((owner, threads::has_ended(owner)));
        }
        known.get().1
    };
    let all = || (0..COUNT.load(Ordering::Relaxed)).flat_map(stubs);
    let mine = |record: &Pending| {
        let owner = record.link.load(Ordering::Acquire);
        let is_pending = record.place.load(Ordering::Acquire) != 0 && owner > LEFT && owner & ALIVE == 0;
        is_pending && (owner == own || has_ended(owner))
    };
    for (returned, record) in all().filter(|(_, record)| mine(record)) {
        if !is_on_stack(returned, record.place.load(Ordering::Acquire)) {
            continue;
        }
        // A function that ended in a call of another has its stub as the original of that one's.
        let mut next = Some(record);
        while let Some(record) = next.filter(|record| mine(record)) {
            record.link.fetch_or(ALIVE, Ordering::Relaxed);
            next = record_of(record.original.load(Ordering::Relaxed));
        }
    }
    for (_, record) in all() {
        let is = record.link.load(Ordering::Acquire);
        if is & ALIVE != 0 {
            record.link.store(is & !ALIVE, Ordering::Relaxed);
        } else if is == LEFT || mine(record) {
            free = link(record, free);
        }
    }
    free
}

/// One list after another.
fn join(first: usize, rest: usize) -> usize {
    let mut last = first;
    while let Some(next) = at(last).map(|record| record.link.load(Ordering::Relaxed)).filter(|next| *next != 0) {
        last = next;
    }
    match at(last) {
        Some(last) => {
            last.link.store(rest, Ordering::Relaxed);
            first
        }
        None => rest,
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc;

    use super::super::{fork, threads};
    use super::{FREE, LOCK, Pending, at, grow, join, prepare, reclaim, take};

    /// The records of a list.
    fn records(first: usize) -> Vec<&'static Pending> {
        std::iter::successors(at(first), |record| at(record.link.load(Ordering::Relaxed))).collect()
    }

    /// A search finds what `longjmp` left, wherever records of other threads lie.
    #[test]
    fn records_are_free_again_among_those_of_other_threads() {
        prepare().expect("addresses");
        let ((sender, other), (end, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.send(ptr::from_ref(threads::own()).addr()).expect("the test waits");
                let _ = wait.recv();
            });
            let (own, other) = (threads::own(), other.recv().expect("it has a record"));
            let _guard = LOCK.take().expect("it waits until it has it");
            if FREE.load(Ordering::Relaxed) == 0 {
                FREE.store(grow(), Ordering::Relaxed);
            }
            let mut pending = records(take());
            pending.sort_by_key(|record| ptr::from_ref(*record).addr());
            let no_stub = 0_u64;
            for (index, record) in pending.iter().enumerate() {
                let owner = if index == 0 { other } else { ptr::from_ref(own).addr() };
                record.place.store(ptr::from_ref(&no_stub).expose_provenance() as u64, Ordering::Relaxed);
                record.link.store(owner, Ordering::Relaxed);
            }
            let free = reclaim(own);
            let found = records(free);
            let is_free = pending.iter().map(|record| found.iter().any(|other| ptr::eq(*other, *record)));
            assert_eq!(is_free.filter(|is_free| *is_free).count(), pending.len() - 1);
            FREE.store(join(free, FREE.load(Ordering::Relaxed)), Ordering::Relaxed);
            drop(end);
        });
    }

    #[test]
    fn children_of_fork_find_the_lock_free() {
        fork::prepare().expect("handlers of fork");
        let guard = LOCK.take().expect("it is free");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the child ends without running what this process has registered.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let is_free = LOCK.take().is_some();
                    // SAFETY: as above.
                    unsafe { libc::_exit(i32::from(!is_free)) };
                }
                let mut status = 0;
                // SAFETY: the kernel writes the status.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            });
        });
        drop(guard);
    }
}
