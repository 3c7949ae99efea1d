//! Signal handlers: what is a fault of ours goes to a landing, everything else to whoever was there before.
//!
//! Everything here that runs in a handler is async-signal-safe: it reads atomics and the thread's own chain of
//! anchors, writes the registers that the signal returns to, and allocates nothing.

use std::cell::OnceCell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

use super::anchor::{Anchor, Kind, current};
use super::asm::{twinbpf_landing, twinbpf_raw_begin, twinbpf_raw_end};
use super::range::is_code;
use super::stack::NativeStack;
use super::{Abort, Fault, IN_C, Signal};

impl Signal {
    const ALL: [Signal; 5] = [Signal::Segv, Signal::Bus, Signal::Fpe, Signal::Ill, Signal::Urg];

    const fn number(self) -> c_int {
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

/// What was there before us.
struct Previous {
    action: libc::sigaction,
    /// It wanted to be called once only, and was.
    used_up: AtomicBool,
}

static PREVIOUS: [OnceLock<Previous>; Signal::ALL.len()] = [const { OnceLock::new() }; Signal::ALL.len()];

/// Installs the handlers, once per process.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| Signal::ALL.into_iter().for_each(install_one));
}

fn install_one(signal: Signal) {
    let number = signal.number();
    // SAFETY: all zeroes is a valid sigaction; the call only writes it.
    let old = unsafe {
        let mut old: libc::sigaction = mem::zeroed();
        let result = libc::sigaction(number, ptr::null(), &raw mut old);
        assert_eq!(result, 0, "{} has an action", signal.name());
        old
    };
    let mut new = old;
    new.sa_sigaction = handler as *const () as usize;
    // The mask is the previous handler's, and so is what it asked for about masks and interrupted calls: ours needs
    // nothing of the kind, and returns at once. Blocking calls end when the time is over if nobody had a handler.
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (old.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
    let previous = PREVIOUS[signal as usize].set(Previous { action: old, used_up: AtomicBool::new(false) });
    assert!(previous.is_ok(), "installed once");
    // SAFETY: the handler below does only what is allowed in one, and `new` is a complete action.
    let result = unsafe { libc::sigaction(number, &raw const new, ptr::null_mut()) };
    assert_eq!(result, 0, "{} can have a handler", signal.name());
}

/// Prepares a thread: handlers, and a stack for them if it has none.
pub(super) fn prepare_thread() {
    install();
    thread_local! {
        static STACK: OnceCell<AltStack> = const { OnceCell::new() };
    }
    // SAFETY: all zeroes is a valid stack_t; the call only writes it.
    let has = unsafe {
        let mut old: libc::stack_t = mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut old);
        old.ss_flags & libc::SS_DISABLE == 0
    };
    if !has {
        // A thread that is ending has no place to keep it: its signals use the stack it has.
        let _ = STACK.try_with(|stack| stack.get_or_init(AltStack::new).is_some());
    }
}

/// An alternate signal stack, of a thread that was made without one.
struct AltStack(Option<NativeStack>);

impl AltStack {
    fn new() -> AltStack {
        // SAFETY: reads a number.
        let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        let stack = NativeStack::new(least + (64 << 10)).ok();
        if let Some(stack) = &stack {
            let (low, len) = stack.range();
            let new = libc::stack_t { ss_sp: low as *mut c_void, ss_flags: 0, ss_size: len };
            // SAFETY: the memory is ours alone, and `drop` takes it back before it goes.
            unsafe { libc::sigaltstack(&raw const new, ptr::null_mut()) };
        }
        AltStack(stack)
    }

    fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let off = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: runs on the thread whose stack it is, outside any handler.
        unsafe { libc::sigaltstack(&raw const off, ptr::null_mut()) };
    }
}

extern "C" fn handler(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let signal = Signal::of(number).expect("installed for these only");
    // SAFETY: with SA_SIGINFO the kernel passes both, valid until the handler returns.
    let handled = unsafe { redirect(signal, &*info, &mut *context.cast::<libc::ucontext_t>()) };
    if !handled {
        // SAFETY: as the kernel passed them.
        unsafe { chain(signal, info, context) };
    }
}

/// Sends a fault of ours to where it ends. False if it is not ours.
///
/// # Safety
/// To be called from a handler with what the kernel gave it.
unsafe fn redirect(signal: Signal, info: &libc::siginfo_t, context: &mut libc::ucontext_t) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    let pc = registers[libc::REG_RIP as usize] as u64;
    // A signal that somebody sent is no fault, wherever it arrives.
    if signal != Signal::Urg && info.si_code <= 0 {
        return false;
    }
    let (begin, end) = (twinbpf_raw_begin as *const () as u64, twinbpf_raw_end as *const () as u64);
    if (begin..end).contains(&pc) && signal != Signal::Urg {
        registers[libc::REG_RDX as usize] = i64::from(signal.number());
        registers[libc::REG_RIP as usize] = end as i64;
        return true;
    }
    let Some(anchor) = current() else { return false };
    // SAFETY: anchors on this thread's chain live, and this thread is inside the call of the innermost.
    let anchor = unsafe { anchor.as_ref() };
    // SAFETY: likewise its owner, and what the owner points to.
    let Some(in_c) = (unsafe { place(signal, anchor, pc) }) else { return false };
    let frame = registers[libc::REG_RBP as usize] as u64;
    // SAFETY: the kernel fills this in for SIGSEGV and SIGBUS, and for other signals it is not looked at.
    let address = unsafe { info.si_addr() } as u64;
    // The kernel tells no address for a general protection fault.
    let address = (matches!(signal, Signal::Segv | Signal::Bus) && info.si_code != libc::SI_KERNEL).then_some(address);
    // SAFETY: the call of the anchor ends here, and nobody else writes this.
    unsafe { (*anchor.abort.get()).write(Abort::Fault(Fault { signal, pc, address, frame, in_c })) };
    // SAFETY: the trampoline filled it in before it called what was interrupted here.
    let landing = unsafe { (*anchor.landing.get()).assume_init_ref() };
    registers[libc::REG_RIP as usize] = twinbpf_landing as *const () as i64;
    registers[libc::REG_RSP as usize] = landing.sp as i64;
    let others = [libc::REG_RBX, libc::REG_RBP, libc::REG_R13, libc::REG_R14, libc::REG_R15];
    for (register, value) in others.into_iter().zip(landing.others) {
        registers[register as usize] = value as i64;
    }
    registers[libc::REG_RDX as usize] = 1;
    // As every function may expect them: direction flag and alignment check off.
    registers[libc::REG_EFL as usize] &= !(1 << 10 | 1 << 18);
    true
}

/// Whether the call of `anchor` may end at `pc`, and if so, [`Fault::in_c`].
///
/// # Safety
/// The anchor is the innermost of this thread.
unsafe fn place(signal: Signal, anchor: &Anchor, pc: u64) -> Option<u32> {
    if anchor.kind == Kind::Barrier {
        return None;
    }
    let owner = &anchor.owner;
    if anchor.kind == Kind::Code && is_code(pc) {
        // SAFETY: the owner's pointers are valid during the call; another thread writes this one, a byte.
        let over = || !owner.interrupt.is_null() && unsafe { owner.interrupt.read_volatile() } != 0;
        return (signal != Signal::Urg || over()).then_some(0);
    }
    if signal == Signal::Urg {
        return None;
    }
    match anchor.kind {
        Kind::C => Some(IN_C),
        // SAFETY: as above; written by code of this thread.
        Kind::Code if !owner.in_c.is_null() => Some(unsafe { owner.in_c.read_volatile() }).filter(|in_c| *in_c != 0),
        Kind::Code | Kind::Barrier => None,
    }
}

/// Does what would have been done without us.
///
/// # Safety
/// To be called from a handler with what the kernel gave it.
unsafe fn chain(signal: Signal, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS[signal as usize].get().expect("kept before the handler was installed");
    let number = signal.number();
    let once = previous.action.sa_flags & libc::SA_RESETHAND != 0;
    let action = match previous.action.sa_sigaction {
        _ if once && previous.used_up.swap(true, Ordering::Relaxed) => libc::SIG_DFL,
        action => action,
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
        action if previous.action.sa_flags & libc::SA_SIGINFO != 0 => {
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
