//! Hooked functions do what they do without hooks, for their callers, for unwinders, and for themselves.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use twinbpf_hook::{Callback, Function, Hook, Point, Replacement};

use crate::can_compile;
use crate::fixture::{Fixture, KINDS};

type Long = extern "C" fn(i64) -> i64;
type Nine = extern "C" fn(i64, i64, i64, i64, i64, i64, i64, i64, i64) -> i64;

/// Changes what AVX-512 has besides.
#[target_feature(enable = "avx512f,avx512bw")]
fn disturb_wide() {
    // SAFETY: all are clobbered by calls.
    unsafe {
        std::arch::asm!(
            "vpternlogd zmm0, zmm0, zmm0, 255",
            "vmovaps zmm1, zmm0",
            "vmovaps zmm17, zmm0",
            "kxnorq k1, k1, k1",
            clobber_abi("C")
        );
    }
}

/// Changes what callbacks may change: vector registers with their upper halves, errno.
pub(crate) fn disturb() {
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
        // SAFETY: the machine has it.
        unsafe { disturb_wide() };
    }
    // SAFETY: all are clobbered by calls.
    unsafe {
        std::arch::asm!(
            "pxor xmm0, xmm0",
            "pcmpeqd xmm1, xmm1",
            "pxor xmm2, xmm2",
            "pcmpeqd xmm7, xmm7",
            "pxor xmm15, xmm15",
            "pcmpeqd xmm8, xmm8",
            "xor edi, edi",
            "xor esi, esi",
            "mov r10, -1",
            "mov r11, -1",
            "xor eax, eax",
            clobber_abi("C")
        );
        if is_x86_feature_detected!("avx") {
            std::arch::asm!(
                "vpcmpeqd xmm0, xmm0, xmm0",
                "vinsertf128 ymm0, ymm0, xmm0, 1",
                "vmovaps ymm1, ymm0",
                "vzeroupper",
                clobber_abi("C")
            );
        }
        *libc_errno() = 1;
    }
}

unsafe extern "C" {
    #[link_name = "__errno_location"]
    safe fn libc_errno() -> *mut i32;
}

/// A callback that counts, and disturbs.
fn counting(count: &Arc<AtomicU64>) -> Callback {
    let count = Arc::clone(count);
    // SAFETY: it counts, and takes no lock.
    unsafe {
        Callback::of(move |call| {
            black_box(call.argument(0));
            disturb();
            count.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// Hooks of all functions that can be hooked, at entry or return, with or without registers, several at once.
fn hook_all(fixture: &Fixture, how: usize, count: &Arc<AtomicU64>) -> (Vec<Hook>, usize) {
    let all = fixture.module.functions("*");
    let own = |function: &&Function| !function.name().starts_with('_') && !function.name().contains("register_tm");
    let functions: Vec<Function> =
        all.iter().filter(own).filter(|function| function.check().is_ok()).cloned().collect();
    let callback = counting(count);
    let attach = |point, callback: &Callback| {
        // SAFETY: C functions of the fixture.
        unsafe { Hook::attach(&functions, point, callback) }.expect("they attach")
    };
    let registers = || callback.clone().with_registers();
    let hooks = match how {
        0 => vec![attach(Point::Entry, &callback)],
        1 => vec![attach(Point::Entry, &registers())],
        2 => vec![attach(Point::Return, &callback)],
        3 => vec![attach(Point::Entry, &callback), attach(Point::Return, &callback)],
        4 => {
            vec![attach(Point::Entry, &callback), attach(Point::Entry, &registers()), attach(Point::Return, &callback)]
        }
        _ => vec![attach(Point::Entry, &callback), attach(Point::Entry, &callback)],
    };
    (hooks, functions.len())
}

/// Runs everything, and says what it computed.
pub(crate) fn compute(fixture: &Fixture) -> Vec<i64> {
    let long = |name, argument| fixture.get::<Long>(name)(argument);
    let none = |name| fixture.get::<extern "C" fn() -> i64>(name)();
    vec![
        fixture.get::<extern "C" fn(i64, i64) -> i64>("add")(3, 4),
        fixture.get::<Nine>("nine")(1, 2, 3, 4, 5, 6, 7, 8, 9),
        fixture.get::<extern "C" fn(f64, f32, f64) -> f64>("scale")(1.5, 2.0, 0.25).to_bits() as i64,
        if is_x86_feature_detected!("avx") {
            fixture.get::<extern "C" fn(f64) -> f64>("call_wide")(1.5).to_bits() as i64
        } else {
            0
        },
        if is_x86_feature_detected!("avx512f") && fixture.has("call_widest") {
            fixture.get::<extern "C" fn(f64) -> f64>("call_widest")(1.5).to_bits() as i64
        } else {
            0
        },
        long("call_big", 7),
        none("call_sum"),
        long("fact", 15),
        long("depth", 10_000),
        long("tail", 5),
        long("red_zone", 3),
        long("backwards", 11),
        (0..9).map(|case| long("cases", case) * (case + 1)).sum(),
        none("errno_after") & 0xffff_ffff,
        long("errno_kept", 1) & 0xffff_ffff,
        long("call_jumps", 5),
        long("thread_ends", 0),
        long("thread_ends", 77),
        none("coroutines"),
        none("registers"),
    ]
}

pub(crate) fn functions_compute_what_they_do_without_hooks() {
    if !can_compile() {
        return;
    }
    for (kind, ..) in KINDS {
        let fixture = Fixture::new(kind);
        let plain = compute(&fixture);
        assert_eq!(plain.last(), Some(&0), "{kind}: registers");
        for how in 0..6 {
            let count = Arc::new(AtomicU64::new(0));
            let (hooks, functions) = hook_all(&fixture, how, &count);
            assert!(functions >= 20, "{kind}: {functions} functions can be hooked");
            let hooked = compute(&fixture);
            assert_eq!(hooked, plain, "{kind}, way {how}");
            assert_eq!(hooks.iter().map(Hook::lost_returns).sum::<u64>(), 0);
            assert!(count.load(Ordering::Relaxed) > 10_000, "{kind}, way {how}: {count:?} calls");
            drop(hooks);
            let before = count.load(Ordering::Relaxed);
            assert_eq!(compute(&fixture), plain, "{kind}, after way {how}");
            assert_eq!(count.load(Ordering::Relaxed), before, "{kind}: nothing is attached");
        }
    }
}

pub(crate) fn returns_are_seen_and_functions_unwind() {
    if !can_compile() {
        return;
    }
    for kind in ["gcc-nops", "gcc-moved", "clang-nop"] {
        let fixture = Fixture::new(kind);
        let sum = Arc::new(AtomicI64::new(0));
        let adds = Arc::clone(&sum);
        // SAFETY: it adds.
        let callback = unsafe { Callback::of(move |call| _ = adds.fetch_add(call.result() as i64, Ordering::Relaxed)) };
        let functions = ["fact", "around", "frames", "last", "tail"].map(|name| fixture.function(name));
        let frames = fixture.get::<Long>("around");
        let plain = frames(20);
        // SAFETY: C functions of the fixture.
        let hook = unsafe { Hook::attach(&functions, Point::Return, &callback) }.expect("they attach");
        assert_eq!(fixture.get::<Long>("fact")(5), 120);
        assert_eq!(sum.swap(0, Ordering::Relaxed), 1 + 2 + 6 + 24 + 120);
        assert_eq!(fixture.get::<Long>("tail")(5), 17);
        assert_eq!(sum.swap(0, Ordering::Relaxed), 17 + 17, "a tail call returns from both");
        let hooked = frames(20);
        assert!(hooked >= plain, "{kind}: backtrace() sees {hooked} frames, {plain} without hooks");
        drop(hook);
    }
}

pub(crate) fn exceptions_pass_functions_with_hooked_returns() {
    if !can_compile() {
        return;
    }
    for options in [&["-fpatchable-function-entry=5"][..], &[]] {
        let fixture = Fixture::compile("thrown.cc", "g++", options);
        let catches = fixture.get::<Long>("catches");
        let mut functions = ["thrower", "middle", "catches"].map(|name| fixture.function(name)).to_vec();
        functions.retain(|function| function.check().is_ok());
        assert!(functions.len() >= 2, "{functions:?}");
        let count = Arc::new(AtomicU64::new(0));
        for point in [Point::Entry, Point::Return] {
            // SAFETY: C++ functions of the fixture.
            let hook = unsafe { Hook::attach(&functions, point, &counting(&count)) }.expect("they attach");
            // More throws than there are pending returns: what they leave is found again.
            for depth in 0..40_000_i64 {
                assert_eq!(catches(depth % 30), 42, "point {point:?}, depth {depth}");
            }
            assert_eq!(hook.lost_returns(), 0);
        }
    }
}

pub(crate) fn replacements_and_results_of_callbacks() {
    extern "C" fn minus(a: i64, b: i64) -> i64 {
        a - b
    }
    if !can_compile() {
        return;
    }
    for kind in ["gcc-nops", "gcc-moved", "clang-xray"] {
        let fixture = Fixture::new(kind);
        let (function, add) = (fixture.function("add"), fixture.get::<extern "C" fn(i64, i64) -> i64>("add"));
        // SAFETY: of the same type.
        let replacement = unsafe { Replacement::of(&function, minus as *const () as u64) }.expect("it attaches");
        assert_eq!(add(9, 4), 5);
        // SAFETY: it is `add`.
        let original: extern "C" fn(i64, i64) -> i64 = unsafe { std::mem::transmute(replacement.original() as usize) };
        assert_eq!(original(9, 4), 13);
        // SAFETY: as above.
        let again = unsafe { Replacement::of(&function, minus as *const () as u64) }.expect_err("one is enough");
        assert!(again.to_string().ends_with(": it has a replacement already"), "{again}");
        replacement.undo().expect("it comes back");
        assert_eq!(add(9, 4), 13);
        // SAFETY: a caller of `add` can live with any number.
        let skips = unsafe {
            Callback::of(|call| {
                if call.argument(0) == Some(1) {
                    call.skip_function(77)
                }
            })
        }
        .with_registers();
        // SAFETY: as above.
        let hook = unsafe { Hook::attach(&[function], Point::Entry, &skips) }.expect("it attaches");
        assert_eq!((add(1, 2), add(2, 2)), (77, 4));
        hook.detach().expect("it detaches");
        assert_eq!(add(1, 2), 3);
    }
}

/// Refusals, in their exact words, before any code changes.
pub(crate) fn refusals_have_exact_words() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::compile("refused.c", "gcc", &["-fno-toplevel-reorder"]);
    let words = [
        ("short", Point::Entry, "it is shorter than a jump of 5 bytes"),
        ("back", Point::Entry, "a branch leads to its offset 2, where the jump would be"),
        (
            "through",
            Point::Entry,
            "it calls another function within its first 5 bytes, and the return address would be elsewhere",
        ),
        ("traps", Point::Entry, "its first bytes are no instructions that can run elsewhere"),
        (
            "unsized",
            Point::Entry,
            "the symbol table does not say how long it is; compile with -fpatchable-function-entry=5",
        ),
        ("block.cold", Point::Entry, "it is a part of another function, which jumps there"),
        ("getcontext", Point::Return, "it returns more than once for one call, so that its return cannot be hooked"),
    ];
    let count = Arc::new(AtomicU64::new(0));
    for (name, point, why) in words {
        let functions = [fixture.function("plain"), fixture.function(name)];
        let wanted = if point == Point::Entry { &functions[..] } else { &functions[1..] };
        // SAFETY: nothing is attached.
        let error = unsafe { Hook::attach(wanted, point, &counting(&count)) }.expect_err(name);
        let module = fixture.module.path().display();
        assert_eq!(error.to_string(), format!("cannot hook {name} of {module}: {why}"));
    }
    let go = Fixture::compile("refused.c", "gcc", &["-fno-toplevel-reorder", "-DGO"]);
    for point in [Point::Entry, Point::Return] {
        // SAFETY: nothing is attached.
        let error = unsafe { Hook::attach(&[go.function("plain")], point, &counting(&count)) }.expect_err("it is Go's");
        let words = "Go's compiler made it: goroutines have no room for a callback on their stacks, and Go's runtime finds \
                     frames by return addresses; use the kernel's uprobes";
        assert_eq!(error.to_string(), format!("cannot hook plain of {}: {words}", go.module.path().display()));
    }
    drop(go);
    let error = twinbpf_hook::Module::find("libnowhere.so").expect_err("there is none");
    assert_eq!(error.to_string(), "this process has loaded no file libnowhere.so; /proc/self/maps lists what it has");
    let other = Fixture::new("gcc-moved");
    let both = [&fixture, &other].map(|fixture| fixture.module.path().display().to_string());
    let error = twinbpf_hook::Module::find("libhooked.so").expect_err("two have that name");
    assert_eq!(error.to_string(), format!("libhooked.so is any of {}: give more of the path", both.join(", ")));
    let states = twinbpf_hook::enabled().expect("no callback");
    assert!(!states.iter().any(|state| state.name == "plain"), "nothing stays attached");
}
