//! Any bytes are types, whose values can be shown and entered and which are C again, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use twinbpf_btf::{Btf, Endian, encode_value, format_value};

fuzz_target!(|bytes: &[u8]| {
    let Ok(btf) = Btf::parse(bytes, Endian::Little) else { return };
    for id in btf.ids() {
        let text = format_value(&btf, id, &bytes[..bytes.len().min(64)], Endian::Little);
        let _ = (encode_value(&btf, id, &text, &mut [0; 64], Endian::Little), btf.signature(id));
    }
    let _ = btf.to_c(None);
});
