//! Options of a session.

use crate::files::KernelFiles;

/// Whether programs run in the kernel or in userspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Programs for the kernel in the kernel, if there are any.
    #[default]
    Auto,
    /// Maps are the kernel's even where no program is.
    Kernel,
    /// Only what runs in userspace, and without privilege.
    User,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether programs run in the kernel or in userspace.
    pub mode: Mode,
    /// Trace only the process with this id.
    pub pid: Option<u32>,
    /// Trace only the thread with this id.
    pub tid: Option<u32>,
    /// Trace only these CPUs; empty: all.
    pub cpus: Vec<u32>,
    /// Sampling frequency of `perf_event` programs, in Hz.
    pub frequency: u64,
    /// `--attach`: program name, and its attach point (interface, path, probe or event).
    pub attach: Vec<(String, String)>,
    /// Print all maps at the end.
    pub print_maps: bool,
    /// Scripts may run commands.
    pub commands: bool,
    /// Attach uprobes also at offsets that cannot be proved to be the start of an instruction.
    pub unproven_places: bool,
    /// Scripts may read the memory of every process but this one; otherwise that of the workload, with the processes that
    /// it starts, and of [`Options::pid`] and [`Options::tid`].
    pub foreign_memory: bool,
    /// Types and configuration in place of the running kernel's.
    pub kernel: KernelFiles,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Auto,
            pid: None,
            tid: None,
            cpus: Vec::new(),
            frequency: 99,
            attach: Vec::new(),
            print_maps: false,
            commands: false,
            unproven_places: false,
            foreign_memory: false,
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
