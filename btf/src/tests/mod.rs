//! Tests over BTF built by hand, in both byte orders, and over that of the corpus.

mod c;
mod ext;
mod format;
mod initialiser;
mod mutate;
mod parse;
mod real;
pub(crate) mod support;
mod value;
