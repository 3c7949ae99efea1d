//! Callbacks from C code: what it runs into when it calls the address of a program's function.
#![expect(unsafe_code, reason = "is called by C code")]

use std::arch::global_asm;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Abort;
use super::asm::Two;
use super::record::{ActivationRecord, Kind, current};
use crate::trap::{Trap, TrapCode};

// What a function slot jumps to, with the slot's address in rax and the arguments of a C call. Collects the integer
// arguments and calls `serve(slot, args)`, which gives rax and in rdx 0, or a `RecoveryPoint`.
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
    "mov rbx, [rdx + 8]",
    "mov rbp, [rdx + 16]",
    "mov r13, [rdx + 24]",
    "mov r14, [rdx + 32]",
    "mov r15, [rdx + 40]",
    "mov edx, 1",
    "jmp twinbpf_recovery_point",
    ".cfi_endproc",
    ".size twinbpf_call_back, . - twinbpf_call_back",
    ".popsection",
    serve = sym serve,
);

unsafe extern "C" {
    fn twinbpf_call_back();
}

/// Address of the code that a function slot must jump to, with the slot's own address in rax: it calls the slot's
/// function for the machine that is running on the thread.
pub fn call_back() -> usize {
    twinbpf_call_back as *const () as usize
}

/// A callback from C code: runs the function of `slot` and returns r0, or the recovery point.
unsafe extern "C" fn serve(slot: u64, args: *const [u64; 5]) -> Two {
    let Some(record) = current() else {
        log::error!("C code has called the function at {slot:#x} of a program that is not running on this thread");
        return Two { value: 0, status: 0 };
    };
    // SAFETY: records on the chain live until their call ends, and this runs inside it.
    let record = unsafe { record.as_ref() };
    let owner = record.owner;
    let barrier = ActivationRecord::new(owner, Kind::Barrier, 0);
    // SAFETY: where there is a counter, it is this thread's own.
    let in_c = (!owner.in_c.is_null()).then(|| unsafe { owner.in_c.replace(0) });
    // SAFETY: the owner has promised that this pair belongs together; the five words are in the frame of our caller.
    let call = AssertUnwindSafe(|| unsafe { (owner.call)(owner.data, slot, &*args) });
    let result = barrier.during(|| catch_unwind(call));
    if let Some(in_c) = in_c {
        // SAFETY: as above.
        unsafe { owner.in_c.write(in_c) };
    }
    let result = result.unwrap_or_else(|_| Err(Trap::new(TrapCode::Panic, "a callback panicked")));
    match result {
        Ok(value) => Two { value, status: 0 },
        // Between the record and here is a host function in Rust, which C code has called back.
        Err(trap) if !(record.kind == Kind::C || in_c.is_some_and(|in_c| in_c != 0)) => {
            log::error!("a callback of a program ended with a trap, which its caller cannot receive: {trap}");
            Two { value: 0, status: 0 }
        }
        Err(trap) => {
            // SAFETY: the call of the record ends here, so there is no other writer.
            unsafe { (*record.abort.get()).write(Abort::Trap(trap)) };
            Two { value: 0, status: record.recovery_point.get() as u64 }
        }
    }
}
