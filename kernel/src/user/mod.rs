//! Executables and libraries of user space: where a name leads, where in the file a function is.

mod boundary;
pub mod elf;
mod file;
mod frames;

pub use boundary::Boundary;
pub use elf::{Binary, ElfError, Function, Sdt};
pub use file::find;
