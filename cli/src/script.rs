//! `twinbpf script`: `perf script` with our shared object, which runs the scripts over a recording.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use object::{Object as _, ObjectSection, ObjectSegment};
use rustix::fs::{MemfdFlags, StatVfsMountFlags};
use tempfile::{Builder, TempDir};
use twinbpf::{EngineKind, Object};
use twinbpf_loader::section::{Script, SectionKind};

use crate::args::{Format, LoadArgs, ScriptArgs};
use crate::{cache, load, source};

/// The shared object that perf loads.
static LIBRARY: &[u8] = twinbpf_carry::shared_object!(twinbpf_perf);
/// Files of it that are kept: each build of this command has two.
const MOST_KEPT: usize = 8;

pub(crate) fn script(args: &ScriptArgs) -> Result<ExitCode> {
    if let Some(path) = &args.save_library {
        fs::write(path, LIBRARY).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.input.as_os_str() == "-" {
        bail!("-i -: a recording comes from a file; perf record -o FILE writes one");
    }
    readable(&args.input)?;
    let objects = compile(args)?;
    let library = Library::new(wants_early(&objects))?;
    let mut command = Command::new("perf");
    // Where a terminal is the output, a pager between would not know what is escaped.
    command.args(["--no-pager", "script", "-i"]).arg(&args.input).args(&args.words);
    command.arg("--dlfilter").arg(library.path());
    for value in values(args, &objects) {
        command.arg("--dlarg").arg(value);
    }
    let status = match command.status() {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no perf, which reads the recording (package linux-perf)")
        }
        Err(error) => return Err(error).context("cannot run perf"),
    };
    drop((objects, library));
    match (status.code(), status.signal()) {
        (Some(USAGE), _) => bail!("{}", refused(&version())),
        (Some(code), _) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        (None, Some(libc::SIGPIPE)) => {
            twinbpf_trace::end_by_pipe();
            Ok(ExitCode::FAILURE)
        }
        (None, signal) => bail!("perf script ended by signal {}", signal.unwrap_or_default()),
    }
}

/// How a recording begins, in either byte order. perf's own errors would be its status, -1, and say less.
const MAGIC: [&[u8; 8]; 2] = [b"PERFILE2", b"2ELIFREP"];

/// An error unless a file is the recording of `perf record`; a folder may be one.
fn readable(input: &Path) -> Result<()> {
    let named = || input.display().to_string();
    if fs::metadata(input).with_context(named)?.is_file() {
        let (mut file, mut start) = (File::open(input).with_context(named)?, [0; 8]);
        let is_whole = file.read_exact(&mut start).is_ok();
        if !is_whole || !MAGIC.contains(&&start) {
            bail!("{} is no recording: perf record or twinbpf record writes one", input.display());
        }
    }
    Ok(())
}

/// perf calls this function for each sample, at 0.2 us. Where no program is EARLY, the library has it by another name.
const EARLY: &str = "filter_event_early";

/// perf's status where it does not know an option.
const USAGE: i32 = 129;

/// What `perf --version` prints.
fn version() -> String {
    let output = Command::new("perf").arg("--version").stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Why perf does not take our command line: it may be older than filters as it has them since 6.1.
fn refused(version: &str) -> String {
    let mut numbers = version.trim_start_matches("perf version ").split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (6, 1) => {
            format!("{version} is too old: scripts run in the perf script of Linux 6.1 or later")
        }
        _ => "perf script does not take this command line: after -- are options of perf script".to_owned(),
    }
}

/// The objects that perf gets, and the folder of those that were compiled, which goes when perf has ended.
struct Objects {
    paths: Vec<PathBuf>,
    _folder: Option<TempDir>,
}

/// Compiles what is C.
fn compile(args: &ScriptArgs) -> Result<Objects> {
    let has_sources = args.objects.iter().any(|path| source::is_source(path));
    let folder = has_sources.then(|| Builder::new().prefix("twinbpf").tempdir()).transpose();
    let folder = folder.context("cannot make a folder for objects")?;
    let load = LoadArgs { clang_opt: args.clang_opt.clone(), ..LoadArgs::default() };
    let path = |(index, path): (usize, &PathBuf)| {
        let Some(folder) = folder.as_ref().filter(|_| source::is_source(path)) else { return Ok(path.clone()) };
        let bytes = load::object_bytes(path, &load)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = folder.path().join(format!("{index}-{name}.o"));
        let mut file = File::create_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
        file.write_all(&bytes).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    let paths = args.objects.iter().enumerate().map(path).collect::<Result<_>>()?;
    Ok(Objects { paths, _folder: folder })
}

/// Whether an object has a program for samples that perf has not chosen yet. What is no object is reported where it is loaded.
fn wants_early(objects: &Objects) -> bool {
    objects.paths.iter().any(|path| {
        let object = Object::open("", &fs::read(path).unwrap_or_default());
        let is_early = |kind: &SectionKind| matches!(kind, SectionKind::Script(Script::Early { .. }));
        object.is_ok_and(|object| object.programs.iter().any(|spec| is_early(&spec.attach.kind)))
    })
}

/// The values of `--dlarg`.
fn values(args: &ScriptArgs, objects: &Objects) -> Vec<OsString> {
    let option = |name: &str, value: &Path| {
        let mut option = OsString::from(name);
        option.push(value);
        option
    };
    let mut values = vec![option("--data=", &args.input)];
    for (name, path) in args.objects.iter().zip(&objects.paths) {
        // What begins with a dash is an option.
        values.push(if path.is_relative() { Path::new(".").join(path).into() } else { path.into() });
        values.push(option("--name=", name));
    }
    values.extend(args.output.iter().map(|path| option("--output=", path)));
    values.extend(args.flamegraph.iter().map(|path| option("--flamegraph=", path)));
    values.extend(args.svg.iter().map(|path| option("--svg=", path)));
    values.extend(args.set.iter().map(|set| format!("--set={set}").into()));
    if matches!(args.format, Format::Json) {
        values.push("--format=json".into());
    }
    if !args.print {
        values.push("--hide-samples".into());
    }
    if args.fail_on_loss {
        values.push("--fail-on-loss".into());
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

/// The shared object as perf finds it.
enum Library {
    /// In the user's cache: to write it takes longer than a small recording.
    Kept(PathBuf),
    /// In memory, where there is no folder that is the user's alone. perf inherits the descriptor.
    InMemory(OwnedFd),
}

impl Library {
    fn new(early: bool) -> Result<Library> {
        let kept = kept(early).inspect_err(|why| log::debug!("what perf loads is not kept: {why}"));
        kept.map(Library::Kept).or_else(|_| in_memory(early).map(Library::InMemory))
    }

    fn path(&self) -> PathBuf {
        match self {
            Library::Kept(path) => path.clone(),
            Library::InMemory(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
        }
    }
}

/// The file that is kept for this very command.
fn kept(early: bool) -> std::result::Result<PathBuf, String> {
    let folder = cache::own_folder("perf")?;
    let mount = rustix::fs::statvfs(&folder).map_err(|error| error.to_string())?;
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(format!("{} is mounted without execution", folder.display()));
    }
    let of = fs::metadata("/proc/self/exe").map_err(|error| error.to_string())?;
    let mut hasher = DefaultHasher::new();
    (of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec(), early).hash(&mut hasher);
    let path = folder.join(format!("{:016x}.so", hasher.finish()));
    if fs::metadata(&path).is_ok_and(|of| of.len() == loaded(LIBRARY).len() as u64) {
        return Ok(path);
    }
    cache::publish(&path, &bytes(early).concat()).map_err(|error| format!("{}: {error}", path.display()))?;
    // A perf that has another one open keeps it.
    cache::prune(&folder, MOST_KEPT);
    Ok(path)
}

fn in_memory(early: bool) -> Result<OwnedFd> {
    let file = rustix::fs::memfd_create("libtwinbpf_perf.so", MemfdFlags::empty());
    let mut file = File::from(file.context("cannot make a file in memory for what perf loads")?);
    let written = bytes(early).iter().try_for_each(|part| file.write_all(part));
    written.context("cannot write what perf loads into memory")?;
    Ok(file.into())
}

/// What perf loads, in parts. Without EARLY programs it does not export the function for them.
fn bytes(early: bool) -> [&'static [u8]; 3] {
    let loaded = loaded(LIBRARY);
    match place_of(LIBRARY, EARLY).filter(|_| !early) {
        Some(at) => [&loaded[..at], b"-", &loaded[at + 1..]],
        None => [loaded, b"", b""],
    }
}

/// What of a shared object a process maps: symbols for debuggers, a fifth of it, follow.
fn loaded(library: &[u8]) -> &[u8] {
    let end = object::File::parse(library).ok().and_then(|file| {
        let ends = file.segments().map(|segment| segment.file_range()).map(|(at, size)| at + size);
        ends.max().map(|end| end as usize)
    });
    end.and_then(|end| library.get(..end)).unwrap_or(library)
}

/// Where a shared object has the name of a function that it exports.
fn place_of(library: &[u8], name: &str) -> Option<usize> {
    let (start, size) = object::File::parse(library).ok()?.section_by_name(".dynstr")?.file_range()?;
    let names = library.get(start as usize..)?.get(..size as usize)?;
    let at = names.split(|byte| *byte == 0).find(|text| *text == name.as_bytes())?;
    Some(start as usize + at.as_ptr().addr() - names.as_ptr().addr())
}

#[cfg(test)]
mod tests {
    use super::{EARLY, LIBRARY, place_of, refused};

    #[test]
    fn an_old_perf_is_named() {
        for old in ["perf version 5.10.1", "perf version 6.0", "perf version 4.19.1-rc2"] {
            assert_eq!(refused(old), format!("{old} is too old: scripts run in the perf script of Linux 6.1 or later"));
        }
        for other in ["perf version 6.1.123", "perf version 6.12", "perf version 10.0", "", "perf"] {
            assert!(refused(other).starts_with("perf script does not take"), "{other}");
        }
    }

    /// perf finds the others.
    #[test]
    fn the_library_exports_what_perf_calls() {
        for name in ["filter_event", EARLY, "start", "stop", "perf_dlfilter_fns"] {
            let at = place_of(LIBRARY, name).expect(name);
            assert_eq!(&LIBRARY[at - 1..=at + name.len()], format!("\0{name}\0").as_bytes());
        }
        assert_eq!(place_of(LIBRARY, "filter_events"), None);
    }
}
