//! What a callback gets: the registers at a function's entry or return.

/// The registers of x86-64 in the order of the kernel's `struct pt_regs` (`arch/x86/include/asm/ptrace.h`), so that a
/// program written for uprobes reads them as it does there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names of registers")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl Registers {
    /// The registers in the kernel's order.
    #[inline(always)]
    #[expect(unsafe_code, reason = "integers without padding")]
    pub fn words(&self) -> &[u64; 21] {
        // SAFETY: it is 21 such integers, one after another.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }
}

/// One call of a hooked function, as its callbacks see it.
///
/// A callback with all registers ([`Callback::with_registers`](crate::Callback::with_registers)), and every callback
/// of a return, finds them all. Another finds those that the calling convention passes arguments in (`rdi`, `rsi`, `rdx`,
/// `rcx`, `r8`, `r9`, `rax`, `r10`), `rip` and `rsp`; the rest is undefined there, so that only [`Call::argument`] is safe.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    pub(crate) registers: Registers,
    pub(crate) function: u64,
    /// Not 0: the function does not run, and its caller gets `rax`.
    pub(crate) skip_function: u32,
    /// What the fast path of the callback that runs returned, which did not finish; else 0.
    pub(crate) unfinished: u32,
    /// The trampoline's.
    pub(crate) needs: u64,
}

impl Call {
    /// The instruction pointer: the hooked function or instruction; at a return, where it returns to.
    pub fn address(&self) -> u64 {
        self.registers.rip
    }

    /// The address of the hooked function, also at its return; inside a function, of the instruction.
    pub fn function(&self) -> u64 {
        self.function
    }

    /// The stack pointer. At an entry the return address is there, and above it the arguments that are not in registers.
    pub fn stack(&self) -> u64 {
        self.registers.rsp
    }

    /// An argument of integer class in a register, from 0 to 5.
    pub fn argument(&self, index: usize) -> Option<u64> {
        let r = &self.registers;
        [r.rdi, r.rsi, r.rdx, r.rcx, r.r8, r.r9].get(index).copied()
    }

    /// What the function returns, at a return.
    pub fn result(&self) -> u64 {
        self.registers.rax
    }

    /// All registers. What a callback writes there is what the function, or its caller, finds.
    ///
    /// # Safety
    ///
    /// The callback has all registers, or is at a return; what it writes is what code there can live with.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn registers(&mut self) -> &mut Registers {
        &mut self.registers
    }

    /// What the callback's fast path returned where it has not finished; 0 where none was called.
    pub fn unfinished(&self) -> u32 {
        self.unfinished
    }

    /// Returns `result` to the caller, in place of running the function: at an entry, in a callback that has all
    /// registers.
    ///
    /// # Safety
    ///
    /// As [`Call::registers`]; the caller of the function can live with that result.
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn skip_function(&mut self, result: u64) {
        self.registers.rax = result;
        self.skip_function = 1;
    }
}
