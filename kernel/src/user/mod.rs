//! Executables and libraries of user space: where a name leads, where in the file a function is.

pub mod elf;
mod file;

pub use elf::{Binary, ElfError, Function, Sdt};
pub use file::find;
