//! Any bytes are types or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use twinbpf::loader::btf::{Btf, Endian};

fuzz_target!(|bytes: &[u8]| {
    let _ = Btf::parse(bytes, Endian::Little);
});
