//! `twinbpf fuzz --worker`: runs what it reads from standard input, so that any scheduler can feed machines with it.
//!
//! It decides nothing: what the outcomes mean is for the other side to say.

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use twinbpf_fuzzing::Engine;

use super::{engines, wire};
use crate::args::EnginesArgs;

/// Says which engines there are, then answers each line until there are no more.
pub(super) fn work(args: &EnginesArgs) -> Result<ExitCode> {
    let mut engines = engines::all(args)?;
    let mut out = io::stdout().lock();
    let names: Vec<String> = engines.iter().map(|engine| engine.name()).collect();
    writeln!(out, "{}", json!({ "engines": names }))?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = answer(&mut engines, &line).unwrap_or_else(|error| json!({ "error": error }));
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(engines: &mut [Box<dyn Engine>], line: &str) -> Result<Value, String> {
    let line: Value = serde_json::from_str(line).map_err(|error| format!("not a line of JSON: {error}"))?;
    let cases = wire::cases(&line)?;
    let ran = engines.iter_mut().map(|engine| {
        let name = engine.name();
        let ran: Vec<Value> = cases.iter().zip(engine.run(&cases)).map(|(case, ran)| wire::ran(case, &ran)).collect();
        json!({ "engine": name, "ran": ran })
    });
    let ran: Vec<Value> = ran.collect();
    Ok(json!({ "batch": line["batch"], "engines": ran }))
}
