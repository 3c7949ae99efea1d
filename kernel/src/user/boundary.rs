//! Where instructions begin in a file: a breakpoint anywhere else changes what the program does.
//!
//! The function that covers a place is known by its symbol or by `.eh_frame`, and its instructions are decoded from its
//! start. Functions with data among their instructions may decode wrongly; compilers put tables elsewhere.

use std::ops::Range;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};

use super::elf::{Binary, ENDIAN, executable};
use super::frames;

/// Whether an instruction begins at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// It does, and so does a function.
    Function,
    /// It does, inside of a function.
    Instruction,
    /// It does not: here are the offsets of the instruction that holds the place, and of its function.
    Inside {
        /// Bytes of the instruction, as offsets in the file.
        insn: Range<u64>,
        /// Where its function begins.
        function: u64,
    },
    /// It cannot be said.
    Unknown(&'static str),
}

/// A machine's instructions, as far as it takes to find their ends.
struct Machine {
    /// The machine's number in ELF headers (`e_machine`).
    number: u16,
    /// Bytes of the first of `code`, which is at `address`; `None` where no instruction is.
    length: fn(code: &[u8], address: u64) -> Option<usize>,
    /// Why the kernel sets no breakpoint at the first of `code`, as far as compilers begin functions like that.
    unprobed: fn(code: &[u8]) -> Option<&'static str>,
}

/// The machine that this program runs on.
#[cfg(target_arch = "x86_64")]
const MACHINE: Option<Machine> = Some(Machine { number: elf::EM_X86_64, length: x86_64, unprobed: x86_64_unprobed });
/// The machine that this program runs on.
#[cfg(target_arch = "aarch64")]
const MACHINE: Option<Machine> = Some(Machine { number: elf::EM_AARCH64, length: four, unprobed: |_| None });
/// The machine that this program runs on.
#[cfg(target_arch = "riscv64")]
const MACHINE: Option<Machine> = Some(Machine { number: elf::EM_RISCV, length: two_or_four, unprobed: |_| None });
/// The machine that this program runs on.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const MACHINE: Option<Machine> = None;

#[cfg(target_arch = "x86_64")]
fn x86_64(code: &[u8], address: u64) -> Option<usize> {
    use iced_x86::{Decoder, DecoderOptions};
    let insn = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    (!insn.is_invalid()).then_some(insn.len())
}

/// What `uprobe_init_insn` of the kernel's arch/x86/kernel/uprobes.c refuses.
#[cfg(target_arch = "x86_64")]
fn x86_64_unprobed(code: &[u8]) -> Option<&'static str> {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};
    let insn = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
    if insn.has_lock_prefix() {
        return Some("an instruction with a lock prefix");
    }
    if !matches!(insn.segment_prefix(), Register::None | Register::FS | Register::GS) {
        return Some("an instruction with a segment prefix");
    }
    let traps = matches!(insn.mnemonic(), Mnemonic::Int3 | Mnemonic::Int | Mnemonic::Int1);
    (traps || insn.is_privileged()).then_some("a trap or a privileged instruction")
}

#[cfg(target_arch = "aarch64")]
fn four(_code: &[u8], address: u64) -> Option<usize> {
    address.is_multiple_of(4).then_some(4)
}

/// Instructions of 16 bits have lower bits other than 3; longer ones than 32 bits no processor has.
#[cfg(target_arch = "riscv64")]
fn two_or_four(code: &[u8], address: u64) -> Option<usize> {
    let first = *code.first()?;
    let length = match (first & 3, first & 0x1c) {
        (3, 0x1c) => return None,
        (3, _) => 4,
        _ => 2,
    };
    address.is_multiple_of(2).then_some(length)
}

impl Binary {
    /// Why the kernel probes no instruction that begins at this offset of the file; `None` where it does, or that is unknown.
    pub fn unprobed(&self, offset: u64) -> Option<&'static str> {
        let (address, code) = self.segment(offset)?;
        let skip = usize::try_from(address - code.start).ok()?;
        (self.machine()?.unprobed)(code.bytes.get(skip..)?)
    }

    fn machine(&self) -> Option<Machine> {
        MACHINE.filter(|machine| machine.number == self.elf().elf_header().e_machine(ENDIAN))
    }

    /// Whether an instruction begins at an offset of the file.
    pub fn boundary(&self, offset: u64) -> Boundary {
        let Some(machine) = self.machine() else {
            return Boundary::Unknown("the file is for another machine");
        };
        let Some((address, code)) = self.segment(offset) else {
            return Boundary::Unknown("no code of the file is there");
        };
        let Some(function) = self.function_at(address) else {
            return Boundary::Unknown("no function symbol with a size and no entry of .eh_frame covers it");
        };
        if function.start == address {
            return Boundary::Function;
        }
        let mut at = function.start;
        while at < address {
            // The segment has the bytes after its file offset; a function that begins before it is not whole.
            let bytes = at.checked_sub(code.start).and_then(|skip| code.bytes.get(usize::try_from(skip).ok()?..));
            let Some(length) = bytes.and_then(|bytes| (machine.length)(bytes, at)) else {
                return Boundary::Unknown("what its function has before it does not decode");
            };
            let next = at + length as u64;
            if next > address {
                let file = |address: u64| address.wrapping_sub(code.start).wrapping_add(code.offset);
                return Boundary::Inside { insn: file(at)..file(next), function: file(function.start) };
            }
            at = next;
        }
        Boundary::Instruction
    }

    /// The address of an offset, and the executable segment that has it.
    fn segment(&self, offset: u64) -> Option<(u64, Code<'_>)> {
        let elf = self.elf();
        let inside = |segment: &&elf::ProgramHeader64<_>| {
            let into = offset.checked_sub(segment.p_offset(ENDIAN));
            let loaded = segment.p_type(ENDIAN) == elf::PT_LOAD && executable(segment);
            loaded && into.is_some_and(|into| into < segment.p_filesz(ENDIAN))
        };
        let segment = elf.elf_program_headers().iter().find(inside)?;
        let (offset_of, start) = (segment.p_offset(ENDIAN), segment.p_vaddr(ENDIAN));
        let end = offset_of.checked_add(segment.p_filesz(ENDIAN))?;
        let bytes = self.bytes().get(usize::try_from(offset_of).ok()?..usize::try_from(end).ok()?)?;
        Some((start.checked_add(offset - offset_of)?, Code { start, offset: offset_of, bytes }))
    }

    /// The addresses of the function that covers an address: of several the one that begins last.
    fn function_at(&self, address: u64) -> Option<Range<u64>> {
        let elf = self.elf();
        let mut found: Option<Range<u64>> = None;
        for table in [elf.elf_dynamic_symbol_table(), elf.elf_symbol_table()] {
            for symbol in table.iter() {
                let function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
                let start = symbol.st_value(ENDIAN);
                let end = start.saturating_add(symbol.st_size(ENDIAN));
                // A symbol without a size says where its function begins, if not where it ends.
                let covers = (start..end).contains(&address) || start == address;
                let later = found.as_ref().is_none_or(|other| start > other.start);
                if function && !symbol.is_undefined(ENDIAN) && covers && later {
                    found = Some(start..end);
                }
            }
        }
        found.or_else(|| {
            let (_, section) = elf.elf_section_table().section_by_name(ENDIAN, b".eh_frame")?;
            let data = section.data(ENDIAN, self.bytes()).ok()?;
            frames::function_at(data, section.sh_addr(ENDIAN), address)
        })
    }
}

/// The bytes of a segment.
struct Code<'a> {
    /// Address of the first.
    start: u64,
    /// Where that is in the file.
    offset: u64,
    bytes: &'a [u8],
}
