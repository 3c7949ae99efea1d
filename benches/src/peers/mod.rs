//! The machines under measurement, each behind the same closure.

pub mod rbpf;
pub mod sbpf;
pub mod twinbpf;

/// Runs a program once; the error is the machine's own words.
pub type Runner = Box<dyn FnMut() -> Result<u64, String>>;

/// Makes a machine that is ready to run.
pub type Make = Box<dyn Fn() -> Result<Runner, String>>;

/// A machine that is ready to run one program again and again.
pub struct Subject {
    /// Column of the table.
    pub name: &'static str,
    /// Runs the program once.
    pub run: Runner,
}
