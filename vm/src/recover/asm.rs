//! The instructions that Rust cannot write: two trampolines with one recovery point, raw accesses, and the switch to another stack.
//!
//! Both trampolines keep where they are in r12 while other code runs, which that preserves as it does the other
//! registers that C functions must; a recovery point restores them from the record. So entry and exit touch little
//! memory, and its callers lose what a call of C loses: calls of programs that do little are as fast as calls. It is
//! r12 and not rbp, as every function saves that: what comes after a call would have to wait until rbp is back from
//! memory, from a stack of which the address comes from memory. Unwinders can pass, whatever stack rsp is on, and so
//! can walks along frame pointers.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::arch::global_asm;
use std::num::NonZeroU64;

use super::CLEARANCE;

/// Fills in the [`RecoveryPoint`] that r10 points to, after a `push r12`.
macro_rules! save {
    () => {
        "mov [r10], rsp
        mov [r10 + 8], rbx
        mov [r10 + 16], rbp
        mov [r10 + 24], r13
        mov [r10 + 32], r14
        mov [r10 + 40], r15"
    };
}

// r10: record, which begins with a `RecoveryPoint` and continues with where rsp is to be; r11: code; rdi: cx; rsi: r10
// of the program; rdx, rcx, r8, r9: its r1 to r4. Result: rax is r0, and rdx 0; or rdx is 1. `twinbpf_enter_again` continues on
// the stack it is called on, further down.
global_asm!(
    ".pushsection .text.twinbpf_recover,\"ax\",@progbits",
    ".balign 64",
    ".globl twinbpf_enter_again",
    ".hidden twinbpf_enter_again",
    ".type twinbpf_enter_again,@function",
    "twinbpf_enter_again:",
    ".cfi_startproc",
    "mov [r10 + 48], rsp",
    "sub qword ptr [r10 + 48], {distance}",
    "jmp twinbpf_enter",
    ".cfi_endproc",
    ".size twinbpf_enter_again, . - twinbpf_enter_again",
    ".balign 64",
    ".globl twinbpf_enter",
    ".hidden twinbpf_enter",
    ".type twinbpf_enter,@function",
    "twinbpf_enter:",
    ".cfi_startproc",
    "push r12",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset r12, -16",
    "mov r12, rsp",
    ".cfi_def_cfa_register r12",
    save!(),
    "mov rsp, [r10 + 48]",
    "call r11",
    "mov rsp, r12",
    ".cfi_def_cfa_register rsp",
    "xor edx, edx",
    // Where both end early: with the registers of the recovery point, and rdx 1.
    ".globl twinbpf_recovery_point",
    ".hidden twinbpf_recovery_point",
    "twinbpf_recovery_point:",
    "pop r12",
    ".cfi_def_cfa_offset 8",
    ".cfi_restore r12",
    "ret",
    ".cfi_endproc",
    ".size twinbpf_enter, . - twinbpf_enter",
    ".popsection",
    distance = const CLEARANCE + 8,
);

// r10: record; r11: function; rdx: six integers; rcx: eight doubles. A variadic function finds in al how many vector
// registers to save. Result: rax and xmm0 as the function left them, and rdx 0; or rdx is 1.
global_asm!(
    ".pushsection .text.twinbpf_recover,\"ax\",@progbits",
    ".balign 32",
    ".globl twinbpf_call_c",
    ".hidden twinbpf_call_c",
    ".type twinbpf_call_c,@function",
    "twinbpf_call_c:",
    ".cfi_startproc",
    "push r12",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset r12, -16",
    "mov r12, rsp",
    ".cfi_def_cfa_register r12",
    save!(),
    "mov eax, 8",
    "movsd xmm0, [rcx]",
    "movsd xmm1, [rcx + 8]",
    "movsd xmm2, [rcx + 16]",
    "movsd xmm3, [rcx + 24]",
    "movsd xmm4, [rcx + 32]",
    "movsd xmm5, [rcx + 40]",
    "movsd xmm6, [rcx + 48]",
    "movsd xmm7, [rcx + 56]",
    "mov rdi, [rdx]",
    "mov rsi, [rdx + 8]",
    "mov rcx, [rdx + 24]",
    "mov r8, [rdx + 32]",
    "mov r9, [rdx + 40]",
    "mov rdx, [rdx + 16]",
    "call r11",
    "xor edx, edx",
    "pop r12",
    ".cfi_def_cfa rsp, 8",
    ".cfi_restore r12",
    "ret",
    ".cfi_endproc",
    ".size twinbpf_call_c, . - twinbpf_call_c",
    ".popsection",
);

// What generated code calls for a variadic C function, with that one's address as the last integer argument: says
// how many vector registers there may be to save.
global_asm!(
    ".pushsection .text.twinbpf_recover,\"ax\",@progbits",
    ".globl twinbpf_variadic",
    ".hidden twinbpf_variadic",
    ".type twinbpf_variadic,@function",
    "twinbpf_variadic:",
    ".cfi_startproc",
    "mov eax, 8",
    "jmp r9",
    ".cfi_endproc",
    ".size twinbpf_variadic, . - twinbpf_variadic",
    ".popsection",
);

// rdi: address; rsi: value, or for compare-exchange what is expected and in rdx what to store. Result: rax, and rdx
// 0. At a fault between `begin` and `end` the handler puts the signal's number into rdx and continues at `end`; no
// routine touches the stack.
macro_rules! raw {
    ($($name:literal: $($line:literal),+;)*) => {
        global_asm!(
            ".pushsection .text.twinbpf_recover,\"ax\",@progbits",
            ".globl twinbpf_raw_begin",
            ".hidden twinbpf_raw_begin",
            ".globl twinbpf_raw_end",
            ".hidden twinbpf_raw_end",
            ".balign 16",
            "twinbpf_raw_begin:",
            ".cfi_startproc",
            $(
                concat!(".globl twinbpf_", $name),
                concat!(".hidden twinbpf_", $name),
                concat!(".type twinbpf_", $name, ",@function"),
                concat!("twinbpf_", $name, ":"),
                $($line,)+
                "xor edx, edx",
                "ret",
                concat!(".size twinbpf_", $name, ", . - twinbpf_", $name),
            )*
            "twinbpf_raw_end:",
            "ret",
            ".cfi_endproc",
            ".popsection",
        );
    };
}
raw! {
    "load1": "movzx eax, byte ptr [rdi]";
    "load2": "movzx eax, word ptr [rdi]";
    "load4": "mov eax, [rdi]";
    "load8": "mov rax, [rdi]";
    "store1": "mov [rdi], sil";
    "store2": "mov [rdi], si";
    "store4": "mov [rdi], esi";
    "store8": "mov [rdi], rsi";
    "cas4": "mov eax, esi", "lock cmpxchg [rdi], edx";
    "cas8": "mov rax, rsi", "lock cmpxchg [rdi], rdx";
}

// rdi: data; rsi: a function of it that does not unwind; rdx: the top of another stack, on which that function runs.
global_asm!(
    ".pushsection .text.twinbpf_recover,\"ax\",@progbits",
    ".balign 16",
    ".globl twinbpf_switch_stack",
    ".hidden twinbpf_switch_stack",
    ".type twinbpf_switch_stack,@function",
    "twinbpf_switch_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    ".cfi_restore rbp",
    "ret",
    ".cfi_endproc",
    ".size twinbpf_switch_stack, . - twinbpf_switch_stack",
    ".popsection",
);

/// Calls `work(data)` on the stack with this top.
///
/// # Safety
/// `work` must be fit for `data` and must not unwind, and nothing else may run on that stack.
pub(super) unsafe fn switch_stack(data: *mut (), work: extern "C" fn(*mut ()), top: NonZeroU64) {
    // SAFETY: the routine follows the C calling convention; the rest is the caller's promise.
    unsafe { twinbpf_switch_stack(data, work, top) }
}

/// What the caller of a trampoline gets back when that ends early. The trampolines fill it in.
#[repr(C)]
pub(super) struct RecoveryPoint {
    /// Points to r12, above which the address to return to is.
    pub(super) sp: u64,
    /// rbx, rbp, r13, r14, r15.
    pub(super) others: [u64; 5],
}

/// A value in rax, and what became of it in rdx.
#[repr(C)]
pub(super) struct Two {
    pub(super) value: u64,
    pub(super) status: u64,
}

unsafe extern "C" {
    pub(super) fn twinbpf_enter();
    pub(super) fn twinbpf_enter_again();
    pub(super) fn twinbpf_call_c();
    pub(super) fn twinbpf_variadic();
    pub(super) fn twinbpf_recovery_point();
    fn twinbpf_switch_stack(data: *mut (), work: extern "C" fn(*mut ()), top: NonZeroU64);
    pub(super) fn twinbpf_raw_begin();
    pub(super) fn twinbpf_raw_end();
    pub(super) fn twinbpf_load1(addr: u64) -> Two;
    pub(super) fn twinbpf_load2(addr: u64) -> Two;
    pub(super) fn twinbpf_load4(addr: u64) -> Two;
    pub(super) fn twinbpf_load8(addr: u64) -> Two;
    pub(super) fn twinbpf_store1(addr: u64, value: u64) -> Two;
    pub(super) fn twinbpf_store2(addr: u64, value: u64) -> Two;
    pub(super) fn twinbpf_store4(addr: u64, value: u64) -> Two;
    pub(super) fn twinbpf_store8(addr: u64, value: u64) -> Two;
    pub(super) fn twinbpf_cas4(addr: u64, old: u64, new: u64) -> Two;
    pub(super) fn twinbpf_cas8(addr: u64, old: u64, new: u64) -> Two;
}
