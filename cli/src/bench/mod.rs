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

use anyhow::{Context, Result};
use twinbpf_trace::Output;

use crate::args::{BenchArgs, split_program};
use crate::input::{Input, choose};
use crate::load;

use contest::Contest;
use report::Report;

pub(crate) fn bench(args: &BenchArgs) -> Result<ExitCode> {
    if let Some(path) = &args.flamegraph {
        return profile::bench(path, &args.programs.join(", "));
    }
    let mut report = Report::default();
    let engines = args.engines(|| kernel::allowed().is_ok());
    for text in &args.programs {
        let (path, name) = split_program(text);
        let objects = load::open_all(&[path], &args.load)?;
        let spec = choose(&objects[0], name)?;
        let input = Input::new(args.ctx.as_deref(), args.packet.as_deref(), spec)?;
        let contest = Contest::new(&objects[0], spec, &input, args, &engines)?;
        report.programs.push(contest.run(args.time).with_context(|| text.clone())?);
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
