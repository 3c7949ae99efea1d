//! The registry for scripts: what include/twinbpf/script.h declares, with the semantics of C.
//!
//! Every pointer is checked against the sandbox; a bad one is a trap that names function and argument.

mod map;
mod memory;
mod number;
mod output;
pub mod print;
mod sort;
mod string;
mod time;

use crate::host::{Caller, HostFn};

/// These functions care for no embedder's data.
type Host<'a> = Caller<'a, ()>;

/// All of them.
pub(super) fn functions() -> Vec<HostFn> {
    [output::functions(), functions_of_c(), map::functions(), print::functions(), time::functions()].concat()
}

/// Those that work on memory and nothing else, as in C.
pub(super) fn functions_of_c() -> Vec<HostFn> {
    [string::functions(), memory::functions(), number::functions(), sort::functions()].concat()
}

#[cfg(test)]
mod tests;
