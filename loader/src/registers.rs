//! Where a machine's registers are in the context of a program at a probe.

/// Where registers are in `struct pt_regs`: 64, 32, 16 and 8 bits.
#[cfg(target_arch = "x86_64")]
const REGISTERS: &[([&str; 4], u16)] = &[
    (["r15", "r15d", "r15w", "r15b"], 0),
    (["r14", "r14d", "r14w", "r14b"], 8),
    (["r13", "r13d", "r13w", "r13b"], 16),
    (["r12", "r12d", "r12w", "r12b"], 24),
    (["rbp", "ebp", "bp", "bpl"], 32),
    (["rbx", "ebx", "bx", "bl"], 40),
    (["r11", "r11d", "r11w", "r11b"], 48),
    (["r10", "r10d", "r10w", "r10b"], 56),
    (["r9", "r9d", "r9w", "r9b"], 64),
    (["r8", "r8d", "r8w", "r8b"], 72),
    (["rax", "eax", "ax", "al"], 80),
    (["rcx", "ecx", "cx", "cl"], 88),
    (["rdx", "edx", "dx", "dl"], 96),
    (["rsi", "esi", "si", "sil"], 104),
    (["rdi", "edi", "di", "dil"], 112),
    (["rip", "eip", "ip", "rip"], 128),
    (["rsp", "esp", "sp", "spl"], 152),
];

/// Offset of a register in `struct pt_regs`, by its name of any width.
#[cfg(target_arch = "x86_64")]
pub fn register_offset(name: &str) -> Option<u16> {
    REGISTERS.iter().find(|(names, _)| names.contains(&name)).map(|(_, offset)| *offset)
}

/// Offset of a register in `struct user_pt_regs`, by its name of any width.
#[cfg(target_arch = "aarch64")]
pub fn register_offset(name: &str) -> Option<u16> {
    let number = match name {
        "sp" => 31,
        _ => name.strip_prefix(['x', 'w'])?.parse::<u16>().ok().filter(|number| *number <= 31)?,
    };
    Some(number * 8)
}

/// Nothing: the registers of other machines are not known here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn register_offset(_: &str) -> Option<u16> {
    None
}
