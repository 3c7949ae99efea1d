//! What generated code knows of the machine: offsets in its context, and how near to its arena nothing is mapped.

use std::mem::offset_of;

use twinbpf_vm::host::native::Context;
use twinbpf_vm::mem::MARGIN;

macro_rules! field {
    ($name:ident) => {
        std::mem::offset_of!(twinbpf_vm::host::native::Context, $name) as i32
    };
}
pub(crate) use field;

/// Offset of a register in [`Context::regs`].
pub(crate) fn reg_field(reg: usize) -> i32 {
    (offset_of!(Context, regs) + 8 * reg) as i32
}

/// Whether an access of so many bytes may lie this far from an address in the arena: all of it is in the arena then or in
/// its [margin](MARGIN).
pub(crate) fn reaches(off: i64, bytes: u64) -> bool {
    let margin = MARGIN as i64;
    (-margin..=margin - bytes as i64).contains(&off)
}
