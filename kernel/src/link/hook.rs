//! Attachments by `BPF_LINK_CREATE` and `BPF_RAW_TRACEPOINT_OPEN` that are made when they are enabled: raw tracepoints,
//! functions by BTF, iterators, cgroups, namespaces, netfilter, struct_ops, sockets of maps.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::perf::prog_fd;
use super::target::{Iter, Netfilter};
use super::{Attachment, Deferred, Link, Options, Pending};
use crate::error::Error;
use crate::map::Map;
use crate::prog::{AttachType, Prog, ProgType};
use crate::sys::{attr, bpf, number};

/// What errors are about.
pub(super) fn subject(prog: &Prog, what: &str) -> String {
    format!("program {} to {what}", prog.name())
}

fn failed(command: &'static str, prog: &Prog, what: &str, cause: io::Error) -> Error {
    Error::new(command, &subject(prog, what), cause)
}

#[derive(Debug)]
struct RawTracepoint {
    what: String,
    subject: String,
    name: CString,
    prog: OwnedFd,
    cookie: u64,
}

impl Deferred for RawTracepoint {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        let (name, prog_fd) = (self.name.as_ptr() as u64, number(self.prog.as_fd()));
        let mut attr = attr::RawTracepoint { name, prog_fd, unused: 0, cookie: self.cookie };
        let made = bpf::raw_tracepoint_open(&mut attr);
        let fd = made.map_err(|cause| Error::new("RAW_TRACEPOINT_OPEN", &self.subject, cause))?;
        Ok(Link::bpf(self.what.clone(), fd))
    }
}

pub(super) fn raw_tracepoint(what: String, name: &str, prog: &Prog, options: &Options<'_>) -> Result<Pending, Error> {
    let name = CString::new(name).map_err(|cause| failed("RAW_TRACEPOINT_OPEN", prog, &what, cause.into()))?;
    let deferred = RawTracepoint {
        subject: subject(prog, &what),
        what: what.clone(),
        name,
        prog: prog_fd(prog)?,
        cookie: options.cookie,
    };
    Ok(Pending::later(what, deferred))
}

#[derive(Debug)]
struct Btf {
    what: String,
    subject: String,
    prog: OwnedFd,
    attach: u32,
    cookie: u64,
}

impl Deferred for Btf {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        let prog_fd = number(self.prog.as_fd());
        let mut attr =
            attr::LinkTracing { fd: prog_fd, attach_type: self.attach, cookie: self.cookie, ..Default::default() };
        let made = match bpf::link_create(&mut attr) {
            // Kernels without the command for these programs have another.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && self.cookie == 0 => {
                let mut attr = attr::RawTracepoint { prog_fd, ..attr::RawTracepoint::default() };
                bpf::raw_tracepoint_open(&mut attr).map_err(|_| error)
            }
            made => made,
        };
        let fd = made.map_err(|cause| Error::new("LINK_CREATE", &self.subject, cause))?;
        Ok(Link::bpf(self.what.clone(), fd))
    }
}

pub(super) fn btf(what: String, prog: &Prog, options: &Options<'_>) -> Result<Pending, Error> {
    let (attach, cookie) = (prog.attach_type(), options.cookie);
    let deferred = Btf { subject: subject(prog, &what), what: what.clone(), prog: prog_fd(prog)?, attach, cookie };
    Ok(Pending::later(what, deferred))
}

/// An iterator's link runs nothing, so that it is made at once.
pub(super) fn iter(what: String, iter: &Iter, prog: &Prog) -> Result<Pending, Error> {
    // `union bpf_iter_link_info`: of a map, a task, a cgroup.
    let mut info = [0_u32; 4];
    if let Some(fd) = iter.map_fd {
        info[0] = fd as u32;
    }
    if let Some(tid) = iter.tid {
        info[0] = tid;
    }
    if let Some(pid) = iter.pid {
        info[1] = pid;
    }
    if let Some((id, order)) = iter.cgroup {
        info = [order, 0, id as u32, (id >> 32) as u32];
    }
    let given = info != [0; 4];
    let mut attr = attr::LinkIter {
        fd: number(prog.as_fd()),
        attach_type: AttachType::TraceIter as u32,
        iter_info: if given { info.as_ptr() as u64 } else { 0 },
        iter_info_len: if given { size_of_val(&info) as u32 } else { 0 },
        ..attr::LinkIter::default()
    };
    let fd = bpf::link_create(&mut attr).map_err(|cause| failed("LINK_CREATE", prog, &what, cause))?;
    Ok(Pending::made(Link::bpf(what, fd)))
}

/// A link whose target is a descriptor.
#[derive(Debug)]
struct On {
    what: String,
    subject: String,
    prog: OwnedFd,
    target: OwnedFd,
    attach: u32,
}

impl Deferred for On {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        let (fd, target) = (number(self.prog.as_fd()), number(self.target.as_fd()));
        let mut attr = attr::LinkCreate { fd, target, attach_type: self.attach, flags: 0 };
        match bpf::link_create(&mut attr) {
            Ok(fd) => Ok(Link::bpf(self.what.clone(), fd)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.make_old(error),
            Err(cause) => Err(Error::new("LINK_CREATE", &self.subject, cause)),
        }
    }
}

impl On {
    /// Kernels and kinds without links.
    fn make_old(&self, first: io::Error) -> Result<Link, Error> {
        let (target, attach_bpf_fd) = (number(self.target.as_fd()), number(self.prog.as_fd()));
        let mut attr = attr::Attach { target, attach_bpf_fd, attach_type: self.attach, ..attr::Attach::default() };
        if bpf::prog_attach(&mut attr).is_err() {
            return Err(Error::new("LINK_CREATE", &self.subject, first));
        }
        let dup = |fd: &OwnedFd| fd.try_clone().map_err(|cause| Error::new("dup", &self.subject, cause));
        let attachment = Attachment::Old { target: dup(&self.target)?, attach: self.attach, prog: dup(&self.prog)? };
        Ok(Link { what: self.what.clone(), attachment })
    }
}

fn on_file(what: String, path: &Path, prog: &Prog) -> Result<Pending, Error> {
    let target = File::open(path).map_err(|cause| failed("open", prog, &what, cause))?.into();
    let on = On {
        subject: subject(prog, &what),
        what: what.clone(),
        prog: prog_fd(prog)?,
        target,
        attach: prog.attach_type(),
    };
    Ok(Pending::later(what, on))
}

pub(super) fn cgroup(what: String, path: &Path, prog: &Prog) -> Result<Pending, Error> {
    if prog.kind() == ProgType::CgroupSkb && prog.attach_type() > AttachType::CgroupInetEgress as u32 {
        let error = Error::ours("LINK_CREATE", &what, libc::EINVAL, "say ingress or egress");
        return Err(error);
    }
    on_file(what, path, prog)
}

pub(super) fn namespace(what: String, path: &Path, prog: &Prog) -> Result<Pending, Error> {
    on_file(what, path, prog)
}

pub(super) fn sockets(map: &Map, prog: &Prog) -> Result<Link, Error> {
    let what = format!("sockets of map {}", map.info().name);
    let target = super::dup(map.as_fd(), &what)?;
    Box::new(On { subject: subject(prog, &what), what, prog: prog_fd(prog)?, target, attach: prog.attach_type() })
        .make()
}

#[derive(Debug)]
struct Hook {
    what: String,
    subject: String,
    prog: OwnedFd,
    hook: Netfilter,
}

impl Deferred for Hook {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        let mut attr = attr::LinkNetfilter {
            fd: number(self.prog.as_fd()),
            target: 0,
            attach_type: AttachType::Netfilter as u32,
            flags: 0,
            family: self.hook.family,
            hook: self.hook.hook,
            priority: self.hook.priority,
            nf_flags: self.hook.flags,
        };
        let fd = bpf::link_create(&mut attr).map_err(|cause| Error::new("LINK_CREATE", &self.subject, cause))?;
        Ok(Link::bpf(self.what.clone(), fd))
    }
}

pub(super) fn netfilter(what: String, hook: &Netfilter, prog: &Prog) -> Result<Pending, Error> {
    Ok(Pending::later(what.clone(), Hook { subject: subject(prog, &what), what, prog: prog_fd(prog)?, hook: *hook }))
}

pub(super) fn struct_ops(map: &Map) -> Result<Link, Error> {
    let what = format!("struct_ops map {}", map.info().name);
    let mut attr = attr::LinkCreate {
        fd: number(map.as_fd()),
        attach_type: AttachType::StructOps as u32,
        ..attr::LinkCreate::default()
    };
    let fd = bpf::link_create(&mut attr).map_err(|cause| Error::new("LINK_CREATE", &what, cause))?;
    Ok(Link::bpf(what, fd))
}
