//! One link for many functions: `kprobe.multi` and `uprobe.multi`.

use std::collections::{BTreeSet, HashSet};
use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use twinbpf_btf::glob::matches;

use super::hook::subject;
use super::perf::prog_fd;
use super::target::{Functions, Return, UprobeSite};
use super::{Deferred, Link, Options, Pending};
use crate::error::Error;
use crate::map::c_path;
use crate::probe::{Feature, has};
use crate::prog::{AttachType, Prog};
use crate::sys::{address, attr, bpf, number};
use crate::tracefs;
use crate::user::{Binary, Function};

/// `BPF_F_KPROBE_MULTI_RETURN` and `BPF_F_UPROBE_MULTI_RETURN`.
const RETURN: u32 = 1;

#[derive(Debug)]
struct Kprobes {
    what: String,
    subject: String,
    prog: OwnedFd,
    session: bool,
    ret: bool,
    names: Vec<CString>,
    cookies: Vec<u64>,
}

impl Deferred for Kprobes {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        let symbols: Vec<u64> = self.names.iter().map(|name| name.as_ptr() as u64).collect();
        let attach = if self.session { AttachType::TraceKprobeSession } else { AttachType::TraceKprobeMulti };
        let mut attr = attr::LinkKprobes {
            fd: number(self.prog.as_fd()),
            attach_type: attach as u32,
            kprobe_flags: if self.ret { RETURN } else { 0 },
            count: symbols.len() as u32,
            syms: address(&symbols),
            cookies: address(&self.cookies),
            ..attr::LinkKprobes::default()
        };
        match bpf::link_create(&mut attr) {
            Ok(fd) => Ok(Link::bpf(self.what.clone(), fd)),
            Err(cause) => {
                let absent = cause.raw_os_error() == Some(libc::EOPNOTSUPP);
                let error = Error::new("LINK_CREATE", &self.subject, cause);
                Err(if absent {
                    error.with_detail("this kernel has no probes of many functions (CONFIG_FPROBE)")
                } else {
                    error
                })
            }
        }
    }
}

pub(super) fn kprobes(
    what: String,
    functions: &Functions,
    ret: Return,
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    let fail = |errno, text: String| Err(Error::ours("LINK_CREATE", &what, errno, text));
    let (names, cookies) = match functions {
        Functions::Glob(glob) if !glob.contains(['*', '?']) => (vec![glob.clone()], Vec::new()),
        Functions::Glob(glob) => (self::functions(glob), Vec::new()),
        Functions::Names(names) => names.iter().cloned().unzip(),
        Functions::Sites(_) => return fail(libc::EINVAL, "offsets apply to files of user space only".to_owned()),
    };
    if names.is_empty() {
        return fail(libc::ENOENT, "no function that can be probed matches".to_owned());
    }
    let cookies = match options.cookie {
        0 => cookies,
        cookie if cookies.is_empty() => vec![cookie; names.len()],
        _ => cookies,
    };
    let names: Result<Vec<CString>, _> = names.into_iter().map(CString::new).collect();
    let names = names.map_err(|cause| Error::new("LINK_CREATE", &what, cause.into()))?;
    let (session, ret) = (ret == Return::Session, ret == Return::Yes);
    let deferred = Kprobes {
        subject: subject(prog, &what),
        what: what.clone(),
        prog: prog_fd(prog)?,
        session,
        ret,
        names,
        cookies,
    };
    Ok(Pending::later(what, deferred))
}

/// Functions whose name matches and that can be probed, by what the kernel's list of them says; without one, by its symbols.
pub(super) fn functions(glob: &str) -> Vec<String> {
    let listed = tracefs::read("available_filter_functions");
    let mut seen = HashSet::new();
    let mut unique = |name: &str| matches(glob, name) && seen.insert(name.to_owned());
    match listed {
        Ok(text) => {
            let names = text.lines().filter_map(|line| line.split_whitespace().next());
            names.filter(|name| unique(name)).map(str::to_owned).collect()
        }
        Err(_) => {
            let symbols = crate::system::System::get().kallsyms().unwrap_or_default();
            let code = symbols.lines().filter_map(|line| {
                let mut parts = line.split_whitespace();
                let kind = parts.nth(1)?;
                parts.next().filter(|_| matches!(kind, "t" | "T"))
            });
            code.filter(|name| unique(name)).map(str::to_owned).collect()
        }
    }
}

/// Where the functions of a file begin whose name matches, in the order of their names, but for those that the kernel does
/// not probe, which it says.
pub(super) fn matching(binary: &Binary, pattern: &str) -> Vec<u64> {
    let mut found: Vec<Function> = binary.functions();
    found.retain(|function| matches(pattern, &function.name));
    found.sort_by(|a, b| (&a.name, a.offset).cmp(&(&b.name, b.offset)));
    let mut offsets = BTreeSet::new();
    found.retain(|function| offsets.insert(function.offset));
    found.retain(|Function { name, offset, .. }| match binary.unprobed(*offset) {
        Some(why) => {
            log::warn!("{pattern}: {name} is left out: it begins with {why}, which the kernel does not probe");
            false
        }
        None => true,
    });
    found.into_iter().map(|function| function.offset).collect()
}

#[derive(Debug)]
struct Uprobes {
    what: String,
    subject: String,
    prog: OwnedFd,
    attach: AttachType,
    ret: bool,
    path: CString,
    offsets: Vec<u64>,
    semaphores: Vec<u64>,
    cookies: Vec<u64>,
    pid: u32,
}

impl Deferred for Uprobes {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        let fd = self.create(0..self.offsets.len()).map_err(|cause| {
            let error = Error::new("LINK_CREATE", &self.subject, cause);
            if !has(Feature::UprobeMulti) {
                return error.with_detail("this kernel has no probes of many offsets in a file (uprobe.multi)");
            }
            match self.refused() {
                Some(offset) => error.with_detail(format!("the kernel refuses offset {offset:#x} of the file")),
                None => error,
            }
        })?;
        Ok(Link::bpf(self.what.clone(), fd))
    }
}

impl Uprobes {
    /// A link to some of the offsets, by index.
    fn create(&self, which: Range<usize>) -> io::Result<OwnedFd> {
        let part = |list: &[u64]| list.get(which.clone()).map_or(0, address);
        let mut attr = attr::LinkUprobes {
            fd: number(self.prog.as_fd()),
            attach_type: self.attach as u32,
            path: self.path.as_ptr() as u64,
            offsets: part(&self.offsets),
            ref_ctr_offsets: part(&self.semaphores),
            cookies: part(&self.cookies),
            count: which.len() as u32,
            uprobe_flags: if self.ret { RETURN } else { 0 },
            pid: self.pid,
            ..attr::LinkUprobes::default()
        };
        bpf::link_create(&mut attr)
    }

    /// The first offset that the kernel refuses, where it refuses all of them together, by bisection.
    fn refused(&self) -> Option<u64> {
        let (mut taken, mut refused) = (0, self.offsets.len());
        while refused - taken > 1 {
            let middle = taken.midpoint(refused);
            match self.create(taken..middle) {
                Ok(_) => taken = middle,
                Err(_) => refused = middle,
            }
        }
        self.create(taken..refused).is_err().then(|| self.offsets[taken])
    }
}

/// The list, or nothing where it says nothing.
fn unless_zero(list: Vec<u64>) -> Vec<u64> {
    if list.iter().all(|number| *number == 0) { Vec::new() } else { list }
}

pub(super) fn uprobes(
    what: String,
    path: &Path,
    functions: &Functions,
    ret: Return,
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    let refused = |text: String| Error::ours("LINK_CREATE", &what, libc::ENOENT, text);
    let sites = match functions {
        Functions::Sites(sites) => {
            super::probe_site::check(&what, path, sites, ret != Return::No, options)?;
            sites.clone()
        }
        Functions::Names(names) => {
            let binary = Binary::read(path).map_err(|error| refused(error.to_string()))?;
            let site = |(name, cookie): &(String, u64)| {
                let offset = binary.function(name)?;
                Ok(UprobeSite { offset, semaphore: 0, cookie: *cookie })
            };
            let sites: Result<Vec<UprobeSite>, crate::user::ElfError> = names.iter().map(site).collect();
            sites.map_err(|error| refused(error.to_string()))?
        }
        Functions::Glob(glob) => {
            let binary = Binary::read(path).map_err(|error| refused(error.to_string()))?;
            matching(&binary, glob).into_iter().map(|offset| UprobeSite { offset, ..UprobeSite::default() }).collect()
        }
    };
    if sites.is_empty() {
        return Err(refused("no function of the file matches".to_owned()));
    }
    let session = ret == Return::Session;
    let cookie = |site: &UprobeSite| if site.cookie == 0 { options.cookie } else { site.cookie };
    let deferred = Uprobes {
        subject: subject(prog, &what),
        what: what.clone(),
        prog: prog_fd(prog)?,
        attach: if session { AttachType::TraceUprobeSession } else { AttachType::TraceUprobeMulti },
        ret: ret == Return::Yes,
        path: c_path(path).map_err(|cause| Error::new("LINK_CREATE", &what, cause))?,
        offsets: sites.iter().map(|site| site.offset).collect(),
        semaphores: unless_zero(sites.iter().map(|site| site.semaphore).collect()),
        cookies: unless_zero(sites.iter().map(cookie).collect()),
        pid: options.pid.unwrap_or(0),
    };
    Ok(Pending::later(what, deferred))
}
