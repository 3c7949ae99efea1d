//! Probe events: lines in `uprobe_events` and `kprobe_events` of the tracing file system, each of which makes an event that
//! perf can record.
//!
//! They hang on no descriptor and outlive who made them. So the group of each names its owner: the process, the time at
//! which that started, and the namespace of its number where that is not the first one. [`stale`] finds those whose owner
//! is gone.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::sync::OnceLock;

use crate::error::Error;
use crate::tracefs;

/// What the group of every event of ours begins with.
const PREFIX: &str = "twinbpf_";
/// Inode of the first namespace of process numbers (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// Which file an event is a line of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// A place in a file of user space.
    Uprobe,
    /// A place in the kernel.
    Kprobe,
}

impl ProbeKind {
    /// Name of the file in the tracing file system.
    pub fn file(self) -> &'static str {
        match self {
            ProbeKind::Uprobe => "uprobe_events",
            ProbeKind::Kprobe => "kprobe_events",
        }
    }

    /// The file, to append lines to.
    ///
    /// # Errors
    /// The kernel has no such events, or this process may not make any.
    pub fn open(self) -> io::Result<File> {
        tracefs::open(self.file())
    }
}

/// A process that owns events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// Clock ticks after boot, field 22 of `/proc/PID/stat`.
    start: u64,
    /// Inode of the namespace in which `pid` counts.
    namespace: u64,
}

impl Owner {
    fn this() -> Owner {
        static THIS: OnceLock<Owner> = OnceLock::new();
        *THIS.get_or_init(|| {
            let pid = std::process::id();
            Owner { pid, start: start_time(pid).unwrap_or(0), namespace: namespace().unwrap_or(FIRST_NAMESPACE) }
        })
    }

    fn parse(group: &str) -> Option<Owner> {
        let mut parts = group.strip_prefix(PREFIX)?.split('_');
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let namespace = parts.next().map_or(Ok(FIRST_NAMESPACE), str::parse).ok()?;
        parts.next().is_none().then_some(Owner { pid, start, namespace })
    }

    /// `None` where this process cannot know: another namespace counts its number.
    fn is_alive(&self) -> Option<bool> {
        if self.namespace != Owner::this().namespace {
            return None;
        }
        Some(start_time(self.pid) == Some(self.start))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_{}", self.pid, self.start)?;
        if self.namespace != FIRST_NAMESPACE { write!(f, "_{}", self.namespace) } else { Ok(()) }
    }
}

/// When a process started; `None` if there is none, or only what is left of one.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    fields.nth(18).filter(|_| !is_dead)?.parse().ok()
}

/// Inode of this process's namespace of process numbers.
fn namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether process numbers of this process are those of the kernel.
pub fn is_first_namespace() -> bool {
    Owner::this().namespace == FIRST_NAMESPACE
}

/// The group of this process's events.
pub fn group() -> String {
    Owner::this().to_string()
}

/// An event that exists. It is removed on drop.
#[derive(Debug)]
pub struct ProbeEvent {
    kind: ProbeKind,
    name: String,
}

impl ProbeEvent {
    /// Makes an event of [`group`] for each of several places, which are `FILE:0xOFFSET` or `FUNCTION[+OFFSET]`. `args` are
    /// what it records, as in `Documentation/trace/uprobetracer.rst`.
    ///
    /// # Errors
    /// The kernel's; nothing is left then.
    pub fn create(
        kind: ProbeKind,
        name: &str,
        ret: bool,
        places: &[String],
        args: &[String],
    ) -> Result<ProbeEvent, Error> {
        let group = group();
        let letter = if ret { 'r' } else { 'p' };
        let mut event = None;
        for place in places {
            let words: String = args.iter().map(|arg| format!(" {arg}")).collect();
            let line = format!("{letter}:{group}/{name} {place}{words}\n");
            let written = tracefs::append(kind.file(), &line);
            written.map_err(|cause| Error::new("write", &format!("{} in {}", line.trim_end(), kind.file()), cause))?;
            event.get_or_insert_with(|| ProbeEvent { kind, name: name.to_owned() });
        }
        event.ok_or_else(|| Error::ours("write", kind.file(), libc::EINVAL, "an event has a place"))
    }

    /// The number by which `perf_event_open` knows it.
    ///
    /// # Errors
    /// It is gone.
    pub fn id(&self) -> Result<u64, Error> {
        tracefs::tracepoint(&group(), &self.name)
    }
}

/// The line that removes an event of [`group`].
pub fn removal(name: &str) -> String {
    format!("-:{}/{name}\n", group())
}

impl Drop for ProbeEvent {
    fn drop(&mut self) {
        match tracefs::append(self.kind.file(), &removal(&self.name)) {
            Ok(()) => {}
            // All events were removed from outside.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                log::warn!("event {}:{} stays, until `twinbpf list --stale` removes it: {error}", group(), self.name)
            }
        }
    }
}

/// An event whose owner ended without removing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    kind: ProbeKind,
    /// Group of the event, which names the owner.
    pub group: String,
    /// Name of the event.
    pub name: String,
}

impl Stale {
    /// Removes it.
    ///
    /// # Errors
    /// `EBUSY` while it is open: in a perf that still records, for example.
    pub fn remove(&self) -> Result<(), Error> {
        match tracefs::append(self.kind.file(), &format!("-:{}/{}\n", self.group, self.name)) {
            // Two that search at once both find it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::new("remove", &self.to_string(), error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}:{} of {}", self.group, self.name, self.kind.file())
    }
}

/// The events of which it is known that their owner is gone.
///
/// # Errors
/// There is no tracing file system, or this process may not read it.
pub fn stale() -> Result<Vec<Stale>, Error> {
    let mut found = Vec::new();
    for kind in [ProbeKind::Uprobe, ProbeKind::Kprobe] {
        let lines = match tracefs::read(kind.file()) {
            Ok(lines) => lines,
            // A kernel without this kind.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tracefs::exists("events") => continue,
            Err(error) => return Err(Error::new("read", kind.file(), error)),
        };
        found.extend(stale_in(kind, &lines, &|owner| owner.is_alive()));
    }
    Ok(found)
}

/// Those of a file's lines, `p:GROUP/NAME PLACE`; an event of several places has several.
fn stale_in(kind: ProbeKind, lines: &str, is_alive: &dyn Fn(Owner) -> Option<bool>) -> Vec<Stale> {
    let mut found: Vec<Stale> = Vec::new();
    for line in lines.lines() {
        let event = line.split_once(':').and_then(|(_, rest)| rest.split_ascii_whitespace().next());
        let Some((group, name)) = event.and_then(|event| event.split_once('/')) else { continue };
        let is_stale = Owner::parse(group).is_some_and(|owner| is_alive(owner) == Some(false));
        let event = Stale { kind, group: group.to_owned(), name: name.to_owned() };
        if is_stale && !found.contains(&event) {
            found.push(event);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{FIRST_NAMESPACE, Owner, ProbeKind, group, stale_in, start_time};

    #[test]
    fn groups_name_their_owner() {
        let owner = Owner { pid: 12, start: 345, namespace: FIRST_NAMESPACE };
        assert_eq!(owner.to_string(), "twinbpf_12_345");
        let other = Owner { namespace: 4_026_532_000, ..owner };
        assert_eq!(other.to_string(), "twinbpf_12_345_4026532000");
        for owner in [owner, other] {
            assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
        }
        for group in
            ["probe_tgt", "twinbpf_", "twinbpf_12", "twinbpf_x_1", "twinbpf_1_2_3_4", "twinbpf_1_2_", "twinbpf"]
        {
            assert_eq!(Owner::parse(group), None, "{group}");
        }
        let this = Owner::parse(&group()).unwrap();
        assert_eq!((this.is_alive(), this.pid), (Some(true), std::process::id()));
        // The same number later is another process; one of another namespace is never known to be gone.
        assert_eq!(Owner { start: this.start + 1, ..this }.is_alive(), Some(false));
        assert_eq!(Owner { namespace: 1, start: 0, ..this }.is_alive(), None);
    }

    #[test]
    fn a_process_that_only_waits_for_its_parent_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while start_time(child.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
    }

    #[test]
    fn events_of_others_are_left_alone() {
        let lines = "p:twinbpf_7_1/wk /bin/a:0x10 n=%si:s32\np:twinbpf_7_1/wk /bin/a:0x20 n=%si:s32\n\
                     r64:twinbpf_7_1/back /bin/a:0x10\np:probe_a/wk /bin/a:0x10\np:twinbpf_8_1/wk /bin/a:0x10\nnoise\n";
        let found = stale_in(ProbeKind::Uprobe, lines, &|owner| Some(owner.pid == 8));
        let names: Vec<&str> = found.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["wk", "back"]);
        assert_eq!(found[0].to_string(), "event twinbpf_7_1:wk of uprobe_events");
        assert!(stale_in(ProbeKind::Uprobe, lines, &|_| None).is_empty());
    }
}
