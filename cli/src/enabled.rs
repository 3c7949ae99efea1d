//! `twinbpf enabled`: functions of a process that have hooks.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::json;
use twinbpf::hook::{self, Enabled, Trampoline};
use twinbpf_trace::{Output, errln};

use crate::args::EnabledArgs;

/// Exit status where there are none.
const STATUS_NOTHING: u8 = 1;

pub(crate) fn enabled(args: &EnabledArgs) -> Result<ExitCode> {
    let all = hook::enabled_in(args.pid).with_context(|| format!("process {}", args.pid))?;
    let mut output = Output::default();
    for state in &all {
        if args.json {
            writeln!(output, "{}", object(state))?;
        } else {
            writeln!(output, "{state}")?;
        }
    }
    output.finish()?;
    if all.is_empty() {
        errln!("twinbpf: process {} has no functions with hooks", args.pid);
        return Ok(ExitCode::from(STATUS_NOTHING));
    }
    Ok(ExitCode::SUCCESS)
}

fn object(state: &Enabled) -> serde_json::Value {
    let (trampoline, direct_to) = match state.trampoline {
        Some(Trampoline::ArgsPrivate) => (Some("args"), None),
        Some(Trampoline::ArgsList) => (Some("args list"), None),
        Some(Trampoline::RegsPrivate) => (Some("regs"), None),
        Some(Trampoline::RegsList) => (Some("regs list"), None),
        Some(Trampoline::Direct(to)) => (Some("direct"), Some(to)),
        _ => (None, None),
    };
    json!({
        "function": state.name,
        "address": state.address,
        "count": state.count,
        "registers": state.registers,
        "replaced": state.replaced,
        "direct": state.direct,
        "returns": state.returns,
        "preparation": state.preparation.to_string(),
        "trampoline": trampoline,
        "callback": direct_to.or(state.callback),
        "skipped": state.skipped,
        "lost_returns": state.lost_returns,
    })
}
