//! One program on several engines: each gets a machine of its own and must first compute what the others compute.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use twinbpf::{Engine, Entry, Instance};
use twinbpf_loader::{Object, ProgramSpec};
use twinbpf_trace::errln;
use twinbpf_vm::mem::Block;

use super::effect::Effect;
use super::kernel::InKernel;
use super::measure::{self, Subject};
use super::report::{Column, ProgramReport};
use crate::args::{BenchArgs, BenchEngine};
use crate::input::Input;
use crate::load;

/// A program, its inputs, and the engines that run it.
pub(super) struct Contest<'a> {
    name: String,
    insns: Option<u64>,
    /// Number of inputs.
    inputs: u32,
    machines: Vec<(BenchEngine, Result<Timed<'a>, String>)>,
}

/// A program on an engine.
type Timed<'a> = Box<dyn Subject + 'a>;

/// The same, with what the program did on the engine once with each input, and its instructions if they were counted.
type Candidate<'a> = (Timed<'a>, Vec<Effect>, Option<u64>);

/// A program on one engine of ours.
struct Runner<'a> {
    instance: Instance<()>,
    entry: Entry,
    inputs: &'a [Input],
}

impl<'a> Contest<'a> {
    /// Runs the program once on each engine with each input.
    ///
    /// # Errors
    /// Of the first engine, which the others are compared with.
    pub(super) fn new(
        object: &Object,
        spec: &ProgramSpec,
        inputs: &'a [Input],
        args: &BenchArgs,
        engines: &[BenchEngine],
    ) -> Result<Contest<'a>> {
        let mut machines = Vec::new();
        let mut reference: Option<(BenchEngine, Vec<Effect>)> = None;
        let mut insns = None;
        let program = Program { object, spec, inputs, args, warned: RefCell::default() };
        for &engine in engines {
            let ready = match engine.config(load::config(&args.load, &args.limits, &args.compile)) {
                Some(config) => {
                    let trusted = args.load.trust || engine == BenchEngine::Trusted;
                    program.ready(&|| match trusted {
                        true => load::trusted_engine(config.clone()),
                        false => Engine::new(config.clone()),
                    })
                }
                None => in_kernel(object, spec, inputs),
            };
            let (timed, effects) = match (ready, &reference) {
                (Ok((timed, effects, count)), _) => {
                    insns = insns.or(count);
                    (timed, effects)
                }
                (Err(error), None) => return Err(error),
                (Err(error), Some(_)) => {
                    machines.push((engine, Err(format!("{error:#}"))));
                    continue;
                }
            };
            let difference = reference.as_ref().and_then(|(first, wanted)| {
                effects.iter().zip(wanted).zip(1..).find_map(|((effect, wanted), number)| {
                    let difference = effect.difference(engine, *first, wanted)?;
                    Some(if inputs.len() > 1 { format!("packet {number}: {difference}") } else { difference })
                })
            });
            machines.push((engine, difference.map_or(Ok(timed), Err)));
            reference.get_or_insert((engine, effects));
        }
        let name = format!("{}:{}", object.name, spec.name);
        Ok(Contest { name, insns, inputs: inputs.len() as u32, machines })
    }

    /// Measures the engines that are in it for about this long.
    pub(super) fn run(mut self, time: Duration) -> Result<ProgramReport> {
        let mut subjects: Vec<&mut dyn Subject> = Vec::new();
        for (_, machine) in &mut self.machines {
            subjects.extend(machine.as_mut().ok().map(|subject| &mut **subject as &mut dyn Subject));
        }
        // A sample takes as long with each input as it says.
        let mut figures = measure::alternate(&mut subjects, time / self.inputs)?.into_iter();
        let columns = self.machines.iter().map(|(engine, machine)| Column {
            engine: engine.name(),
            outcome: match machine {
                Ok(_) => Ok(figures.next().expect("one for each subject")),
                Err(why) => Err(why.lines().next().unwrap_or_default().to_owned()),
            },
        });
        Ok(ProgramReport { columns: columns.collect(), name: self.name, insns: self.insns })
    }
}

fn in_kernel<'a>(object: &Object, spec: &ProgramSpec, inputs: &[Input]) -> Result<Candidate<'a>> {
    let effects = InKernel::new(object, spec, inputs)?.effects()?;
    // Maps and globals are to be as they were.
    Ok((Box::new(InKernel::new(object, spec, inputs)?), effects, None))
}

/// A program that engines of ours are to run.
struct Program<'a, 'i> {
    object: &'a Object,
    spec: &'a ProgramSpec,
    inputs: &'i [Input],
    args: &'a BenchArgs,
    /// Warnings that are printed: engines share most of them.
    warned: RefCell<BTreeSet<String>>,
}

impl<'i> Program<'_, 'i> {
    /// The program runs once on another machine than the one that is timed.
    fn ready(&self, engine: &dyn Fn() -> Result<Engine, twinbpf::Error>) -> Result<Candidate<'i>> {
        let printed = Capture::default();
        let mut first = self.runner(engine()?, Box::new(printed.clone()))?;
        let (mut effects, mut insns) = (Vec::new(), Some(0));
        for input in self.inputs {
            effects.push(first.effect(input, &printed)?);
            insns = insns.zip(first.instance.insns_executed()).map(|(all, one)| all + one);
        }
        let insns = insns.map(|all| all / self.inputs.len() as u64);
        Ok((Box::new(self.runner(engine()?, Box::new(io::sink()))?), effects, insns))
    }

    fn runner(&self, engine: Engine, output: Box<dyn Write + Send>) -> Result<Runner<'i>> {
        let linker = load::linker(&engine, &self.args.load)?;
        let pre = linker.instantiate_programs(self.object, &[&self.spec.name])?;
        for warning in pre.warnings() {
            if self.warned.borrow_mut().insert(warning.clone()) {
                errln!("twinbpf: warning: {warning}");
            }
        }
        let entry = pre.program(&self.spec.name).expect("instantiated above");
        Ok(Runner { instance: pre.instance_with_output((), output)?, entry, inputs: self.inputs })
    }
}

impl Runner<'_> {
    fn effect(&mut self, input: &Input, printed: &Capture) -> Result<Effect> {
        let (block, args) = input.give(&mut self.instance)?;
        let r0 = self.instance.call(self.entry, &args)?;
        let packet = self.instance.take_packet().map(|packet| [packet.meta(), packet.bytes()].concat());
        let bytes = packet.or(block.map(|block: Block| block.to_vec(0, block.len() as usize))).unwrap_or_default();
        Ok(Effect { r0, bytes, output: printed.take() })
    }
}

impl Subject for Runner<'_> {
    fn sample(&mut self, runs: u64) -> Result<Duration> {
        let mut all = Duration::ZERO;
        for input in self.inputs {
            let (_block, args) = input.give(&mut self.instance)?;
            let start = Instant::now();
            for _ in 0..runs {
                self.instance.call(self.entry, &args)?;
            }
            all += start.elapsed();
        }
        Ok(all / self.inputs.len() as u32)
    }
}

/// Keeps what a program prints.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
