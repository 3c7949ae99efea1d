//! Maps: blueprints, and the in-process implementations behind `MapOps`.

mod ops;
mod spec;

pub use ops::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno, MapOps, Ring, Sent};
pub use spec::{Data, Field, FieldKind, MapKind, MapSpec, Pointer, Slot};
