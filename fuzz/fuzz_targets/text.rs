//! The text of instructions assembles to the same instructions, and assembled text has a text.
#![no_main]

use twinbpf_isa::{Endian, asm, decode_all, disasm};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let assembled = std::str::from_utf8(bytes).ok().and_then(|text| asm::parse(text).ok());
    for insns in decode_all(bytes, Endian::Little).ok().into_iter().chain(assembled) {
        assert_eq!(asm::parse(&disasm(&insns)).as_ref(), Ok(&insns));
    }
});
