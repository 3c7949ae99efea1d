//! Attachments. A [`Link`] ends when it is dropped, or with the process: what is attached hangs on file descriptors.
//! The exceptions are `tc` filters, struct_ops and sockets of maps on kernels without links for them, and probes of kernels
//! without the perf interface for them; all are undone on drop.
//!
//! A [`Target`] is where a program goes, resolved as far as it can be without side effects. [`Target::open`] makes all
//! that can fail and starts nothing, [`Pending::enable`] starts it.

mod expand;
mod hook;
mod interface;
mod multi;
mod net;
mod netlink;
mod perf;
mod probe_site;
mod sampling;
mod target;
pub mod usdt;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

pub use expand::by_one_link;
pub use interface::{Interface, interface};
pub(crate) use perf::{can_sample, has_unit as perf_unit};
pub use sampling::{Clock, EVENTS, Rate, Sampling};
pub use target::{Functions, Iter, Netfilter, Return, Target, TargetError, UprobeSite};

use crate::error::Error;
use crate::map::Map;
use crate::probe_event::ProbeEvent;
use crate::prog::Prog;
use crate::sys::{attr, bpf, number};

/// How to attach.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// What `bpf_get_attach_cookie` gives the program; 0 for none.
    pub cookie: u64,
    /// Only in this process. Kinds that cannot filter refuse.
    pub pid: Option<u32>,
    /// The maps of the object that `usdt.bpf.h` declares, for USDT.
    pub usdt: Option<usdt::Maps<'a>>,
    /// Uprobes also where it cannot be said whether an instruction begins. A place that is known to be inside of one is
    /// refused all the same.
    pub unproven_places: bool,
}

/// An attached program.
#[derive(Debug)]
pub struct Link {
    /// What it is attached to, for messages.
    what: String,
    attachment: Attachment,
}

/// Resources that keep the program attached.
#[derive(Debug)]
enum Attachment {
    /// A BPF link.
    Bpf(OwnedFd),
    /// A perf event, and the link on it where the kernel has such.
    Event { event: OwnedFd, link: Option<OwnedFd>, _probe: Option<ProbeEvent> },
    /// Several links that form one attachment.
    Many(Vec<Link>),
    /// A filter of a network interface.
    Filter { _kept: net::Filter },
    /// A struct_ops map without links, which is registered as long as it has its element.
    Registered(Map),
    /// An attachment of before there were links: target, type, program.
    Old { target: OwnedFd, attach: u32, prog: OwnedFd },
}

/// A program that is attached but not enabled.
#[derive(Debug)]
pub struct Pending {
    what: String,
    state: State,
}

#[derive(Debug)]
enum State {
    /// What runs nothing by itself.
    Made(Link),
    /// What works as soon as it exists.
    Later(Box<dyn Deferred>),
    /// One after the other.
    Many(Vec<Pending>),
}

/// What is made when it is enabled.
trait Deferred: std::fmt::Debug + Send {
    fn make(self: Box<Self>) -> Result<Link, Error>;
}

impl Pending {
    fn later(what: String, deferred: impl Deferred + 'static) -> Pending {
        Pending { what, state: State::Later(Box::new(deferred)) }
    }

    fn made(link: Link) -> Pending {
        Pending { what: link.what.clone(), state: State::Made(link) }
    }

    fn many(what: String, parts: Vec<Pending>) -> Pending {
        Pending { what, state: State::Many(parts) }
    }

    /// What it will be attached to.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// From now on the program runs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(self) -> Result<Link, Error> {
        match self.state {
            State::Made(link) => Ok(link),
            State::Later(deferred) => deferred.make(),
            State::Many(parts) => {
                let links = parts.into_iter().map(Pending::enable).collect::<Result<Vec<Link>, Error>>()?;
                Ok(Link { what: self.what, attachment: Attachment::Many(links) })
            }
        }
    }
}

impl Link {
    fn bpf(what: String, fd: OwnedFd) -> Link {
        Link { what, attachment: Attachment::Bpf(fd) }
    }

    /// What the program is attached to, for messages.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The BPF link, where it is one; several have none.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.attachment {
            Attachment::Bpf(fd) | Attachment::Event { link: Some(fd), .. } => Some(fd.as_fd()),
            Attachment::Event { link: None, .. } | Attachment::Many(_) | Attachment::Filter { .. } => None,
            Attachment::Registered(_) | Attachment::Old { .. } => None,
        }
    }

    /// Number of the link, where it is one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn id(&self) -> Result<Option<u32>, Error> {
        let Some(fd) = self.fd() else { return Ok(None) };
        let mut info = attr::LinkInfo::default();
        bpf::info(fd, &mut info).map_err(|cause| self.failed("OBJ_GET_INFO_BY_FD", cause))?;
        Ok(Some(info.id))
    }

    /// Numbers of all BPF links that there are.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ids() -> Result<Vec<u32>, Error> {
        bpf::ids(bpf::ObjectKind::Link).map_err(|cause| Error::new("LINK_GET_NEXT_ID", "all links", cause))
    }

    /// The perf events of the link. Their descriptors can be polled and counted.
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        match &self.attachment {
            Attachment::Event { event, .. } => vec![event.as_fd()],
            Attachment::Many(links) => links.iter().flat_map(Link::events).collect(),
            Attachment::Bpf(_) | Attachment::Filter { .. } | Attachment::Registered(_) | Attachment::Old { .. } => {
                Vec::new()
            }
        }
    }

    /// Puts another program in the place of this one, without a gap.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for kinds that cannot.
    pub fn update(&self, prog: &Prog) -> Result<(), Error> {
        let Some(fd) = self.fd() else {
            return Err(Error::ours("LINK_UPDATE", &self.what, libc::EINVAL, "this is no BPF link"));
        };
        let (link_fd, new_fd) = (number(fd), number(prog.as_fd()));
        bpf::link_update(&mut attr::LinkUpdate { link_fd, new_fd, ..attr::LinkUpdate::default() })
            .map_err(|cause| self.failed("LINK_UPDATE", cause))
    }

    /// `BPF_OBJ_PIN`: the attachment lives until the name is removed.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for what is no BPF link.
    pub fn pin(&self, path: &Path) -> Result<(), Error> {
        let Some(fd) = self.fd() else {
            return Err(Error::ours("OBJ_PIN", &self.what, libc::EINVAL, "this is no BPF link"));
        };
        crate::map::pin_fd(fd, path).map_err(|cause| self.failed("OBJ_PIN", cause))
    }

    /// A file with the text of an iterator. Each runs the program anew.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for what is no iterator.
    pub fn iterate(&self) -> Result<std::fs::File, Error> {
        let Some(fd) = self.fd() else {
            return Err(Error::ours("ITER_CREATE", &self.what, libc::EINVAL, "this is no BPF link"));
        };
        let made = bpf::iter_create(&mut attr::IterCreate { link_fd: number(fd), flags: 0 });
        made.map(std::fs::File::from).map_err(|cause| self.failed("ITER_CREATE", cause))
    }

    fn failed(&self, command: &'static str, cause: io::Error) -> Error {
        Error::new(command, &self.what, cause)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Attachment::Registered(map) = &self.attachment
            && let Err(error) = map.delete(&[0; 4])
        {
            log::warn!("{} stays registered: {error}", self.what);
        }
        if let Attachment::Old { target, attach, prog } = &self.attachment {
            let (target, attach_bpf_fd) = (number(target.as_fd()), number(prog.as_fd()));
            let mut attr = attr::Attach { target, attach_bpf_fd, attach_type: *attach, ..attr::Attach::default() };
            if let Err(error) = bpf::prog_detach(&mut attr) {
                log::warn!("{} stays attached: {error}", self.what);
            }
        }
    }
}

impl Target {
    /// Makes all that can fail, and starts nothing.
    ///
    /// # Errors
    /// The kernel's, or the request is impossible for this kind.
    pub fn open(&self, prog: &Prog, options: &Options<'_>) -> Result<Pending, Error> {
        let what = self.to_string();
        if let Some(pid) = options.pid.filter(|_| !self.in_processes()) {
            return Err(Error::ours(
                "attach",
                &format!("program {} to {what}", prog.name()),
                libc::EOPNOTSUPP,
                format!("this kind runs for every process, it cannot be limited to process {pid}"),
            ));
        }
        match self {
            Target::Tracepoint { category, name } => perf::tracepoint(what, category, name, prog, options),
            Target::ProbeEvent { group, name } => perf::probe_event(what, group, name, prog, options),
            Target::Kprobe { function, offset, ret } => perf::kprobe(what, function, *offset, *ret, prog, options),
            Target::Uprobe { path, site, ret } => perf::uprobe(what, path, *site, *ret, prog, options),
            Target::Sampling(sampling) => perf::sampling(what, sampling, prog, options),
            Target::RawTracepoint { name } => hook::raw_tracepoint(what, name, prog, options),
            Target::Btf => hook::btf(format!("program {}'s target", prog.name()), prog, options),
            Target::Iter(iter) => hook::iter(what, iter, prog),
            Target::Cgroup { path } => hook::cgroup(what, path, prog),
            Target::Netfilter(hook) => hook::netfilter(what, hook, prog),
            Target::NetNamespace { path } => hook::namespace(what, path, prog),
            Target::KprobeMulti { functions, ret } => multi::kprobes(what, functions, *ret, prog, options),
            Target::UprobeMulti { path, functions, ret } => multi::uprobes(what, path, functions, *ret, prog, options),
            Target::Usdt { path, provider, name } => usdt::open(what, path, provider, name, prog, options),
            Target::Xdp { .. } | Target::Tc { .. } | Target::Netkit { .. } => net::open(what, self, prog),
        }
    }

    /// Attaches at once.
    ///
    /// # Errors
    /// As [`Target::open`].
    pub fn attach(&self, prog: &Prog, options: &Options<'_>) -> Result<Link, Error> {
        self.open(prog, options)?.enable()
    }
}

/// Attaches the programs of a struct_ops map made with `BPF_F_LINK`.
///
/// # Errors
/// The kernel's.
pub fn struct_ops(map: &Map) -> Result<Link, Error> {
    hook::struct_ops(map)
}

/// What a struct_ops map without links has registered, by its element; unregistered on drop.
///
/// # Errors
/// This process has too many descriptors.
pub(crate) fn registered(map: &Map) -> Result<Link, Error> {
    let what = format!("struct_ops map {}", map.info().name);
    Ok(Link { what, attachment: Attachment::Registered(map.try_clone()?) })
}

/// Attaches a program to the sockets of a map (`sk_msg`, `sk_skb`).
///
/// # Errors
/// The kernel's.
pub fn sockets(map: &Map, prog: &Prog) -> Result<Link, Error> {
    hook::sockets(map, prog)
}

/// The number of a perf event, which may be another process's. Those that were opened later have higher ones.
///
/// # Errors
/// `fd` is no perf event.
pub fn event_number(fd: BorrowedFd<'_>) -> io::Result<u64> {
    crate::sys::perf::id(fd)
}

fn dup(fd: BorrowedFd<'_>, what: &str) -> Result<OwnedFd, Error> {
    fd.try_clone_to_owned().map_err(|cause| Error::new("dup", what, cause))
}
