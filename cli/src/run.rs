//! `twinbpf run`: a session of objects, from BEGIN to END.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use twinbpf_trace::{ObjectPlan, Output, Plan, Session, errln};
use twinbpf_vm::host::OutputFormat;

use crate::args::RunArgs;
use crate::{STATUS_ERROR, load};

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let arguments = load::with_terms(&args.objects)?;
    for terms in arguments.iter().filter_map(|(_, terms)| terms.as_ref()) {
        terms.refuse_event_terms()?;
    }
    let (paths, terms): (Vec<PathBuf>, Vec<_>) = arguments.into_iter().unzip();
    let forgotten = paths.iter().skip(1).find(|path| args.workload.is_empty() && !path.exists());
    if let Some(path) = forgotten {
        let path = path.display();
        anyhow::bail!("cannot read {path}: there is no such file; a workload follows two dashes: run OBJ -- CMD");
    }
    let options = args.session.options(args.kernel.files()?);
    let mut plan = Plan::new(load::open_with(&args.text, &paths, &args.load)?, &options)?;
    // An object of program texts comes first, and has none.
    for (object, terms) in plan.objects.iter_mut().rev().zip(terms.iter().rev()) {
        terms.iter().try_for_each(|terms| object.add_terms(terms, &options))?;
    }
    for warning in &plan.warnings {
        errln!("twinbpf: warning: {warning}");
    }
    if args.session.dry_run {
        return dry_run(args, &plan);
    }
    let engine = load::engine(&args.load, &args.limits, &args.engine)?;
    note_left_out(&plan);
    let output = Output::open(args.session.output.as_deref(), args.session.format())?;
    let linkers = load::linkers(&plan, &engine, &args.load, &args.engine)?;
    let in_userspace = |object: &ObjectPlan| object.programs.iter().any(|program| program.trigger.is_userspace());
    let has_scripts = plan.objects.iter().any(in_userspace);
    let session = Session::new(plan, options, output, linkers).inspect_err(|error| {
        if has_scripts && error.is_lack() {
            errln!("twinbpf: note: --mode user runs what is for userspace without the kernel");
        }
    })?;
    for warning in session.warnings() {
        errln!("twinbpf: warning: {warning}");
    }
    Ok(ExitCode::from(session.run(&args.workload)?))
}

fn dry_run(args: &RunArgs, plan: &Plan) -> Result<ExitCode> {
    let mut output = Output::open(args.session.output.as_deref(), OutputFormat::Text)?;
    write!(output, "{plan}")?;
    if !args.workload.is_empty() {
        writeln!(output, "workload: {}", args.workload.join(" "))?;
    }
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Says which entry points of the objects do not run.
pub(crate) fn note_left_out(plan: &Plan) {
    for object in &plan.objects {
        for (spec, why) in object.left_out() {
            errln!("twinbpf: note: {}: {} ({}) does not run: {why}", object.object.name, spec.name, spec.section);
        }
        for (spec, why) in object.missed() {
            errln!("twinbpf: note: {}: {} ({}): left out: {why}", object.object.name, spec.name, spec.section);
        }
    }
}

// The status of our own errors and of traps is set in `main`.
const _: () = assert!(STATUS_ERROR != twinbpf_trace::STATUS_ABORTED && STATUS_ERROR == twinbpf_trace::STATUS_FAILED);
