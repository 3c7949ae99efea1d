//! Objects relocate to any types, or say why not. The first word is the length of the types, which the object follows.
#![no_main]

use std::sync::Arc;
use twinbpf_btf::Btf;
use twinbpf_isa::Endian;
use twinbpf_loader::{LinkOptions, Object, kernel::{KernelData, KernelOptions}};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((len, rest)) = bytes.split_first_chunk() else { return };
    let Some((types, object)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else { return };
    let (Ok(btf), Ok(object)) = (Btf::parse(types, Endian::Little), Object::open("fuzzed.bpf.o", object)) else { return };
    let kernel = Arc::new(KernelData { btf: Some(Arc::new(btf)), ..KernelData::default() });
    let _ = object.link_kernel(&*kernel, &KernelOptions::default());
    let _ = object.link(&LinkOptions { kernel: Some(kernel), ..LinkOptions::default() });
});
