//! A run of scripts over a recording: what `start` makes, and each later call of perf uses.

use std::fs;
use std::sync::Arc;

use twinbpf::{Config, Engine, Linker, Object};
use twinbpf_loader::kernel::{Kernel, KernelData};
use twinbpf_trace::{Control, Options, Output, Plan, Sample, SampleSession, Verdict, errln};

use crate::abi::PerfSample;
use crate::args::{Args, Script};
use crate::fields::Fields;
use crate::recording::{Losses, Recording};
use crate::sample::Needs;
use crate::types::types;
use crate::{functions, sample, stdio};

/// Samples between two steps of the search for losses: they take up about as much of a recording as a step reads.
const BETWEEN: u64 = 8192;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Run {
    session: SampleSession,
    /// Where the recording's file is known.
    losses: Option<Losses>,
    /// How many samples perf gave.
    samples: u64,
    hide_samples: bool,
    over: bool,
}

impl Run {
    /// Loads the objects and runs BEGIN.
    ///
    /// # Errors
    /// In words: an argument, an object or its programs are wrong, or BEGIN faulted.
    pub(crate) fn start(args: &Args) -> Result<Run, String> {
        let objects = args.objects.iter().map(|Script { path, name }| {
            let bytes = fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
            Object::open(name, &bytes).map_err(|error| format!("{error:#}"))
        });
        let mut objects = objects.collect::<Result<Vec<Object>, String>>()?;
        for (name, value) in &args.set {
            let mut errors = objects.iter_mut().filter_map(|object| object.set_variable(name, value).err());
            if let Some(error) = errors.next() {
                return Err(format!("--set={name}={value}: {error}"));
            }
        }
        let recording = args.data.as_deref().map(Recording::open).transpose()?;
        functions::set(|current| current.needs = Needs::of(&objects));
        let kernel = prepare(recording.as_ref(), &objects)?;
        let config = Config::new().engine(args.engine).max_insns(args.max_insns).timeout(args.timeout);
        // With a second thread perf's own printing and allocating costs a tenth more.
        let config = config.parallel_compilation(false);
        let engine = Engine::new(config).map_err(|error| format!("cannot make an engine: {error:#}"))?;
        let output = match &args.output {
            Some(path) => Output::open(Some(path), args.format).map_err(|error| error.to_string())?,
            None => Output::to(stdio::output(), "standard output", args.format),
        };
        let options = Options {
            fail_on_loss: args.fail_on_loss,
            flamegraph: args.flamegraph.clone(),
            svg: args.svg.clone(),
            ..Options::of_samples()
        };
        let plan = Plan::new(objects, &options).map_err(|error| format!("{error:#}"))?;
        let linkers: Vec<Linker<Control>> = plan.objects.iter().map(|_| linker(&engine, kernel.as_ref())).collect();
        let session = SampleSession::new(plan, options, output, linkers).map_err(|error| format!("{error:#}"))?;
        for warning in session.warnings() {
            errln!("twinbpf: warning: {warning}");
        }
        let losses = recording.map(Losses::of);
        let mut run = Run { session, losses, samples: 0, hide_samples: args.hide_samples, over: false };
        run.over = !run.session.begin().map_err(|error| format!("{error:#}"))?;
        Ok(run)
    }

    /// Whether scripts want samples before perf has chosen them.
    pub(crate) fn has_early(&self) -> bool {
        self.session.has_early()
    }

    /// Gives a sample to the scripts: `give` is the session's function for it. Whether they keep it.
    fn give(&mut self, sample: &PerfSample, give: fn(&mut SampleSession, &Sample<'_>) -> Verdict) -> bool {
        if self.over {
            stdio::interrupt();
            return false;
        }
        let time = sample.time;
        let verdict = functions::with_sample(sample, |current| {
            let (bytes, pointers) = (&current.sample.bytes[..], &current.sample.pointers[..]);
            give(&mut self.session, &Sample { event: &current.event, time, size: sample::SIZE, bytes, pointers })
        });
        if verdict == Verdict::Over {
            self.over = true;
            stdio::interrupt();
        }
        verdict == Verdict::Keep
    }

    /// Gives a sample to the scripts before perf has chosen; whether perf goes on with it.
    pub(crate) fn early(&mut self, sample: &PerfSample) -> bool {
        self.give(sample, SampleSession::early)
    }

    /// Gives a sample to the scripts; whether perf prints it.
    pub(crate) fn sample(&mut self, sample: &PerfSample) -> bool {
        self.samples += 1;
        if self.samples.is_multiple_of(BETWEEN)
            && let Some(losses) = &mut self.losses
        {
            losses.step();
        }
        self.give(sample, SampleSession::sample) && !self.hide_samples
    }

    /// Runs END; the status of the run.
    ///
    /// # Errors
    /// In words: END faulted, or the output cannot be written.
    pub(crate) fn stop(mut self) -> Result<u8, String> {
        if let Some(lost) = self.losses.take().map(Losses::found) {
            self.session.lost(lost.samples());
            if lost.unread {
                errln!("twinbpf: warning: the recording is compressed: samples that it lacks are not counted");
            }
        }
        self.session.end().map_err(|error| format!("{error:#}"))
    }
}

fn linker(engine: &Engine, kernel: Option<&Arc<dyn Kernel>>) -> Linker<Control> {
    let mut linker = Linker::new(engine);
    functions::functions(&mut linker);
    if let Some(kernel) = kernel {
        linker.kernel(Arc::clone(kernel));
    }
    linker
}

/// Gives programs the fields of the recording's events, by name and by type: the types are those of the kernel that this
/// returns. Refuses what the recording cannot give.
fn prepare(recording: Option<&Recording>, objects: &[Object]) -> Result<Option<Arc<dyn Kernel>>, String> {
    let Some(recording) = recording else {
        return objects.iter().find_map(needs_formats).map_or(Ok(None), Err);
    };
    if let Some(call) = objects.iter().find_map(|object| calls(object, &functions::OF_CHAINS))
        && recording.has_stacks()?
    {
        return Err(format!("{call}: {}", functions::STACKS));
    }
    let formats = recording.formats()?;
    functions::set(|current| current.fields = Fields::new(&formats));
    Ok(Some(Arc::new(KernelData { btf: Some(Arc::new(types(&formats)?)), ..KernelData::default() })))
}

/// The object and the first of these functions that it calls.
fn calls(object: &Object, functions: &[&str]) -> Option<String> {
    let called = object.externs.iter().find(|symbol| functions.contains(&&*symbol.name))?;
    Some(format!("{}: {}", object.name, called.name))
}

/// What an object needs the recording's formats for, in words.
fn needs_formats(object: &Object) -> Option<String> {
    let relocated = object.programs.iter().find(|spec| !object.core_relocs(spec).is_empty());
    let typed = || relocated.map(|spec| format!("{}: program {}", object.name, spec.name));
    let needs = calls(object, &functions::BY_NAME).or_else(typed)?;
    Some(format!("{needs} needs the formats of the recording's events: name its file, as --dlarg --data=perf.data"))
}
