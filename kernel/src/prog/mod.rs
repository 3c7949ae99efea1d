//! Programs of the kernel: loading them through the verifier, and running them on demand.

mod function;
pub mod log;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use function::run_function;
use twinbpf_btf::{Btf, Endian};
pub use twinbpf_loader::section::{AttachType, ProgType};

use crate::error::Error;
use crate::map::Map;
use crate::map::kernel_name;
use crate::probe::{self, Feature, RETURN_0};
use crate::sys::{address, address_of, attr, bpf, number, number_or_zero, text};

/// What a program is loaded for, besides its type.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadTarget<'a> {
    /// `expected_attach_type`; 0 where the type of the program has none.
    pub attach: u32,
    /// BTF id of the function, tracepoint or struct; for struct_ops programs, of the struct.
    pub btf_id: u32,
    /// The module's BTF, or the program to extend; `None` stands for vmlinux.
    pub of: Option<BorrowedFd<'a>>,
}

/// What the kernel may know of a program besides its instructions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debug<'a> {
    /// The BTF that the records refer to.
    pub btf: Option<BorrowedFd<'a>>,
    /// `struct bpf_func_info`: first instruction, type.
    pub functions: &'a [[u32; 2]],
    /// `struct bpf_line_info`: instruction, file, text, line and column.
    pub lines: &'a [[u32; 4]],
}

/// Blueprint of a program.
#[derive(Clone, Debug)]
pub struct ProgLoad<'a> {
    /// The kernel keeps 15 letters, digits, `_` and `.`.
    pub name: &'a str,
    /// What it is.
    pub kind: ProgType,
    /// The instructions, eight bytes each in this machine's byte order, file descriptors in place.
    pub insns: &'a [u8],
    /// `GPL` or another; some helpers require it. Without a licence the kernel gets an empty text.
    pub license: &'a str,
    /// `BPF_F_*` of `linux/bpf.h` for programs.
    pub flags: u32,
    /// What it is for.
    pub target: LoadTarget<'a>,
    /// Types and source lines.
    pub debug: Debug<'a>,
    /// BTF of the modules whose functions are called, by the `off` of the call.
    pub fd_array: &'a [u32],
    /// `kern_version`, that kernels before 5.0 compare.
    pub version: u32,
    /// 0: a log only when the load fails; else the level of the log of the first attempt.
    pub log_level: u32,
    /// Bytes of log that are wanted at most: the end says why, and each larger buffer takes the verifier's time again.
    pub log_most: usize,
}

impl<'a> ProgLoad<'a> {
    /// A program without flags, target or types.
    pub fn new(name: &'a str, kind: ProgType, insns: &'a [u8], license: &'a str) -> ProgLoad<'a> {
        let (target, debug) = (LoadTarget::default(), Debug::default());
        let (flags, version, log_level, log_most) = (0, 0, 0, *LOG_SIZES.end());
        ProgLoad { name, kind, insns, license, flags, target, debug, fd_array: &[], version, log_level, log_most }
    }
}

/// A program that the verifier took.
#[derive(Debug)]
pub struct Prog {
    fd: OwnedFd,
    name: String,
    kind: ProgType,
    attach: u32,
    log: String,
}

/// The first size of the verifier's log, and the most we take (`UINT_MAX >> 8` is what kernels before 5.2 allow).
const LOG_SIZES: std::ops::RangeInclusive<usize> = 1 << 16..=(1 << 24) - 1;
/// How often a load is tried that ends in `EAGAIN`: a signal came while the verifier was at it.
const ATTEMPTS: usize = 5;

impl Prog {
    /// `BPF_PROG_LOAD`: at first without a log, which is faster; when it fails again with one, in a buffer that grows
    /// until the log fits. One of more than 16 MB comes without its beginning: the end says why.
    ///
    /// # Errors
    /// The kernel's, with the verifier's log.
    pub fn load(spec: &ProgLoad<'_>) -> Result<Self, Error> {
        let loaded =
            |fd, log| Ok(Self { fd, name: spec.name.to_owned(), kind: spec.kind, attach: spec.target.attach, log });
        let cause = match attempt(spec, &mut Log::new(0, 0)) {
            Ok(fd) if spec.log_level == 0 => return loaded(fd, String::new()),
            Ok(_) => None,
            Err(cause) => Some(cause),
        };
        let mut log = Log::new(spec.log_level.max(1), *LOG_SIZES.start());
        loop {
            let again = attempt(spec, &mut log);
            if let Some(size) = log.wanted(again.as_ref().err(), spec.log_most) {
                log = Log::new(log.level, size);
                continue;
            }
            return match again {
                Ok(fd) => loaded(fd, text(&log.bytes)),
                Err(second) => Err(refused(spec, cause.unwrap_or(second), text(&log.bytes))),
            };
        }
    }

    /// Its name, whole.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Program type (`BPF_PROG_TYPE_*`).
    pub fn kind(&self) -> ProgType {
        self.kind
    }

    /// `expected_attach_type` it was loaded with.
    pub fn attach_type(&self) -> u32 {
        self.attach
    }

    /// What the verifier wrote, if a log was requested.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Its number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn id(&self) -> Result<u32, Error> {
        let mut info = attr::ProgInfo::default();
        bpf::info(self.fd.as_fd(), &mut info).map_err(|cause| self.failed("OBJ_GET_INFO_BY_FD", cause))?;
        Ok(info.id)
    }

    /// Numbers of all programs that there are.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ids() -> Result<Vec<u32>, Error> {
        bpf::ids(bpf::ObjectKind::Prog).map_err(|cause| Error::new("PROG_GET_NEXT_ID", "all programs", cause))
    }

    /// The type of one of its functions in its own BTF.
    ///
    /// # Errors
    /// It has no such function, or no BTF.
    pub fn function_type(&self, name: &str) -> Result<u32, Error> {
        let mut info = attr::ProgTypes::default();
        bpf::info(self.fd.as_fd(), &mut info).map_err(|cause| self.failed("OBJ_GET_INFO_BY_FD", cause))?;
        let bytes = crate::btf::bytes_of(info.btf_id)?;
        let btf = Btf::parse(&bytes, Endian::Little).ok();
        let found = btf.and_then(|btf| btf.func(name));
        let error =
            || Error::ours("OBJ_GET_INFO_BY_FD", &self.name, libc::ENOENT, format!("it has no function {name}"));
        found.map(|id| id.0).ok_or_else(error)
    }

    /// The map lives as long as the program, though the program does not use it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind(&self, map: &Map) -> Result<(), Error> {
        let mut attr = attr::BindMap { prog_fd: number(self.as_fd()), map_fd: number(map.as_fd()), flags: 0 };
        bpf::prog_bind_map(&mut attr).map_err(|cause| self.failed("PROG_BIND_MAP", cause))
    }

    /// `BPF_OBJ_PIN`: the program lives until the name is removed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pin(&self, path: &std::path::Path) -> Result<(), Error> {
        crate::map::pin_fd(self.fd.as_fd(), path).map_err(|cause| self.failed("OBJ_PIN", cause))
    }

    /// `BPF_PROG_TEST_RUN`: runs it here and now, `repeat` times on the same input.
    ///
    /// # Errors
    /// The kernel's.
    pub fn test_run(&self, run: &TestRun<'_>) -> Result<TestRunResult, Error> {
        let mut data_out = vec![0; run.data.len() + run.headroom];
        // Of a `Syscall` program the kernel puts the context back where it has it from.
        let in_place = self.kind == ProgType::Syscall;
        let mut ctx_in = run.ctx.to_vec();
        let mut ctx_out = vec![0; if run.ctx_out && !in_place { run.ctx.len() } else { 0 }];
        let mut attr = attr::TestRun {
            prog_fd: number(self.fd.as_fd()),
            data_size_in: run.data.len() as u32,
            data_size_out: data_out.len() as u32,
            data_in: address(run.data),
            data_out: address_of(&mut data_out),
            repeat: run.repeat,
            ctx_size_in: run.ctx.len() as u32,
            ctx_size_out: ctx_out.len() as u32,
            ctx_in: address_of(&mut ctx_in),
            ctx_out: address_of(&mut ctx_out),
            ..attr::TestRun::default()
        };
        bpf::prog_test_run(&mut attr).map_err(|cause| self.failed("PROG_TEST_RUN", cause))?;
        data_out.truncate(attr.data_size_out as usize);
        ctx_out.truncate(attr.ctx_size_out as usize);
        let ctx = if run.ctx_out && in_place { ctx_in } else { ctx_out };
        Ok(TestRunResult { r0: attr.retval, duration_ns: attr.duration, data: data_out, ctx })
    }

    pub(crate) fn failed(&self, command: &'static str, cause: io::Error) -> Error {
        Error::new(command, &format!("program {}", self.name), cause)
    }
}

impl AsFd for Prog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The verifier's log in the making.
struct Log {
    level: u32,
    bytes: Vec<u8>,
    /// `log_true_size`: what the whole log takes, where the kernel says so (since 6.4).
    true_size: usize,
}

impl Log {
    fn new(level: u32, size: usize) -> Log {
        Log { level, bytes: vec![0; size], true_size: 0 }
    }

    /// The size to try next, if the log did not fit into this one.
    fn wanted(&self, error: Option<&io::Error>, most: usize) -> Option<usize> {
        let (size, most) = (self.bytes.len(), most.min(*LOG_SIZES.end()));
        let full = error.is_some_and(|error| error.raw_os_error() == Some(libc::ENOSPC));
        if size >= most || !(full || self.true_size > size) {
            return None;
        }
        Some(self.true_size.max(size * 4).min(most))
    }
}

/// The error, with what can be found out about it.
fn refused(spec: &ProgLoad<'_>, cause: io::Error, log: String) -> Error {
    let (errno, log) = (cause.raw_os_error(), log::without_idle(log));
    let mut error = Error::new("PROG_LOAD", &format!("program {} ({})", spec.name, spec.kind.name()), cause);
    if log.is_empty() && matches!(errno, Some(libc::EPERM | libc::EINVAL)) {
        error.detail = without_log(spec, errno);
    }
    error.log = log;
    error
}

/// Evidence where the verifier did not get to write any: whether the same program with two instructions is refused too,
/// and whether the kernel has such programs.
fn without_log(spec: &ProgLoad<'_>, errno: Option<i32>) -> Option<String> {
    if matches!(probe::prog_type(spec.kind), Ok(false)) {
        return Some(format!("this kernel has no programs of type {}", spec.kind.name()));
    }
    let insns = RETURN_0.concat();
    let smallest = ProgLoad { insns: &insns, debug: Debug::default(), fd_array: &[], ..spec.clone() };
    let refused = attempt(&smallest, &mut Log::new(0, 0)).err()?;
    let same = refused.raw_os_error() == errno;
    let what =
        if spec.target.btf_id != 0 { "every program for this attach point" } else { "every program of this type" };
    same.then(|| format!("this kernel refuses {what}, one that only returns 0 too"))
}

fn attempt(spec: &ProgLoad<'_>, log: &mut Log) -> io::Result<OwnedFd> {
    let license = [spec.license.as_bytes(), b"\0"].concat();
    let typed = spec.debug.btf.is_some();
    let count = |len: usize| if typed { len as u32 } else { 0 };
    let named = probe::has(Feature::ProgName) || spec.kind == ProgType::StructOps;
    let mut attr = attr::ProgLoad {
        prog_type: spec.kind as u32,
        insn_cnt: (spec.insns.len() / 8) as u32,
        insns: spec.insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: if log.bytes.is_empty() { 0 } else { log.level },
        log_size: log.bytes.len() as u32,
        log_buf: address_of(&mut log.bytes),
        kern_version: spec.version,
        prog_flags: spec.flags,
        prog_name: if named { kernel_name(spec.name) } else { [0; 16] },
        expected_attach_type: spec.target.attach,
        prog_btf_fd: number_or_zero(spec.debug.btf),
        func_info_rec_size: if count(spec.debug.functions.len()) > 0 { 8 } else { 0 },
        func_info: if typed { address(spec.debug.functions) } else { 0 },
        func_info_cnt: count(spec.debug.functions.len()),
        line_info_rec_size: if count(spec.debug.lines.len()) > 0 { 16 } else { 0 },
        line_info: if typed { address(spec.debug.lines) } else { 0 },
        line_info_cnt: count(spec.debug.lines.len()),
        attach_btf_id: spec.target.btf_id,
        attach_fd: number_or_zero(spec.target.of),
        fd_array: address(spec.fd_array),
        ..attr::ProgLoad::default()
    };
    let mut result = bpf::prog_load(&mut attr);
    for _ in 1..ATTEMPTS {
        match &result {
            Err(cause) if cause.raw_os_error() == Some(libc::EAGAIN) => result = bpf::prog_load(&mut attr),
            Ok(_) | Err(_) => break,
        }
    }
    log.true_size = attr.log_true_size as usize;
    result
}

/// Input of a run. What a kind of program does not take must be left empty, or the kernel refuses.
#[derive(Clone, Debug, Default)]
pub struct TestRun<'a> {
    /// The packet, for programs that have one.
    pub data: &'a [u8],
    /// Bytes that the packet may grow by.
    pub headroom: usize,
    /// Bytes of the context, for example a `struct __sk_buff`.
    pub ctx: &'a [u8],
    /// Whether the context is wanted back. Raw tracepoints do not give it.
    pub ctx_out: bool,
    /// How many times; 0 is once, and the only number that `Syscall` programs take.
    pub repeat: u32,
}

/// What a run gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRunResult {
    /// The lower 32 bits of r0.
    pub r0: u32,
    /// Mean time of a run in nanoseconds; 0 for `Syscall` programs.
    pub duration_ns: u32,
    /// The packet afterwards.
    pub data: Vec<u8>,
    /// The context afterwards.
    pub ctx: Vec<u8>,
}
