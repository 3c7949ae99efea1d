//! No bounds of an interpreter reach beyond the arena.
#![forbid(unsafe_code)]

fn main() {
    let _ = twinbpf_vm::mem::Bounds::Trusted;
}

//~ error[E0599]: no variant or associated item named `Trusted` found for enum `Bounds` in the current scope
