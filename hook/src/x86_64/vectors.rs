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
        vmovups [rsp], ymm0
        vmovups [rsp + 32], ymm1
        vmovups [rsp + 64], ymm2
        vmovups [rsp + 96], ymm3
        vmovups [rsp + 128], ymm4
        vmovups [rsp + 160], ymm5
        vmovups [rsp + 192], ymm6
        vmovups [rsp + 224], ymm7
        vmovups [rsp + 256], ymm8
        vmovups [rsp + 288], ymm9
        vmovups [rsp + 320], ymm10
        vmovups [rsp + 352], ymm11
        vmovups [rsp + 384], ymm12
        vmovups [rsp + 416], ymm13
        vmovups [rsp + 448], ymm14
        vmovups [rsp + 480], ymm15
        mov qword ptr [rbp - 8], 1
        vorps ymm0, ymm0, ymm1
        vorps ymm2, ymm2, ymm3
        vorps ymm4, ymm4, ymm5
        vorps ymm6, ymm6, ymm7
        vorps ymm8, ymm8, ymm9
        vorps ymm10, ymm10, ymm11
        vorps ymm12, ymm12, ymm13
        vorps ymm14, ymm14, ymm15
        vorps ymm0, ymm0, ymm2
        vorps ymm4, ymm4, ymm6
        vorps ymm8, ymm8, ymm10
        vorps ymm12, ymm12, ymm14
        vorps ymm0, ymm0, ymm4
        vorps ymm8, ymm8, ymm12
        vorps ymm0, ymm0, ymm8
        vextractf128 xmm0, ymm0, 1
        vptest xmm0, xmm0
        jz 2003f
        mov qword ptr [rbp - 8], 2
        jmp 2003f
    2002:
        sub rsp, 2112
        vmovups [rsp], zmm0
        vmovups [rsp + 64], zmm1
        vmovups [rsp + 128], zmm2
        vmovups [rsp + 192], zmm3
        vmovups [rsp + 256], zmm4
        vmovups [rsp + 320], zmm5
        vmovups [rsp + 384], zmm6
        vmovups [rsp + 448], zmm7
        vmovups [rsp + 512], zmm8
        vmovups [rsp + 576], zmm9
        vmovups [rsp + 640], zmm10
        vmovups [rsp + 704], zmm11
        vmovups [rsp + 768], zmm12
        vmovups [rsp + 832], zmm13
        vmovups [rsp + 896], zmm14
        vmovups [rsp + 960], zmm15
        vmovups [rsp + 1024], zmm16
        vmovups [rsp + 1088], zmm17
        vmovups [rsp + 1152], zmm18
        vmovups [rsp + 1216], zmm19
        vmovups [rsp + 1280], zmm20
        vmovups [rsp + 1344], zmm21
        vmovups [rsp + 1408], zmm22
        vmovups [rsp + 1472], zmm23
        vmovups [rsp + 1536], zmm24
        vmovups [rsp + 1600], zmm25
        vmovups [rsp + 1664], zmm26
        vmovups [rsp + 1728], zmm27
        vmovups [rsp + 1792], zmm28
        vmovups [rsp + 1856], zmm29
        vmovups [rsp + 1920], zmm30
        vmovups [rsp + 1984], zmm31
        kmovq [rsp + 2048], k0
        kmovq [rsp + 2056], k1
        kmovq [rsp + 2064], k2
        kmovq [rsp + 2072], k3
        kmovq [rsp + 2080], k4
        kmovq [rsp + 2088], k5
        kmovq [rsp + 2096], k6
        kmovq [rsp + 2104], k7
        mov qword ptr [rbp - 8], 3
        jmp 2003f
    2000:
        sub rsp, 256
        movups [rsp], xmm0
        movups [rsp + 16], xmm1
        movups [rsp + 32], xmm2
        movups [rsp + 48], xmm3
        movups [rsp + 64], xmm4
        movups [rsp + 80], xmm5
        movups [rsp + 96], xmm6
        movups [rsp + 112], xmm7
        movups [rsp + 128], xmm8
        movups [rsp + 144], xmm9
        movups [rsp + 160], xmm10
        movups [rsp + 176], xmm11
        movups [rsp + 192], xmm12
        movups [rsp + 208], xmm13
        movups [rsp + 224], xmm14
        movups [rsp + 240], xmm15
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
        vmovups ymm0, [rsp]
        vmovups ymm1, [rsp + 32]
        vmovups ymm2, [rsp + 64]
        vmovups ymm3, [rsp + 96]
        vmovups ymm4, [rsp + 128]
        vmovups ymm5, [rsp + 160]
        vmovups ymm6, [rsp + 192]
        vmovups ymm7, [rsp + 224]
        vmovups ymm8, [rsp + 256]
        vmovups ymm9, [rsp + 288]
        vmovups ymm10, [rsp + 320]
        vmovups ymm11, [rsp + 352]
        vmovups ymm12, [rsp + 384]
        vmovups ymm13, [rsp + 416]
        vmovups ymm14, [rsp + 448]
        vmovups ymm15, [rsp + 480]
        jmp 2003f
    2001:
        vzeroupper
        movups xmm0, [rsp]
        movups xmm1, [rsp + 32]
        movups xmm2, [rsp + 64]
        movups xmm3, [rsp + 96]
        movups xmm4, [rsp + 128]
        movups xmm5, [rsp + 160]
        movups xmm6, [rsp + 192]
        movups xmm7, [rsp + 224]
        movups xmm8, [rsp + 256]
        movups xmm9, [rsp + 288]
        movups xmm10, [rsp + 320]
        movups xmm11, [rsp + 352]
        movups xmm12, [rsp + 384]
        movups xmm13, [rsp + 416]
        movups xmm14, [rsp + 448]
        movups xmm15, [rsp + 480]
        jmp 2003f
    2002:
        vmovups zmm0, [rsp]
        vmovups zmm1, [rsp + 64]
        vmovups zmm2, [rsp + 128]
        vmovups zmm3, [rsp + 192]
        vmovups zmm4, [rsp + 256]
        vmovups zmm5, [rsp + 320]
        vmovups zmm6, [rsp + 384]
        vmovups zmm7, [rsp + 448]
        vmovups zmm8, [rsp + 512]
        vmovups zmm9, [rsp + 576]
        vmovups zmm10, [rsp + 640]
        vmovups zmm11, [rsp + 704]
        vmovups zmm12, [rsp + 768]
        vmovups zmm13, [rsp + 832]
        vmovups zmm14, [rsp + 896]
        vmovups zmm15, [rsp + 960]
        vmovups zmm16, [rsp + 1024]
        vmovups zmm17, [rsp + 1088]
        vmovups zmm18, [rsp + 1152]
        vmovups zmm19, [rsp + 1216]
        vmovups zmm20, [rsp + 1280]
        vmovups zmm21, [rsp + 1344]
        vmovups zmm22, [rsp + 1408]
        vmovups zmm23, [rsp + 1472]
        vmovups zmm24, [rsp + 1536]
        vmovups zmm25, [rsp + 1600]
        vmovups zmm26, [rsp + 1664]
        vmovups zmm27, [rsp + 1728]
        vmovups zmm28, [rsp + 1792]
        vmovups zmm29, [rsp + 1856]
        vmovups zmm30, [rsp + 1920]
        vmovups zmm31, [rsp + 1984]
        kmovq k0, [rsp + 2048]
        kmovq k1, [rsp + 2056]
        kmovq k2, [rsp + 2064]
        kmovq k3, [rsp + 2072]
        kmovq k4, [rsp + 2080]
        kmovq k5, [rsp + 2088]
        kmovq k6, [rsp + 2096]
        kmovq k7, [rsp + 2104]
        jmp 2003f
    2000:
        movups xmm0, [rsp]
        movups xmm1, [rsp + 16]
        movups xmm2, [rsp + 32]
        movups xmm3, [rsp + 48]
        movups xmm4, [rsp + 64]
        movups xmm5, [rsp + 80]
        movups xmm6, [rsp + 96]
        movups xmm7, [rsp + 112]
        movups xmm8, [rsp + 128]
        movups xmm9, [rsp + 144]
        movups xmm10, [rsp + 160]
        movups xmm11, [rsp + 176]
        movups xmm12, [rsp + 192]
        movups xmm13, [rsp + 208]
        movups xmm14, [rsp + 224]
        movups xmm15, [rsp + 240]
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
