//! Generated code against the interpreter, with a machine that has no services.

mod programs;
mod rig;
mod speed;
