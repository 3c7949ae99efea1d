//! The instruction set, declared once: RFC 9669 and the kernel's extensions; linked programs and their validation.
//!
//! [`program::Program`] is the contract that the loader produces and every backend consumes, and
//! [`validate::Valid`] says that it has been checked.
//!
//! Three tables of one shape ([`AluOp`], [`Cond`], [`AtomicOp`]) and the [`Insn`] enum over them. One 8-byte
//! slot is one `Insn` (the second half of `lddw` is its own variant), so a pc is an index. Everything else
//! (decoder, encoder, text, documentation) is derived from the rows.
#![forbid(unsafe_code)]

pub mod asm;
mod code;
pub mod doc;
mod frame;
mod insn;
pub mod opcode;
mod policy;
pub mod program;
mod raw;
mod reads;
mod splice;
mod table;
mod text;
pub mod validate;

pub use code::{DecodeError, Field, decode_all, encode_all};
pub use frame::{LowerFrameError, lower_frame};
pub use insn::{ByteOrder, CallKind, Insn, Operand, Reg, Size};
pub use policy::{Groups, Mode, Policy};
pub use raw::{Endian, Raw};
pub use reads::context_reads;
pub use splice::{Moved, SpliceError, difference, splice, target_of};
pub use table::{AluOp, AtomicOp, Cond, Group, Row, Shape, Width};
pub use text::{disasm, disasm_with, text_at};

#[cfg(test)]
mod tests;
