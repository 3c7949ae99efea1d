//! The instruction set, declared once: RFC 9669 and the kernel's extensions.
//!
//! Three tables of one shape ([`AluOp`], [`Cond`], [`AtomicOp`]) and the [`Insn`] enum over them. One 8-byte
//! slot is one `Insn` (the second half of `lddw` is its own variant), so a pc is an index. Everything else
//! (decoder, encoder, text, documentation) is derived from the rows.
#![forbid(unsafe_code)]

mod insn;
mod table;

pub use insn::{ByteOrder, CallKind, Insn, Operand, Reg, Size, Width};
pub use table::{AluOp, AtomicOp, Cond, Group, Row, Shape};
