//! What differs between machines: names and places of registers in `struct pt_regs`, names of system call wrappers.

/// Prefix of functions that are system calls: `__x64_sys_read`.
#[cfg(target_arch = "x86_64")]
pub(crate) const SYSCALL_PREFIX: &str = "__x64_sys_";
#[cfg(target_arch = "aarch64")]
pub(crate) const SYSCALL_PREFIX: &str = "__arm64_sys_";
#[cfg(target_arch = "riscv64")]
pub(crate) const SYSCALL_PREFIX: &str = "__riscv_sys_";
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(crate) const SYSCALL_PREFIX: &str = "sys_";

/// One of them that every kernel with BPF has.
#[cfg(target_arch = "x86_64")]
pub(crate) const SYSCALL_PROBE: &str = "__x64_sys_bpf";
#[cfg(target_arch = "aarch64")]
pub(crate) const SYSCALL_PROBE: &str = "__arm64_sys_bpf";
#[cfg(target_arch = "riscv64")]
pub(crate) const SYSCALL_PROBE: &str = "__riscv_sys_bpf";
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(crate) const SYSCALL_PROBE: &str = "sys_bpf";

/// In core files: the machine, and how many words of a thread's registers are the context of a program.
#[cfg(target_arch = "x86_64")]
pub(crate) const CORE: Option<(u16, usize)> = Some((object::elf::EM_X86_64, 21));
#[cfg(target_arch = "aarch64")]
pub(crate) const CORE: Option<(u16, usize)> = Some((object::elf::EM_AARCH64, 34));
#[cfg(target_arch = "riscv64")]
pub(crate) const CORE: Option<(u16, usize)> = Some((object::elf::EM_RISCV, 32));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(crate) const CORE: Option<(u16, usize)> = None;
