//! Generated code against the interpreter, with a machine that has no services.

mod machine;
mod programs;
mod rig;
