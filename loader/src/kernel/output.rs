//! Printing from kernel programs: where a program reserves a record of the session's output, and which format it has.
//!
//! `<twinbpf/trace.h>` calls the weak function [`RESERVE`], which no kernel has: libbpf makes its address zero, and the
//! verifier drops the code after that condition. With [`KernelOptions::output`](super::KernelOptions::output) the call
//! becomes one of `bpf_ringbuf_reserve` with a ring buffer of the session, and the address of a format in the section
//! [`FORMATS`] its number: the offset in the section, which linking of objects keeps unique.

use twinbpf_isa::opcode::LDDW;
use twinbpf_isa::{Raw, SpliceError};
use twinbpf_vm::map::{MapKind, MapSpec};

use super::{Fixup, KernelLinked, KernelProgram};

/// `void *twinbpf_reserve(void *unused, __u64 size, __u64 flags)`.
pub const RESERVE: &str = "twinbpf_reserve";
/// Section of the formats.
pub const FORMATS: &str = ".rodata.twinbpf";
/// Name of the ring buffer, as the kernel shows it.
pub const OUTPUT: &str = "twinbpf_output";

/// Number of `bpf_ringbuf_reserve`.
pub(super) const RESERVE_HELPER: i32 = 131;

/// A format that a program prints with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatUse {
    /// Index of the instruction slot that loads its number.
    pub pc: usize,
    /// Offset in the section of formats.
    pub number: u32,
}

impl KernelLinked {
    /// Adds the ring buffer of `bytes` that programs print to, as the last map, and returns its index. `None`: no program
    /// prints, and nothing is changed.
    ///
    /// # Errors
    /// A program is too long for a jump across what is inserted; some programs may have been changed.
    pub fn add_output(&mut self, bytes: u32) -> Result<Option<usize>, SpliceError> {
        let index = self.maps.len();
        if self.programs.iter().all(|program| program.reserves.is_empty()) {
            return Ok(None);
        }
        for program in &mut self.programs {
            add(program, index)?;
        }
        let spec = MapSpec::new(OUTPUT, MapKind::Ringbuf, 0, 0, bytes);
        Ok(Some(self.add_map(spec)))
    }
}

/// Puts the map into the first argument of each call that reserves.
fn add(program: &mut KernelProgram, map: usize) -> Result<(), SpliceError> {
    let calls = std::mem::take(&mut program.reserves);
    // From the end, so that places before it stay.
    for (at, pc) in calls.into_iter().enumerate().rev() {
        let call = program.insns[pc];
        // r1 = map ll
        let low = Raw { opcode: LDDW, regs: 0x11, off: 0, imm: map as i32 };
        // A jump to the call must not pass the load.
        program.splice(pc, 1, &[low, Raw::default(), call])?;
        program.fixups.insert(pc, Fixup::Map(map));
        // Each one before it moves by two slots, too.
        program.reserves.push(pc + 2 * at + 2);
    }
    program.reserves.reverse();
    Ok(())
}

#[cfg(test)]
mod tests {
    use twinbpf_isa::opcode::JEQ_IMM;
    use twinbpf_isa::{CallKind, Endian, Insn, Raw, SpliceError, asm};

    use super::{OUTPUT, RESERVE, RESERVE_HELPER};
    use crate::kernel::{Fixup, KernelData, KernelLinked, KernelOptions};
    use crate::testing::{GLOBAL, R64_32, WEAK, Writer};

    /// A program with a jump over a call that reserves, to the end of so many instructions.
    fn linked(instructions: usize, output: bool) -> KernelLinked {
        let text = |text: &str| asm::parse(text).expect("instructions");
        let mut insns = vec![Insn::decode(Raw { opcode: JEQ_IMM, regs: 1, off: instructions as i16, imm: 0 }).unwrap()];
        insns.push(Insn::Call { kind: CallKind::Local, off: 0, imm: -1 });
        insns.extend(text("r0 = 0").repeat(instructions - 1));
        insns.extend(text("r0 = 0\nexit"));
        let mut elf = Writer::new(Endian::Little);
        let section = elf.code("xdp", &insns);
        elf.function("main", GLOBAL, section, 0..insns.len() as u64);
        let symbol = elf.undefined(RESERVE, WEAK);
        elf.rel(section, &[(8, R64_32, symbol)]);
        elf.open().link_kernel(&KernelData::default(), &KernelOptions { output, ..KernelOptions::default() })
    }

    #[test]
    fn calls_that_reserve_get_the_ring_buffer() {
        let mut object = linked(4, true);
        assert_eq!(object.add_output(4096), Ok(Some(0)));
        assert_eq!(&*object.maps[0].spec.name, OUTPUT);
        let program = &object.programs[0];
        assert_eq!((program.insns[0].off, program.insns[3].imm), (6, RESERVE_HELPER));
        assert_eq!((&program.reserves[..], &program.fixups[&1]), (&[3][..], &Fixup::Map(0)));
        assert_eq!(linked(4, false).add_output(4096), Ok(None));
    }

    #[test]
    fn a_program_that_is_too_long_is_an_error() {
        let longest = i16::MAX as usize;
        assert!(matches!(linked(longest, true).add_output(4096), Err(SpliceError::Far { .. })));
        assert_eq!(linked(longest - 2, true).add_output(4096), Ok(Some(0)));
    }
}
