//! The instructions that Rust cannot write: two trampolines with one landing, raw accesses, and what C code runs
//! into when it calls a function of a program.
//!
//! Both trampolines leave rbx and rbp alone, which what they call preserves, and their callers expect all other
//! registers to be lost. So a landing needs three words, and the way in and out touches memory but for these only
//! where arguments are: calls of programs that do little are as fast as calls. While other code runs, r12 says where
//! the trampoline's frame is, and unwinders can pass, whatever stack rsp is on.

use std::arch::global_asm;

// rdi: anchor, which begins with a `Landing`; rsi: code; rdx: cx; rcx: r10; r8: r1 to r5; r9: top of the stack to run
// on, or 0. Generated code pops its one stack argument, which takes 16 bytes.
// Result: rax is r0, and rdx 0; or rdx is 1.
global_asm!(
    ".pushsection .text.twinbpf_recover,\"ax\",@progbits",
    ".balign 64",
    ".globl twinbpf_enter",
    ".hidden twinbpf_enter",
    ".type twinbpf_enter,@function",
    "twinbpf_enter:",
    ".cfi_startproc",
    "mov [rdi], rsp",
    "mov [rdi + 8], rbp",
    "mov [rdi + 16], rbx",
    "mov r12, rsp",
    ".cfi_def_cfa r12, 8",
    "lea rax, [rsp - 8]",
    "test r9, r9",
    "cmovz r9, rax",
    "lea rsp, [r9 - 16]",
    "mov rax, [r8 + 32]",
    "mov [rsp], rax",
    "mov rax, rsi",
    "mov rdi, rdx",
    "mov rsi, rcx",
    "mov rdx, [r8]",
    "mov rcx, [r8 + 8]",
    "mov r9, [r8 + 24]",
    "mov r8, [r8 + 16]",
    "call rax",
    "mov rsp, r12",
    ".cfi_def_cfa rsp, 8",
    "xor edx, edx",
    // Where both end early: with the registers of the landing, and rdx 1.
    ".globl twinbpf_landing",
    ".hidden twinbpf_landing",
    "twinbpf_landing:",
    "ret",
    ".cfi_endproc",
    ".size twinbpf_enter, . - twinbpf_enter",
    ".popsection",
);

// rdi: anchor; rsi: function; rdx: six integers; rcx: eight doubles. A variadic function finds in al how many vector
// registers to save. Result: rax and xmm0 as the function left them, and rdx 0; or rdx is 1.
global_asm!(
    ".pushsection .text.twinbpf_recover,\"ax\",@progbits",
    ".balign 32",
    ".globl twinbpf_call_c",
    ".hidden twinbpf_call_c",
    ".type twinbpf_call_c,@function",
    "twinbpf_call_c:",
    ".cfi_startproc",
    "mov [rdi], rsp",
    "mov [rdi + 8], rbp",
    "mov [rdi + 16], rbx",
    "sub rsp, 8",
    ".cfi_def_cfa_offset 16",
    "mov r11, rsi",
    "mov r10, rdx",
    "mov eax, 8",
    "movsd xmm0, [rcx]",
    "movsd xmm1, [rcx + 8]",
    "movsd xmm2, [rcx + 16]",
    "movsd xmm3, [rcx + 24]",
    "movsd xmm4, [rcx + 32]",
    "movsd xmm5, [rcx + 40]",
    "movsd xmm6, [rcx + 48]",
    "movsd xmm7, [rcx + 56]",
    "mov rdi, [r10]",
    "mov rsi, [r10 + 8]",
    "mov rdx, [r10 + 16]",
    "mov rcx, [r10 + 24]",
    "mov r8, [r10 + 32]",
    "mov r9, [r10 + 40]",
    "call r11",
    "add rsp, 8",
    ".cfi_def_cfa_offset 8",
    "xor edx, edx",
    "ret",
    ".cfi_endproc",
    ".size twinbpf_call_c, . - twinbpf_call_c",
    ".popsection",
);

// rdi: address; rsi: value, or for compare-exchange what is expected and in rdx what to store. Result: rax, and rdx
// 0. At a fault between `begin` and `end` the handler puts the signal's number into rdx and goes on at `end`; no
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

// What a function slot jumps to, with the slot's address in rax and the arguments of a C call. Collects the integer
// arguments and calls `serve(slot, args)`, which gives rax and in rdx 0, or a `Landing`.
global_asm!(
    ".pushsection .text.twinbpf_recover,\"ax\",@progbits",
    ".balign 32",
    ".globl twinbpf_call_back",
    ".hidden twinbpf_call_back",
    ".type twinbpf_call_back,@function",
    "twinbpf_call_back:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 48",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "mov rdi, rax",
    "mov rsi, rsp",
    "call {serve}",
    "test rdx, rdx",
    "jnz 2f",
    "leave",
    ".cfi_remember_state",
    ".cfi_restore rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_restore_state",
    "2:",
    "mov rsp, [rdx]",
    "mov rbp, [rdx + 8]",
    "mov rbx, [rdx + 16]",
    "mov edx, 1",
    "jmp twinbpf_landing",
    ".cfi_endproc",
    ".size twinbpf_call_back, . - twinbpf_call_back",
    ".popsection",
    serve = sym super::anchor::serve,
);

/// What the caller of a trampoline gets back when that ends early. The trampolines fill it in.
#[repr(C)]
pub(super) struct Landing {
    /// Points to the address to return to.
    pub(super) sp: u64,
    pub(super) fp: u64,
    pub(super) rbx: u64,
}

/// A value in rax, and what became of it in rdx.
#[repr(C)]
pub(super) struct Two {
    pub(super) value: u64,
    pub(super) status: u64,
}

unsafe extern "C" {
    pub(super) fn twinbpf_enter();
    pub(super) fn twinbpf_call_c();
    pub(super) fn twinbpf_landing();
    pub(super) fn twinbpf_call_back();
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
