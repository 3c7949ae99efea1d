//! The machines under measurement, each behind the same closure.

pub mod rbpf;
pub mod sbpf;

use crate::kernel::Kernel;

/// One machine that is ready to run one program again and again.
pub struct Subject {
    /// Column of the table.
    pub name: &'static str,
    /// Runs the program once.
    pub run: Runner,
}

/// One run; the error is the machine's own words.
pub type Runner = Box<dyn FnMut() -> Result<u64, String>>;

/// Makes a machine for a kernel.
pub type Make = fn(&Kernel) -> Result<Runner, String>;

/// Columns of the interpreter tables; the first is ours, the others are compared with it.
pub const INTERPRETERS: &[(&str, Make)] = &[("rbpf", rbpf::kernel), ("solana-sbpf", sbpf::kernel)];

/// The machines that run `kernel` and return what they must; the others by name and reason.
pub fn ready(kernel: &Kernel, machines: &[(&'static str, Make)]) -> (Vec<Subject>, Vec<String>) {
    let expected = kernel.expected();
    let (mut subjects, mut left_out) = (Vec::new(), Vec::new());
    for &(name, make) in machines {
        let outcome = make(kernel).and_then(|mut run| {
            // Twice, because the second run finds the scratch area as the first one left it.
            for result in [run()?, run()?] {
                if result != expected {
                    return Err(format!("returned {result:#x} instead of {expected:#x}"));
                }
            }
            Ok(run)
        });
        match outcome {
            Ok(run) => subjects.push(Subject { name, run }),
            Err(why) => left_out.push(format!("{name} left out of {}: {why}", kernel.name)),
        }
    }
    (subjects, left_out)
}
