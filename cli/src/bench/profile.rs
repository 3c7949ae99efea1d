//! A flame graph of the measurements: the same command once more, in `perf record`, with the names of native code.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Cursor, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use inferno::flamegraph;
use tempfile::NamedTempFile;

const OPTION: &str = "--flamegraph";
/// Samples of a second of CPU time.
const FREQUENCY: &str = "1999";
/// By which native code gets its names.
const NAMES: &str = "TWINBPF_PERF";

/// Measures under perf and draws where the time went.
pub(super) fn bench(path: &Path, title: &str) -> Result<ExitCode> {
    let unwritable = || format!("cannot write {}", path.display());
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A folder that cannot be written is an error before anything is measured.
    let picture = tempfile::Builder::new().prefix(".twinbpf").tempfile_in(parent).with_context(unwritable)?;
    let folder = tempfile::tempdir().context("cannot make a folder for the samples")?;
    let data = folder.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-g", "-F", FREQUENCY, "-o"]).arg(&data).arg("--");
    perf.arg(std::env::current_exe()?).args(without(std::env::args_os().skip(1)));
    let status = run(perf.env(NAMES, "map"))?;
    if let Some(code) = status.code().filter(|code| *code != 0) {
        return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
    }
    if let Some(signal) = status.signal() {
        bail!("perf record ended by signal {signal}");
    }
    let text =
        Command::new("perf").args(["script", "-F", "comm,pid,time,event,ip,sym,dso", "-i"]).arg(&data).output()?;
    if !text.status.success() {
        bail!("perf script ended with {}: {}", text.status, String::from_utf8_lossy(&text.stderr).trim());
    }
    let drawn = draw(&text.stdout, title, picture.as_file());
    remove_names(&text.stdout);
    drawn.with_context(unwritable)?;
    keep(picture, path).with_context(unwritable)?;
    Ok(ExitCode::SUCCESS)
}

fn run(command: &mut Command) -> Result<ExitStatus> {
    match command.status() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("{OPTION}: there is no perf, which takes the samples (package linux-perf)")
        }
        result => result.context("cannot run perf"),
    }
}

/// The arguments of the command without our option.
fn without(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        if text == OPTION {
            args.next();
        } else if !text.starts_with(&format!("{OPTION}=")) {
            kept.push(arg);
        }
    }
    kept
}

/// Draws the stacks in the text of `perf script`.
fn draw(text: &[u8], title: &str, file: &fs::File) -> io::Result<()> {
    let mut options = Options::default();
    options.nthreads = 1;
    let mut folded = Vec::new();
    Folder::from(options).collapse(Cursor::new(text), &mut folded)?;
    if folded.is_empty() {
        return Err(io::Error::other("perf took no sample: measure for longer (--time)"));
    }
    let mut options = flamegraph::Options::default();
    options.title = title.to_owned();
    options.count_name = "samples".to_owned();
    let mut file = BufWriter::new(file);
    flamegraph::from_reader(&mut options, Cursor::new(folded), &mut file)?;
    file.flush()
}

/// Gives the picture its name, and the permissions of a file that is made.
fn keep(picture: NamedTempFile, path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = NamedTempFile::new()?.as_file().metadata()?.permissions().mode() | 0o044;
    picture.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    picture.persist(path)?;
    Ok(())
}

/// Removes the files of names that our processes left for perf.
fn remove_names(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let heads = text.lines().filter(|line| line.contains(" cpu-clock") && !line.starts_with(char::is_whitespace));
    let pids: BTreeSet<u32> =
        heads.filter_map(|line| line.split_whitespace().find_map(|word| word.parse().ok())).collect();
    for pid in pids {
        // One that measured only the interpreter has none.
        let _ = fs::remove_file(PathBuf::from(format!("/tmp/perf-{pid}.map")));
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::without;

    #[test]
    fn the_option_is_left_out() {
        let all = ["bench", "--flamegraph", "a.svg", "x.o", "--flamegraph=b.svg", "--json"].map(OsString::from);
        assert_eq!(without(all.into_iter()), ["bench", "x.o", "--json"]);
    }
}
