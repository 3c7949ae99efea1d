//! Fast paths of callbacks: what they do at once, and what they leave to their callbacks.

use std::arch::global_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use twinbpf_hook::{Call, Callback, Function, Hook, Point, leaves_vectors_alone};

use crate::can_compile;
use crate::fixture::{Fixture, KINDS};
use crate::transparent::{compute, disturb};

/// Of one callback with a fast path.
#[repr(C)]
#[derive(Default)]
struct Counts {
    /// Calls of the fast path.
    fast: AtomicU64,
    /// Of these, calls that it has left to the callback.
    left: AtomicU64,
    /// Calls of the callback alone, as others of its list had no fast path.
    alone: AtomicU64,
}

impl Counts {
    fn load(&self) -> [u64; 3] {
        [&self.fast, &self.left, &self.alone].map(|count| count.load(Ordering::Relaxed))
    }
}

// Counts in the first word, changes all registers that it may, and leaves every third call to the callback.
global_asm!(
    ".pushsection .text.hook_test_fast,\"ax\",@progbits",
    ".globl hook_test_fast",
    "hook_test_fast:",
    "mov eax, 1",
    "lock xadd [rsi], rax",
    "xor edx, edx",
    "mov ecx, 3",
    "div rcx",
    "xor eax, eax",
    "cmp edx, 2",
    "sete al",
    "neg eax",
    "and eax, 7",
    "mov rcx, -1",
    "mov rdx, -1",
    "mov rsi, -1",
    "mov rdi, -1",
    "mov r8, -1",
    "mov r9, -1",
    "mov r10, -1",
    "mov r11, -1",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn hook_test_fast(call: *mut Call, data: *mut c_void) -> u32;
}

unsafe extern "C" fn rest(call: *mut Call, data: *mut c_void) {
    // SAFETY: the trampoline passes a call, and the test the counts.
    let (call, counts) = unsafe { (&*call, &*data.cast::<Counts>()) };
    disturb();
    match call.unfinished() {
        0 => counts.alone.fetch_add(1, Ordering::Relaxed),
        7 => counts.left.fetch_add(1, Ordering::Relaxed),
        other => panic!("{other} is no result of the fast path"),
    };
}

/// A callback with a fast path.
fn fast(counts: &'static Counts) -> Callback {
    let data = std::ptr::from_ref(counts).cast_mut().cast();
    // SAFETY: both count, and the fast path changes general-purpose registers only.
    unsafe { Callback::new(rest, data).with_fast_path(hook_test_fast) }
}

/// One without.
fn slow(counts: &'static Counts) -> Callback {
    // SAFETY: it counts.
    unsafe { Callback::new(rest, std::ptr::from_ref(counts).cast_mut().cast()) }
}

pub(crate) fn rests_of_fast_paths() {
    if !can_compile() {
        return;
    }
    assert!(leaves_vectors_alone(hook_test_fast as *const () as u64, &[]));
    for (kind, ..) in KINDS {
        let fixture = Fixture::new(kind);
        let plain = compute(&fixture);
        let own = |function: &Function| function.check().is_ok() && !function.name().starts_with('_');
        let functions: Vec<Function> = fixture.module.functions("*").into_iter().filter(own).collect();
        for how in 0..5 {
            let counts: [&'static Counts; 3] = [0, 1, 2].map(|_| &*Box::leak(Box::default()));
            let [first, second, third] = counts;
            let attach = |point, callback: &Callback| {
                // SAFETY: C functions of the fixture.
                unsafe { Hook::attach(&functions, point, callback) }.expect("they attach")
            };
            let hooks = match how {
                0 => vec![attach(Point::Entry, &fast(first))],
                1 => vec![attach(Point::Entry, &fast(first).with_registers()), attach(Point::Entry, &fast(second))],
                2 => vec![attach(Point::Return, &fast(first)), attach(Point::Return, &fast(second))],
                3 => vec![
                    attach(Point::Entry, &fast(first)),
                    attach(Point::Entry, &slow(second)),
                    attach(Point::Entry, &fast(third)),
                ],
                _ => vec![
                    attach(Point::Return, &fast(first)),
                    attach(Point::Entry, &slow(second)),
                    attach(Point::Entry, &fast(third)),
                ],
            };
            assert_eq!(compute(&fixture), plain, "{kind}, case {how}");
            drop(hooks);
            let [fast, left, alone] = [0, 1, 2].map(|which: usize| counts.map(|counts| counts.load()[which]));
            let calls = [0, 1, 2].map(|index: usize| fast[index] + alone[index]);
            assert!(calls[0] > 10_000, "{kind}, case {how}: {calls:?}");
            (0..3).for_each(|index| assert_eq!(left[index], fast[index] / 3, "{kind}, case {how}"));
            match how {
                0 => assert_eq!(alone, [0; 3]),
                // After the first that leaves its call, callbacks run alone.
                1 | 2 => assert_eq!((calls[0], alone), (calls[1], [0, left[0], 0])),
                3 => assert_eq!((calls, alone), ([calls[0]; 3], [0, calls[0], calls[0]])),
                _ => assert_eq!((calls[1], alone), (calls[2], [0, calls[1], calls[1]])),
            }
        }
    }
}
