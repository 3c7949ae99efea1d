//! User space: executables and libraries, where a name leads, where in the file a function is; memory of processes and of
//! core files.

mod boundary;
mod core;
pub mod elf;
mod file;
mod frames;
mod mapping;
mod process;

pub use self::core::{CoreError, CoreFile, CoreThread};
pub use boundary::Boundary;
pub use elf::{Binary, ElfError, Function, Sdt};
pub use file::find;
pub use mapping::Mapping;
pub use process::{ProcessError, ProcessMemory};
