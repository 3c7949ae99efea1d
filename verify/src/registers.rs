//! Registers by number, and what the calling convention makes of them.

pub(crate) const RAX: usize = 0;
pub(crate) const RDX: usize = 2;
pub(crate) const RBX: usize = 3;
pub(crate) const RSP: usize = 4;
pub(crate) const RBP: usize = 5;
pub(crate) const RSI: usize = 6;
pub(crate) const RDI: usize = 7;

/// Registers that a function leaves as they were.
pub(crate) const SAVED: [usize; 6] = [RBX, RBP, 12, 13, 14, 15];

/// Registers of a C function's arguments.
pub(crate) const C_ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, 1, 8, 9];
