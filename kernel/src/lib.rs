//! The kernel's side: `bpf(2)` and `perf_event_open(2)`, typed arguments in, owned file descriptors out.
//!
//! This crate is the only one that talks to the kernel about BPF. It finds out which features the kernel has by trying
//! them, never which version it is. What is attached hangs on file descriptors alone, so that it ends with the process,
//! however that ends.

mod arch;
pub mod btf;
pub mod catalog;
mod counter;
pub mod cpu;
mod error;
mod hint;
pub mod link;
pub mod load;
pub mod map;
pub mod probe;
pub mod probe_event;
pub mod prog;
mod running;
pub mod share;
pub mod stream;
mod sys;
pub mod system;
pub mod tracefs;
pub mod user;

pub use counter::Counter;
pub use error::Error;
pub use link::{Link, Options, Pending, Target};
pub use load::{LoadOptions, Loaded, Loading, load};
pub use map::{Map, MapBtf, MapCreate, MapKind, Shared};
pub use prog::{AttachType, Prog, ProgLoad, ProgType, TestRun, TestRunResult, run_function};
