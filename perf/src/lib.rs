//! `libtwinbpf_perf.so`: perf runs BPF scripts over a recording.
//!
//! `perf script --dlfilter libtwinbpf_perf.so --dlarg script.bpf.o` loads the object and calls [`entry`]. BEGIN runs at the
//! start, EVENT for each sample, END at the end. Programs run in the sandbox; perf's functions are theirs by
//! `functions.rs`.

// perf prints to the same standard output: `stdio`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod abi;
mod args;
pub mod entry;
mod fields;
mod functions;
mod needs;
mod recording;
mod run;
mod sample;
mod stdio;
mod types;
