//! Attach targets of programs, and their derivation from section names.

use std::fmt;
use std::path::PathBuf;

use twinbpf_loader::section::{AutoAttach, Row, SectionKind};

use super::interface::Interface;
use super::sampling::Sampling;
use crate::probe::{Feature, has};
use crate::user;

/// Before or after a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// At its beginning, or at an instruction.
    No,
    /// When it returns.
    Yes,
    /// Both, with one program.
    Session,
}

/// The functions that one probe is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Functions {
    /// Those whose name matches: `*` is any text, `?` any character.
    Glob(String),
    /// These, each with its cookie.
    Names(Vec<(String, u64)>),
    /// In a file of user space: these places.
    Sites(Vec<UprobeSite>),
}

/// A place in a file of user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UprobeSite {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Where the counter of users is in the file; 0 for none.
    pub semaphore: u64,
    /// Cookie; where 0, that of the options.
    pub cookie: u64,
}

/// What an iterator goes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iter {
    /// The elements of this map, by number of its descriptor.
    pub map_fd: Option<i32>,
    /// This thread only.
    pub tid: Option<u32>,
    /// The threads of this process only.
    pub pid: Option<u32>,
    /// The cgroup with this number, and the order of the walk (`BPF_CGROUP_ITER_*`).
    pub cgroup: Option<(u64, u32)>,
}

/// A hook of netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Netfilter {
    /// `NFPROTO_IPV4` (2) or `NFPROTO_IPV6` (10).
    pub family: u32,
    /// Hook in the path of a packet (`NF_INET_*`).
    pub hook: u32,
    /// Lower is earlier.
    pub priority: i32,
    /// 1 for defragmented packets (`BPF_F_NETFILTER_IP_DEFRAG`).
    pub flags: u32,
}

/// Where a program goes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Target {
    /// A tracepoint of tracefs, by its category and name.
    Tracepoint {
        /// For example `syscalls`.
        category: String,
        /// For example `sys_enter_read`.
        name: String,
    },
    /// A probe event that exists ([`crate::probe_event`]), wherever others have it open: a perf that records it.
    ProbeEvent {
        /// Group of the event, which names its owner.
        group: String,
        /// Name in that group.
        name: String,
    },
    /// A tracepoint with its raw arguments.
    RawTracepoint {
        /// For example `sys_enter`.
        name: String,
    },
    /// What the program was loaded for: fentry, fexit, fmod_ret, tp_btf, lsm, freplace.
    Btf,
    /// A function of the kernel.
    Kprobe {
        /// Symbol name of the kernel function.
        function: String,
        /// Bytes from its beginning.
        offset: u64,
        /// When it returns.
        ret: bool,
    },
    /// Many functions of the kernel.
    KprobeMulti {
        /// Functions that the probe is attached to.
        functions: Functions,
        /// Entry, return, or both.
        ret: Return,
    },
    /// A place in a file of user space.
    Uprobe {
        /// Path of the ELF file.
        path: PathBuf,
        /// Offset in the file, with semaphore and cookie.
        site: UprobeSite,
        /// When the function there returns.
        ret: bool,
    },
    /// Many places in a file of user space.
    UprobeMulti {
        /// Path of the ELF file.
        path: PathBuf,
        /// Functions that the probe is attached to.
        functions: Functions,
        /// Entry, return, or both.
        ret: Return,
    },
    /// A static probe of user space.
    Usdt {
        /// Path of the ELF file with the probe's note.
        path: PathBuf,
        /// Its provider, the first argument of `DTRACE_PROBE`.
        provider: String,
        /// Name of the probe.
        name: String,
    },
    /// Samples at a rate, on every CPU or in a process.
    Sampling(Sampling),
    /// An iterator. Nothing runs before [`super::Link::iterate`].
    Iter(Iter),
    /// Packets that an interface receives.
    Xdp {
        /// Network interface that receives the packets.
        interface: Interface,
        /// How it is attached (`XDP_FLAGS_*`); 0 lets the kernel choose.
        flags: u32,
    },
    /// Packets of an interface with their `sk_buff`.
    Tc {
        /// Network interface of the packets.
        interface: Interface,
        /// Those that leave.
        egress: bool,
    },
    /// Packets of a netkit device.
    Netkit {
        /// The netkit device itself, not its peer.
        interface: Interface,
        /// At its peer.
        peer: bool,
    },
    /// What the processes of a cgroup do; the program's attach type says what.
    Cgroup {
        /// A directory of the cgroup file system.
        path: PathBuf,
    },
    /// A hook of netfilter.
    Netfilter(Netfilter),
    /// A network namespace (`sk_lookup`, `flow_dissector`).
    NetNamespace {
        /// For example `/proc/self/ns/net`.
        path: PathBuf,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // exhaustive match
        let kind = |ret: bool, no, yes| if ret { yes } else { no };
        match self {
            Target::Tracepoint { category, name } => write!(f, "tracepoint {category}:{name}"),
            Target::ProbeEvent { group, name } => write!(f, "event {group}:{name}"),
            Target::RawTracepoint { name } => write!(f, "raw tracepoint {name}"),
            Target::Btf => f.write_str("the program's target"),
            Target::Kprobe { function, offset, ret } => {
                write!(f, "{} {function}+{offset:#x}", kind(*ret, "kprobe", "kretprobe"))
            }
            Target::KprobeMulti { functions, .. } => write!(f, "kernel functions {functions}"),
            Target::Uprobe { path, site, ret } => {
                write!(f, "{} {}:{:#x}", kind(*ret, "uprobe", "uretprobe"), path.display(), site.offset)
            }
            Target::UprobeMulti { path, functions, .. } => write!(f, "functions {functions} of {}", path.display()),
            Target::Usdt { path, provider, name } => write!(f, "usdt {}:{provider}:{name}", path.display()),
            Target::Sampling(sampling) => write!(f, "{sampling}"),
            Target::Iter(_) => f.write_str("iterator"),
            Target::Xdp { interface, .. } => write!(f, "xdp of {interface}"),
            Target::Tc { interface, egress } => write!(f, "{} of {interface}", kind(*egress, "ingress", "egress")),
            Target::Netkit { interface, peer } => write!(f, "netkit {} {interface}", kind(*peer, "primary", "peer")),
            Target::Cgroup { path } => write!(f, "cgroup {}", path.display()),
            Target::Netfilter(hook) => write!(f, "netfilter hook {} of family {}", hook.hook, hook.family),
            Target::NetNamespace { path } => write!(f, "network namespace {}", path.display()),
        }
    }
}

impl fmt::Display for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Functions::Glob(glob) => f.write_str(glob),
            Functions::Names(names) => write!(f, "({} named)", names.len()),
            Functions::Sites(sites) => write!(f, "({} sites)", sites.len()),
        }
    }
}

/// Why a section name gives no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The part after the `/` is malformed.
    #[error("'{text}' is no target of {kind}: {expected}")]
    Malformed {
        /// What the section begins with.
        kind: &'static str,
        /// The text after the section's prefix.
        text: String,
        /// How it is written.
        expected: &'static str,
    },
    /// Nothing in this crate attaches it.
    #[error("{kind} is not supported: write {instead}")]
    Unsupported {
        /// What the section begins with.
        kind: &'static str,
        /// What does about the same.
        instead: &'static str,
    },
    /// The kind is one place for each program.
    #[error("{kind} takes no pattern: write {instead}")]
    NoPattern {
        /// What the section begins with.
        kind: &'static str,
        /// What does about the same.
        instead: &'static str,
    },
    /// A pattern without a match.
    #[error("{kind}: nothing matches '{text}'; `twinbpf list '{kind}/{text}'` shows what there is")]
    NoMatch {
        /// What the section begins with.
        kind: &'static str,
        /// The text after the section's prefix.
        text: String,
    },
    /// The file is nowhere.
    #[error("there is no file {0}; a bare name is searched for in PATH, or, with .so in it, where libraries are")]
    NoFile(String),
    /// The file has no such place.
    #[error("{path}: {error}")]
    Binary {
        /// Path of the ELF file.
        path: String,
        /// Error of reading the ELF file.
        error: user::ElfError,
    },
}

impl Target {
    /// Whether it can be limited to a process. The others run for all, on every CPU.
    pub fn in_processes(&self) -> bool {
        match self {
            Target::Sampling(_)
            | Target::Uprobe { .. }
            | Target::UprobeMulti { .. }
            | Target::Usdt { .. }
            | Target::ProbeEvent { .. } => true,
            Target::Tracepoint { .. }
            | Target::RawTracepoint { .. }
            | Target::Btf
            | Target::Kprobe { .. }
            | Target::KprobeMulti { .. }
            | Target::Iter(_)
            | Target::Xdp { .. }
            | Target::Tc { .. }
            | Target::Netkit { .. }
            | Target::Cgroup { .. }
            | Target::Netfilter(_)
            | Target::NetNamespace { .. } => false,
        }
    }

    /// What a section name says; `None` where it leaves the target to the caller.
    ///
    /// # Errors
    /// It says something that cannot be, or names a file or function that does not exist.
    pub fn of_section(kind: &SectionKind) -> Result<Option<Target>, TargetError> {
        match kind {
            SectionKind::Known { row, target, .. } => match row.auto {
                Some(auto) => of_row(row, auto, target.as_deref()),
                None => Ok(None),
            },
            SectionKind::PerfTracepoint(point) if point.attach => {
                Ok(Some(Target::Tracepoint { category: point.group.to_string(), name: point.event.to_string() }))
            }
            SectionKind::PerfTracepoint(_)
            | SectionKind::PerfProbe(_)
            | SectionKind::Text
            | SectionKind::Script(_)
            | SectionKind::TailCall { .. }
            | SectionKind::Malformed(_)
            | SectionKind::Unknown => Ok(None),
        }
    }
}

fn of_row(row: &'static Row, auto: AutoAttach, target: Option<&str>) -> Result<Option<Target>, TargetError> {
    // exhaustive match
    let ret = row.pattern.contains("ret");
    let when = match (row.pattern.contains("session"), ret) {
        (true, _) => Return::Session,
        (false, true) => Return::Yes,
        (false, false) => Return::No,
    };
    let bad =
        |expected| TargetError::Malformed { kind: row.pattern, text: target.unwrap_or_default().to_owned(), expected };
    Ok(Some(match (auto, target) {
        (AutoAttach::Trace | AutoAttach::Lsm, _) => Target::Btf,
        (AutoAttach::Iter, _) => Target::Iter(Iter::default()),
        (_, None) => return Ok(None),
        (AutoAttach::Kprobe, Some(text)) => {
            let (function, offset) = site(text).ok_or_else(|| bad("FUNCTION[+OFFSET]"))?;
            let plain = function.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
            if !plain || function.is_empty() || (ret && offset != 0) {
                return Err(bad(if ret { "FUNCTION, without an offset" } else { "FUNCTION[+OFFSET]" }));
            }
            Target::Kprobe { function: function.to_owned(), offset, ret }
        }
        (AutoAttach::Ksyscall, Some(text)) => {
            let function = syscall_function(text);
            Target::Kprobe { function, offset: 0, ret }
        }
        (AutoAttach::TracingMulti, _) => {
            let instead = "a program for each function (fentry/FUNCTION), or kprobe.multi/PATTERN";
            return Err(TargetError::Unsupported { kind: row.pattern, instead });
        }
        (AutoAttach::KprobeMulti | AutoAttach::KprobeSession, Some(text)) => {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.*?:".contains(&byte);
            if !text.bytes().all(plain) {
                return Err(bad("a name in which * and ? stand for any text and any character"));
            }
            Target::KprobeMulti { functions: Functions::Glob(text.to_owned()), ret: when }
        }
        (AutoAttach::Uprobe, Some(text)) => {
            let (path, rest) = binary(text).ok_or_else(|| bad("BINARY:FUNCTION[+OFFSET]"))?;
            let path = file(path)?;
            let offset = uprobe_offset(&path, rest).ok_or_else(|| bad("BINARY:FUNCTION[+OFFSET]"))?;
            let offset = offset.map_err(|error| TargetError::Binary { path: path.display().to_string(), error })?;
            Target::Uprobe { path, site: UprobeSite { offset, ..UprobeSite::default() }, ret }
        }
        (AutoAttach::UprobeMulti, Some(text)) => {
            let (path, glob) = binary(text).ok_or_else(|| bad("BINARY:PATTERN"))?;
            Target::UprobeMulti { path: file(path)?, functions: Functions::Glob(glob.to_owned()), ret: when }
        }
        (AutoAttach::Usdt, Some(text)) => {
            let expected = "BINARY:PROVIDER:NAME";
            let (rest, name) = text.rsplit_once(':').ok_or_else(|| bad(expected))?;
            let (path, provider) = rest.rsplit_once(':').ok_or_else(|| bad(expected))?;
            let path = if path.is_empty() { return Err(bad(expected)) } else { file(path)? };
            Target::Usdt { path, provider: provider.to_owned(), name: name.to_owned() }
        }
        (AutoAttach::Tp, Some(text)) => {
            let (category, name) = text.split_once('/').ok_or_else(|| bad("CATEGORY/NAME"))?;
            Target::Tracepoint { category: category.to_owned(), name: name.to_owned() }
        }
        (AutoAttach::RawTp, Some(text)) => Target::RawTracepoint { name: text.to_owned() },
    }))
}

/// `NAME[+NUMBER]`.
fn site(text: &str) -> Option<(&str, u64)> {
    match text.split_once('+') {
        None => Some((text, 0)),
        Some((name, number)) => Some((name, integer(number)?)),
    }
}

/// Decimal, or hexadecimal after `0x`.
fn integer(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `BINARY:REST`; the name of a file may have colons, what follows may not.
pub(super) fn binary(text: &str) -> Option<(&str, &str)> {
    text.rsplit_once(':').filter(|(path, rest)| !path.is_empty() && !rest.is_empty())
}

pub(super) fn file(name: &str) -> Result<PathBuf, TargetError> {
    user::find(name).ok_or_else(|| TargetError::NoFile(name.to_owned()))
}

/// A function with an offset, or an offset into the file; `None` if it is neither.
fn uprobe_offset(path: &std::path::Path, text: &str) -> Option<Result<u64, user::ElfError>> {
    if let Some(offset) = integer(text) {
        return Some(Ok(offset));
    }
    let (name, offset) = site(text)?;
    let found = user::Binary::read(path).and_then(|binary| binary.function(name));
    Some(found.map(|start| start.wrapping_add(offset)))
}

/// Name of the kernel function that implements a system call.
pub(super) fn syscall_function(name: &str) -> String {
    let prefix = if has(Feature::SyscallWrapper) { crate::arch::SYSCALL_PREFIX } else { "__se_sys_" };
    format!("{prefix}{name}")
}

#[cfg(test)]
mod tests {
    use twinbpf_loader::section::Attach;

    use super::{Functions, Return, Target, TargetError};

    fn of(section: &str) -> Result<Option<Target>, TargetError> {
        Target::of_section(&Attach::parse(section).kind)
    }

    #[test]
    fn section_names_give_targets() {
        let kprobe = |function: &str, offset, ret| Some(Target::Kprobe { function: function.into(), offset, ret });
        assert_eq!(of("kprobe/do_exit+0x10"), Ok(kprobe("do_exit", 16, false)));
        assert_eq!(of("kretprobe/do_exit"), Ok(kprobe("do_exit", 0, true)));
        assert_eq!(of("kprobe"), Ok(None));
        assert_eq!(of("xdp"), Ok(None));
        assert_eq!(of("fentry/x"), Ok(Some(Target::Btf)));
        let functions = Functions::Glob("tcp_*".into());
        assert_eq!(of("kretprobe.multi/tcp_*"), Ok(Some(Target::KprobeMulti { functions, ret: Return::Yes })));
        let tracepoint =
            |category: &str, name: &str| Some(Target::Tracepoint { category: category.into(), name: name.into() });
        assert_eq!(of("tp/a/b"), Ok(tracepoint("a", "b")));
        assert_eq!(of("raw_tp/sys_enter"), Ok(Some(Target::RawTracepoint { name: "sys_enter".into() })));
    }

    #[test]
    fn wrong_targets_say_how_they_are_written() {
        for section in ["tp/x", "kretprobe/f+8", "uprobe/foo", "usdt/a:b", "kprobe/a b"] {
            let error = of(section).unwrap_err();
            assert!(matches!(error, TargetError::Malformed { .. }), "{section}: {error}");
        }
        for section in ["fentry.multi/tcp_*", "fexit.multi/tcp_*", "fsession.multi/tcp_*"] {
            let error = of(section).unwrap_err();
            assert!(matches!(error, TargetError::Unsupported { .. }), "{section}: {error}");
        }
        let error = of("uprobe//no/such/file:f").unwrap_err();
        assert_eq!(error, TargetError::NoFile("/no/such/file".into()));
        let error = of("uprobe/libc.so.6:no_such_function").unwrap_err().to_string();
        assert!(error.contains("no function no_such_function"), "{error}");
        assert!(of("uprobe/libc.so.6:malloc").unwrap().is_some());
    }
}
