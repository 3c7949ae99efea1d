//! The frame of a trampoline: registers as a [`Call`](crate::Call) has them.

macro_rules! frame {
    () => {
        concat!(
            // What callbacks may change, and rbx, rbp and r12, which trampolines use themselves. Flags as `lahf` has them, with OF.
            ".macro HOOK_FRAME
        lea rsp, [rsp - {CALL}]
        .cfi_adjust_cfa_offset {CALL}
        mov [rsp + {RBP}], rbp
        .cfi_rel_offset rbp, {RBP}
        mov rbp, rsp
        .cfi_def_cfa_register rbp
        mov [rbp + {RAX}], rax
        mov [rbp + {RBX}], rbx
        .cfi_rel_offset rbx, {RBX}
        mov [rbp + {RCX}], rcx
        mov [rbp + {RDX}], rdx
        mov [rbp + {RSI}], rsi
        mov [rbp + {RDI}], rdi
        mov [rbp + {R8}], r8
        mov [rbp + {R9}], r9
        mov [rbp + {R10}], r10
        mov [rbp + {R12}], r12
        .cfi_rel_offset r12, {R12}
        mov [rbp + {R13}], r13
        .cfi_rel_offset r13, {R13}
        lahf
        seto al
        mov [rbp + {EFLAGS}], rax
    .endm\n",
            // The rest of `struct pt_regs`. Of the flags the conditions, and IF, which is always set; the others a callback leaves alone.
            // Inside a function all of them, and the direction that C code expects.
            ".macro HOOK_FRAME_REST r11, inside=0
        .if \\inside
        pushfq
        pop [rbp + {EFLAGS}]
        cld
        .else
        movzx ecx, al
        shl ecx, 11
        movzx eax, ah
        lea eax, [rax + rcx + 0x200]
        mov [rbp + {EFLAGS}], rax
        .endif
        mov rax, \\r11
        mov [rbp + {R11}], rax
        mov [rbp + {R14}], r14
        mov [rbp + {R15}], r15
        mov eax, cs
        mov [rbp + {CS}], rax
        mov eax, ss
        mov [rbp + {SS}], rax
        mov qword ptr [rbp + {ORIG_RAX}], -1
    .endm\n",
            ".macro HOOK_UNFRAME_REST inside=0
        mov r14, [rbp + {R14}]
        mov r15, [rbp + {R15}]
        .if \\inside
        push [rbp + {EFLAGS}]
        popfq
        .else
        mov ecx, [rbp + {EFLAGS}]
        mov eax, ecx
        shl eax, 8
        shr ecx, 11
        and ecx, 1
        mov al, cl
        add al, 127
        sahf
        .endif
    .endm\n",
            // OF from al, the rest from ah.
            ".macro HOOK_FLAGS
        mov rax, [rbp + {EFLAGS}]
        add al, 127
        sahf
    .endm\n",
            ".macro HOOK_UNFRAME
        mov rax, [rbp + {RAX}]
        mov rbx, [rbp + {RBX}]
        mov rcx, [rbp + {RCX}]
        mov rdx, [rbp + {RDX}]
        mov rsi, [rbp + {RSI}]
        mov rdi, [rbp + {RDI}]
        mov r8, [rbp + {R8}]
        mov r9, [rbp + {R9}]
        mov r10, [rbp + {R10}]
        mov r12, [rbp + {R12}]
        mov r13, [rbp + {R13}]
        mov rsp, rbp
        mov rbp, [rsp + {RBP}]
        lea rsp, [rsp + {CALL}]
    .endm\n",
        )
    };
}
pub(super) use frame;
