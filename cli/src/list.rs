//! `twinbpf list`: what programs can be attached to.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use twinbpf_kernel::catalog::{AttachPoint, Catalog, Pattern};
use twinbpf_kernel::probe_event;
use twinbpf_trace::{Output, errln};

use crate::args::ListArgs;
use crate::load;

/// Exit status when nothing is found.
const STATUS_NOTHING: u8 = 1;
/// How long events may be in use before that is an error.
const IN_USE: Duration = Duration::from_secs(1);

pub(crate) fn list(args: &ListArgs) -> Result<ExitCode> {
    if args.stale {
        return remove_stale();
    }
    let catalog = catalog(args)?;
    let mut output = Output::default();
    for point in &catalog.attach_points {
        print(&mut output, point, args)?;
    }
    output.finish()?;
    for left in &catalog.left_out {
        let count = if left.count == 0 { String::new() } else { format!(" ({})", left.count) };
        errln!("twinbpf: left out: {}{count}: {}", left.kind, left.why);
    }
    if catalog.attach_points.is_empty() {
        if catalog.left_out.is_empty() {
            errln!("twinbpf: nothing matches {}", args.pattern.as_deref().unwrap_or("*"));
        }
        return Ok(ExitCode::from(STATUS_NOTHING));
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes events whose recording is gone. Nothing is left: success; something is in use: failure.
fn remove_stale() -> Result<ExitCode> {
    let mut output = Output::default();
    let start = Instant::now();
    loop {
        let mut left = Vec::new();
        for event in probe_event::stale()? {
            match event.remove() {
                Ok(()) => writeln!(output, "removed {event}")?,
                Err(error) => left.push(error),
            }
        }
        // The kernel closes what a process had open some time after its end.
        if left.is_empty() || start.elapsed() > IN_USE {
            output.finish()?;
            for error in &left {
                errln!("twinbpf: {error}; a perf that still writes its file has it open, for example");
            }
            return Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(STATUS_NOTHING) });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn catalog(args: &ListArgs) -> Result<Catalog> {
    let Some(text) = &args.pattern else { return Ok(Catalog::of_kernel(&Pattern::all(), args.verbose)) };
    if Path::new(text).is_file() {
        return binary(&PathBuf::from(text), &Pattern::all());
    }
    if text.starts_with(['.', '/']) {
        bail!("there is no file {text}");
    }
    let pattern = Pattern::new(text);
    if let (Some(kind), None) = (pattern.needs_file(), pattern.file()) {
        bail!("{kind} probes are in programs and libraries: say in which one, {kind}:FILE:*");
    }
    let Some(name) = pattern.file() else { return Ok(Catalog::of_kernel(&pattern, args.verbose)) };
    let path = std::path::absolute(load::find_binary(name)?)?;
    binary(&path, &pattern.at(&path.display().to_string()))
}

fn binary(path: &Path, pattern: &Pattern) -> Result<Catalog> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Catalog::of_binary(&path, pattern).with_context(|| path.display().to_string())
}

fn print(out: &mut impl Write, point: &AttachPoint, args: &ListArgs) -> Result<()> {
    if args.json {
        writeln!(out, "{}", json!({ "section": point.section, "attach": point.attach, "arguments": point.arguments }))?;
        return Ok(());
    }
    match &point.attach {
        Some(attach) => writeln!(out, "{:<24} --attach PROG={attach}", point.section)?,
        None => writeln!(out, "{}", point.section)?,
    }
    if args.verbose {
        point.arguments.iter().try_for_each(|line| writeln!(out, "    {line}"))?;
    }
    Ok(())
}
