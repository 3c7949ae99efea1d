//! Code that sessions put into programs, from text.

use twinbpf_isa::{Insn, Raw, asm};

/// Instructions of a text of ours, as the kernel takes them.
pub(crate) fn code(text: &str) -> Vec<Raw> {
    encoded(asm::parse(text).expect("the assembler takes it"))
}

/// Instructions as the kernel takes them.
pub(crate) fn encoded(insns: Vec<Insn>) -> Vec<Raw> {
    insns.into_iter().map(Insn::encode).collect()
}
