//! Instruction tracing: the state that a tracer gets before each instruction.

/// The machine just before it executes an instruction.
#[derive(Clone, Copy, Debug)]
pub struct TraceStep {
    /// Index of the program in the image.
    pub program: usize,
    /// Instruction in that program.
    pub pc: usize,
    /// Calls on top of the entry function.
    pub depth: usize,
    /// r0 to r10.
    pub registers: [u64; 11],
}

/// Called before each instruction.
pub type Tracer = Box<dyn FnMut(&TraceStep) + Send>;
