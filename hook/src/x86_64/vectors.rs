//! Saving of vector registers, and what else trampolines must know of the machine and the C library.
//!
//! By moves where no upper half is in use, which `xgetbv` says; by `xsave` else.
#![expect(unsafe_code, reason = "reads the thread pointer")]

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// How vector registers are saved: 0, by moves, as there are no upper halves; 1, by moves unless `xgetbv` says that upper
/// halves are in use; 2, by `xsave`.
pub(super) static VECTORS: AtomicU8 = AtomicU8::new(0);
/// Bytes that `xsave` needs.
pub(super) static XSAVE_BYTES: AtomicU32 = AtomicU32::new(0);
/// Where `errno` is, relative to the thread pointer.
pub(super) static ERRNO: AtomicU64 = AtomicU64::new(0);

// Upper halves of ymm are bit 2, mask registers and upper parts of zmm bits 5 to 7. The word at rbp - 8 says which way.
macro_rules! save_vectors {
    () => {
        ".macro HOOK_SAVE_VECTORS
        sub rsp, 16
        mov qword ptr [rbp - 8], 0
        cmp byte ptr [rip + {VECTORS}], 1
        jb 2000f
        ja 2001f
        mov ecx, 1
        xgetbv
        test eax, 0xe4
        jnz 2001f
    2000:
        sub rsp, 272
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
        stmxcsr [rsp + 256]
        jmp 2003f
    2001:
        mov qword ptr [rbp - 8], 1
        mov eax, [rip + {XSAVE_BYTES}]
        sub rsp, rax
        and rsp, -64
        xor eax, eax
        .irp at, 512, 520, 528, 536, 544, 552, 560, 568
        mov [rsp + \\at], rax
        .endr
        mov eax, 0xe7
        xor edx, edx
        xsave64 [rsp]
    2003:
    .endm"
    };
}
pub(super) use save_vectors;

macro_rules! restore_vectors {
    () => {
        ".macro HOOK_RESTORE_VECTORS
        cmp qword ptr [rbp - 8], 0
        jne 2001f
        cmp byte ptr [rip + {VECTORS}], 0
        je 2000f
        vzeroupper
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
        ldmxcsr [rsp + 256]
        jmp 2003f
    2001:
        mov eax, 0xe7
        xor edx, edx
        xrstor64 [rsp]
    2003:
        mov rsp, rbp
        and rsp, -16
    .endm"
    };
}
pub(super) use restore_vectors;

/// Learns what the trampolines must know of this machine and C library. Again and again does no harm.
pub(super) fn prepare() {
    // SAFETY: every thread has an errno.
    let errno = unsafe { libc::__errno_location() }.addr();
    let thread_pointer: usize;
    // SAFETY: the ABI of x86-64 has the thread pointer at fs:0.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) thread_pointer, options(nostack, readonly, preserves_flags)) };
    ERRNO.store(errno.wrapping_sub(thread_pointer) as u64, Ordering::Relaxed);
    if !is_x86_feature_detected!("avx") {
        return;
    }
    let state = std::arch::x86_64::__cpuid_count(0xd, 0);
    XSAVE_BYTES.store(state.ebx.next_multiple_of(64), Ordering::Relaxed);
    let in_use = std::arch::x86_64::__cpuid_count(0xd, 1).eax & 1 << 2 != 0;
    VECTORS.store(if in_use { 1 } else { 2 }, Ordering::Release);
}
