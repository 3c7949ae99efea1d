//! Per-instance state that host functions use. Engines own one and lend it through `Activation::runtime`.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::map_table::{MapTable, RecentMaps};
use super::walks::Walks;
use super::{Interrupt, Packet, TargetMemory};
use crate::map::MapOps;
use crate::mem::{Block, View};

/// Longer than any program that is alive keeps a spin lock, even one that has to wait for a processor.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// See the module documentation.
pub struct Runtime {
    /// The instance's view of memory.
    pub view: View,
    /// Maps by handle.
    pub(crate) maps: Arc<dyn MapTable>,
    /// Maps of the last calls that named them by handles which only a run knows, such as those of maps of maps.
    pub(super) recent_maps: RecentMaps,
    /// Where `printf` goes.
    pub output: Box<dyn Write + Send>,
    /// What it writes there.
    pub format: OutputFormat,
    /// Where `bpf_trace_printk` goes, the trace pipe of a kernel; standard error at first.
    pub trace: Box<dyn Write + Send>,
    /// Histograms that programs printed last, by heading: label and count of each slot. `None`: they are not kept.
    pub histograms: Option<BTreeMap<String, Vec<(String, u64)>>>,
    /// What maps had no room for.
    losses: Vec<Loss>,
    /// The embedder's data, `T` of `Linker<T>`.
    pub data: Box<dyn Any + Send>,
    /// The CPU whose per-CPU values the program sees.
    pub(crate) cpu: u32,
    /// Ends a run.
    interrupt: Arc<Interrupt>,
    /// How long a program waits for a spin lock until that is a deadlock; 10 seconds at first.
    pub lock_wait: Duration,
    /// The packet of an XDP or TC program.
    pub packet: Option<Packet>,
    /// What `bpf_probe_read_user` and its relatives read. Without one they read the program's own memory.
    pub target: Option<Arc<dyn TargetMemory>>,
    /// What a program at a probe learns of where it runs.
    pub attachment: Attachment,
    /// What the program must give back: released by [`Runtime::abandon`].
    pub(crate) held: HeldResources,
    /// State of `bpf_get_prandom_u32`.
    pub(crate) random: u64,
    /// Room for what is printed next.
    pub(crate) line: Vec<u8>,
    /// What `bpf_get_current_*` answer instead of the process's own values.
    pub task: Task,
}

/// Elements or records that a map had no room for.
///
/// ```
/// use twinbpf_vm::host::Loss;
///
/// let losses = [Loss { map: "events".into(), function: "bpf_ringbuf_output".into(), count: 3 }];
/// assert_eq!(losses.iter().map(|loss| loss.count).sum::<u64>(), 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Name of the map.
    pub map: Arc<str>,
    /// The function that was to put them there.
    pub function: Arc<str>,
    /// Number of them.
    pub count: u64,
}

/// The form of what programs print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// As it is.
    #[default]
    Text,
    /// One JSON object a line, as bpftrace's: `{"type": "printf", "data": "..."}` for each call.
    Json,
}

/// What a program learns of its attachment: zeros where it has none, as in a test run of the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// What `bpf_get_attach_cookie` returns.
    pub cookie: u64,
    /// Address of the probed function or instruction, which `bpf_get_func_ip` returns.
    pub address: u64,
}

/// The task a program believes to run for; `None` queries the operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Process id in the upper half, thread id in the lower.
    pub pid_tgid: Option<u64>,
    /// Group id in the upper half, user id in the lower.
    pub uid_gid: Option<u64>,
    /// Name, cut to 15 bytes.
    pub comm: Option<String>,
}

/// Resources a program holds between two helper calls.
#[derive(Debug, Default)]
pub(crate) struct HeldResources {
    /// Address of a spin lock. The kernel's verifier allows one at a time.
    pub(crate) lock: Option<u64>,
    /// Open ring buffer reservations.
    pub(crate) samples: Samples,
    /// What host functions have allocated for it.
    pub(crate) blocks: Vec<Block>,
    /// Walks over maps. A trap leaves some, which are over when the next one begins around them.
    pub(crate) walks: Walks,
}

/// Open ring buffer reservations.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// The ring of the last one, which is mostly that of all.
    ring: Option<Arc<dyn MapOps>>,
    /// Addresses of its samples.
    open: Vec<u64>,
    /// Samples of other rings.
    others: Vec<(u64, Arc<dyn MapOps>)>,
}

impl Samples {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.others.is_empty()
    }

    /// Notes a reservation.
    pub(crate) fn add(&mut self, sample: u64, map: &Arc<dyn MapOps>) {
        let same = self.ring.as_ref().is_some_and(|ring| Arc::ptr_eq(ring, map));
        if !same && let Some(ring) = self.ring.replace(Arc::clone(map)) {
            self.others.extend(self.open.drain(..).map(|sample| (sample, Arc::clone(&ring))));
        }
        self.open.push(sample);
    }

    /// Ends a reservation; of the address the lower half counts. False if it is none.
    pub(crate) fn end(&mut self, sample: u64, discard: bool) -> bool {
        let same = |addr: &u64| *addr as u32 == sample as u32;
        if let Some(index) = self.open.iter().rposition(same) {
            commit(self.ring.as_ref(), self.open.swap_remove(index), discard);
            return true;
        }
        let Some(index) = self.others.iter().position(|(addr, _)| same(addr)) else { return false };
        let (addr, ring) = self.others.swap_remove(index);
        commit(Some(&ring), addr, discard);
        true
    }

    fn discard_all(&mut self) {
        self.open.drain(..).for_each(|sample| commit(self.ring.as_ref(), sample, true));
        self.others.drain(..).for_each(|(sample, ring)| commit(Some(&ring), sample, true));
    }
}

/// A sample that is not open any more needs nothing.
fn commit(ring: Option<&Arc<dyn MapOps>>, sample: u64, discard: bool) {
    if let Some(map) = ring {
        let _ = map.commit_sample(sample, discard);
    }
}

impl Runtime {
    /// The same state on another CPU than 0.
    #[must_use]
    pub fn on_cpu(self, cpu: u32) -> Runtime {
        Runtime { cpu, ..self }
    }

    /// The CPU whose per-CPU values the program sees. It stays the same.
    #[inline]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// State of a new instance: CPU 0, no time limit, the operating system's task.
    pub fn new(
        view: View,
        maps: Arc<dyn MapTable>,
        output: Box<dyn Write + Send>,
        data: Box<dyn Any + Send>,
    ) -> Runtime {
        let random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(view.owner());
        let interrupt = Arc::default();
        let trace = Box::new(std::io::stderr());
        let (held, task, format, line) = (HeldResources::default(), Task::default(), OutputFormat::Text, Vec::new());
        Runtime {
            view,
            maps,
            recent_maps: Default::default(),
            output,
            format,
            trace,
            histograms: None,
            losses: Vec::new(),
            data,
            cpu: 0,
            interrupt,
            lock_wait: LOCK_WAIT,
            packet: None,
            target: None,
            attachment: Attachment::default(),
            held,
            random,
            line,
            task,
        }
    }

    /// What maps had no room for since the runtime was made, in the order of the first time.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Counts that a map had no room for what a function was to put there.
    #[cold]
    pub(crate) fn lose(&mut self, map: &Arc<str>, function: &str) {
        match self.losses.iter_mut().find(|loss| loss.map == *map && *loss.function == *function) {
            Some(loss) => loss.count += 1,
            None => self.losses.push(Loss { map: Arc::clone(map), function: function.into(), count: 1 }),
        }
    }

    /// Maps by handle.
    pub fn maps(&self) -> &Arc<dyn MapTable> {
        &self.maps
    }

    /// Seeds `bpf_get_prandom_u32`, for runs that repeat exactly.
    pub fn seed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// The flag that ends a run while it is raised: see [`Interrupt`] for where backends test it. The same one as long as
    /// there is this runtime.
    pub fn interrupt(&self) -> &Arc<Interrupt> {
        &self.interrupt
    }

    /// Begins a walk over the map with a handle, inside so many callbacks: the address of its keys. `None` if that map has no
    /// slots to walk over, or there is no memory.
    pub(crate) fn begin_walk(&mut self, handle: u64, depth: u32) -> Option<u64> {
        let map = &self.recent_maps.get(handle, &self.maps)?.map;
        let slots = map.slots().filter(|_| map.spec().kind.has_walk())?;
        let walk = self.held.walks.make(&self.view, map, slots).ok()?;
        let key = walk.key();
        self.held.walks.begin(walk, depth);
        Some(key)
    }

    /// Address of the value of the next element of that walk. `None` ends the walk, as `stop` does.
    #[inline]
    pub(crate) fn advance_walk(&mut self, depth: u32, stop: bool) -> Option<u64> {
        self.held.walks.advance(depth, self.cpu, stop)
    }

    /// Whether the program holds something that [`Runtime::abandon`] would release.
    #[inline]
    pub fn holds(&self) -> bool {
        self.held.lock.is_some() || !self.held.samples.is_empty() || !self.held.blocks.is_empty()
    }

    /// Releases the spin lock, discards ring buffer reservations that are still open and frees what host functions
    /// have allocated. Engines call it when an entry function has ended, above all by a trap; a program the kernel's
    /// verifier accepts leaves no lock and no reservation.
    #[inline(never)]
    pub fn abandon(&mut self) {
        if let Some(addr) = self.held.lock.take()
            && let Ok(Some(lock)) = self.view.atomic_at::<AtomicU32>(addr)
        {
            lock.store(0, Ordering::Release);
        }
        self.held.blocks.clear();
        self.held.walks.clear();
        if !self.held.samples.is_empty() {
            self.held.samples.discard_all();
            self.view.invalidate();
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("view", &self.view.owner()).field("cpu", &self.cpu).finish_non_exhaustive()
    }
}
