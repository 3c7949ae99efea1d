//! Attachments to perf events: tracepoints, probes of single functions, samples at a rate.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sampling::{Clock, Rate, Sampling};
use super::target::UprobeSite;
use super::{Attachment, Deferred, Link, Options, Pending, dup};
use crate::error::Error;
use crate::map::c_path;
use crate::probe::{Feature, has};
use crate::probe_event::{ProbeEvent, ProbeKind};
use crate::prog::{AttachType, Prog};
use crate::sys::perf::{self, PerfAttr};
use crate::sys::{attr, bpf, number};
use crate::{cpu, tracefs};

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;

/// The number of a kind of event, and the bit of `config` that means the return of a function.
struct Unit {
    kind: u32,
    ret: u64,
}

/// What `/sys/bus/event_source` says of `kprobe` or `uprobe`; `None` where there is no such interface.
fn unit(name: &str) -> Option<Unit> {
    let read = |file: &str| fs::read_to_string(format!("/sys/bus/event_source/devices/{name}/{file}")).ok();
    let kind = read("type")?.trim().parse().ok()?;
    let format = read("format/retprobe")?;
    let bit: u32 = format.trim().strip_prefix("config:")?.parse().ok()?;
    Some(Unit { kind, ret: 1_u64.checked_shl(bit)? })
}

/// Whether the kernel makes probes of this kind for `perf_event_open`.
pub(crate) fn has_unit(name: &str) -> bool {
    unit(name).is_some()
}

/// Tries whether there are samples of an event on a CPU.
pub(crate) fn can_sample(clock: Clock) -> io::Result<()> {
    let (kind, config) = clock.event();
    let flags = perf::FREQ | perf::DISABLED;
    let mut attr = PerfAttr { kind, config, sample: 1, flags, ..PerfAttr::default() };
    let cpu = cpu::online().first().copied().unwrap_or(0);
    perf::open(&mut attr, -1, cpu as i32).map(drop)
}

/// An event that is open and waits. A program on a tracepoint or probe runs as soon as it is attached, whether the
/// event is enabled or not, so that it is attached last. The event is never enabled: it would get a record, on the CPU that
/// it was opened for, of each hit for which the program does not return 0, and that takes longer than most programs.
#[derive(Debug)]
struct Event {
    what: String,
    /// Name of the program, and the program.
    name: String,
    prog: OwnedFd,
    event: OwnedFd,
    cookie: u64,
    probe: Option<ProbeEvent>,
}

impl Event {
    fn failed(&self, command: &'static str, cause: io::Error) -> Error {
        Error::new(command, &format!("program {} to {}", self.name, self.what), cause)
    }

    fn new(what: String, event: OwnedFd, prog: &Prog, cookie: u64, probe: Option<ProbeEvent>) -> Result<Event, Error> {
        Ok(Event { what, name: prog.name().to_owned(), prog: prog_fd(prog)?, event, cookie, probe })
    }

    fn attach(self) -> Result<Attached, Error> {
        let link = self.link()?;
        Ok(Attached { event: self, link })
    }

    fn link(&self) -> Result<Option<OwnedFd>, Error> {
        if has(Feature::PerfLink) {
            let mut attr = attr::LinkPerf {
                fd: number(self.prog.as_fd()),
                target: number(self.event.as_fd()),
                attach_type: AttachType::PerfEvent as u32,
                flags: 0,
                cookie: self.cookie,
            };
            return bpf::link_create(&mut attr).map(Some).map_err(|cause| self.failed("LINK_CREATE", cause));
        }
        let command = "PERF_EVENT_IOC_SET_BPF";
        if self.cookie != 0 {
            let error = self.failed(command, io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            return Err(error.with_detail("this kernel has no cookies of attachments"));
        }
        perf::set_bpf(self.event.as_fd(), self.prog.as_fd()).map_err(|cause| self.failed(command, cause))?;
        Ok(None)
    }
}

impl Deferred for Event {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        Ok(self.attach()?.into_link())
    }
}

/// A program that is attached to an event which is not enabled.
#[derive(Debug)]
struct Attached {
    event: Event,
    /// Where the kernel has such.
    link: Option<OwnedFd>,
}

impl Attached {
    fn into_link(self) -> Link {
        let Event { what, event, probe, .. } = self.event;
        Link { what, attachment: Attachment::Event { event, link: self.link, _probe: probe } }
    }
}

impl Deferred for Attached {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        let event = &self.event;
        perf::enable(event.event.as_fd()).map_err(|cause| event.failed("PERF_EVENT_IOC_ENABLE", cause))?;
        Ok(self.into_link())
    }
}

/// Attaches to an event when it is enabled: programs on tracepoints and probes run wherever these are.
fn attached(
    what: String,
    event: OwnedFd,
    prog: &Prog,
    cookie: u64,
    probe: Option<ProbeEvent>,
) -> Result<Pending, Error> {
    Ok(Pending::later(what.clone(), Event::new(what, event, prog, cookie, probe)?))
}

/// Attaches at once to an event that counts, whose overflows run the program: there are none before it is enabled.
fn attached_at_once(what: String, event: OwnedFd, prog: &Prog, cookie: u64) -> Result<Pending, Error> {
    Ok(Pending::later(what.clone(), Event::new(what, event, prog, cookie, None)?.attach()?))
}

fn opened(what: &str, prog: &Prog, attr: &mut PerfAttr, pid: i32, cpu: i32) -> Result<OwnedFd, Error> {
    attr.flags |= perf::DISABLED;
    perf::open(attr, pid, cpu)
        .map_err(|cause| Error::new("perf_event_open", &format!("program {} to {what}", prog.name()), cause))
}

pub(super) fn tracepoint(
    what: String,
    category: &str,
    name: &str,
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    by_name(what, [category, name], [-1, 0], prog, options)
}

/// An event that its users open themselves: a program runs wherever it is open. Opened for our own process it adds no
/// place.
pub(super) fn probe_event(
    what: String,
    group: &str,
    name: &str,
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    by_name(what, [group, name], [0, -1], prog, options)
}

/// An event of the tracing file system, opened for a process and a CPU.
fn by_name(
    what: String,
    [category, name]: [&str; 2],
    [pid, cpu]: [i32; 2],
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    let config = tracefs::tracepoint(category, name)?;
    let mut attr = PerfAttr { kind: TRACEPOINT, config, sample: 1, wakeup: 1, ..PerfAttr::default() };
    let event = opened(&what, prog, &mut attr, pid, cpu)?;
    attached(what, event, prog, options.cookie, None)
}

pub(super) fn kprobe(
    what: String,
    function: &str,
    offset: u64,
    ret: bool,
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    let name = c_path(Path::new(function)).map_err(|cause| Error::new("perf_event_open", &what, cause))?;
    let (mut attr, probe) = match unit("kprobe") {
        Some(unit) => {
            let config = if ret { unit.ret } else { 0 };
            let (config1, config2) = (name.as_ptr() as u64, offset);
            (PerfAttr { kind: unit.kind, config, config1, config2, ..PerfAttr::default() }, None)
        }
        None => text_probe(ProbeKind::Kprobe, format!("{function}+{offset}"), ret, &what)
            .map_err(|error| no_function(error, function))?,
    };
    let event = opened(&what, prog, &mut attr, -1, 0).map_err(|error| no_function(error, function))?;
    attached(what, event, prog, options.cookie, probe)
}

/// Evidence for `ENOENT`: whether the kernel has the function, and kprobes at all.
fn no_function(error: Error, function: &str) -> Error {
    if !matches!(error.errno(), Some(libc::ENOENT | libc::EOPNOTSUPP)) {
        return error;
    }
    let system = crate::system::System::get();
    if !system.has_function(function) {
        return error.with_detail(format!("this kernel has no function {function}"));
    }
    if unit("kprobe").is_none() && tracefs::read("kprobe_events").is_err() {
        return error.with_detail("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)");
    }
    error
}

pub(super) fn uprobe(
    what: String,
    path: &Path,
    site: UprobeSite,
    ret: bool,
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    super::probe_site::check(&what, path, &[site], ret, options)?;
    let name = c_path(path).map_err(|cause| Error::new("perf_event_open", &what, cause))?;
    let (mut attr, probe) = match unit("uprobe") {
        Some(unit) => {
            let config = if ret { unit.ret } else { 0 } | site.semaphore << 32;
            let (config1, config2) = (name.as_ptr() as u64, site.offset);
            (PerfAttr { kind: unit.kind, config, config1, config2, ..PerfAttr::default() }, None)
        }
        None => {
            let counter = if site.semaphore == 0 { String::new() } else { format!("({:#x})", site.semaphore) };
            text_probe(ProbeKind::Uprobe, format!("{}:{:#x}{counter}", path.display(), site.offset), ret, &what)?
        }
    };
    let (pid, cpu) = match options.pid {
        Some(pid) => (pid as i32, -1),
        None => (-1, 0),
    };
    let event = opened(&what, prog, &mut attr, pid, cpu)?;
    let cookie = if site.cookie == 0 { options.cookie } else { site.cookie };
    attached(what, event, prog, cookie, probe)
}

pub(super) fn sampling(
    what: String,
    sampling: &Sampling,
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    let (kind, config) = sampling.clock.event();
    let (sample, frequency) = match sampling.rate {
        Rate::Period(period) => (period, 0),
        Rate::Frequency(hertz) => (hertz, perf::FREQ),
    };
    let pid = sampling.pid.or(options.pid);
    let all = if sampling.cpus.is_empty() { cpu::online() } else { sampling.cpus.clone() };
    // An event that is inherited cannot be on all CPUs at once, so that a process has one on each, too.
    let inherit = if pid.is_some() { perf::INHERIT } else { 0 };
    let mut parts = Vec::new();
    for cpu in all {
        let mut attr = PerfAttr { kind, config, sample, flags: frequency | inherit, wakeup: 1, ..PerfAttr::default() };
        let event = opened(&what, prog, &mut attr, pid.map_or(-1, |pid| pid as i32), cpu as i32)?;
        let what = format!("{what} on CPU {cpu}");
        parts.push(attached_at_once(what, event, prog, options.cookie)?);
    }
    Ok(Pending::many(what, parts))
}

/// A probe of kernels that cannot make one by `perf_event_open`.
fn text_probe(kind: ProbeKind, place: String, ret: bool, what: &str) -> Result<(PerfAttr, Option<ProbeEvent>), Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("probe_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let failed = |error: Error| {
        let cause = error.errno().map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error);
        Error::new("write", &format!("{what} in {}", kind.file()), cause)
    };
    let probe = ProbeEvent::create(kind, &name, ret, &[place], &[]).map_err(failed)?;
    Ok((PerfAttr { kind: TRACEPOINT, config: probe.id()?, sample: 1, wakeup: 1, ..PerfAttr::default() }, Some(probe)))
}

/// Another descriptor of a program, for what is attached later.
pub(super) fn prog_fd(prog: &Prog) -> Result<OwnedFd, Error> {
    dup(prog.as_fd(), prog.name())
}
