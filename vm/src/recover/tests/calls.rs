#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]
use super::*;

#[test]
fn arguments_arrive_and_the_result_comes_back() {
    // rax = rsi (r10) + rdx + rcx + r8 + r9
    let page = function(&[0x48, 0x89, 0xf0, 0x48, 0x01, 0xd0, 0x48, 0x01, 0xc8, 0x4c, 0x01, 0xc0, 0x4c, 0x01, 0xc8]);
    let mut rig = Rig::new();
    let stack = NativeStack::new(1 << 20).unwrap();
    for stack in [None, Some(&stack)] {
        assert_eq!(rig.enter(&page, [1, 20, 300, 4000], stack).unwrap(), 0x1000 + 4321);
    }
    assert!(record::current().is_none());
}

#[test]
fn code_runs_on_the_stack_it_is_given() {
    let page = function(&[0x48, 0x89, 0xe0]);
    let stack = NativeStack::new(1 << 20).unwrap();
    let rsp = Rig::new().enter(&page, [0; 4], Some(&stack)).unwrap();
    let top = stack.top().get();
    assert!(rsp < top && rsp >= top - 64, "{rsp:#x} near {top:#x}");
    // Frames are aligned as C wants it: `rsp` here is after a return address and rbp.
    assert!(rsp.is_multiple_of(16));
    let other = Rig::new().enter(&page, [0; 4], None).unwrap();
    assert!(other.abs_diff(top) > 1 << 20 && other.is_multiple_of(16));
}

#[test]
fn a_fault_in_code_says_where_and_what() {
    // mov rax, [rdx]
    let page = function(&[0x48, 0x8b, 0x02]);
    let mut rig = Rig::new();
    let stack = NativeStack::new(1 << 20).unwrap();
    for round in 0..1000u64 {
        let stack = (round % 2 == 0).then_some(&stack);
        match rig.enter(&page, [round, 0, 0, 0], stack) {
            Err(Abort::Fault(fault)) => {
                assert_eq!((fault.signal, fault.pc, fault.address), (Signal::Segv, page.at + 4, Some(round)));
                assert_eq!(fault.in_c, 0);
                let near = stack.map_or(&raw const fault as u64, |stack| stack.top().get());
                assert!(fault.frame.abs_diff(near) < 1 << 16);
            }
            other => panic!("a fault, not {other:?}"),
        }
    }
    let word = 77u64;
    assert_eq!(rig.enter(&page, [&raw const word as u64, 0, 0, 0], None).unwrap(), 77);
    assert!(record::current().is_none());
}

#[test]
fn an_impossible_address_is_not_reported() {
    let page = function(&[0x48, 0x8b, 0x02]);
    let fault = Rig::new().fault(&page, [0xdead_dead_dead_de01, 0, 0, 0]);
    assert_eq!((fault.signal, fault.address), (Signal::Segv, None));
}

#[test]
fn illegal_instructions_and_divisions_end_alike() {
    let mut rig = Rig::new();
    // ud2
    let fault = rig.fault(&function(&[0x0f, 0x0b]), [0; 4]);
    assert_eq!((fault.signal, fault.address, fault.to_string().as_str()), (Signal::Ill, None, "SIGILL"));
    // xor ecx, ecx; div ecx
    let fault = rig.fault(&function(&[0x31, 0xc9, 0xf7, 0xf1]), [0; 4]);
    assert_eq!(fault.signal, Signal::Fpe);
}

#[test]
fn registers_of_the_caller_survive() {
    // Clobbers rbx, r12 to r15 and the direction flag, then faults.
    let page = function(&[
        0x31, 0xdb, 0x4d, 0x31, 0xe4, 0x4d, 0x31, 0xed, 0x4d, 0x31, 0xf6, 0x4d, 0x31, 0xff, 0xfd, 0x0f, 0x0b,
    ]);
    let mut rig = Rig::new();
    let values: Vec<u64> = (0..12).map(|index| std::hint::black_box(index * 3)).collect();
    let [a, b, c, d, e, f] = [values[1], values[2], values[3], values[4], values[5], values[6]];
    rig.fault(&page, [0; 4]);
    assert_eq!([a, b, c, d, e, f], [3, 6, 9, 12, 15, 18]);
    let mut copy = vec![0; 12];
    copy.copy_from_slice(&values);
    assert_eq!(copy, values);
}

#[test]
fn an_overflow_of_the_stack_hits_the_guard() {
    // call self
    let page = Page::new(&[0x55, 0x48, 0x89, 0xe5, 0xe8, 0xf7, 0xff, 0xff, 0xff]);
    let stack = NativeStack::new(256 << 10).unwrap();
    match Rig::new().enter(&page, [0; 4], Some(&stack)) {
        Err(Abort::Fault(fault)) => assert!(stack.is_guard(fault.address.unwrap())),
        other => panic!("a fault, not {other:?}"),
    }
}

#[test]
fn a_fault_in_a_c_function_under_generated_code_is_distinguished() {
    // mov dword [rdi], 7 (in_c); mov rdi, rdx; mov rax, rcx; call rax; xor ecx, ecx is not reached
    let page = function(&[0xc7, 0x07, 7, 0, 0, 0, 0x48, 0x89, 0xd7, 0x48, 0x89, 0xc8, 0xff, 0xd0]);
    let mut rig = Rig::new();
    let strlen = libc::strlen as *const () as u64;
    for _ in 0..100 {
        let fault = rig.fault(&page, [8, strlen, 0, 0]);
        assert_eq!((fault.signal, fault.address, fault.in_c), (Signal::Segv, Some(8), 7));
        assert!(!range::is_code(fault.pc));
        assert_eq!(rig.in_c, 0, "reset");
    }
    assert_eq!(rig.enter(&page, [c"four".as_ptr() as u64, strlen, 0, 0], None).unwrap(), 4);
}

#[test]
fn c_functions_are_called_by_their_form() {
    let (ints, mut floats) = ([c"word".as_ptr() as u64, 0, 0, 0, 0, 0], [0.0; 8]);
    let c = |target: *const (), form, ints: &[u64; 6], floats: &[f64; 8]| {
        // SAFETY: each of these functions gets the arguments it wants.
        unsafe { call_c(target as usize, form, ints, floats, std::ptr::null_mut(), no_callback) }.unwrap()
    };
    let plain = Form { variadic: false, float: false };
    assert_eq!(c(libc::strlen as *const (), plain, &ints, &floats), 4);
    unsafe extern "C" {
        fn hypot(a: f64, b: f64) -> f64;
    }
    floats[..2].copy_from_slice(&[3.0, 4.0]);
    let hypot = hypot as *const ();
    assert_eq!(f64::from_bits(c(hypot, Form { float: true, ..plain }, &ints, &floats)), 5.0);
    let mut text = [0u8; 32];
    let ints = [text.as_mut_ptr() as u64, 32, c"%d %.1f %s".as_ptr() as u64, -1i64 as u64, c"ok".as_ptr() as u64, 0];
    floats[0] = 2.5;
    let length = c(libc::snprintf as *const (), Form { variadic: true, ..plain }, &ints, &floats);
    assert_eq!((length, &text[..10]), (9, b"-1 2.5 ok\0".as_slice()));
}

#[test]
fn a_fault_in_a_c_function_is_a_value() {
    for _ in 0..1000 {
        let form = Form { variadic: false, float: false };
        let (target, ints) = (libc::strlen as *const () as usize, [16, 0, 0, 0, 0, 0]);
        // SAFETY: strlen reads only.
        let result = unsafe { call_c(target, form, &ints, &[0.0; 8], std::ptr::null_mut(), no_callback) };
        match result.map_err(|abort| *abort) {
            Err(Abort::Fault(fault)) => {
                assert_eq!((fault.signal, fault.address, fault.in_c), (Signal::Segv, Some(16), IN_C));
            }
            other => panic!("a fault, not {other:?}"),
        }
    }
    assert!(record::current().is_none());
}

#[test]
fn a_thread_without_a_signal_stack_gets_one() {
    extern "C" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
        let page = function(&[0x48, 0x8b, 0x02]);
        let fault = Rig::new().fault(&page, [24, 0, 0, 0]);
        // SAFETY: uses the stack only.
        let flags = unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut stack);
            stack.ss_flags
        };
        assert_eq!((fault.address, flags), (Some(24), 0));
        std::ptr::null_mut()
    }
    // SAFETY: a thread of the C library, joined at once.
    unsafe {
        let mut thread = 0;
        assert_eq!(libc::pthread_create(&raw mut thread, std::ptr::null(), body, std::ptr::null_mut()), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}

#[test]
fn the_timeout_signal_ends_code_when_the_time_is_over() {
    // jmp self
    let page = function(&[0xeb, 0xfe]);
    let mut rig = Rig::new();
    let interrupt = &raw mut rig.interrupt as usize;
    let thread = Thread::current();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            for round in 0.. {
                if round == 10 {
                    // SAFETY: the rig outlives this thread; the other one only reads it.
                    unsafe { (interrupt as *mut u8).write_volatile(1) };
                }
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                thread.interrupt();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let fault = rig.fault(&page, [0; 4]);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!((fault.signal, fault.pc, fault.address), (Signal::Urg, page.at + 4, None));
        assert_eq!(rig.interrupt, 1, "not before it was set");
    });
}

/// What `serve_callback` works on.
struct Served {
    calls: u32,
    limit: u32,
    /// Functions running inside each other.
    depth: u32,
}

/// Compares two integers; traps when it has been called too often.
unsafe fn serve_callback(data: *mut (), function: u64, args: &[u64; 5]) -> Result<u64, Trap> {
    // SAFETY: the tests pass a `Served` that lives across the call.
    let served = unsafe { &mut *data.cast::<Served>() };
    assert_eq!(function, slot());
    served.calls += 1;
    if served.calls > served.limit {
        return Err(Trap::new(TrapCode::OutOfInsns, "enough"));
    }
    // SAFETY: qsort passes pointers to elements.
    let (a, b) = unsafe { (*(args[0] as *const u32), *(args[1] as *const u32)) };
    if served.depth > 0 {
        served.depth -= 1;
        let mut inner = [5u32, 3, 4];
        sort(&mut inner, served).unwrap();
        assert_eq!(inner, [3, 4, 5]);
    }
    Ok(a.cmp(&b) as i64 as u64)
}

/// `lea rax, [rip - 7]; movabs r11, call_back; jmp r11`.
pub(super) fn slot() -> u64 {
    static SLOT: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SLOT.get_or_init(|| {
        let mut code = vec![0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0x49, 0xbb];
        code.extend((call_back() as u64).to_le_bytes());
        code.extend([0x41, 0xff, 0xe3]);
        let page = Page::new(&code);
        let at = page.at;
        std::mem::forget(page);
        at
    })
}

/// `qsort` through `call_c` and the slot.
fn sort(words: &mut [u32], served: &mut Served) -> Result<u64, Abort> {
    let ints = [words.as_mut_ptr() as u64, words.len() as u64, 4, slot(), 0, 0];
    let form = Form { variadic: false, float: false };
    let target = libc::qsort as *const () as usize;
    // SAFETY: the arguments are qsort's, and `data` is what the callback expects.
    unsafe { call_c(target, form, &ints, &[0.0; 8], (&raw mut *served).cast(), serve_callback) }.map_err(|abort| *abort)
}

#[test]
fn c_code_calls_back() {
    let mut words = [9, 1, 8, 2, 7, 3, 6, 4, 5];
    let mut served = Served { calls: 0, limit: 1000, depth: 3 };
    sort(&mut words, &mut served).unwrap();
    assert_eq!(words, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(served.calls >= 8 && served.depth == 0);
}

#[test]
fn a_trap_in_a_callback_leaves_the_c_function() {
    for _ in 0..1000 {
        let mut words = [9, 1, 8, 2, 7, 3, 6, 4, 5];
        let mut served = Served { calls: 0, limit: 5, depth: 0 };
        match sort(&mut words, &mut served) {
            Err(Abort::Trap(trap)) => assert_eq!(trap.code(), TrapCode::OutOfInsns),
            other => panic!("a trap, not {other:?}"),
        }
        assert_eq!(served.calls, 6);
        assert!(record::current().is_none());
    }
}

#[test]
fn a_panic_in_a_callback_is_a_trap() {
    let ints = [[2u32, 1].as_mut_ptr() as u64, 2, 4, slot(), 0, 0];
    let form = Form { variadic: false, float: false };
    let target = libc::qsort as *const () as usize;
    // SAFETY: as in `sort`.
    match unsafe { call_c(target, form, &ints, &[0.0; 8], std::ptr::null_mut(), no_callback) }.map_err(|abort| *abort) {
        Err(Abort::Trap(trap)) => assert_eq!(trap.code(), TrapCode::Panic),
        other => panic!("a trap, not {other:?}"),
    }
}

#[test]
fn generated_code_that_calls_c_that_calls_back() {
    // mov dword [rdi], 1; then qsort(r1, r2, 4, r3); in_c stays 1, which does not matter here.
    // mov rax, r9; mov r10, rdx; mov rsi, rcx; mov rdi, r10 after the store; mov rcx, r8; mov edx, 4; call rax
    let page = function(&[
        0xc7, 0x07, 1, 0, 0, 0, 0x4c, 0x89, 0xc8, 0x48, 0x89, 0xd7, 0x48, 0x89, 0xce, 0x4c, 0x89, 0xc1, 0xba, 4, 0, 0,
        0, 0xff, 0xd0,
    ]);
    let stack = NativeStack::new(1 << 20).unwrap();
    for (limit, ends) in [(1000, false), (3, true)] {
        let mut rig = Rig::new();
        let mut served = Served { calls: 0, limit, depth: 2 };
        let owner = Owner { data: (&raw mut served).cast(), call: serve_callback, ..rig.owner() };
        let mut words = [4, 2, 3, 1u32];
        let args = [words.as_mut_ptr() as u64, 4, slot(), libc::qsort as *const () as u64];
        let cx = &raw mut *rig;
        // SAFETY: as in `Rig::enter`.
        let result = unsafe { enter(&EntryGate::new(owner, &stack), page.at, cx.cast(), 0, &args) };
        assert_eq!(result.as_ref().is_err_and(|abort| matches!(**abort, Abort::Trap(_))), ends, "{result:?}");
        assert_eq!(rig.in_c, u32::from(!ends));
        if !ends {
            assert_eq!(words, [1, 2, 3, 4]);
        }
    }
}

// Generated code with unwind information that calls its first argument with the second.
std::arch::global_asm!(
    ".pushsection .text,\"ax\",@progbits",
    "twinbpf_test_calls_r1:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rdi, rcx",
    "call rdx",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".globl twinbpf_test_calls_r1",
    ".popsection",
);

extern "C" fn count_frames(found: &mut usize) {
    *found = std::backtrace::Backtrace::force_capture().to_string().matches("below_the_trampoline").count();
}

unsafe fn count_in_callback(data: *mut (), _: u64, _: &[u64; 5]) -> Result<u64, Trap> {
    // SAFETY: the test passes a number that lives across the call.
    count_frames(unsafe { &mut *data.cast() });
    Ok(0)
}

#[inline(never)]
fn below_the_trampoline(c: bool, found: &mut usize) {
    let stack = NativeStack::new(1 << 20).unwrap();
    let data = (&raw mut *found).cast();
    if c {
        let ints = [[2u32, 1].as_mut_ptr() as u64, 2, 4, slot(), 0, 0];
        let form = Form { variadic: false, float: false };
        let target = libc::qsort as *const () as usize;
        // SAFETY: as in `sort`.
        unsafe { call_c(target, form, &ints, &[0.0; 8], data, count_in_callback) }.unwrap();
    } else {
        unsafe extern "C" {
            fn twinbpf_test_calls_r1();
        }
        let code = twinbpf_test_calls_r1 as *const () as u64;
        let args = [count_frames as *const () as u64, data as u64, 0, 0];
        // SAFETY: the code follows the convention and does not fault.
        unsafe { enter(&EntryGate::new(Rig::new().owner(), &stack), code, data, 0, &args) }.unwrap();
    }
}

#[test]
fn unwinders_pass_the_trampolines() {
    for c in [false, true] {
        let mut found = 0;
        below_the_trampoline(c, &mut found);
        assert!(found > 0, "the function below the trampoline, c = {c}");
    }
}
