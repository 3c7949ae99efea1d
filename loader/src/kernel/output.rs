//! Printing from kernel programs: where a program reserves a record of the session's output, and which format it has.
//!
//! `<twinbpf/trace.h>` calls the weak function [`RESERVE`], which no kernel has: libbpf makes its address zero, and the
//! verifier drops the code after that condition. With [`KernelOptions::output`](super::KernelOptions::output) the call
//! becomes one of `bpf_ringbuf_reserve` with a ring buffer of the session, and the address of a format in the section
//! [`FORMATS`] its number: the offset in the section, which linking of objects keeps unique.

use twinbpf_isa::{Raw, SpliceError};
use twinbpf_vm::map::{MapKind, MapSpec};

use super::{Fixup, KernelLinked, KernelMap, KernelProgram};

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
        self.maps.push(KernelMap { spec, key_type: None, value_type: None, inner_types: (None, None) });
        Ok(Some(index))
    }
}

/// Puts the map into the first argument of each call that reserves.
fn add(program: &mut KernelProgram, map: usize) -> Result<(), SpliceError> {
    let calls = std::mem::take(&mut program.reserves);
    // From the end, so that places before it stay.
    for (at, pc) in calls.into_iter().enumerate().rev() {
        let call = program.insns[pc];
        // r1 = map ll
        let low = Raw { opcode: 0x18, regs: 0x11, off: 0, imm: map as i32 };
        // A jump to the call must not pass the load.
        program.splice(pc, 1, &[low, Raw::default(), call])?;
        program.fixups.insert(pc, Fixup::Map(map));
        // Each one before it moves by two slots, too.
        program.reserves.push(pc + 2 * at + 2);
    }
    program.reserves.reverse();
    Ok(())
}
