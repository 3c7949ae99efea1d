//! How fast twinbpf runs programs, next to other userspace machines on the same bytecode.
//!
//! Each file under `benches/` asks one question; engines and peers are its parameters. This library holds what they
//! share: the compute kernels with their expected results, the machines that can run them, and the alternating
//! measurement that the printed tables come from. It is no part of the product, nothing depends on it.

pub mod clock;
pub mod kernel;
pub mod peers;
pub mod question;
pub mod rounds;
pub mod table;
