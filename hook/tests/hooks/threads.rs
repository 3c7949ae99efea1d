//! Hooks of threads that block signals, under a handler of the program's own, without ptrace, and with many threads.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::zeroed;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use twinbpf_hook::{Call, Callback, Error, Function, Hook, Point, Refusal};

use crate::can_compile;
use crate::fixture::{Fixture, while_threads};

pub(crate) type Add = extern "C" fn(i64, i64) -> i64;

/// Set where [`without_ptrace`] is to be called first.
pub(crate) const DENIED: &str = "HOOK_TEST_WITHOUT_PTRACE";

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

unsafe extern "C" fn count(_: *mut Call, _: *mut c_void) {
    COUNT.set(COUNT.get() + 1);
}

/// What this thread's calls of hooked functions have counted since the last time.
pub(crate) fn take_count() -> u64 {
    COUNT.replace(0)
}

/// Counts calls, on their thread; on this one from 0.
pub(crate) fn attach(function: &Function) -> Result<Hook, Error> {
    COUNT.set(0);
    // SAFETY: it counts; a C function of the fixture.
    unsafe { Hook::attach(std::slice::from_ref(function), Point::Entry, &Callback::new(count, ptr::null_mut())) }
}

pub(crate) fn block_all() {
    // SAFETY: a set of this thread's.
    unsafe {
        let mut all: libc::sigset_t = zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// Has the kernel refuse ptrace to this process from now on, where the parent wants that.
pub(crate) fn without_ptrace() {
    if std::env::var_os(DENIED).is_none() {
        return;
    }
    let filter = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // A load of the number; equal to that of ptrace: EPERM; else allow.
    let program = [
        filter(0x20, 0, 0, 0),
        filter(0x15, 0, 1, libc::SYS_ptrace as u32),
        filter(0x06, 0, 0, 0x0005_0000 | libc::EPERM as u32),
        filter(0x06, 0, 0, 0x7fff_0000),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: a program of this length, which the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(done, "seccomp: {}", std::io::Error::last_os_error());
}

/// The other tests once more, where code without a pad changes with breakpoints.
pub(crate) fn everything_works_without_ptrace() {
    if !can_compile() || std::env::var_os(DENIED).is_some() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    let output = command
        .env(DENIED, "1")
        .args(["--skip", "exceptions", "--skip", "sixty_four", "--skip", "ten_thousand"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Threads call, with every signal blocked, while hooks come and go; each kind changes, or says why it cannot.
pub(crate) fn threads_that_block_every_signal() {
    if !can_compile() {
        return;
    }
    let denied = std::env::var_os(DENIED).is_some();
    for kind in ["clang-nop", "gcc-nops", "gcc-moved"] {
        let fixture = Fixture::new(kind);
        let (function, add) = (fixture.function("add"), fixture.get::<Add>("add"));
        let call = || assert_eq!(add(3, 4), 7);
        while_threads(4, block_all, call, || {
            thread::sleep(std::time::Duration::from_millis(5));
            for _ in 0..20 {
                let hook = attach(&function);
                if denied && kind == "gcc-moved" {
                    let words = hook.as_ref().expect_err("no thread sees a breakpoint").to_string();
                    assert!(matches!(hook, Err(Error::Refused { why: Refusal::Blocked { .. }, .. })), "{words}");
                    assert!(words.contains(" blocks SIGTRAP, by which code without a pad is changed; "), "{words}");
                    break;
                }
                let hook = hook.unwrap_or_else(|error| panic!("{kind}: {error}"));
                COUNT.set(0);
                (0..100).for_each(|_| assert_eq!(add(3, 4), 7));
                assert_eq!(COUNT.get(), 100, "{kind}");
                hook.detach().expect("it detaches");
            }
        });
    }
}

static TRAPS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_trap(_: libc::c_int) {
    TRAPS.fetch_add(1, Ordering::Relaxed);
}

/// The program's breakpoints are the program's, before, while and after functions are hooked by breakpoints.
pub(crate) fn a_handler_of_the_programs_own_is_called() {
    if !can_compile() {
        return;
    }
    // SAFETY: the handler counts.
    unsafe { libc::signal(libc::SIGTRAP, on_trap as *const () as usize) };
    // SAFETY: the handler returns.
    let trap = || unsafe { std::arch::asm!("int3") };
    let fixture = Fixture::new("gcc-moved");
    let (function, add) = (fixture.function("add"), fixture.get::<Add>("add"));
    trap();
    let hook = attach(&function).expect("it attaches");
    trap();
    assert_eq!(add(1, 2), 3);
    drop(hook);
    trap();
    assert_eq!(TRAPS.load(Ordering::Relaxed), 3);
}

/// More threads than cores: each call is counted on its thread, whatever threads come and go.
pub(crate) fn sixty_four_threads() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("gcc-nops");
    let (function, add) = (fixture.function("add"), fixture.get::<Add>("add"));
    let hook = attach(&function).expect("it attaches");
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(move || {
                (0..100_000).for_each(|n| assert_eq!(add(n, 1), n + 1));
                assert_eq!(COUNT.get(), 100_000);
            });
        }
    });
    assert_eq!(hook.skipped(), 0);
    // As many again, one after another: records of threads that are gone serve others.
    for _ in 0..64 {
        thread::spawn(move || assert_eq!(add(1, 1), 2)).join().expect("no panic");
    }
}

/// What callbacks call is not hooked for them, and counted.
pub(crate) fn callbacks_do_not_recur() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("clang-nop");
    let add = fixture.get::<Add>("add");
    // SAFETY: it calls `add`, which takes no lock.
    let callback = unsafe { Callback::of(move |_| assert_eq!(add(20, 3), 23)) };
    // SAFETY: as above.
    let hook = unsafe { Hook::attach(&[fixture.function("add")], Point::Entry, &callback) }.expect("it attaches");
    (0..50).for_each(|_| assert_eq!(add(1, 2), 3));
    assert_eq!(hook.skipped(), 50);
}

/// After `fork` the thread that called it and those that the child starts are different threads.
pub(crate) fn children_of_fork_count() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("clang-nop");
    let (function, add) = (fixture.function("add"), fixture.get::<Add>("add"));
    let _hook = attach(&function).expect("it attaches");
    let counts_all = move || {
        COUNT.set(0);
        (0..20_000).for_each(|n| assert_eq!(add(n, 1), n + 1));
        COUNT.get() == 20_000
    };
    assert!(counts_all());
    // More than there are records of threads that have ended.
    const OTHERS: usize = 80;
    let child = in_child(|| {
        let all_run = std::sync::Arc::new(std::sync::Barrier::new(OTHERS + 1));
        let start = || {
            let all_run = std::sync::Arc::clone(&all_run);
            thread::spawn(move || {
                all_run.wait();
                counts_all()
            })
        };
        let others: Vec<_> = (0..OTHERS).map(|_| start()).collect();
        all_run.wait();
        (0..50).all(|_| counts_all()) & others.into_iter().all(|other| other.join().unwrap_or(false))
    });
    ends_well(child, "calls of the child's threads were not all counted");
    assert!(counts_all());
}

/// A child of `fork` that does this work, and ends with it, or after 20 seconds.
fn in_child(work: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child ends without running what this process has registered.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe {
            libc::alarm(20);
            libc::_exit(i32::from(!work()));
        }
    }
    child
}

#[track_caller]
fn ends_well(child: libc::pid_t, what: &str) {
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "{what}");
}

/// While two threads hook a function again and again: a fixture whose functions they leave alone, and that function.
fn while_hooks_change(body: impl FnOnce(&Fixture, &Function)) {
    let (fixture, other) = (Fixture::new("clang-nop"), Fixture::new("clang-nop"));
    let elsewhere = other.function("add");
    let change = || drop(attach(&elsewhere).expect("it attaches"));
    while_threads(2, || (), change, || body(&fixture, &elsewhere));
}

/// A child changes hooks, whatever threads of its parent were changing when it came to be.
pub(crate) fn children_of_fork_change_hooks() {
    if !can_compile() {
        return;
    }
    while_hooks_change(|fixture, elsewhere| {
        let (function, add) = (fixture.function("add"), fixture.get::<Add>("add"));
        for round in 0..100 {
            let child = in_child(|| {
                COUNT.set(0);
                let hook = attach(&function).expect("it attaches");
                assert_eq!(add(1, 2), 3);
                hook.detach().expect("it detaches");
                assert_eq!(add(1, 2), 3);
                COUNT.get() == 1 && attach(elsewhere).is_ok()
            });
            ends_well(child, &format!("child {round} changed no hooks"));
        }
    });
}

/// A thread may fork while it ends, after what it knew of forks is gone.
pub(crate) fn threads_fork_while_they_end() {
    if !can_compile() {
        return;
    }
    struct Forks;
    impl Drop for Forks {
        fn drop(&mut self) {
            ends_well(in_child(|| true), "a child of a thread that ends");
        }
    }
    thread_local!(static LAST: Forks = const { Forks });
    let fixture = Fixture::new("clang-nop");
    let _hook = attach(&fixture.function("add")).expect("it attaches");
    let child = in_child(|| {
        let ends = thread::spawn(|| {
            // Destroyed after what the first fork makes.
            LAST.with(|_| ());
            ends_well(in_child(|| true), "a child");
        });
        ends.join().is_ok()
    });
    ends_well(child, "a thread that forks while it ends");
}

/// A callback that forks cannot wait for changes, which may wait for it. Its child changes hooks, or has the reason why not.
pub(crate) fn children_of_callbacks_never_wait() {
    if !can_compile() {
        return;
    }
    let pid = std::sync::Arc::new(std::sync::atomic::AtomicI32::new(-1));
    let forked = std::sync::Arc::clone(&pid);
    // SAFETY: the child ends without running what this process has registered.
    let callback = unsafe { Callback::of(move |_| forked.store(libc::fork(), Ordering::Relaxed)) };
    while_hooks_change(|fixture, elsewhere| {
        let add = fixture.get::<Add>("add");
        // SAFETY: as above.
        let _hook = unsafe { Hook::attach(&[fixture.function("add")], Point::Entry, &callback) }.expect("it attaches");
        for round in 0..100 {
            assert_eq!(add(1, 2), 3);
            let child = pid.load(Ordering::Relaxed);
            if child == 0 {
                // SAFETY: ends the child, at the latest after 20 seconds.
                unsafe {
                    libc::alarm(20);
                    let words = attach(elsewhere).map_or_else(|error| error.to_string(), |_| String::new());
                    let known = "a thread of the parent process changed hooks when a callback forked this process: \
                        its hooks stay as they are; fork outside callbacks";
                    libc::_exit(i32::from(!words.is_empty() && words != known));
                }
            }
            ends_well(child, &format!("child {round} says something else"));
        }
    });
}

/// Where one of several functions cannot change, none is left with the callback, and one that is named twice is hooked once.
pub(crate) fn all_are_hooked_or_none() {
    if !can_compile() {
        return;
    }
    let (pads, moved) = (Fixture::new("clang-nop"), Fixture::new("gcc-moved"));
    let add = pads.get::<Add>("add");
    let both = [pads.function("add"), moved.function("add"), pads.function("add")];
    // SAFETY: they count; C functions of the fixtures.
    let callback = unsafe { Callback::new(count, ptr::null_mut()) };
    let counted = || {
        COUNT.set(0);
        assert_eq!(add(1, 2), 3);
        COUNT.get()
    };
    let other = attach(&both[0]).expect("it has a pad");
    while_threads(1, block_all, thread::yield_now, || {
        thread::sleep(std::time::Duration::from_millis(5));
        // SAFETY: as above.
        let hook = unsafe { Hook::attach(&both, Point::Entry, &callback) };
        assert_eq!(
            hook.is_err(),
            std::env::var_os(DENIED).is_some(),
            "without ptrace a thread that blocks SIGTRAP forbids it"
        );
        assert_eq!(counted(), if hook.is_ok() { 2 } else { 1 });
    });
    assert_eq!(counted(), 1);
    drop(other);
    assert_eq!(counted(), 0);
}

/// A thread's first call takes the record of one that has ended: that it has is what a system call says by an error.
pub(crate) fn first_calls_keep_errno() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("clang-nop");
    let (_hook, add) = (attach(&fixture.function("add")), fixture.get::<Add>("add"));
    for _ in 0..20 {
        let call = move || {
            // SAFETY: every thread has an errno.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: it is the thread's own.
            unsafe { errno.write_volatile(77) };
            let sum = add(1, 2);
            // SAFETY: as above.
            (sum, unsafe { errno.read_volatile() })
        };
        assert_eq!(thread::spawn(call).join().expect("it returns"), (3, 77));
    }
}
