//! ELF bytes to an editable [`Object`], and from there to linked programs.
//!
//! Pure: the same bytes give the same `Object`, and no function here makes a system call. The crate knows the
//! contract of the backends ([`twinbpf_isa::program`]) and nothing of any backend.
//!
//! [`Object::open`] keeps everything the file says, [`Object::link`] makes programs for the machine of it and
//! [`Object::link_kernel`] programs for a kernel. Untrusted bytes end in an [`Error`] value, in bounded time and memory.
#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "../../btf/src/tests/support/mod.rs"]
mod btf_support;
mod elf;
mod error;
mod instances;
mod kconfig;
pub mod kernel;
mod link;
pub mod maps;
mod object;
mod registers;
pub mod section;
#[cfg(test)]
mod testing;
pub mod usdt;

pub use error::{Cause, Error, RelocFault, Report};
pub use instances::{Instances, NoInstance};
pub use link::{
    FUNCTION_WEIGHT, Failure, LinkOptions, Linked, MAX_INSNS, MAX_TOTAL_INSNS, Origin, ProgramInfo, STACK_SIZE,
};
pub use object::{
    DataPointer, Note, NoteKind, Object, ProgramSpec, Reference, Role, StructOps, Variable, split_setting,
};
pub use registers::register_offset;
