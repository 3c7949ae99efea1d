//! What is left of the machine in a process that has unloaded it: its signal handlers.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod host;
#[path = "../../../tests/support/mod.rs"]
mod support;

use support::harness;

harness::tests! {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
    host::handlers_of_an_unloaded_library_can_still_run,
}
