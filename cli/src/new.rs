//! `twinbpf new`: a starting point that compiles and runs as it is.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use twinbpf_trace::outln;

use crate::args::NewArgs;

const TEMPLATE: &str = include_str!("new.bpf.c");
const TRACE: &str = include_str!("new_trace.bpf.c");

pub(crate) fn new(args: &NewArgs) -> Result<ExitCode> {
    let mut path = args.name.clone();
    if path.extension().is_none_or(|extension| extension != "c") {
        path.as_mut_os_string().push(".bpf.c");
    }
    let name = path.display().to_string();
    let mut file = match File::create_new(&path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!("{name} is there already"),
        file => file.with_context(|| format!("cannot write {name}"))?,
    };
    let text = if args.trace { TRACE } else { TEMPLATE }.replace("NAME.bpf.c", &name);
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {name}"))?;
    outln!("{name} is ready: twinbpf run {name}");
    Ok(ExitCode::SUCCESS)
}
