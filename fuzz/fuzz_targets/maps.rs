//! Maps agree with their models on any sequence of operations.
#![no_main]

use std::{cell::LazyCell, sync::Arc};
use twinbpf_fuzzing::{MODELS, generate::Choices};
use twinbpf_vm::mem::Arena;

thread_local!(static ARENA: LazyCell<Arc<Arena>> = LazyCell::new(|| Arena::new(1 << 20).expect("memory")));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let (_, model) = MODELS[usize::from(*which) % MODELS.len()];
    ARENA.with(|arena| model(&mut Choices::from_bytes(rest), arena, rest.len() as u32 / 3));
});
