//! Oracles beside the majority of backends: what kernels are known to do otherwise, the kernel's verifier, models of
//! maps, printf of C, equivalent programs, the verifier of machine code.

mod agreement;
mod changed;
pub mod known;
mod maps;
mod print;
pub mod verify;

pub use agreement::{Agreement, Disagreement};
pub use changed::Changed;
pub use maps::{MODELS, Model};
pub use print::Printer;
