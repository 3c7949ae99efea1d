//! Every byte a program can reach, and the only unsafe code of the machine.
//!
//! An [`Arena`] is 4 GiB of reserved address space, aligned to 4 GiB, with guard pages around it and nothing
//! mapped near its ends. Contexts, stacks, packets, map values and globals are *regions* of it. Pointers
//! that a program holds are host addresses, but only their low 32 bits count, so a 32-bit field such as
//! `xdp_md.data` holds a usable pointer too.
//!
//! - [`Block`] owns a region: made by [`Arena::alloc`], given back on drop.
//!   Memory that no program may reach, such as the links of a map, is a block outside of the arena that counts for its limit.
//! - [`View`] is how one running machine accesses the arena: loads and stores with exact bounds, through a
//!   small cache of the regions seen last. It is what the interpreter calls for every memory instruction.
//! - An [`Arena::trusted`] has its addresses below 4 GiB and base 0, for programs that work with raw pointers: what
//!   its [`View`]s do not find in a region they try to access all the same, and a fault is a value.
//! - [`HandleTable`] gives functions and maps addresses that are not memory.
//!
//! Read-only regions lie in the lowest quarter, on pages that programs cannot write to whatever runs them: [`Block`]
//! writes to the same pages at a second address outside the arena. A child made by `fork` shares these pages with
//! its parent, so only one of them should continue making read-only regions in an arena from before.
//!
//! Pages of the arena are never unmapped and never change protection while the arena lives, so a stale
//! address can hit wrong bytes of the arena but nothing else. Concurrent plain accesses race as in C: each is
//! one machine access, and the bytes are outside all Rust objects.

mod arena;
mod block;
mod bytes;
mod cell;
mod checked_copy;
mod fault;
mod frame;
mod free;
mod grid;
mod handle;
mod hidden;
mod out_of_arena;
mod page_colouring;
mod sys;
mod view;

pub use arena::{Arena, Elements, Region, RegionKind, RegionSpec};
pub use block::Block;
pub(crate) use block::Record;
pub use cell::AtomicCell;
pub use checked_copy::Text;
pub(crate) use checked_copy::Words;
pub use fault::{Access, Fault, FaultReason, MemError, Near};
pub(crate) use frame::CallerFrame;
pub use free::FreeList;
pub use handle::{HandleRange, HandleTable};
pub use view::{Bounds, View};

/// Bytes of an arena.
pub const ARENA_SIZE: u64 = 1 << 32;
/// Nothing is ever mapped below this offset: a null pointer plus a small offset faults.
pub const NULL_GUARD: u32 = 64 << 10;
/// Nothing is ever mapped within so many bytes of either end of an arena, inside and outside: generated code counts on it
/// where it adds constants to pointers.
pub const MARGIN: u64 = 1 << 20;

#[cfg(test)]
mod tests;
