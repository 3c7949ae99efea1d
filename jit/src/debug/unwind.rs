//! `.eh_frame` of generated functions.

use cranelift_codegen::gimli::RunTimeEndian;
use cranelift_codegen::gimli::write::{Address, EhFrame, EndianVec, FrameTable, Writer};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::UnwindInfo;

use super::Symbol;

/// The section for these functions, with absolute addresses, closed by a zero length. Empty if none of them has
/// unwind information.
pub(super) fn eh_frame(isa: &dyn TargetIsa, symbols: &[Symbol]) -> Vec<u8> {
    let Some(cie) = isa.create_systemv_cie() else { return Vec::new() };
    let mut table = FrameTable::default();
    let cie = table.add_cie(cie);
    for symbol in symbols {
        if let Some(UnwindInfo::SystemV(info)) = &symbol.unwind {
            table.add_fde(cie, info.to_fde(Address::Constant(symbol.range.start)));
        }
    }
    if table.fde_count() == 0 {
        return Vec::new();
    }
    let mut section = EhFrame(EndianVec::new(RunTimeEndian::default()));
    table.write_eh_frame(&mut section).expect("addresses are constants");
    section.0.write_u32(0).expect("a vector takes any bytes");
    section.0.into_vec()
}

/// Offsets of the descriptions of functions, which are the records whose second word is not zero.
pub(super) fn descriptions(section: &[u8]) -> Vec<usize> {
    let word = |at: usize| u32::from_ne_bytes(section[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut found) = (0, Vec::new());
    while word(at) != 0 {
        if word(at + 4) != 0 {
            found.push(at);
        }
        at += word(at) as usize + 4;
    }
    found
}
