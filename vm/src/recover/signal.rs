//! Signal handlers: faults of programs go to a recovery point, all other signals to the previously installed handler.
//!
//! Everything here that runs in a handler is async-signal-safe: it reads atomics and the thread's own chain of
//! records, writes the registers that the signal returns to, and allocates nothing.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::asm::{twinbpf_raw_begin, twinbpf_raw_end, twinbpf_recovery_point};
use super::range::is_code;
use super::record::{ActivationRecord, Kind, current};
use super::{Abort, Fault, IN_C, Signal, Unprepared};

impl Signal {
    pub(super) const ALL: [Signal; 5] = [Signal::Segv, Signal::Bus, Signal::Fpe, Signal::Ill, Signal::Urg];

    pub(super) const fn number(self) -> c_int {
        match self {
            Signal::Segv => libc::SIGSEGV,
            Signal::Bus => libc::SIGBUS,
            Signal::Fpe => libc::SIGFPE,
            Signal::Ill => libc::SIGILL,
            Signal::Urg => libc::SIGURG,
        }
    }

    pub(super) fn of(number: c_int) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.number() == number)
    }
}

/// How often a handler of the host that has replaced ours can be found, each another one.
const LEVELS: usize = 8;

/// Our handlers: each knows by its level which handler it has replaced. A handler of the host that passes signals on to
/// one of them reaches what was in force when it was installed, and one that is removed leaves what was there.
const HANDLERS: [extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void); LEVELS] =
    [entry::<0>, entry::<1>, entry::<2>, entry::<3>, entry::<4>, entry::<5>, entry::<6>, entry::<7>];

/// A handler that one of ours has replaced.
struct Previous {
    action: libc::sigaction,
    /// It wanted to be called once only, and was.
    used_up: AtomicBool,
}

/// A signal that is being passed on.
#[derive(Clone, Copy)]
struct Passed {
    /// Of the signal, which says which one it is.
    context: *mut c_void,
    /// A bit for each level that has passed it on.
    levels: usize,
}

/// What our handlers have replaced, by signal and level. Set once, never freed, and written without a lock: a child
/// process may be forked in between.
static PREVIOUS: [[AtomicPtr<Previous>; LEVELS]; Signal::ALL.len()] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; LEVELS] }; Signal::ALL.len()];

/// The action of a signal.
fn action(signal: Signal) -> libc::sigaction {
    // SAFETY: all zeroes is a valid sigaction; the call only writes it.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let result = libc::sigaction(signal.number(), ptr::null(), &raw mut action);
        assert_eq!(result, 0, "{} has an action", signal.name());
        action
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    HANDLERS.iter().any(|handler| *handler as *const () as usize == action.sa_sigaction)
}

fn is_same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    (one.sa_sigaction, one.sa_flags) == (other.sa_sigaction, other.sa_flags)
}

/// Makes our handler the one that the kernel calls, if it is not.
///
/// # Errors
/// It has been replaced too often.
pub(super) fn install(signal: Signal) -> Result<(), Unprepared> {
    let mut old = action(signal);
    while !is_ours(&old) {
        let level = level_of(signal, &old).ok_or(Unprepared::Replaced { signal })?;
        if level > 0 {
            let handler = old.sa_sigaction;
            log::info!(
                "the handler of {} has been replaced by one at {handler:#x}; ours goes before it",
                signal.name()
            );
        }
        let replaced = replace(signal, level, &old);
        // Another thread may have been here, or the host has installed another one meanwhile.
        if is_ours(&replaced) || is_same(&replaced, &old) {
            break;
        }
        old = replaced;
    }
    Ok(())
}

/// The level of which the handler passes signals on to `old`.
fn level_of(signal: Signal, old: &libc::sigaction) -> Option<usize> {
    let new = Box::into_raw(Box::new(Previous { action: *old, used_up: AtomicBool::new(false) }));
    for (level, slot) in PREVIOUS[signal as usize].iter().enumerate() {
        match slot.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(level),
            // SAFETY: what a slot has is never freed.
            Err(known) if is_same(unsafe { &(*known).action }, old) => {
                // SAFETY: made above, and in no slot.
                drop(unsafe { Box::from_raw(new) });
                return Some(level);
            }
            Err(_) => {}
        }
    }
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(new) });
    None
}

/// Installs the handler of a level in place of `old`; gives what it has replaced.
fn replace(signal: Signal, level: usize, old: &libc::sigaction) -> libc::sigaction {
    let mut new = *old;
    new.sa_sigaction = HANDLERS[level] as *const () as usize;
    // The mask is the previous handler's, and so are its flags for masks and interrupted calls: ours needs
    // nothing of the kind, and returns at once. Without a previous handler `SA_RESTART` is off, so that the time limit
    // interrupts blocking calls.
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (old.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
    // SAFETY: the handler does only what is allowed in one, and `new` is a complete action.
    unsafe {
        let mut replaced: libc::sigaction = mem::zeroed();
        let result = libc::sigaction(signal.number(), &raw const new, &raw mut replaced);
        assert_eq!(result, 0, "{} can have a handler", signal.name());
        replaced
    }
}

/// An address of this code.
pub(super) fn address_of_handler() -> *const c_void {
    HANDLERS[0] as *const c_void
}

/// What the kernel calls, or a handler of the host that passes a signal on: adds where the stack is and the level.
#[unsafe(naked)]
extern "C" fn entry<const LEVEL: usize>(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    naked_asm!("mov rcx, rsp", "mov r8d, {level}", "jmp {handle}", level = const LEVEL, handle = sym handle)
}

extern "C" fn handle(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void, stack: usize, level: usize) {
    let signal = Signal::of(number).expect("installed for these only");
    // SAFETY: with SA_SIGINFO the kernel passes both, valid until the handler returns; and so does a handler that passes
    // a signal on.
    if unsafe { redirect(signal, &*info, &mut *context.cast::<libc::ucontext_t>()) } {
        return;
    }
    thread_local! {
        static PASSED: Cell<Passed> = const { Cell::new(Passed { context: ptr::null_mut(), levels: 0 }) };
    }
    // The kernel's own call has the context right above the return address. Whatever is known then is of a handler that
    // was left by a jump.
    let before = PASSED.get();
    let done = if before.context == context && stack + 8 != context as usize { before.levels } else { 0 };
    // A host that installs its handler twice passes a signal on to the one of ours that has called it: continue with
    // what was there before.
    let level = (0..=level).rev().find(|level| done & 1 << level == 0);
    PASSED.set(Passed { context, levels: done | level.map_or(0, |level| 1 << level) });
    let previous = level.map_or(ptr::null_mut(), |level| PREVIOUS[signal as usize][level].load(Ordering::Acquire));
    // SAFETY: as the kernel passed them; what a slot has is never freed.
    unsafe { chain(signal, previous.as_ref(), info, context) };
    PASSED.set(before);
}

/// Sends a fault of ours to where it ends. False if it is not ours.
///
/// # Safety
/// To be called from a handler with what the kernel gave it.
unsafe fn redirect(signal: Signal, info: &libc::siginfo_t, context: &mut libc::ucontext_t) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    let pc = registers[libc::REG_RIP as usize] as u64;
    // A signal that a process sent (`kill`) is no fault, wherever it arrives.
    if signal != Signal::Urg && info.si_code <= 0 {
        return false;
    }
    let (begin, end) = (twinbpf_raw_begin as *const () as u64, twinbpf_raw_end as *const () as u64);
    if (begin..end).contains(&pc) && signal != Signal::Urg {
        registers[libc::REG_RDX as usize] = i64::from(signal.number());
        registers[libc::REG_RIP as usize] = end as i64;
        return true;
    }
    // Checked before the thread's own variables are: a thread that has never run a program may have none yet.
    if signal == Signal::Urg && !is_code(pc) {
        return false;
    }
    let Some(record) = current() else { return false };
    // SAFETY: records on this thread's chain live, and this thread is inside the call of the innermost.
    let record = unsafe { record.as_ref() };
    // SAFETY: likewise its owner, and what the owner points to.
    let Some(in_c) = (unsafe { trap_site(signal, record, pc) }) else { return false };
    // SAFETY: the trampoline filled it in before it called what was interrupted here.
    let recovery_point = unsafe { (*record.recovery_point.get()).assume_init_ref() };
    // A handler of the host that has interrupted a C function is none of its frames.
    let rsp = registers[libc::REG_RSP as usize] as u64;
    if in_c != 0 && is_on(&context.uc_stack, rsp) && !is_on(&context.uc_stack, recovery_point.sp) {
        return false;
    }
    let frame = registers[libc::REG_RBP as usize] as u64;
    // SAFETY: the kernel fills this in for SIGSEGV and SIGBUS, and for other signals it is not read.
    let address = unsafe { info.si_addr() } as u64;
    // The kernel reports no address for a general protection fault.
    let address = (matches!(signal, Signal::Segv | Signal::Bus) && info.si_code != libc::SI_KERNEL).then_some(address);
    // SAFETY: the call of the record ends here, and there is no other writer.
    unsafe { (*record.abort.get()).write(Abort::Fault(Fault { signal, pc, address, frame, in_c })) };
    registers[libc::REG_RIP as usize] = twinbpf_recovery_point as *const () as i64;
    registers[libc::REG_RSP as usize] = recovery_point.sp as i64;
    let others = [libc::REG_RBX, libc::REG_RBP, libc::REG_R13, libc::REG_R14, libc::REG_R15];
    for (register, value) in others.into_iter().zip(recovery_point.others) {
        registers[register as usize] = value as i64;
    }
    registers[libc::REG_RDX as usize] = 1;
    // As every function may expect them: direction flag and alignment check off.
    registers[libc::REG_EFL as usize] &= !(1 << 10 | 1 << 18);
    true
}

/// Whether an address is on an alternate signal stack.
fn is_on(stack: &libc::stack_t, address: u64) -> bool {
    stack.ss_flags & libc::SS_DISABLE == 0 && address.wrapping_sub(stack.ss_sp as u64) < stack.ss_size as u64
}

/// Whether the call of `record` may end at `pc`, and if so, [`Fault::in_c`].
///
/// # Safety
/// The record is the innermost of this thread.
unsafe fn trap_site(signal: Signal, record: &ActivationRecord, pc: u64) -> Option<u32> {
    if record.kind == Kind::Barrier {
        return None;
    }
    let owner = &record.owner;
    if record.kind == Kind::Code && is_code(pc) {
        // SAFETY: the owner's pointers are valid during the call; another thread writes this one, a byte.
        let over = || !owner.interrupt.is_null() && unsafe { owner.interrupt.read_volatile() } != 0;
        return (signal != Signal::Urg || over()).then_some(0);
    }
    if signal == Signal::Urg {
        return None;
    }
    match record.kind {
        Kind::C => Some(IN_C),
        // SAFETY: as above; written by code of this thread.
        Kind::Code if !owner.in_c.is_null() => Some(unsafe { owner.in_c.read_volatile() }).filter(|in_c| *in_c != 0),
        Kind::Code | Kind::Barrier => None,
    }
}

/// Does what would have been done without us: calls the handler that ours has replaced, or without one what the kernel
/// does by default.
///
/// # Safety
/// To be called from a handler with what the kernel gave it.
unsafe fn chain(signal: Signal, previous: Option<&Previous>, info: *mut libc::siginfo_t, context: *mut c_void) {
    let number = signal.number();
    let (action, flags) = match previous {
        Some(Previous { action, used_up }) => {
            let used_up = action.sa_flags & libc::SA_RESETHAND != 0 && used_up.swap(true, Ordering::Relaxed);
            (if used_up { libc::SIG_DFL } else { action.sa_sigaction }, action.sa_flags)
        }
        None => (libc::SIG_DFL, 0),
    };
    // SAFETY: the caller's.
    let sent = unsafe { (*info).si_code } <= 0;
    match action {
        libc::SIG_DFL if signal == Signal::Urg => {}
        libc::SIG_IGN if signal == Signal::Urg || sent => {}
        // The kernel does not let a fault be ignored either.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeroes with SIG_DFL is a valid action. A fault happens again when we return, and ends the
            // process as it would have; a signal that was sent is sent again.
            unsafe {
                let mut default: libc::sigaction = mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(number, &raw const default, ptr::null_mut());
                if sent {
                    libc::raise(number);
                }
            }
        }
        action if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the host installed it as a function of this type.
            let action: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = unsafe { mem::transmute(action) };
            action(number, info, context);
        }
        action => {
            // SAFETY: as above.
            let action: extern "C" fn(c_int) = unsafe { mem::transmute(action) };
            action(number);
        }
    }
}
