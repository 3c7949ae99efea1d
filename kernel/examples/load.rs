//! Loads objects into the kernel and says what became of each program and map.
//!
//! `cargo run -p twinbpf-kernel --example load FILE...`

use twinbpf_kernel::load::{LoadOptions, load};
use twinbpf_kernel::system::System;
use twinbpf_loader::Object;
use twinbpf_loader::kernel::KernelOptions;

fn main() {
    for path in std::env::args().skip(1) {
        let object = match std::fs::read(&path).map(|bytes| Object::open(&path, &bytes)) {
            Ok(Ok(object)) => object,
            Ok(Err(error)) => {
                println!("{error}");
                continue;
            }
            Err(error) => {
                println!("{path}: {error}");
                continue;
            }
        };
        let linked = object.link_kernel(System::get(), &KernelOptions::default());
        linked.failures.iter().for_each(|failure| println!("{}", failure.error));
        let loaded = load(&object, &linked, &LoadOptions::default());
        loaded.failures.iter().for_each(|failure| println!("{failure}"));
        let programs = loaded.programs.iter().flatten().count();
        println!(
            "{path}: {programs} of {} programs, {} maps",
            linked.programs.len(),
            loaded.maps.iter().flatten().count()
        );
    }
}
