//! Machines: their registers by DWARF number, and where they return values.
//!
//! Sources: the psABI supplements (x86-64, AAPCS64, RISC-V) for numbers, the kernel's `regs_query_register_offset` for names.

use object::elf;

/// A machine whose files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86, `EM_X86_64`.
    X86_64,
    /// 64-bit Arm, `EM_AARCH64`.
    Aarch64,
    /// `EM_RISCV`, 64 bits.
    Riscv64,
}

/// A general register, by its DWARF number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u16);

const X86_64: [&str; 16] =
    ["ax", "dx", "cx", "bx", "si", "di", "bp", "sp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
const AARCH64: [&str; 32] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
];
const RISCV64: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

impl Machine {
    pub(crate) fn of(e_machine: u16) -> Option<Machine> {
        match e_machine {
            elf::EM_X86_64 => Some(Machine::X86_64),
            elf::EM_AARCH64 => Some(Machine::Aarch64),
            elf::EM_RISCV => Some(Machine::Riscv64),
            _ => None,
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Machine::X86_64 => &X86_64,
            Machine::Aarch64 => &AARCH64,
            Machine::Riscv64 => &RISCV64,
        }
    }

    /// Whether a probe sees the register: a general one, of 64 bits.
    pub fn is_general(self, register: Register) -> bool {
        usize::from(register.0) < self.names().len()
    }

    /// The kernel's name of a register, without `%`; for others, DWARF's number.
    pub fn name(self, register: Register) -> String {
        let number = register.0;
        if let Some(name) = self.names().get(usize::from(number)) {
            return (*name).to_owned();
        }
        match (self, number) {
            (Machine::X86_64, 16) => "ip".to_owned(),
            (Machine::X86_64, 17..=32) => format!("xmm{}", number - 17),
            (Machine::X86_64, 33..=40) => format!("st{}", number - 33),
            (Machine::Aarch64, 64..=95) => format!("v{}", number - 64),
            (Machine::Riscv64, 32..=63) => format!("f{}", number - 32),
            _ => format!("DWARF register {number}"),
        }
    }

    /// The register with that name: the kernel's (`di`) or, on x86-64, the assembler's (`rdi`).
    pub fn register(self, name: &str) -> Option<Register> {
        let plain = match self {
            Machine::X86_64 => name.strip_prefix('r').filter(|rest| X86_64.contains(rest)).unwrap_or(name),
            Machine::Aarch64 | Machine::Riscv64 => name,
        };
        let at = self.names().iter().position(|known| *known == plain)?;
        Some(Register(u16::try_from(at).ok()?))
    }

    /// The numbers of the registers in which integers are passed, in order.
    pub(crate) fn passes(self) -> &'static [u16] {
        match self {
            Machine::X86_64 => &[5, 4, 1, 2, 8, 9],
            Machine::Aarch64 => &[0, 1, 2, 3, 4, 5, 6, 7],
            Machine::Riscv64 => &[10, 11, 12, 13, 14, 15, 16, 17],
        }
    }

    /// The two registers in which integers return, the lower half first.
    pub(crate) fn returns(self) -> [Register; 2] {
        match self {
            Machine::X86_64 => [Register(0), Register(1)],
            Machine::Aarch64 => [Register(0), Register(1)],
            Machine::Riscv64 => [Register(10), Register(11)],
        }
    }

    /// Whether the address of a structure returned in memory is in the first return register.
    pub(crate) fn returns_address(self) -> bool {
        match self {
            Machine::X86_64 => true,
            // Neither ABI keeps the register in which the caller passed it.
            Machine::Aarch64 | Machine::Riscv64 => false,
        }
    }

    /// Whether a function must leave the register as its caller had it: at the entry it holds nothing of the function's.
    pub(crate) fn is_preserved(self, register: Register) -> bool {
        match self {
            Machine::X86_64 => matches!(register.0, 3 | 6 | 12..=15),
            Machine::Aarch64 => matches!(register.0, 19..=29),
            Machine::Riscv64 => matches!(register.0, 8 | 9 | 18..=27),
        }
    }

    /// The stack pointer.
    pub(crate) fn stack_pointer(self) -> Register {
        match self {
            Machine::X86_64 => Register(7),
            Machine::Aarch64 => Register(31),
            Machine::Riscv64 => Register(2),
        }
    }
}
