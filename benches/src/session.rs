//! Whole tools as child processes: how soon they are enabled, what memory they take, how fast they consume.
//!
//! The C programs beside this crate are compiled when they are needed: `launch.c` runs and measures a command, `libbpf.c`
//! is each tool over libbpf with the same object. The command itself is built by cargo, as its users build it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::peers::native::clang;
use crate::workload::corpus;

/// Bytes of the ring in which a million events have room.
const LARGE_RING: &str = "-DRING=67108864";

/// Tools that read the arguments of `probed`: as parameters, and by hand.
pub const PROBES: [&str; 2] = ["prologue.bpf.c", "by_hand.bpf.c"];

/// A map that a session serves.
pub const SERVED: &str = "served.bpf.c";

/// Programs to measure, in a directory that goes with it.
pub struct Rig {
    folder: TempDir,
    command: PathBuf,
}

/// What a command took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// From exec to its workload's first action, when everything is enabled; nanoseconds.
    pub start_ns: f64,
    /// From there to its end.
    pub run_ns: f64,
    /// From exec to its end.
    pub whole_ns: f64,
    /// Largest resident set, in kB (`ru_maxrss`).
    pub peak_kb: f64,
    /// Its CPU time and the workload's.
    pub cpu_ns: f64,
}

/// What the last line of `events.bpf.c` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// By the kernel's program.
    pub sent: u64,
    /// Of them, those without room.
    pub lost: u64,
    /// Events that userspace received.
    pub delivered: u64,
}

impl Rig {
    /// Builds what is measured.
    ///
    /// # Errors
    /// A compiler is missing or fails.
    pub fn new() -> Result<Rig, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = |name: &str| here.join("session").join(name);
        let out = |name: &str| folder.path().join(name);
        run(Command::new("cc").args(["-O2", "-static", "-o"]).args([out("launch"), source("launch.c")]))?;
        let libbpf = Command::new("cc")
            .args(["-O2", "-rdynamic", "-o"])
            .args([out("libbpf"), source("libbpf.c")])
            .args(["-lbpf", "-ldl"])
            .status();
        if !libbpf.is_ok_and(|status| status.success()) {
            return Err("libbpf-dev is needed for the C tools".to_owned());
        }
        run(Command::new(clang())
            .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", LARGE_RING, "-I"])
            .arg(here.join("../include"))
            .args(["-idirafter", "/usr/include/x86_64-linux-gnu", "-c"])
            .arg(corpus().join("bench/events.bpf.c"))
            .arg("-o")
            .arg(out("events.bpf.o")))?;
        // Where a frame begins the kernel emulates the instruction, so that a hit takes least.
        run(Command::new("cc")
            .args(["-O2", "-g", "-fno-omit-frame-pointer", "-o"])
            .args([out("probed"), source("probed.c")]))?;
        for name in PROBES.into_iter().chain([SERVED]) {
            fs::copy(source(name), out(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        run(Command::new(cargo).args(["build", "--release", "-p", "twinbpf-cli"]).current_dir(here.join("..")))?;
        let target = std::env::current_exe().map_err(|error| error.to_string())?;
        let release = target.ancestors().find(|folder| folder.ends_with("release"));
        let command = release.ok_or("the bench is not in target/release")?.join("twinbpf");
        Ok(Rig { folder, command })
    }

    /// A file in the directory.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The command of this repository.
    pub fn twinbpf(&self) -> String {
        self.command.display().to_string()
    }

    /// What a tool printed the last time.
    pub fn output(&self) -> String {
        fs::read_to_string(self.path("output")).unwrap_or_default()
    }

    /// The workload that only says when it began.
    pub fn stamp(&self) -> Vec<String> {
        vec![self.path("launch"), "stamp".to_owned(), self.path("stamp")]
    }

    /// The workload that causes the events.
    pub fn burst(&self, events: u64) -> Vec<String> {
        vec![self.path("launch"), "burst".to_owned(), self.path("stamp"), events.to_string()]
    }

    /// The workload that calls `getppid`.
    pub fn storm(&self, calls: u64) -> Vec<String> {
        vec![self.path("launch"), "storm".to_owned(), self.path("storm"), calls.to_string()]
    }

    /// The workload that calls a function with three arguments.
    pub fn probed(&self, calls: u64) -> Vec<String> {
        vec![self.path("probed"), self.path("storm"), calls.to_string()]
    }

    /// Nanoseconds that a call took while a command ran whose workload is that.
    ///
    /// # Errors
    /// It fails, or the workload did not run.
    pub fn call_ns(&self, command: &[String]) -> Result<f64, String> {
        // Of another command.
        let _ = fs::remove_file(self.path("storm"));
        let (program, arguments) = command.split_first().ok_or("no command")?;
        let output = fs::File::create(self.path("output")).map_err(|error| error.to_string())?;
        let mut tool = Command::new(program);
        // Sections of tools name files there.
        tool.current_dir(self.folder.path()).args(arguments).env("BPFTRACE_PERF_RB_PAGES", "1024").stdout(output);
        let status =
            tool.stderr(std::process::Stdio::null()).status().map_err(|error| format!("{program}: {error}"))?;
        let text = fs::read_to_string(self.path("storm")).map_err(|error| format!("{program} ({status}): {error}"))?;
        text.trim().parse().map_err(|error| format!("{program}: {error}"))
    }

    /// Runs a command whose workload, if it has one, is one of the above.
    ///
    /// # Errors
    /// It fails.
    pub fn measure(&self, command: &[String]) -> Result<Took, String> {
        let report = self.path("report");
        // Of another command.
        let _ = fs::remove_file(self.path("stamp"));
        let mut launch = Command::new(self.path("launch"));
        run(launch.args(["measure", &report, &self.path("output")]).args(command))?;
        let numbers = |path: &str| -> Vec<f64> {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let [begin, end, peak_kb, cpu_ns, status] = numbers(&report)[..] else {
            return Err(format!("no report of {command:?}"));
        };
        if status != 0.0 {
            return Err(format!("{command:?} ended with status {status}"));
        }
        let enabled = numbers(&self.path("stamp")).first().copied().unwrap_or(end);
        Ok(Took { start_ns: enabled - begin, run_ns: end - enabled, whole_ns: end - begin, peak_kb, cpu_ns })
    }

    /// What became of the events, by the last line that was printed; none if there are not as many lines as were delivered.
    pub fn sums(&self) -> Option<Totals> {
        let output = self.output();
        let words: Vec<&str> = output.lines().last()?.split_whitespace().collect();
        let ["sent", sent, "lost", lost, "delivered", delivered] = words[..] else { return None };
        let sums = Totals { sent: sent.parse().ok()?, lost: lost.parse().ok()?, delivered: delivered.parse().ok()? };
        (output.lines().count() as u64 == sums.delivered + 1).then_some(sums)
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}
