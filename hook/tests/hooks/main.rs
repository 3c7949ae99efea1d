//! Hooks on functions of C and C++ libraries, compiled in each way that leaves a pad, and in one that leaves none.

#![expect(unsafe_code, reason = "calls C functions, and hooks them")]

mod fixture;
mod states;
#[path = "../../../tests/support/mod.rs"]
mod support;
mod transparent;

use support::harness;

/// Whether the compilers are here.
fn can_compile() -> bool {
    let missing = ["gcc", "g++", "clang-19"].into_iter().find(|tool| !support::installed(tool));
    if let Some(tool) = missing {
        harness::skip(&format!("no {tool}"));
    }
    missing.is_none()
}

harness::tests! {
    states::each_kind_of_preparation_is_found,
    states::every_order_of_attaching_and_detaching,
    transparent::functions_compute_what_they_do_without_hooks,
    transparent::returns_are_seen_and_functions_unwind,
    transparent::exceptions_pass_functions_with_hooked_returns,
    transparent::replacements_and_results_of_callbacks,
}
