//! What a user can say about a session.

use crate::files::KernelFiles;

/// Where programs run.
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
    /// Where programs run.
    pub mode: Mode,
    /// Only this process.
    pub pid: Option<u32>,
    /// Only this thread.
    pub tid: Option<u32>,
    /// Only these CPUs; all where empty.
    pub cpus: Vec<u32>,
    /// Samples a second of `perf_event` programs.
    pub frequency: u64,
    /// Where programs go whose section does not say it: name, and an interface, path, probe or event.
    pub attach: Vec<(String, String)>,
    /// Print all maps at the end.
    pub print_maps: bool,
    /// Scripts may run commands.
    pub commands: bool,
    /// Uprobes go also where it cannot be said whether an instruction begins.
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
    /// Whether only a process, a thread, or some CPUs are meant.
    pub fn filters(&self) -> bool {
        self.pid.is_some() || self.tid.is_some() || !self.cpus.is_empty()
    }
}
