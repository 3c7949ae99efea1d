//! A program that carries a shared object: [`shared_object!`] is the bytes that cargo made of a dependency.
//!
//! cargo builds a dependency of `crate-type = ["cdylib", "rlib"]` as both in one step, before it compiles the program that
//! depends on it, and the two files have one name but for the extension. The compiler gets the path of one of them. So
//! `cargo install` of the program is all that a user needs.

use std::path::PathBuf;

use proc_macro::TokenStream;

/// The bytes of the shared object of a dependency: `shared_object!(twinbpf_perf)` is a byte string.
///
/// Where the compiler only checks or documents the program, cargo builds no dependency, and the string is empty.
///
/// # Panics
/// At compile time: no dependency has this name, or its path is no text.
#[proc_macro]
pub fn shared_object(name: TokenStream) -> TokenStream {
    let name = name.to_string();
    let library = dependency(std::env::args(), &name).unwrap_or_else(|| panic!("{name} is no dependency"));
    let expression = if library.extension().is_some_and(|kind| kind == "rmeta") {
        "b\"\"".to_owned()
    } else {
        let path = library.with_extension("so");
        format!("include_bytes!({:?})", path.to_str().expect("cargo's paths are texts"))
    };
    expression.parse().expect("an expression")
}

/// The file of a dependency, by the arguments of the compiler: `--extern name=path`.
fn dependency(args: impl Iterator<Item = String>, name: &str) -> Option<PathBuf> {
    args.filter_map(|arg| arg.strip_prefix(name)?.strip_prefix('=').map(PathBuf::from)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_have_their_path() {
        let args =
            ["rustc", "--extern", "twinbpf=/t/libtwinbpf-1.rlib", "--extern", "twinbpf_perf=/t/libtwinbpf_perf.rlib"];
        let path = |name| dependency(args.iter().map(|arg| (*arg).to_owned()), name);
        assert_eq!(path("twinbpf_perf"), Some(PathBuf::from("/t/libtwinbpf_perf.rlib")));
        assert_eq!(path("twinbpf_vm"), None);
    }
}
