//! Round trips over the whole grid: bytes, instructions and text.

mod splice;
mod text;
mod wire;
