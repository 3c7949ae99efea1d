//! Fields may come without a new major version.
#![forbid(unsafe_code)]

use twinbpf::Config;

fn main() {
    let _ = Config { max_insns: Some(1), ..Config::new() };
}

//~ error[E0639]: cannot create non-exhaustive struct using struct expression
