//! Tests over BTF built by hand, in both byte orders, and over that of the corpus.

pub(crate) mod build;
mod c;
mod ext;
mod format;
mod initialiser;
mod layout;
mod maps;
mod mutate;
mod parse;
mod real;
mod value;
