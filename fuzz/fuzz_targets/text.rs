//! The text of instructions assembles to the same instructions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use twinbpf_vm::isa::{Endian, asm, decode_all, disasm};

fuzz_target!(|bytes: &[u8]| {
    let Ok(insns) = decode_all(bytes, Endian::Little) else { return };
    assert_eq!(asm::parse(&disasm(&insns)).as_ref(), Ok(&insns));
});
