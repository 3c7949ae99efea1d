//! The machines under measurement, each behind the same trait.

use crate::clock::thread_cpu_ns;

pub mod calls;
pub mod linux;
pub mod native;
pub mod rbpf;
pub mod sbpf;
pub mod twinbpf;

/// A machine that is ready to run one program again and again. Every closure that runs it is one.
pub trait Run {
    /// Runs the program once; the error is the machine's own words.
    fn run(&mut self) -> Result<u64, String>;

    /// Nanoseconds that so many runs take: CPU time of this thread, unless the machine has a clock of its own.
    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let start = thread_cpu_ns();
        for _ in 0..runs {
            std::hint::black_box(self.run()?);
        }
        Ok(thread_cpu_ns() - start)
    }
}

impl<F: FnMut() -> Result<u64, String>> Run for F {
    fn run(&mut self) -> Result<u64, String> {
        self()
    }
}

/// A backend with a program that is ready to run.
pub type Runner = Box<dyn Run>;

/// Makes a machine that is ready to run.
pub type Make = Box<dyn Fn() -> Result<Runner, String>>;

/// A machine under its name.
pub struct Subject {
    /// Column of the table.
    pub name: &'static str,
    /// The backend that runs it.
    pub machine: Runner,
}
