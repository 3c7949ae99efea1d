//! Which trampoline runs in which state, and that calls are counted exactly while it changes.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use twinbpf_hook::{Call, Callback, Function, Hook, Point, Preparation, Trampoline, enabled};

use crate::can_compile;
use crate::fixture::{Fixture, KINDS, StopOnPanic};
use crate::support::ftrace::{STEPS, Tracer, shape};

thread_local! {
    /// Calls of A, B and C on this thread.
    static COUNTS: [Cell<u64>; 3] = const { [const { Cell::new(0) }; 3] };
}

// The direct trampoline D: counts in thread-local memory of its own.
global_asm!(
    ".pushsection .tbss.hook_test,\"awT\",@nobits",
    ".balign 8",
    "hook_test_count: .zero 8",
    ".popsection",
    ".pushsection .text.hook_test,\"ax\",@progbits",
    ".globl hook_test_direct",
    "hook_test_direct:",
    "mov r11, [rip + hook_test_count@GOTTPOFF]",
    "inc qword ptr fs:[r11]",
    "ret",
    ".globl hook_test_take",
    "hook_test_take:",
    "mov r11, [rip + hook_test_count@GOTTPOFF]",
    "xor eax, eax",
    "xchg rax, fs:[r11]",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn hook_test_direct();
    /// What D has counted on this thread since the last time.
    safe fn hook_test_take() -> u64;
}

unsafe extern "C" fn count(call: *mut Call, data: *mut c_void) {
    // SAFETY: the trampoline passes a call.
    let argument = unsafe { &*call }.argument(1);
    assert_eq!(argument, Some(5), "the second argument");
    COUNTS.with(|counts| counts[data.addr()].set(counts[data.addr()].get() + 1));
}

/// The callbacks of one hook: A, B, C, D in bits 0 to 3.
fn attach(function: &Function, which: usize) -> Hook {
    let functions = std::slice::from_ref(function);
    // SAFETY: they count, on their own thread; `add` follows the calling convention.
    unsafe {
        let callback = Callback::new(count, ptr::without_provenance_mut(which));
        match which {
            0 | 1 => Hook::attach(functions, Point::Entry, &callback),
            2 => Hook::attach(functions, Point::Entry, &callback.with_registers()),
            _ => Hook::direct(functions, hook_test_direct as *const () as u64),
        }
    }
    .expect("it attaches")
}

/// What the table says for the set of what is attached.
fn expected(mask: usize) -> Option<Trampoline> {
    let callbacks = (mask & 7).count_ones();
    let registers = mask & 4 != 0;
    match (callbacks, mask & 8 != 0) {
        (0, false) => None,
        (0, true) => Some(Trampoline::Direct(hook_test_direct as *const () as u64)),
        (1, _) if registers => Some(Trampoline::RegsPrivate),
        (1, _) => Some(Trampoline::ArgsPrivate),
        (_, _) if registers => Some(Trampoline::RegsList),
        (_, _) => Some(Trampoline::ArgsList),
    }
}

/// One call, of which each callback in the mask counts one.
fn call_once(add: extern "C" fn(i64, i64) -> i64) -> [u64; 4] {
    COUNTS.with(|counts| counts.iter().for_each(|count| count.set(0)));
    hook_test_take();
    assert_eq!(add(4, 5), 9);
    let direct = hook_test_take();
    COUNTS.with(|counts| [counts[0].get(), counts[1].get(), counts[2].get(), direct])
}

fn of_mask(mask: usize) -> [u64; 4] {
    [0, 1, 2, 3].map(|bit| (mask >> bit & 1) as u64)
}

pub(crate) fn each_kind_of_preparation_is_found() {
    if !can_compile() {
        return;
    }
    let expected = [
        Preparation::Moved,
        Preparation::Nops,
        Preparation::Nops,
        Preparation::Nops,
        Preparation::Fentry,
        Preparation::Moved,
        Preparation::Nop,
        Preparation::Sled,
    ];
    for ((kind, ..), expected) in KINDS.iter().zip(expected) {
        let fixture = Fixture::new(kind);
        assert_eq!(fixture.function("add").check(), Ok(expected), "{kind}");
    }
}

/// The state while no change is under way is in the low bits; a change makes it odd.
struct Shared {
    epoch: AtomicU64,
    mask: AtomicU64,
    done: AtomicBool,
    checked: AtomicU64,
}

fn work(shared: &Shared, add: extern "C" fn(i64, i64) -> i64) {
    while !shared.done.load(Ordering::Relaxed) {
        let epoch = shared.epoch.load(Ordering::SeqCst);
        let mask = shared.mask.load(Ordering::SeqCst) as usize;
        let counted = call_once(add);
        let _stop = StopOnPanic(&shared.done);
        if epoch.is_multiple_of(2) && shared.epoch.load(Ordering::SeqCst) == epoch {
            assert_eq!(counted, of_mask(mask), "in state {mask:04b}");
            shared.checked.fetch_add(1, Ordering::Relaxed);
        } else {
            assert!(counted.iter().all(|count| *count <= 1), "a call was counted twice: {counted:?}");
        }
    }
}

fn orders() -> Vec<[usize; 4]> {
    let all = (0..256).map(|number| [number & 3, number >> 2 & 3, number >> 4 & 3, number >> 6]);
    all.filter(|order| (0..4).all(|which| order.contains(&which))).collect()
}

pub(crate) fn every_order_of_attaching_and_detaching() {
    if !can_compile() {
        return;
    }
    for kind in ["gcc-nops", "gcc-moved", "clang-nop"] {
        let fixture = Fixture::new(kind);
        let (function, add) = (fixture.function("add"), fixture.get::<extern "C" fn(i64, i64) -> i64>("add"));
        let shared = Shared {
            epoch: AtomicU64::new(0),
            mask: AtomicU64::new(0),
            done: AtomicBool::new(false),
            checked: AtomicU64::new(0),
        };
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| work(&shared, add))));
            let result = std::panic::catch_unwind(|| permute(&shared, &function, add));
            shared.done.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        assert!(!enabled().expect("no callback").iter().any(|state| state.address == function.address()));
    }
}

fn permute(shared: &Shared, function: &Function, add: extern "C" fn(i64, i64) -> i64) {
    let mut hooks: [Option<Hook>; 4] = [const { None }; 4];
    let mut mask = 0;
    for (index, attaching) in orders().into_iter().enumerate() {
        let detaching = orders()[(index * 7 + 5) % 24];
        for (which, add_it) in
            attaching.map(|which| (which, true)).into_iter().chain(detaching.map(|which| (which, false)))
        {
            shared.epoch.fetch_add(1, Ordering::SeqCst);
            hooks[which] = add_it.then(|| attach(function, which));
            mask ^= 1 << which;
            shared.mask.store(mask as u64, Ordering::SeqCst);
            shared.epoch.fetch_add(1, Ordering::SeqCst);
            check(function, mask, add);
            let seen = shared.checked.load(Ordering::Relaxed);
            while shared.checked.load(Ordering::Relaxed) < seen + 20 {
                assert!(!shared.done.load(Ordering::Relaxed), "a thread found a mistake");
                thread::yield_now();
            }
        }
    }
}

fn check(function: &Function, mask: usize, add: extern "C" fn(i64, i64) -> i64) {
    let all = enabled().expect("no callback");
    let state = all.iter().find(|state| state.address == function.address());
    assert_eq!(state.and_then(|state| state.trampoline), expected(mask), "in state {mask:04b}");
    if let Some(state) = state {
        assert_eq!(state.count, mask.count_ones() as usize);
        assert_eq!((state.registers, state.direct), (mask & 4 != 0, mask & 8 != 0), "in state {mask:04b}");
    }
    (0..10).for_each(|_| assert_eq!(call_once(add), of_mask(mask), "in state {mask:04b}"));
}

/// Pages of this process in memory, and its mappings.
fn footprint() -> (usize, usize) {
    let resident = std::fs::read_to_string("/proc/self/statm").expect("the kernel has it");
    let resident = resident.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    let mappings = std::fs::read_to_string("/proc/self/maps").expect("the kernel has it").lines().count();
    (resident, mappings)
}

/// Hooks that come and go leave nothing.
pub(crate) fn ten_thousand_cycles() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("clang-nop");
    let (function, add) = (fixture.function("add"), fixture.get::<extern "C" fn(i64, i64) -> i64>("add"));
    let cycle = |number: usize| {
        let hooks = [attach(&function, number & 1), attach(&function, 2), attach(&function, 3)];
        let mask = 1 << (number & 1) | 4 | 8;
        assert_eq!(call_once(add), of_mask(mask));
        drop(hooks);
        assert_eq!(call_once(add), of_mask(0));
    };
    (0..100).for_each(cycle);
    // The allocator may give the process more pages once, for blocks that earlier tests freed. A leak of hooks adds pages in
    // every round.
    let mut seen = vec![footprint()];
    let settles = (0..3).any(|_| {
        (0..10_000).for_each(cycle);
        let (before, after) = (seen[seen.len() - 1], footprint());
        seen.push(after);
        after.0 <= before.0 + 64 && after.1 <= before.1 + 2
    });
    assert!(settles, "pages, mappings: {seen:?}");
}

/// What is said after each step where the kernel says the lines of [`STEPS`] (a check of `tests/vm` compares them).
///
/// Count and D are the same. R differs where only the direct trampoline is there: the kernel calls that through
/// `ftrace_regs_caller`, here the stub does it. It differs again with the tracer added, for the same reason. In the kernel a
/// direct trampoline is in the list of callbacks; here it comes after them, and alone it is called itself.
const OURS: [&str; 7] = [
    "(1)     D\ttramp: direct",
    "(2)     D\ttramp: args",
    "(3) R   D ->regs list",
    "(2) R   D\ttramp: regs",
    "(1) R    \ttramp: regs",
    "",
    "(1)      \ttramp: args",
];

pub(crate) fn the_steps_of_ftrace() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("clang-nop");
    let function = fixture.function("add");
    let mut hooks: [Option<Hook>; 4] = [const { None }; 4];
    for (step, ours) in STEPS.iter().zip(OURS) {
        let which = match step.tracer {
            Tracer::Function => 0,
            Tracer::Kprobe => 2,
            Tracer::Fentry => 3,
        };
        hooks[which] = step.comes.then(|| attach(&function, which));
        let all = enabled().expect("no callback");
        let state = all.iter().find(|state| state.address == function.address());
        let said = state.map(|state| state.to_string().replace("add ", "")).unwrap_or_default();
        let after = format!("{:?} {}: {said}", step.tracer, step.comes);
        assert!(said.starts_with(ours), "{after}, not {ours}");
        let ((count, direct, list), kernel) = (shape(&said), shape(step.line));
        assert_eq!((count, direct), (kernel.0, kernel.1), "{after}");
        // A list here is one in the kernel.
        assert_eq!(list, hooks.iter().take(3).flatten().count() > 1, "{after}");
        assert!(kernel.2 || !list, "{after}");
    }
}
