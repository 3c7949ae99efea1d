//! `twinbpf script`: `perf script` with our shared object, which runs the scripts over a recording.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use tempfile::{Builder, TempDir};
use twinbpf::EngineKind;

use crate::args::{Format, LoadArgs, ScriptArgs};
use crate::{load, source};

/// The shared object that perf loads.
const LIBRARY: &str = "libtwinbpf_perf.so";

pub(crate) fn script(args: &ScriptArgs) -> Result<ExitCode> {
    if args.input.as_os_str() == "-" {
        bail!("-i -: a recording comes from a file; perf record -o FILE writes one");
    }
    let library = library()?;
    let compiled = compile(args)?;
    let mut command = Command::new("perf");
    // Where a terminal is the output, a pager between would not know what is escaped.
    command.args(["--no-pager", "script", "-i"]).arg(&args.input).args(&args.words);
    command.arg("--dlfilter").arg(library);
    for value in values(args, compiled.as_ref()) {
        command.arg("--dlarg").arg(value);
    }
    let status = match command.status() {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no perf, which reads the recording (package linux-perf)")
        }
        Err(error) => return Err(error).context("cannot run perf"),
    };
    drop(compiled);
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        (None, Some(libc::SIGPIPE)) => {
            twinbpf_trace::end_by_pipe();
            Ok(ExitCode::FAILURE)
        }
        (None, signal) => bail!("perf script ended by signal {}", signal.unwrap_or_default()),
    }
}

/// Objects of C sources, in a folder that goes when perf has ended.
struct Compiled {
    _folder: TempDir,
    /// By the position of their source.
    paths: Vec<(usize, PathBuf)>,
}

fn compile(args: &ScriptArgs) -> Result<Option<Compiled>> {
    let mut sources = args.objects.iter().enumerate().filter(|(_, path)| source::is_source(path)).peekable();
    if sources.peek().is_none() {
        return Ok(None);
    }
    let folder = Builder::new().prefix("twinbpf").tempdir().context("cannot make a folder for objects")?;
    let load = LoadArgs { clang_opt: args.clang_opt.clone(), ..LoadArgs::default() };
    let mut paths = Vec::new();
    for (index, source) in sources {
        let bytes = load::object_bytes(source, &load)?;
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        let path = folder.path().join(format!("{index}-{name}.o"));
        let mut file = std::fs::File::create_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
        file.write_all(&bytes).with_context(|| format!("cannot write {}", path.display()))?;
        paths.push((index, path));
    }
    Ok(Some(Compiled { _folder: folder, paths }))
}

/// The values of `--dlarg`.
fn values(args: &ScriptArgs, compiled: Option<&Compiled>) -> Vec<OsString> {
    let option = |name: &str, value: &Path| {
        let mut option = OsString::from(name);
        option.push(value);
        option
    };
    let mut values = vec![option("--data=", &args.input)];
    for (index, path) in args.objects.iter().enumerate() {
        let object = compiled.and_then(|all| all.paths.iter().find(|(of, _)| *of == index)).map(|(_, path)| path);
        let path = object.unwrap_or(path);
        // What begins with a dash is an option.
        values.push(if path.is_relative() { Path::new(".").join(path).into() } else { path.into() });
    }
    values.extend(args.output.iter().map(|path| option("--output=", path)));
    values.extend(args.set.iter().map(|set| format!("--set={set}").into()));
    if matches!(args.format, Format::Json) {
        values.push("--format=json".into());
    }
    if !args.print {
        values.push("--hide-samples".into());
    }
    values.extend(args.engine.map(|engine| OsString::from(format!("--engine={}", engine_name(engine)))));
    values.extend(args.max_insns.map(|count| OsString::from(format!("--max-insns={count}"))));
    values.extend(args.timeout.map(|time| OsString::from(format!("--timeout={}ns", time.as_nanos()))));
    values
}

fn engine_name(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Interp => "interp",
        EngineKind::Jit => "jit",
        _ => "auto",
    }
}

/// The shared object: where cargo builds it, beside the command, or in `lib` beside its folder.
fn library() -> Result<PathBuf> {
    let command = std::env::current_exe().context("cannot find this command's own file")?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = ["deps", ".", "../lib"].map(|place| folder.join(place).join(LIBRARY));
    let found = places.iter().find(|path| path.exists());
    found
        .cloned()
        .with_context(|| format!("{LIBRARY}, which perf loads, is neither in {0} nor in {0}/../lib", folder.display()))
}
