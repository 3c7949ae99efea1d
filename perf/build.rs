//! perf closes the object after `stop`, while threads and signal handlers of the machine still have code in it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
