//! Which threads a recording is about: a byte for each thread number, which a program at every fork keeps up.

use std::fs;

use twinbpf_isa::Endian;
use twinbpf_kernel::{Link, Map, MapCreate, MapKind, Options, Prog, ProgLoad, ProgType, Shared, Target, catalog};
use twinbpf_vm::map::MapFlags;

use std::os::fd::{AsFd, AsRawFd};

use crate::error::Error;
use crate::verdict::{self, THREADS};

/// The tracepoint at which a new thread is known and does not run yet.
const FORK: [&str; 2] = ["sched", "sched_process_fork"];

/// The threads that are recorded.
#[derive(Debug)]
pub(super) struct Threads {
    map: Map,
    memory: Shared,
    /// Whether threads that these start belong to them.
    _follow: Link,
}

impl Threads {
    /// None yet, and a program that follows those that will be.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(inherit: bool) -> Result<Threads, Error> {
        let mut create = MapCreate::new("twinbpf_threads", MapKind::Array, 4, THREADS, 1);
        create.flags = MapFlags::MMAPABLE.bits();
        let map = Map::create(&create)?;
        let memory = map.share(0, THREADS as usize)?;
        let [category, name] = FORK;
        let failed = |cause| Error::System { what: "read the format of sched:sched_process_fork", cause };
        let members = catalog::event_members(category, name).map_err(failed)?;
        let child = members.get("child_pid").ok_or_else(|| failed(std::io::Error::from_raw_os_error(libc::ENOENT)))?;
        let insns = verdict::follow(map.as_fd().as_raw_fd(), child.start, inherit);
        let bytes: Vec<u8> = insns.iter().flat_map(|raw| raw.to_bytes(Endian::Little)).collect();
        let program = Prog::load(&ProgLoad::new("twinbpf_follow", ProgType::Tracepoint, &bytes, "GPL"))?;
        let target = Target::Tracepoint { category: category.to_owned(), name: name.to_owned() };
        let follow = target.attach(&program, &Options::default())?;
        Ok(Threads { map, memory, _follow: follow })
    }

    pub(super) fn map(&self) -> &Map {
        &self.map
    }

    /// Records a thread.
    pub(super) fn include(&mut self, tid: u32) {
        if tid < THREADS {
            self.memory.write(tid as usize, &[1]);
        }
    }

    /// Records all threads of a process, until there are no others: what they start meanwhile follows.
    ///
    /// # Errors
    /// There is no such process.
    pub(super) fn include_process(&mut self, pid: u32) -> Result<(), Error> {
        let mut known = Vec::new();
        loop {
            let entries = fs::read_dir(format!("/proc/{pid}/task"));
            let entries = entries.map_err(|_| Error::Recording { why: format!("there is no process {pid}") })?;
            let all: Vec<u32> =
                entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
            all.iter().for_each(|tid| self.include(*tid));
            if all.iter().all(|tid| known.contains(tid)) {
                return Ok(());
            }
            known = all;
        }
    }
}
