//! How fast twinbpf runs programs, next to other machines on the same bytecode, and to the same C as native code.
//!
//! Each file under `benches/` measures one thing; backends and peers are its parameters. This library holds what they
//! share: the workloads with their expected results, the backends that can run them, and the interleaved
//! measurement that the printed tables come from. It is no part of the product, nothing depends on it.

pub mod ablation;
mod arguments;
pub mod bench;
pub mod clock;
pub mod compiling;
pub mod left_out;
pub mod million;
pub mod outside;
pub mod packets;
pub mod peers;
pub mod performance;
pub mod probe;
pub mod promise;
pub mod rounds;
pub mod scaling;
pub mod session;
pub mod sets;
pub mod table;
pub mod workload;
