//! `twinbpf bench`: how long a program takes on each engine, in one run.
//!
//! Engines whose result differs from the interpreter's are not timed but named. Those that are left take turns, so
//! that whatever else the machine does hits all of them alike.

mod contest;
mod effect;
mod kernel;
mod measure;
mod plot;
mod profile;
mod report;

use std::fs;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use twinbpf_loader::{Object, ProgramSpec};
use twinbpf_trace::Output;

use crate::args::{BenchArgs, BenchEngine, split_program};
use crate::input::{Input, programs};
use crate::load;

use contest::Contest;
use report::{ProgramReport, Report};

pub(crate) fn bench(args: &BenchArgs) -> Result<ExitCode> {
    if let Some(path) = &args.flamegraph {
        return profile::bench(path, &args.programs.join(", "));
    }
    let mut report = Report::default();
    let engines = args.engines(|| kernel::allowed().is_ok());
    for text in &args.programs {
        let (path, name) = split_program(text);
        let objects = load::open_all(&[path], &args.load)?;
        let specs = programs(&objects[0], name)?;
        let (measured, left_out) = (report.programs.len(), report.left_out.len());
        for spec in &specs {
            match measure(&objects[0], spec, args, &engines) {
                Ok(program) => report.programs.push(program),
                Err(error) if specs.len() == 1 => return Err(error),
                Err(error) => {
                    report.left_out.push((format!("{}:{}", objects[0].name, spec.name), format!("{error:#}")))
                }
            }
        }
        if report.programs.len() == measured {
            let own = &report.left_out[left_out..];
            let reasons: Vec<String> = own.iter().map(|(name, why)| format!("\n  {name}: {why}")).collect();
            bail!("{}: none of its programs can be measured on this input{}", objects[0].name, reasons.concat());
        }
    }
    let mut output = Output::default();
    match args.json {
        true => writeln!(output, "{}", report.json())?,
        false => report.print(&mut output)?,
    }
    output.finish()?;
    if let Some(path) = &args.svg {
        fs::write(path, plot::svg(&report)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(object: &Object, spec: &ProgramSpec, args: &BenchArgs, engines: &[BenchEngine]) -> Result<ProgramReport> {
    let inputs = inputs(args, spec)?;
    let contest = Contest::new(object, spec, &inputs, args, engines)?;
    contest.run(args.time).with_context(|| format!("{}:{}", object.name, spec.name))
}

/// What a program gets, one after another.
fn inputs(args: &BenchArgs, spec: &ProgramSpec) -> Result<Vec<Input>> {
    match args.packet.as_slice() {
        [] => Ok(vec![Input::new(args.ctx.as_deref(), None, spec)?]),
        packets => packets.iter().map(|packet| Input::new(None, Some(packet), spec)).collect(),
    }
}
