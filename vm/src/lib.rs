//! The machine: memory, maps, host functions and the interpreter.
//!
//! This crate knows nothing of ELF, of the kernel or of native code. What it runs is a
//! [`Program`](twinbpf_isa::program::Program), which the loader produces.
//!
//! Modules may use the ones before them in this list, never the reverse:
//! `trap`, `recover`, `mem`, `map`, `host`, `helper`, `image` | `interp`.

pub mod trap;

pub mod ident;
pub mod os;

pub mod process;

pub mod digest;

pub mod recover;

pub mod mem;

pub mod map;

pub mod host;

pub mod helper;

pub mod image;

pub mod interp;
