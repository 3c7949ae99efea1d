//! How much more work threads do together than one does alone: map programs over maps that all threads share, in twinbpf and
//! in the kernel. Each thread keeps to a CPU of its own.

use std::ops::ControlFlow;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use twinbpf::{InstancePre, Object};
use twinbpf_kernel::stream::RingReader;

use crate::clock::{stay_on_cpu, waited_ns, wall_ns};
use crate::peers::linux::object::InKernel;
use crate::peers::maps::{PACKET, empty_ring, filled, filled_in_kernel, has_ring, object, ring_of, widen_ring};
use crate::peers::twinbpf::Mode;

/// Time of one sample.
const SAMPLE_NS: u64 = 10_000_000;
/// Runs of a thread in one sample of a program that writes to the ring: it has to hold them all.
const RING_RUNS: u32 = 256;

/// A number of runs, and the nanoseconds that they took.
type Worker<'a> = Box<dyn FnMut(u32) -> Result<u64, String> + 'a>;

/// A program with its maps, ready to run on several threads.
pub trait Crowd: Sync {
    /// What a thread does; the thread calls this itself.
    ///
    /// # Errors
    /// There is no instance for it.
    fn worker(&self) -> Result<Worker<'_>, String>;

    /// Puts the maps into the state that a sample begins with.
    fn renew(&self);
}

/// A crowd, and how many runs fill a sample.
pub struct Measured {
    crowd: Box<dyn Crowd>,
    runs: u32,
}

impl Measured {
    /// In twinbpf, sandboxed.
    ///
    /// # Errors
    /// The program does not run.
    pub fn in_twinbpf(program: &str, most: u32) -> Result<Measured, String> {
        let pre = filled(&wide(most)?, Mode::Sandbox)?;
        Measured::new(Box::new(Own { pre, program: program.to_owned() }), program)
    }

    /// In the kernel.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn in_kernel(program: &str, most: u32) -> Result<Measured, String> {
        let kernel = filled_in_kernel(wide(most)?, &[program])?;
        let ring = Mutex::new(has_ring(program).then(|| ring_of(&kernel)).transpose()?);
        Measured::new(Box::new(Kernel { kernel, ring, program: program.to_owned() }), program)
    }

    fn new(crowd: Box<dyn Crowd>, program: &str) -> Result<Measured, String> {
        let mut measured = Measured { crowd, runs: RING_RUNS };
        if !has_ring(program) {
            measured.runs = 10;
            let run_ns = 1.0 / measured.rate(1)?;
            measured.runs = ((SAMPLE_NS as f64 / run_ns) as u32).max(1);
        }
        Ok(measured)
    }

    /// Runs in a nanosecond of so many threads together.
    ///
    /// # Errors
    /// A run fails.
    ///
    /// # Panics
    /// When a thread does.
    pub fn rate(&self, threads: u32) -> Result<f64, String> {
        let start = Barrier::new(threads as usize);
        let work = |cpu: u32| {
            stay_on_cpu(cpu);
            let worker = self.crowd.worker();
            start.wait();
            worker?(self.runs).map(|ns| f64::from(self.runs) / ns as f64)
        };
        let work = &work;
        let rates = thread::scope(|scope| {
            let started: Vec<_> = (0..threads).map(|cpu| scope.spawn(move || work(cpu))).collect();
            started.into_iter().map(|thread| thread.join().expect("it does not panic")).collect::<Vec<_>>()
        });
        self.crowd.renew();
        rates.into_iter().sum()
    }
}

/// The object with a ring for a sample of so many threads.
fn wide(threads: u32) -> Result<Object, String> {
    let mut object = object()?;
    widen_ring(&mut object, RING_RUNS * threads);
    Ok(object)
}

struct Own {
    pre: InstancePre<()>,
    program: String,
}

impl Crowd for Own {
    fn worker(&self) -> Result<Worker<'_>, String> {
        let entry = self.pre.program(&self.program).ok_or_else(|| format!("no program `{}`", self.program))?;
        let mut instance = self.pre.instance(()).map_err(|error| error.to_string())?;
        Ok(Box::new(move |runs| {
            // The kernel's clock of its runs stands still, too, while others have the CPU.
            let start = wall_ns() - waited_ns();
            for _ in 0..runs {
                // Threads take entries away from each other, so that operations fail.
                instance.call(entry, &[]).map_err(|trap| trap.to_string())?;
            }
            Ok(wall_ns() - waited_ns() - start)
        }))
    }

    fn renew(&self) {
        if has_ring(&self.program) {
            empty_ring(&self.pre);
        }
    }
}

struct Kernel {
    kernel: InKernel,
    ring: Mutex<Option<RingReader>>,
    program: String,
}

impl Crowd for Kernel {
    fn worker(&self) -> Result<Worker<'_>, String> {
        Ok(Box::new(|runs| {
            let result = self.kernel.run(&self.program, &PACKET, runs)?;
            Ok(u64::from(result.duration_ns) * u64::from(runs))
        }))
    }

    fn renew(&self) {
        if let Some(ring) = &mut *self.ring.lock().unwrap_or_else(PoisonError::into_inner) {
            ring.consume(|_| ControlFlow::Continue(()));
        }
    }
}
