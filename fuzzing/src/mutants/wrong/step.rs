//! A child process that runs generated code one instruction at a time.
//!
//! The processor's trap flag is on while generated code runs. Other code runs at full speed: pages of generated code cannot
//! be executed meanwhile, so that the first instruction of it faults.
#![expect(unsafe_code, reason = "forks, handles signals, and changes the protection of code")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::mem::{ManuallyDrop, zeroed};
use std::ops::Range;
use std::os::fd::{FromRawFd as _, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use twinbpf_vm::recover::prepare_thread;

use super::Stray;
use super::rules::{Registers, Rules};

const PAGE: u64 = 4096;
/// Instructions of generated code that a child runs at most.
const ENOUGH: u64 = 20_000;
/// Bytes of the stack that handlers run on.
const HANDLER_STACK: usize = 1 << 20;
/// The trap flag.
const TRAP: i64 = 0x100;
/// How a child ends: as it should, with something that it must not do, or never.
const ENDED: c_int = 0;
const STRAYED: c_int = 3;
const ENDLESS: c_int = 4;

/// Registers as the kernel keeps them, by their numbers in machine code.
const ORDER: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// What the handlers of a child know.
struct Watch {
    rules: Rules,
    pages: Vec<Range<u64>>,
    report: RawFd,
    steps: u64,
    /// Generated code cannot be executed.
    guarded: bool,
    /// The handler of faults that was there before.
    before: libc::sigaction,
}

static WATCH: AtomicPtr<Watch> = AtomicPtr::new(ptr::null_mut());

/// Runs something in a child process, and the generated code in it under the rules. Gives the number of instructions
/// that fulfilled them, if all did, or what did not.
pub(super) fn watched(
    rules: Rules,
    modules: &[Range<u64>],
    run: impl FnOnce(),
) -> Result<(u64, Option<Stray>), String> {
    let pages = modules.iter().map(|range| range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE)).collect();
    let mut ends = [0; 2];
    // SAFETY: the call fills in two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(format!("no pipe: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: `pipe` has just opened both descriptors, and no other `File` owns them.
    let (mut report, sender) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: the child only runs what its one thread may run; the C library makes its heap usable.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let rules = ManuallyDrop::new(rules);
        // SAFETY: `ManuallyDrop` never drops the original, so the value has one owner.
        begin(unsafe { ptr::read(&*rules) }, pages, ends[1]);
        let ended = catch_unwind(AssertUnwindSafe(run)).is_ok();
        // SAFETY: made above, and no handler runs now.
        let watch = unsafe { &*WATCH.load(Ordering::Relaxed) };
        watch.end(if ended { ENDED } else { 1 }, &watch.steps.to_string());
    }
    drop(sender);
    if child < 0 {
        return Err(format!("no child: {}", std::io::Error::last_os_error()));
    }
    let mut text = String::new();
    let read = report.read_to_string(&mut text);
    let mut status = 0;
    // SAFETY: it is a child of this process, and only this waits for it.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    read.map_err(|error| error.to_string())?;
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(ENDED) => Ok((text.parse().map_err(|_| format!("an odd report: {text}"))?, None)),
        Some(STRAYED) => {
            let (places, what) = text.split_once(' ').ok_or_else(|| format!("an odd report: {text}"))?;
            let places = places.split(',').map(|at| u64::from_str_radix(at, 16));
            let mut before: Vec<u64> = places.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
            Ok((0, Some(Stray { at: before.remove(0), before, what: what.to_owned() })))
        }
        Some(ENDLESS) => Err("it does not end".to_owned()),
        _ => Err(format!("the child ended with status {status:#x}")),
    }
}

/// In the child: has generated code watched from here on.
fn begin(rules: Rules, pages: Vec<Range<u64>>, report: RawFd) {
    // What goes wrong after a mistake is of no interest.
    std::panic::set_hook(Box::new(|_| {}));
    prepare_thread().expect("a thread that can run native code");
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call reads a complete limit. A child that crashes leaves no core dump.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    let stack = Box::leak(vec![0_u8; HANDLER_STACK].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: HANDLER_STACK };
    // SAFETY: the stack is never freed; all zeroes are valid actions, and the handlers are of the type that they say.
    let before = unsafe {
        libc::sigaltstack(&raw const stack, ptr::null_mut());
        let mut action: libc::sigaction = zeroed();
        let mut before: libc::sigaction = zeroed();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        action.sa_sigaction = on_trap as *const () as usize;
        libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut());
        action.sa_sigaction = on_fault as *const () as usize;
        libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before);
        before
    };
    let mut watch = Watch { rules, pages, report, steps: 0, guarded: false, before };
    watch.guard(true);
    WATCH.store(Box::into_raw(Box::new(watch)), Ordering::Relaxed);
}

impl Watch {
    /// Forbids generated code, or allows it.
    fn guard(&mut self, forbidden: bool) {
        let more = if forbidden { 0 } else { libc::PROT_EXEC };
        for pages in &self.pages {
            let at = ptr::with_exposed_provenance_mut(pages.start as usize);
            // SAFETY: they are pages of code of this process alone, in which nothing else runs.
            let failed = unsafe { libc::mprotect(at, (pages.end - pages.start) as usize, libc::PROT_READ | more) };
            assert_eq!(failed, 0, "code can be protected");
        }
        self.guarded = forbidden;
    }

    fn has(&self, address: u64) -> bool {
        self.pages.iter().any(|pages| pages.contains(&address))
    }

    /// Checks the next instruction. Ends the process if it must not run.
    fn step(&mut self, context: &libc::ucontext_t) {
        let registers = &context.uc_mcontext.gregs;
        let of = |reg: c_int| registers[reg as usize] as u64;
        let registers = Registers { general: ORDER.map(of), rip: of(libc::REG_RIP), flags: of(libc::REG_EFL) };
        if let Err(Stray { at, before, what }) = self.rules.check(&registers) {
            let places = [at].into_iter().chain(before).map(|at| format!("{at:x}"));
            let places = places.collect::<Vec<String>>().join(",");
            self.end(STRAYED, &format!("{places} {what}"));
        }
        self.steps += 1;
        if self.steps > ENOUGH {
            self.end(ENDLESS, "");
        }
    }

    /// Ends the process, with a report.
    fn end(&self, status: c_int, text: &str) -> ! {
        // SAFETY: the descriptor is open, and the process ends before it is closed twice.
        let mut report = ManuallyDrop::new(unsafe { File::from_raw_fd(self.report) });
        let sent = report.write_all(text.as_bytes()).is_ok();
        // SAFETY: ends the child without what its parent would do at its end.
        unsafe { libc::_exit(if sent { status } else { 1 }) }
    }
}

/// An instruction of generated code has run.
extern "C" fn on_trap(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a context that is ours until the handler returns, and there is one thread.
    let (watch, context) = unsafe { (&mut *WATCH.load(Ordering::Relaxed), &mut *context.cast::<libc::ucontext_t>()) };
    if watch.has(context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64) {
        return watch.step(context);
    }
    watch.guard(true);
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
}

/// Generated code is entered, or something faults.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as in `on_trap`; information of this signal has an address.
    let (watch, registers, address) = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        (&mut *WATCH.load(Ordering::Relaxed), context, (*info).si_addr().addr() as u64)
    };
    let rip = registers.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    if watch.guarded && rip == address && watch.has(rip) {
        watch.guard(false);
        registers.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP;
        return watch.step(registers);
    }
    // SAFETY: it is the handler of the runtime, which was in force for this signal.
    unsafe {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            std::mem::transmute(watch.before.sa_sigaction);
        handler(signal, info, context);
    }
}
