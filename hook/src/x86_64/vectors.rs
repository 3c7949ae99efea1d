//! Saving of vector registers, and what else trampolines must know of the machine and the C library.
//!
//! With AVX all of ymm is saved, at the price of half of it; where upper halves were zero they are afterwards by
//! `vzeroupper`, since some machines are slow otherwise. What only AVX-512 has (zmm, 16 registers more, masks) costs five times as much, and
//! is saved where the hooked function's file has instructions of AVX-512: nothing else can have a value there when it calls.
#![expect(unsafe_code, reason = "reads the thread pointer")]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What there is: 0, SSE; 1, AVX; 2, AVX-512 with masks of 64 bits.
pub(super) static VECTORS: AtomicU8 = AtomicU8::new(0);
/// Where `errno` is, relative to the thread pointer.
pub(super) static ERRNO: AtomicU64 = AtomicU64::new(0);

// The word at rbp - 8 says what was saved: 0, xmm; 1, ymm with upper halves that are zero; 2, ymm; 3, all of AVX-512.
// mxcsr is at rbp - 16.
macro_rules! save_vectors {
    () => {
        ".macro HOOK_SAVE_VECTORS
        sub rsp, 32
        mov qword ptr [rbp - 8], 0
        test byte ptr [rbp + {NEEDS}], {NEEDS_FLOATS}
        jz 1999f
        stmxcsr [rbp - 16]
    1999:
        cmp byte ptr [rip + {VECTORS}], 1
        jb 2000f
        je 2001f
        test byte ptr [rbp + {NEEDS}], {NEEDS_WIDE}
        jnz 2002f
    2001:
        sub rsp, 512
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovups [rsp + 32 * \\n], ymm\\n
        .endr
        mov qword ptr [rbp - 8], 1
        .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vorps ymm0, ymm0, ymm\\n
        .endr
        vextractf128 xmm0, ymm0, 1
        vptest xmm0, xmm0
        jz 2003f
        mov qword ptr [rbp - 8], 2
        jmp 2003f
    2002:
        sub rsp, 2112
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vmovups [rsp + 64 * \\n], zmm\\n
        .endr
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7
        kmovq [rsp + 2048 + 8 * \\n], k\\n
        .endr
        mov qword ptr [rbp - 8], 3
        jmp 2003f
    2000:
        sub rsp, 256
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movups [rsp + 16 * \\n], xmm\\n
        .endr
    2003:
        .endm"
    };
}
pub(super) use save_vectors;

macro_rules! restore_vectors {
    () => {
        ".macro HOOK_RESTORE_VECTORS
        test byte ptr [rbp + {NEEDS}], {NEEDS_FLOATS}
        jz 1999f
        ldmxcsr [rbp - 16]
    1999:
        mov eax, [rbp - 8]
        cmp eax, 1
        jb 2000f
        je 2001f
        cmp eax, 3
        je 2002f
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        vmovups ymm\\n, [rsp + 32 * \\n]
        .endr
        jmp 2003f
    2001:
        vzeroupper
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movups xmm\\n, [rsp + 32 * \\n]
        .endr
        jmp 2003f
    2002:
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        vmovups zmm\\n, [rsp + 64 * \\n]
        .endr
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7
        kmovq k\\n, [rsp + 2048 + 8 * \\n]
        .endr
        jmp 2003f
    2000:
        .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        movups xmm\\n, [rsp + 16 * \\n]
        .endr
    2003:
        mov rsp, rbp
        and rsp, -16
        .endm"
    };
}
pub(super) use restore_vectors;

/// Whether this machine has AVX-512.
pub(super) fn has_wide() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Learns what the trampolines must know of this machine and C library. Again and again does no harm.
pub(super) fn prepare() {
    // SAFETY: every thread has an errno.
    let errno = unsafe { libc::__errno_location() }.addr();
    let thread_pointer: usize;
    // SAFETY: the ABI of x86-64 has the thread pointer at fs:0.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) thread_pointer, options(nostack, readonly, preserves_flags)) };
    ERRNO.store(errno.wrapping_sub(thread_pointer) as u64, Ordering::Relaxed);
    let vectors = if has_wide() { 2 } else { u8::from(is_x86_feature_detected!("avx")) };
    VECTORS.store(vectors, Ordering::Release);
}
