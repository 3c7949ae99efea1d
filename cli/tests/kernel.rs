//! Sessions with the kernel: each tool of the corpus on a workload of which everything is known, and beside bpftrace
//! where that is installed. Without the rights to load programs these tests have nothing to say.

#[path = "kernel/bench.rs"]
mod bench;
mod common;
#[path = "kernel/leaving.rs"]
mod leaving;
#[path = "kernel/maps.rs"]
mod maps;
#[path = "kernel/places.rs"]
mod places;
#[path = "kernel/refused.rs"]
mod refused;
#[path = "kernel/rig.rs"]
mod rig;
#[path = "kernel/tools.rs"]
mod tools;
