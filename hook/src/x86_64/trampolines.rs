//! The trampolines: what runs between a function's entry and its callbacks.
//!
//! A hooked function begins with a jump to its stub ([`stubs`](super::stubs)), which calls one of the four entry trampolines:
//! for callbacks that take arguments only or all registers, for one callback or a list. They save what a callback may
//! change, cut recursion, run the callbacks, replace the return address where a callback waits for the return, and go back
//! to the stub. A replaced return address leads to `twinbpf_hook_return`. Inside a function two others run: they save all
//! flags, as none is dead there, and the stub has left the red zone out.
//!
//! Registers while they run: rbp the [`Call`](crate::Call), rbx the [`Thread`], r12 the
//! [`Site`] (or the pending return), r13 the next [`Link`]. Everything that a callback may
//! change is restored, also what the calling convention gives away: a compiler that knows both caller and callee
//! (`-fipa-ra`) keeps values there.
//!
//! Vector registers are saved where a callback needs that: see [`vectors`](super::vectors). Fast paths of callbacks run
//! before, and before errno is.
#![expect(unsafe_code, reason = "the instructions that Rust cannot write")]

use std::arch::global_asm;
use std::mem::offset_of;

use super::frame::frame;
use super::layout::{self, Pending, Thread};
use super::site::{Link, Needs, Site};
use super::vectors::{self, restore_vectors, save_vectors};
use crate::call::{Call, Registers};

macro_rules! register {
    ($name:ident) => {
        offset_of!(Call, registers) + offset_of!(Registers, $name)
    };
}

// One block, as its macros and local symbols are its own.
global_asm!(
    // Thread-local memory of one pointer, in the static block: reaching it takes two loads and no call.
    ".pushsection .tbss.twinbpf_hook,\"awT\",@nobits",
    ".balign 8",
    ".type twinbpf_hook_thread,@object",
    "twinbpf_hook_thread: .zero 8",
    ".size twinbpf_hook_thread, 8",
    ".popsection",
    ".pushsection .text.twinbpf_hook,\"ax\",@progbits",
    ".globl twinbpf_hook_text_start",
    ".hidden twinbpf_hook_text_start",
    "twinbpf_hook_text_start:",
    save_vectors!(),
    restore_vectors!(),
    frame!(),
    // r13: first of the list.
    ".macro HOOK_CALL list
    2100:
        mov rax, [r13]
        test rax, rax
        jz 2101f
        mov rsi, [r13 + 8]
        mov rdi, rbp
        call rax
        .if \\list
        mov dword ptr [rbp + {UNFINISHED}], 0
        add r13, {LINK}
        jmp 2100b
        .endif
    2101:
    .endm",
    // Runs the fast paths of the list up to the first callback that has none or does not end there. ZF: that was all. Else eax
    // is what the fast path returned, or 0.
    ".macro HOOK_TRY list
    2110:
        .if \\list
        mov rax, [r13 + {LINK_FAST_PATH}]
        test rax, rax
        jz 2111f
        .endif
        mov rsi, [r13 + 8]
        mov rdi, rbp
        call [r13 + {LINK_FAST_PATH}]
        test eax, eax
        .if \\list
        jnz 2112f
        add r13, {LINK}
        jmp 2110b
    2111:
        cmp qword ptr [r13], 0
    2112:
        .endif
    .endm",
    // What a call has besides registers.
    ".macro HOOK_PLACE inside=0
        mov qword ptr [rbp + {VERDICT}], 0
        mov rcx, [r12 + {SITE_ADDRESS}]
        mov [rbp + {RIP}], rcx
        mov [rbp + {FUNCTION}], rcx
        lea rcx, [rbp + {CALL} + 16 + \\inside * {RED_ZONE}]
        mov [rbp + {RSP}], rcx
    .endm",
    ".macro HOOK_ERRNO_SAVE
        mov rax, [rip + {ERRNO}]
        mov eax, fs:[rax]
        mov [rbx + {THREAD_ERRNO}], eax
    .endm",
    ".macro HOOK_ERRNO_RESTORE
        mov rax, [rip + {ERRNO}]
        mov ecx, [rbx + {THREAD_ERRNO}]
        mov fs:[rax], ecx
    .endm",
    // Makes `slot` this thread's record. Functions that registering calls find the record of no thread, which is busy. r13 is lost.
    ".macro HOOK_REGISTER
        mov rax, [rip + twinbpf_hook_thread@GOTTPOFF]
        lea rcx, [rip + {BUSY}]
        mov fs:[rax], rcx
        mov rax, [rip + {ERRNO}]
        mov r13d, fs:[rax]
        mov qword ptr [rbp + {NEEDS}], {NEEDS_ALL}
        HOOK_SAVE_VECTORS
        call {register}
        mov rbx, rax
        HOOK_RESTORE_VECTORS
        mov rax, [rip + {ERRNO}]
        mov fs:[rax], r13d
        mov rax, [rip + twinbpf_hook_thread@GOTTPOFF]
        mov fs:[rax], rbx
    .endm",
    // An entry trampoline. The stub has pushed r11 and called: [rbp + CALL] leads back to it, then come r11 and the return
    // address of the function, or, inside a function, its red zone. 3001: recursion. 3002: the return address is replaced.
    ".macro HOOK_ENTRY name, regs, list, head, inside=0
    .balign 64
    .globl \\name
    .hidden \\name
    .type \\name,@function
    \\name:
        .cfi_startproc
        HOOK_FRAME
        .if \\regs
        HOOK_FRAME_REST \"[rbp + {CALL} + 8]\", \\inside
        .endif
        mov r12, r11
        and rsp, -16
        .if \\regs
        HOOK_PLACE \\inside
        .endif
        mov rax, [rip + twinbpf_hook_thread@GOTTPOFF]
        mov rbx, fs:[rax]
        test rbx, rbx
        jz 3000f
    3010:
        test byte ptr [rbx + {THREAD_SEQUENCE}], 1
        jnz 3001f
        inc dword ptr [rbx + {THREAD_SEQUENCE}]
        mov r13, [r12 + \\head]
        mov eax, [r13]
        mov [rbp + {NEEDS}], rax
        add r13, {LINK}
        test al, {NEEDS_FAST_PATH}
        jz 3008f
        HOOK_TRY \\list
        jz 3011f
        .if \\regs == 0
        HOOK_PLACE
        .endif
        mov [rbp + {UNFINISHED}], eax
        jmp 3015f
    3008:
        .if \\regs == 0
        HOOK_PLACE
        .endif
    3015:
        HOOK_ERRNO_SAVE
        test byte ptr [rbp + {NEEDS}], {NEEDS_VECTORS}
        jnz 3003f
        HOOK_CALL \\list
    3009:
        HOOK_ERRNO_RESTORE
    3011:
        .if \\inside == 0
        test byte ptr [rbp + {NEEDS}], {NEEDS_RETURN}
        jnz 3002f
        .endif
    3013:
        inc dword ptr [rbx + {THREAD_SEQUENCE}]
    3012:
        .if \\inside == 0
        mov rax, [r12 + {SITE_BODY}]
        mov [rbp + {NEXT}], rax
        .if \\regs
        cmp dword ptr [rbp + {VERDICT}], 0
        jne 3004f
        .endif
    3014:
        mov r11, [r12 + {SITE_DIRECT}]
        test r11, r11
        jnz 3005f
        .endif
        .if \\regs
        HOOK_UNFRAME_REST \\inside
        .else
        HOOK_FLAGS
        .endif
        HOOK_UNFRAME
        .cfi_remember_state
        .cfi_def_cfa rsp, 8
        ret
        .cfi_restore_state
    3000:
        HOOK_REGISTER
        jmp 3010b
    3001:
        lock inc qword ptr [r12 + {SITE_SKIPPED}]
        jmp 3012b
    3003:
        HOOK_SAVE_VECTORS
        HOOK_CALL \\list
        HOOK_RESTORE_VECTORS
        jmp 3009b
        .if \\inside == 0
    3002:
        .if \\regs
        cmp dword ptr [rbp + {VERDICT}], 0
        jne 3013b
        .endif
        mov rax, [rbx + {THREAD_FREE}]
        test rax, rax
        jz 3006f
    3007:
        mov rcx, [rax + {PENDING_LINK}]
        mov [rbx + {THREAD_FREE}], rcx
        mov rcx, [rbp + {CALL} + 16]
        mov [rax + {PENDING_ORIGINAL}], rcx
        mov [rax + {PENDING_SITE}], r12
        lea rcx, [rbp + {CALL} + 16]
        mov [rax + {PENDING_PLACE}], rcx
        mov [rax + {PENDING_LINK}], rbx
        lea rcx, [rax - {RETURN_RECORDS} + {RETURNED}]
        mov [rbp + {CALL} + 16], rcx
        sub rax, {RETURN_RECORDS}
        mov [rbp + {NEXT}], rax
        mov rax, [r12 + {SITE_BODY}]
        mov [rbp + {NEXT_BUT_ONE}], rax
        inc dword ptr [rbx + {THREAD_SEQUENCE}]
        jmp 3014b
    3006:
        HOOK_ERRNO_SAVE
        or byte ptr [rbp + {NEEDS}], {NEEDS_ALL}
        HOOK_SAVE_VECTORS
        mov rdi, rbx
        mov rsi, r12
        call {refill}
        mov r13, rax
        HOOK_RESTORE_VECTORS
        HOOK_ERRNO_RESTORE
        mov rax, r13
        test rax, rax
        jnz 3007b
        jmp 3013b
        .if \\regs
    // The function does not run: to its caller, past the stub and r11.
    3004:
        HOOK_UNFRAME_REST
        mov r11, [rbp + {R11}]
        HOOK_UNFRAME
        .cfi_remember_state
        .cfi_def_cfa rsp, 24
        lea rsp, [rsp + 16]
        .cfi_def_cfa rsp, 8
        ret
        .cfi_restore_state
        .endif
    3005:
        .if \\regs
        HOOK_UNFRAME_REST
        .else
        HOOK_FLAGS
        .endif
        HOOK_UNFRAME
        .cfi_def_cfa rsp, 8
        jmp r11
        .endif
        .cfi_endproc
        .size \\name, . - \\name
    .endm",
    "HOOK_ENTRY twinbpf_hook_args_private, 0, 0, {SITE_ARGS}",
    "HOOK_ENTRY twinbpf_hook_args_list, 0, 1, {SITE_ARGS}",
    "HOOK_ENTRY twinbpf_hook_regs_private, 1, 0, {SITE_REGS}",
    "HOOK_ENTRY twinbpf_hook_regs_list, 1, 1, {SITE_REGS}",
    "HOOK_ENTRY twinbpf_hook_inside_private, 1, 0, {SITE_REGS}, 1",
    "HOOK_ENTRY twinbpf_hook_inside_list, 1, 1, {SITE_REGS}, 1",
    // A return stub has jumped here: [rbp + CALL] is its address after the call, in the place of the return address.
    ".balign 64
    .globl twinbpf_hook_return
    .hidden twinbpf_hook_return
    .type twinbpf_hook_return,@function
    twinbpf_hook_return:
        .cfi_startproc
        HOOK_FRAME
        HOOK_FRAME_REST r11
        and rsp, -16
        mov qword ptr [rbp + {VERDICT}], 0
        mov r12, [rbp + {CALL}]
        add r12, {RETURN_RECORDS} - {RETURNED}
        mov rax, [r12 + {PENDING_ORIGINAL}]
        mov [rbp + {RIP}], rax
        lea rax, [rbp + {CALL} + 8]
        mov [rbp + {RSP}], rax
        mov r14, [r12 + {PENDING_SITE}]
        mov rax, [r14 + {SITE_ADDRESS}]
        mov [rbp + {FUNCTION}], rax
        mov rax, [rip + twinbpf_hook_thread@GOTTPOFF]
        mov rbx, fs:[rax]
        test rbx, rbx
        jz 3000f
    3010:
        test byte ptr [rbx + {THREAD_SEQUENCE}], 1
        jnz 3001f
        inc dword ptr [rbx + {THREAD_SEQUENCE}]
        mov r13, [r14 + {SITE_RETURNS}]
        mov eax, [r13]
        mov [rbp + {NEEDS}], rax
        add r13, {LINK}
        test al, {NEEDS_FAST_PATH}
        jz 3008f
        HOOK_TRY 1
        jz 3002f
        mov [rbp + {UNFINISHED}], eax
    3008:
        HOOK_ERRNO_SAVE
        test byte ptr [rbp + {NEEDS}], {NEEDS_VECTORS}
        jnz 3003f
        HOOK_CALL 1
    3009:
        HOOK_ERRNO_RESTORE
    3002:
        // Before the record is free: a search for pending returns must not find its stub on the stack.
        mov rax, [rbp + {RIP}]
        mov [rbp + {CALL}], rax
        mov qword ptr [r12 + {PENDING_PLACE}], 0
        mov rax, [rbx + {THREAD_FREE}]
        mov [r12 + {PENDING_LINK}], rax
        mov [rbx + {THREAD_FREE}], r12
        inc dword ptr [rbx + {THREAD_SEQUENCE}]
    3011:
        HOOK_UNFRAME_REST
        mov r11, [rbp + {R11}]
        HOOK_UNFRAME
        .cfi_remember_state
        .cfi_def_cfa rsp, 8
        ret
        .cfi_restore_state
    3000:
        HOOK_REGISTER
        jmp 3010b
    3001:
        lock inc qword ptr [r14 + {SITE_SKIPPED}]
        mov rax, [rbp + {RIP}]
        mov [rbp + {CALL}], rax
        mov qword ptr [r12 + {PENDING_LINK}], 1
        jmp 3011b
    3003:
        HOOK_SAVE_VECTORS
        HOOK_CALL 1
        HOOK_RESTORE_VECTORS
        jmp 3009b
        .cfi_endproc
        .size twinbpf_hook_return, . - twinbpf_hook_return",
    // Where the stub of a function with hooked returns goes on: see `returns`.
    ".globl twinbpf_hook_resume
    .hidden twinbpf_hook_resume
    .type twinbpf_hook_resume,@function
    twinbpf_hook_resume:
        .cfi_startproc
        jmp [rsp - 24]
        .cfi_endproc
        .size twinbpf_hook_resume, . - twinbpf_hook_resume",
    ".globl twinbpf_hook_slot
    .hidden twinbpf_hook_slot
    .type twinbpf_hook_slot,@function
    twinbpf_hook_slot:
        .cfi_startproc
        mov rax, [rip + twinbpf_hook_thread@GOTTPOFF]
        add rax, fs:[0]
        ret
        .cfi_endproc
        .size twinbpf_hook_slot, . - twinbpf_hook_slot",
    ".globl twinbpf_hook_text_end",
    ".hidden twinbpf_hook_text_end",
    "twinbpf_hook_text_end:",
    ".popsection",
    CALL = const size_of::<Call>(),
    RBP = const register!(rbp),
    RAX = const register!(rax),
    RBX = const register!(rbx),
    RCX = const register!(rcx),
    RDX = const register!(rdx),
    RSI = const register!(rsi),
    RDI = const register!(rdi),
    R8 = const register!(r8),
    R9 = const register!(r9),
    R10 = const register!(r10),
    R11 = const register!(r11),
    R12 = const register!(r12),
    R13 = const register!(r13),
    R14 = const register!(r14),
    R15 = const register!(r15),
    EFLAGS = const register!(eflags),
    CS = const register!(cs),
    SS = const register!(ss),
    ORIG_RAX = const register!(orig_rax),
    RIP = const register!(rip),
    RSP = const register!(rsp),
    FUNCTION = const offset_of!(Call, function),
    VERDICT = const offset_of!(Call, skip_function),
    UNFINISHED = const offset_of!(Call, unfinished),
    LINK = const size_of::<Link>(),
    LINK_FAST_PATH = const offset_of!(Link, fast_path),
    NEEDS = const offset_of!(Call, needs),
    THREAD_ERRNO = const offset_of!(Thread, errno),
    THREAD_SEQUENCE = const offset_of!(Thread, sequence),
    THREAD_FREE = const offset_of!(Thread, free),
    SITE_BODY = const offset_of!(Site, body),
    SITE_ADDRESS = const offset_of!(Site, address),
    SITE_DIRECT = const offset_of!(Site, direct),
    SITE_SKIPPED = const offset_of!(Site, skipped),
    SITE_RETURNS = const offset_of!(Site, returns),
    SITE_ARGS = const offset_of!(Site, lists),
    SITE_REGS = const offset_of!(Site, lists) + 8,
    NEEDS_WIDE = const Needs::WIDE,
    NEEDS_FLOATS = const Needs::FLOATS,
    NEEDS_ALL = const Needs::WIDE | Needs::FLOATS,
    NEEDS_VECTORS = const Needs::VECTORS,
    NEEDS_FAST_PATH = const Needs::FAST_PATH,
    NEEDS_RETURN = const Needs::RETURN,
    PENDING_ORIGINAL = const offset_of!(Pending, original),
    PENDING_SITE = const offset_of!(Pending, site),
    PENDING_PLACE = const offset_of!(Pending, place),
    PENDING_LINK = const offset_of!(Pending, link),
    RED_ZONE = const layout::RED_ZONE,
    // Below the return address by 24 and 32: what the stub, and then that of a return, reads.
    NEXT = const size_of::<Call>() - 8,
    NEXT_BUT_ONE = const size_of::<Call>() - 16,
    RETURN_RECORDS = const layout::RECORDS,
    RETURNED = const layout::RETURNED,
    VECTORS = sym vectors::VECTORS,
    ERRNO = sym vectors::ERRNO,
    BUSY = sym super::threads::BUSY,
    register = sym super::threads::register,
    refill = sym super::returns::refill,
);
