//! How fast twinbpf runs programs, next to other machines on the same bytecode, and to the same C as native code.
//!
//! Each file under `benches/` asks one question; engines and peers are its parameters. This library holds what they
//! share: the workloads with their expected results, the machines that can run them, and the alternating
//! measurement that the printed tables come from. It is no part of the product, nothing depends on it.

pub mod ablation;
pub mod clock;
pub mod compiling;
pub mod outside;
pub mod peers;
pub mod performance;
pub mod probe;
pub mod promise;
pub mod question;
pub mod rounds;
pub mod session;
pub mod sets;
pub mod table;
pub mod workload;
