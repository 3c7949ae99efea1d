//! `twinbpf record`: perf records, programs decide.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use twinbpf_trace::{Options, Output, Plan, Recording, Session, Terms, errln};
use twinbpf_vm::host::OutputFormat;

use crate::args::RecordArgs;
use crate::{load, run, source};

pub(crate) fn record(args: &RecordArgs) -> Result<ExitCode> {
    let (objects, events): (Vec<&String>, Vec<&String>) = args.events.iter().partition(|event| is_object(event));
    let objects: Vec<PathBuf> = objects.into_iter().map(PathBuf::from).chain(args.object.iter().cloned()).collect();
    let (objects, terms): (Vec<PathBuf>, Vec<_>) = load::with_terms(&objects)?.into_iter().unzip();
    let recording = Recording::new(&args.words(), events.into_iter().cloned().collect(), terms)?;
    let mut options = Options::default();
    options.without.clone_from(&args.without);
    options.kernel = args.kernel.files()?;
    let plan = Plan::new(load::open_all(&objects, &args.load)?, &options)?;
    for warning in &plan.warnings {
        errln!("twinbpf: warning: {warning}");
    }
    if args.dry_run {
        let mut output = Output::open(None, OutputFormat::Text)?;
        write!(output, "{plan}")?;
        writeln!(output, "perf record {}", args.words().join(" "))?;
        output.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let engine = load::engine(&args.load, &args.limits, &args.engine)?;
    run::note_left_out(&plan);
    let output = Output::open(None, OutputFormat::Text)?;
    let linkers = load::linkers(&plan, &engine, &args.load, &args.engine)?;
    let workload = recording.command.workload.clone();
    let session = Session::record(plan, options, output, linkers, recording)?;
    for warning in session.warnings() {
        errln!("twinbpf: warning: {warning}");
    }
    Ok(ExitCode::from(session.run(&workload)?))
}

/// Whether `-e` names an object or a source, perhaps with terms: perf decides by the end of the name, too.
fn is_object(event: &str) -> bool {
    match Terms::split(event, &|path| Path::new(path).is_file()) {
        Ok((file, _)) => {
            let path = Path::new(file);
            source::is_source(path) || path.extension().is_some_and(|end| end == "o" || end == "obj")
        }
        // Terms of an object that are wrong: it says what.
        Err(_) => true,
    }
}
