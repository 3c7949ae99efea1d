//! What tests of the loader share: BTF built by hand, BTF of the corpus, and damage.
#![allow(dead_code, reason = "each crate uses a part")]

pub(crate) mod build;
pub(crate) mod corpus;
pub(crate) mod damage;
