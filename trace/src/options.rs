//! Options of a session.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::files::KernelFiles;

/// Whether programs run in the kernel or in userspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Programs for the kernel in the kernel, if there are any.
    #[default]
    Auto,
    /// Maps are the kernel's even where no program is.
    Kernel,
    /// Only what runs in userspace, and without privilege.
    User,
}

/// What becomes of the workload when a trap or a failed write ends the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// It runs to its end unobserved, and the session waits for it.
    #[default]
    Wait,
    /// It runs on by itself, also after the session. It does not end with a session that is killed, either.
    Detach,
    /// It gets SIGTERM, and SIGKILL where that does not end it.
    Kill,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether programs run in the kernel or in userspace.
    pub mode: Mode,
    /// A host feeds samples ([`SampleSession`](crate::SampleSession)): EVENT programs get these, timers go by their times.
    /// Programs for the kernel and for signals are errors then.
    pub samples: bool,
    /// Trace only the process with this id.
    pub pid: Option<u32>,
    /// Trace only the thread with this id.
    pub tid: Option<u32>,
    /// Trace only these CPUs; empty: all.
    pub cpus: Vec<u32>,
    /// Sampling frequency of `perf_event` programs, in Hz.
    pub frequency: u64,
    /// `--attach`: program name, and an attach point (interface, path, probe or event). A program may have several.
    pub attach: Vec<(String, String)>,
    /// `--without`: names of programs that are left out.
    pub without: Vec<String>,
    /// A program that would not run is a note, not an error.
    pub allow_unattached: bool,
    /// Print all maps at the end.
    pub print_maps: bool,
    /// Scripts may run commands.
    pub commands: bool,
    /// Attach uprobes also at offsets that cannot be proved to be the start of an instruction.
    pub unproven_places: bool,
    /// Scripts may read the memory of every process but this one; otherwise that of the workload, with the processes that
    /// it starts, and of [`Options::pid`] and [`Options::tid`].
    pub foreign_memory: bool,
    /// The results of programs on tracepoints count for every recording on the machine: where one returns 0, none gets the
    /// sample. Otherwise they return 1.
    pub filter: bool,
    /// Programs are loaded with a start flag and code that counts what they lose for lack of room; otherwise exactly as they are,
    /// as with [`Options::filter`], and attached after BEGIN.
    pub count_loss: bool,
    /// The session fails, after END, when anything was lost.
    pub fail_on_loss: bool,
    /// Where folded stacks are drawn at the end, as SVG; without it they are printed.
    pub flamegraph: Option<PathBuf>,
    /// Where histograms, and maps that print every interval, are drawn at the end, as SVG.
    pub svg: Option<PathBuf>,
    /// Where maps are served as metrics of Prometheus, at `/metrics`.
    pub metrics: Option<SocketAddr>,
    /// Most series of a map among the metrics.
    pub metrics_series: usize,
    /// Bytes of the ring buffer that kernel programs print to.
    pub output_bytes: u32,
    /// What becomes of the workload when an error ends the session.
    pub on_error: OnError,
    /// Types and configuration in place of the running kernel's.
    pub kernel: KernelFiles,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Auto,
            samples: false,
            pid: None,
            tid: None,
            cpus: Vec::new(),
            frequency: 99,
            attach: Vec::new(),
            without: Vec::new(),
            allow_unattached: false,
            print_maps: false,
            commands: false,
            unproven_places: false,
            foreign_memory: false,
            filter: false,
            count_loss: true,
            fail_on_loss: false,
            flamegraph: None,
            svg: None,
            metrics: None,
            metrics_series: 10_000,
            output_bytes: 1 << 20,
            on_error: OnError::Wait,
            kernel: KernelFiles::default(),
        }
    }
}

impl Options {
    /// Whether tracing is limited to a process, a thread, or some CPUs.
    pub fn filters(&self) -> bool {
        self.pid.is_some() || self.tid.is_some() || !self.cpus.is_empty()
    }
}
