//! A flame graph of the measurements: the same command once more, in `perf record`, with the names of native code.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Cursor};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use inferno::flamegraph;
use twinbpf_trace::PictureFile;

const OPTION: &str = "--flamegraph";
/// Samples of a second of CPU time.
const FREQUENCY: &str = "1999";
/// By which native code gets its names.
const NAMES: &str = "TWINBPF_PERF";

/// Measures under perf and draws where the time went.
pub(super) fn bench(path: &Path, title: &str) -> Result<ExitCode> {
    // Before anything is measured: the folder may be none that can be written.
    let picture = PictureFile::create(path)?;
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
    remove_names(&text.stdout);
    draw(&text.stdout, title, picture)?;
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
fn without(mut args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
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
fn draw(text: &[u8], title: &str, picture: PictureFile) -> Result<()> {
    let mut options = Options::default();
    options.nthreads = 1;
    let mut folded = Vec::new();
    Folder::from(options).collapse(Cursor::new(text), &mut folded)?;
    if folded.is_empty() {
        return Err(picture.empty("perf took no sample: measure for longer (--time)").into());
    }
    let mut options = flamegraph::Options::default();
    options.title = title.to_owned();
    options.count_name = "samples".to_owned();
    picture.write(|file| flamegraph::from_reader(&mut options, Cursor::new(folded), file))?;
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
