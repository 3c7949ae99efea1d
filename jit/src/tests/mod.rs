//! Generated code against the interpreter, with a machine that has no services.

mod margin;
mod failing;
mod machine;
mod passes;
mod programs;
mod rig;
