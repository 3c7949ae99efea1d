//! Round trips over the whole grid: bytes, instructions and text.

mod text;
mod wire;
