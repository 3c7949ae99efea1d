//! Other runtimes' signal handlers in the process: those of Go and Java, of hosts that pass nothing on, in any order; small
//! alternate stacks, threads that end, forked children. Each test in a process of its own.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::child::{
    at_most, child, fault_of_ours, host_fault, in_bare_thread, overflow_of_ours, repairs, replace, restore, role, say,
    set, timeout_of_ours,
};
use super::*;

/// Runs `test` in a child for each role, which must succeed.
fn succeeds(test: &str, roles: &[&str]) {
    for role in roles {
        let (status, text) = child("runtimes", test, role);
        assert!(status.success(), "{test}, {role}: {status}\n{text}");
    }
}

const ALL: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGURG];

/// A language's runtime: faults in its own code, [`host_fault`], it repairs; others go to what was there before, if
/// they are faults.
mod runtime {
    use super::*;

    /// Handlers that it has replaced, and their flags.
    static BEFORE: [(AtomicUsize, AtomicUsize); 65] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 65];
    pub(super) static REPAIRED: AtomicU32 = AtomicU32::new(0);
    static OWN: AtomicUsize = AtomicUsize::new(0);

    pub(super) extern "C" fn handler(number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: as the kernel passed it.
        let (rip, sent) = unsafe {
            let context = &mut *context.cast::<libc::ucontext_t>();
            (&mut context.uc_mcontext.gregs[libc::REG_RIP as usize], (*info).si_code <= 0)
        };
        if !sent && *rip as usize == OWN.load(Ordering::Relaxed) {
            *rip += 3;
            REPAIRED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (before, flags) = &BEFORE[number as usize];
        match (before.load(Ordering::Relaxed), sent) {
            // Its own use of the signal, whatever the sender.
            (_, true) => {}
            (libc::SIG_DFL | libc::SIG_IGN, false) => {
                say("nowhere to pass it on\n");
                // SAFETY: ends the process.
                unsafe { libc::_exit(44) };
            }
            (action, false) => {
                assert!(flags.load(Ordering::Relaxed) & libc::SA_SIGINFO as usize != 0);
                // SAFETY: ours, or a test's of this type.
                let action: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(action) };
                action(number, info, context);
            }
        }
    }

    /// As Go does it: on the alternate stack, with all signals blocked.
    pub(super) fn start() {
        OWN.store(twinbpf_test_own_load as *const () as usize, Ordering::Relaxed);
        for signal in ALL {
            // SAFETY: the handler is of the type of its flags.
            let old = unsafe {
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = handler as *const () as usize;
                new.sa_flags = libc::SA_ONSTACK | libc::SA_SIGINFO | libc::SA_RESTART;
                libc::sigfillset(&raw mut new.sa_mask);
                restore(signal, &new)
            };
            let (action, flags) = &BEFORE[signal as usize];
            action.store(old.sa_sigaction, Ordering::Relaxed);
            flags.store(old.sa_flags as usize, Ordering::Relaxed);
        }
    }

    // Code of the runtime with a null check that is a fault.
    std::arch::global_asm!(
        ".pushsection .text,\"ax\",@progbits",
        "twinbpf_test_own_fault:",
        "mov edi, 64",
        "twinbpf_test_own_load:",
        "mov rax, [rdi]",
        "mov eax, 7",
        "ret",
        ".globl twinbpf_test_own_fault",
        ".globl twinbpf_test_own_load",
        ".popsection",
    );
    unsafe extern "C" {
        fn twinbpf_test_own_load();
        fn twinbpf_test_own_fault() -> u64;
    }

    /// Runs its code.
    pub(super) fn run() {
        let before = REPAIRED.load(Ordering::Relaxed);
        // SAFETY: its handler repairs the fault.
        assert_eq!(unsafe { twinbpf_test_own_fault() }, 7);
        assert_eq!(REPAIRED.load(Ordering::Relaxed), before + 1);
    }

    /// The same from a C function or from generated code.
    pub(super) fn code() -> usize {
        twinbpf_test_own_fault as *const () as usize
    }
}

#[test]
fn a_runtime_that_passes_on_what_is_not_its_own() {
    if let Some(role) = role() {
        at_most(60);
        match role.as_str() {
            "first" => runtime::start(),
            "later" => {
                fault_of_ours();
                runtime::start();
            }
            "later, prepared" => {
                fault_of_ours();
                runtime::start();
                prepare_thread().unwrap();
            }
            "later, another thread" => {
                fault_of_ours();
                runtime::start();
                std::thread::spawn(|| (fault_of_ours(), runtime::run(), timeout_of_ours())).join().unwrap();
            }
            role => panic!("{role}"),
        }
        for _ in 0..100 {
            fault_of_ours();
            runtime::run();
        }
        // It keeps signals that are sent to itself; arming a limit notices.
        check_thread();
        timeout_of_ours();
        // Its code, called by generated code as a host function is: call rdx.
        let page = function(&[0xff, 0xd2]);
        assert_eq!(Rig::new().enter(&page, [runtime::code() as u64, 0, 0, 0], None).unwrap(), 7);
        fault_of_ours();
        host_fault();
        unreachable!("no runtime owns the fault");
    }
    for role in ["first", "later", "later, prepared", "later, another thread"] {
        let (status, text) = child("runtimes", "a_runtime_that_passes_on_what_is_not_its_own", role);
        assert!(!text.contains("panicked"), "{role}: {text}");
        let killed = status.signal() == Some(libc::SIGSEGV) || status.code() == Some(44);
        assert!(killed, "{role}: {status} {text}");
    }
}

#[test]
fn a_handler_that_passes_nothing_on() {
    if let Some(role) = role() {
        at_most(60);
        fault_of_ours();
        let ours = replace(libc::SIGSEGV, repairs as *const () as usize, libc::SA_SIGINFO);
        match role.as_str() {
            "prepared" => prepare_thread().unwrap(),
            "another thread" => std::thread::spawn(fault_of_ours).join().unwrap(),
            "removed" => {
                prepare_thread().unwrap();
                fault_of_ours();
                host_fault();
                // SAFETY: what was there. The other handler must not be called any more.
                unsafe { restore(libc::SIGSEGV, &ours) };
                fault_of_ours();
                say("ends here\n");
            }
            role => panic!("{role}"),
        }
        for _ in 0..10 {
            fault_of_ours();
            host_fault();
        }
        return;
    }
    succeeds("a_handler_that_passes_nothing_on", &["prepared", "another thread"]);
    let (status, text) = child("runtimes", "a_handler_that_passes_nothing_on", "removed");
    let count = text.split("ends here").map(|part| part.matches("repaired").count()).collect::<Vec<_>>();
    assert_eq!((status.signal(), count), (Some(libc::SIGSEGV), vec![1, 0]), "{text}");
}

#[test]
fn a_runtime_that_installs_its_handlers_twice_ends_by_the_fault() {
    if role().is_some() {
        at_most(20);
        fault_of_ours();
        runtime::start();
        prepare_thread().unwrap();
        runtime::start();
        runtime::run();
        fault_of_ours();
        host_fault();
        unreachable!("no runtime owns the fault");
    }
    let test = "a_runtime_that_installs_its_handlers_twice_ends_by_the_fault";
    let (status, text) = child("runtimes", test, "twice");
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn handlers_that_are_replaced_without_end_are_an_error() {
    extern "C" fn other<const NUMBER: usize>(_: i32) {
        say(["a", "b", "c", "d", "e", "f", "g", "h"][NUMBER]);
    }
    if role().is_some() {
        at_most(20);
        let others: [extern "C" fn(i32); 8] =
            [other::<0>, other::<1>, other::<2>, other::<3>, other::<4>, other::<5>, other::<6>, other::<7>];
        fault_of_ours();
        for _ in 0..3 {
            // The same ones again take no further place.
            for other in &others[..7] {
                set(libc::SIGSEGV, *other as *const () as usize, 0);
                prepare_thread().unwrap();
                fault_of_ours();
            }
        }
        set(libc::SIGSEGV, others[7] as *const () as usize, 0);
        let error = prepare_thread().unwrap_err().to_string();
        assert!(error.starts_with("the handler of SIGSEGV has been replaced by too many others"), "{error}");
        return;
    }
    succeeds("handlers_that_are_replaced_without_end_are_an_error", &["many"]);
}

#[test]
fn a_fault_in_a_handler_of_the_host_is_not_the_programs() {
    extern "C" fn faults(_: i32) {
        host_fault();
    }
    extern "C" fn raises() -> u64 {
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(libc::SIGUSR1) };
        9
    }
    if role().is_some() {
        set(libc::SIGSEGV, repairs as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
        set(libc::SIGUSR1, faults as *const () as usize, libc::SA_ONSTACK);
        for _ in 0..10 {
            let form = Form { variadic: false, float: false };
            let target = raises as *const () as usize;
            // SAFETY: it takes no arguments.
            let result = unsafe { call_c(target, form, &[0; 6], &[0.0; 8], std::ptr::null_mut(), no_callback) };
            assert_eq!(result.map_err(|abort| *abort).unwrap(), 9);
            fault_of_ours();
        }
        return;
    }
    succeeds("a_fault_in_a_handler_of_the_host_is_not_the_programs", &["child"]);
}

#[test]
fn signals_in_the_midst_of_handlers_do_no_harm() {
    extern "C" fn counts(_: i32) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if role().is_some() {
        at_most(60);
        set(libc::SIGPROF, counts as *const () as usize, libc::SA_ONSTACK | libc::SA_RESTART);
        let (thread, done) = (Thread::current(), AtomicBool::new(false));
        // SAFETY: no arguments.
        let target = unsafe { libc::pthread_self() } as usize;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    thread.interrupt();
                    // SAFETY: the thread waits for this one.
                    unsafe { libc::pthread_kill(target as libc::pthread_t, libc::SIGPROF) };
                }
            });
            while COUNT.load(Ordering::Relaxed) < 2_000 {
                fault_of_ours();
                overflow_of_ours();
            }
            done.store(true, Ordering::Relaxed);
        });
        return;
    }
    succeeds("signals_in_the_midst_of_handlers_do_no_harm", &["child"]);
}

#[test]
fn an_alternate_stack_that_is_too_small_is_replaced() {
    extern "C" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a mapping of our own, of which the upper half becomes a stack; what is below can never be accessed.
        unsafe {
            let low = libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_NONE, flags, -1, 0).cast::<u8>();
            let half = low.add(4096).cast();
            assert_eq!(libc::mprotect(half, 4096, libc::PROT_READ | libc::PROT_WRITE), 0);
            let new = libc::stack_t { ss_sp: half, ss_flags: 0, ss_size: libc::MINSIGSTKSZ };
            assert_eq!(libc::sigaltstack(&raw const new, std::ptr::null_mut()), 0);
        }
        fault_of_ours();
        overflow_of_ours();
        std::ptr::null_mut()
    }
    if role().is_some() {
        return in_bare_thread(body);
    }
    succeeds("an_alternate_stack_that_is_too_small_is_replaced", &["child"]);
}

/// Runs code that faults when its thread ends.
struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        fault_of_ours();
        // The standard library takes the alternate stack of its own threads before.
        if std::thread::current().name().is_none() {
            overflow_of_ours();
        }
    }
}

#[test]
fn programs_run_in_threads_that_end() {
    extern "C" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
        thread_local! {
            static AT_END: AtEnd = const { AtEnd };
        }
        AT_END.with(|_| ());
        if role().as_deref() == Some("again") {
            fault_of_ours();
        }
        std::ptr::null_mut()
    }
    if role().is_some() {
        for _ in 0..10 {
            in_bare_thread(body);
            let thread = std::thread::Builder::new().name("a Rust thread".to_owned());
            thread.spawn(|| _ = body(std::ptr::null_mut())).unwrap().join().unwrap();
        }
        return;
    }
    succeeds("programs_run_in_threads_that_end", &["again", "for the first time"]);
}

#[test]
fn a_forked_child_runs_programs() {
    if role().is_some() {
        let done = AtomicBool::new(false);
        let work = || {
            while !done.load(Ordering::Relaxed) {
                let _ranges: Vec<_> = (0..20).map(|index| code_range(0x7ffc_0000_0000 + index * 64, 64)).collect();
            }
        };
        // Handlers are not installed yet when the first children are made.
        std::thread::scope(|scope| {
            (0..2).for_each(|_| _ = scope.spawn(work));
            for turn in 0..150 {
                // SAFETY: the child runs what may be run in one of several threads.
                match unsafe { libc::fork() } {
                    0 => {
                        at_most(20);
                        fault_of_ours();
                        overflow_of_ours();
                        // SAFETY: ends the child without what the parent has left to do.
                        unsafe { libc::_exit(0) };
                    }
                    child => {
                        let mut status = -1;
                        // SAFETY: a child of this process.
                        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                        let _stop = (status != 0).then(|| done.store(true, Ordering::Relaxed));
                        assert_eq!(status, 0, "turn {turn}");
                    }
                }
                if turn == 50 {
                    fault_of_ours();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        return;
    }
    succeeds("a_forked_child_runs_programs", &["parent"]);
}
