//! ELF bytes to an editable `Object`, and from there to linked programs.
//!
//! Pure: the same bytes give the same `Object`, and no function here makes a system call. The crate knows the
//! contract of the machine ([`twinbpf_vm::program`]) and nothing of any backend.
#![forbid(unsafe_code)]

pub mod btf;
