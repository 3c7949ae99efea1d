//! Round trips over the whole grid: bytes, instructions and text.

mod encodable;
mod splice;
mod text;
mod wire;
