//! What the decoder takes, validation takes or refuses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use twinbpf_vm::isa::{Endian, Policy, decode_all};

fuzz_target!(|bytes: &[u8]| {
    let Ok(insns) = decode_all(bytes, Endian::Little) else { return };
    let _ = twinbpf_vm::generate::program_of(insns).validate(&Policy::default(), &|_| true);
});
