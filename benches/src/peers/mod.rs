//! The backends under measurement: twinbpf, its peers, native code and the kernel, with one trait.

use crate::clock::thread_cpu_ns;

pub mod calls;
pub mod linux;
pub mod maps;
pub mod native;
pub mod rbpf;
pub mod sbpf;
pub mod twinbpf;
pub mod wasmtime;

/// A backend that is ready to run one program repeatedly. Every closure that runs a program is one.
pub trait Run {
    /// Runs the program once; the error is the backend's message.
    fn run(&mut self) -> Result<u64, String>;

    /// Nanoseconds that so many runs take: CPU time of this thread, unless the backend has a clock of its own.
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

/// Prepares a backend to run a program.
pub type Make = Box<dyn Fn() -> Result<Runner, String>>;

/// A backend, with the name of its column.
pub struct Subject {
    /// Column of the table.
    pub name: &'static str,
    /// The backend that runs it.
    pub machine: Runner,
}
