//! A run of scripts over a recording: what `start` makes, and each later call of perf uses.

use std::fs;

use twinbpf::{Config, Engine, Linker, Object};
use twinbpf_trace::{Control, Options, Output, Plan, Sample, SampleSession, Verdict, errln};

use crate::abi::PerfSample;
use crate::args::Args;
use crate::fields::Fields;
use crate::{functions, recording, sample, stdio};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Run {
    session: SampleSession,
    hide_samples: bool,
    over: bool,
}

/// Whether perf prints a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printed {
    Yes,
    No,
}

impl Run {
    /// Loads the objects and runs BEGIN.
    ///
    /// # Errors
    /// In words: an argument, an object or its programs are wrong, or BEGIN faulted.
    pub(crate) fn start(args: &Args) -> Result<Run, String> {
        let objects = args.objects.iter().map(|path| {
            let name = path.display().to_string();
            let bytes = fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
            Object::open(&name, &bytes).map_err(|error| format!("{error:#}"))
        });
        let mut objects = objects.collect::<Result<Vec<Object>, String>>()?;
        for (name, value) in &args.set {
            let mut errors = objects.iter_mut().filter_map(|object| object.set_variable(name, value).err());
            if let Some(error) = errors.next() {
                return Err(format!("--set={name}={value}: {error}"));
            }
        }
        let formats = formats(args, &objects)?;
        functions::set(|current| current.fields = Fields::new(&formats));
        let config = Config::new().engine(args.engine).max_insns(args.max_insns).timeout(args.timeout);
        let engine = Engine::new(config).map_err(|error| format!("cannot make an engine: {error:#}"))?;
        let output = match &args.output {
            Some(path) => Output::open(Some(path), args.format).map_err(|error| error.to_string())?,
            None => Output::to(stdio::output(), "standard output", args.format),
        };
        let options = Options::of_samples();
        let plan = Plan::new(objects, &options).map_err(|error| format!("{error:#}"))?;
        let linkers: Vec<Linker<Control>> = plan.objects.iter().map(|_| linker(&engine)).collect();
        let session = SampleSession::new(plan, options, output, linkers).map_err(|error| format!("{error:#}"))?;
        for warning in session.warnings() {
            errln!("twinbpf: warning: {warning}");
        }
        let mut run = Run { session, hide_samples: args.hide_samples, over: false };
        run.over = !run.session.begin().map_err(|error| format!("{error:#}"))?;
        Ok(run)
    }

    /// Gives a sample to the scripts.
    pub(crate) fn sample(&mut self, sample: &PerfSample) -> Printed {
        if self.over {
            stdio::interrupt();
            return Printed::No;
        }
        let event = sample.event();
        functions::set(|current| current.sample.write(sample, &event));
        let time = sample.time;
        let verdict = functions::with(|current| {
            let (bytes, pointers) = (&current.sample.bytes[..], &current.sample.pointers[..]);
            self.session.sample(&Sample { event: &event, time, size: sample::SIZE, bytes, pointers })
        });
        match verdict {
            Verdict::Keep if !self.hide_samples => Printed::Yes,
            Verdict::Keep | Verdict::Drop => Printed::No,
            Verdict::Over => {
                self.over = true;
                stdio::interrupt();
                Printed::No
            }
        }
    }

    /// Runs END; the status of the run.
    ///
    /// # Errors
    /// In words: END faulted, or the output cannot be written.
    pub(crate) fn stop(self) -> Result<u8, String> {
        self.session.end().map_err(|error| format!("{error:#}"))
    }
}

fn linker(engine: &Engine) -> Linker<Control> {
    let mut linker = Linker::new(engine);
    functions::functions(&mut linker);
    linker
}

/// Formats of the recording's events.
fn formats(args: &Args, objects: &[Object]) -> Result<Vec<String>, String> {
    if let Some(path) = &args.data {
        return recording::formats(path);
    }
    let by_name = |object: &Object| {
        let calls = object.externs.iter().find(|symbol| functions::BY_NAME.contains(&&*symbol.name))?;
        Some(format!(
            "{}: {} needs the formats of the recording's events: name its file, as --dlarg --data=perf.data",
            object.name, calls.name
        ))
    };
    objects.iter().find_map(by_name).map_or(Ok(Vec::new()), Err)
}
