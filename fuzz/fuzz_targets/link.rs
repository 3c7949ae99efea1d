//! Whatever opens links, or says why not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use twinbpf_loader::Object;
use twinbpf_loader::LinkOptions;

fuzz_target!(|bytes: &[u8]| {
    let Ok(object) = Object::open("fuzzed.bpf.o", bytes) else { return };
    let _ = object.link(&LinkOptions::default());
});
