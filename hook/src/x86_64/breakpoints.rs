//! The handler of breakpoints: those that functions are hooked by, and those in places that change.
#![expect(unsafe_code, reason = "a signal handler")]

use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The instruction `int3`.
pub(super) const INT3: u8 = 0xcc;

/// Breakpoint addresses with where to go on, sorted.
type Table = Vec<(u64, u64)>;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
/// How often the table changed. It does before a breakpoint of ours is stored, and after one has gone.
static CHANGES: AtomicUsize = AtomicUsize::new(0);
/// Handlers that may read the table.
static READERS: AtomicUsize = AtomicUsize::new(0);
/// What handled the signal before.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static INSTALL: Mutex<()> = Mutex::new(());

/// All breakpoints of ours, with where threads go on that come there.
#[derive(Default)]
struct Redirects {
    /// Of functions that are hooked by them.
    hooks: BTreeMap<u64, u64>,
    /// Of places that are being changed.
    changes: Table,
}

static REDIRECTS: Mutex<Redirects> = Mutex::new(Redirects { hooks: BTreeMap::new(), changes: Vec::new() });

fn redirects() -> MutexGuard<'static, Redirects> {
    REDIRECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Redirects {
    /// Gives the handler what there is now.
    fn publish(&self) {
        let mut table: Table = self.hooks.iter().map(|(address, to)| (*address, *to)).collect();
        table.extend_from_slice(&self.changes);
        table.sort_unstable();
        let before = TABLE.swap(Box::into_raw(Box::new(table)), Ordering::SeqCst);
        CHANGES.fetch_add(1, Ordering::SeqCst);
        while READERS.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        if !before.is_null() {
            // SAFETY: it came from here, and no handler reads it any more.
            drop(unsafe { Box::from_raw(before) });
        }
    }
}

/// No thread of the parent is in the handler here.
pub(super) fn in_child() {
    READERS.store(0, Ordering::SeqCst);
}

/// Breakpoints that stay until [`remove`].
pub(super) fn add(hooks: impl Iterator<Item = (u64, u64)>) -> io::Result<()> {
    install()?;
    let mut redirects = redirects();
    redirects.hooks.extend(hooks);
    redirects.publish();
    Ok(())
}

/// These breakpoints are in the code no more.
pub(super) fn remove(addresses: impl Iterator<Item = u64>) {
    let mut redirects = redirects();
    if addresses.filter(|address| redirects.hooks.remove(address).is_some()).count() > 0 {
        redirects.publish();
    }
}

/// While this lives, its breakpoints lead to where they should.
pub(super) struct Armed;

impl Armed {
    /// Breakpoints, with where threads go on that come there.
    pub(super) fn new(changes: impl Iterator<Item = (u64, u64)>) -> io::Result<Armed> {
        install()?;
        let mut redirects = redirects();
        redirects.changes = changes.collect();
        redirects.publish();
        Ok(Armed)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let mut redirects = redirects();
        redirects.changes.clear();
        redirects.publish();
    }
}

/// Makes [`handle`] the handler, unless it is.
fn install() -> io::Result<()> {
    let _only = INSTALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: all bits zero are a valid action.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    ours.sa_sigaction = handle as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: reads the present action.
    if unsafe { libc::sigaction(libc::SIGTRAP, ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if before.sa_sigaction == ours.sa_sigaction {
        return Ok(());
    }
    // Handlers may still read what was there: a process changes such handlers a few times in its life.
    PREVIOUS.store(Box::into_raw(Box::new(before)), Ordering::Release);
    // SAFETY: the handler is async-signal-safe.
    match unsafe { libc::sigaction(libc::SIGTRAP, &raw const ours, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

unsafe extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a `ucontext_t`.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = (registers[libc::REG_RIP as usize] as u64).wrapping_sub(1);
    // SAFETY: the kernel passes it.
    let from_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
    match from_kernel.then(|| destination(at)).flatten() {
        Some(to) => registers[libc::REG_RIP as usize] = to as i64,
        None => chain(signal, info, context),
    }
}

/// Where a thread goes on that came to a breakpoint; nothing where that is none of ours.
fn destination(at: u64) -> Option<u64> {
    loop {
        let changes = CHANGES.load(Ordering::SeqCst);
        if let Some(to) = redirect(at) {
            return Some(to);
        }
        let mut byte = [0];
        // One of ours that has gone since: the instruction that is there now.
        if super::sys::read(at, &mut byte) && byte[0] != INT3 {
            return Some(at);
        }
        // One that came meanwhile is in the table of now.
        if CHANGES.load(Ordering::SeqCst) == changes {
            return None;
        }
    }
}

/// What the table has for a breakpoint.
fn redirect(at: u64) -> Option<u64> {
    READERS.fetch_add(1, Ordering::SeqCst);
    let table = TABLE.load(Ordering::SeqCst);
    // SAFETY: counted readers keep it.
    let found = unsafe { table.as_ref() }
        .and_then(|table| table.binary_search_by_key(&at, |(address, _)| *address).ok().map(|index| table[index].1));
    READERS.fetch_sub(1, Ordering::SeqCst);
    found
}

/// What the process would have done without us.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: stored before the handler was installed, never released.
    let Some(previous) = (unsafe { PREVIOUS.load(Ordering::Acquire).as_ref() }) else { return };
    match previous.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // SAFETY: the default action, as if there had been no handler.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the process installed it with this signature.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: as before.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
