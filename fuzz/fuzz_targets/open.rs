//! Any bytes are an object or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = twinbpf_loader::Object::open("fuzzed.bpf.o", bytes) {
        assert!(!error.to_string().is_empty());
    }
});
