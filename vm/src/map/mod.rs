//! Maps: blueprints, and the in-process implementations behind `MapOps`.

mod spec;

pub use spec::{Data, Field, FieldKind, MapKind, MapSpec, Pointer, Slot};
