//! Programs as native code, with Cranelift.
//!
//! Knows nothing of ELF or of the kernel: an [`Image`](twinbpf_vm::image::Image) comes in, code that the
//! [`Machine`](twinbpf_vm::interp::Machine) can enter comes out.

pub mod memory;
