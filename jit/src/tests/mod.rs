//! Generated code against the interpreter, with a machine that has no services.

mod docs;
mod failing;
mod filetests;
mod limits;
mod machine;
mod margin;
mod passes;
mod programs;
mod rig;
mod shapes;
