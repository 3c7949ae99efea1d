//! perf closes the object after `stop`, while threads and signal handlers of the machine still have code in it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The command carries the object; symbols suffice for what perf and debuggers say of it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
    println!("cargo::rerun-if-changed=build.rs");
}
