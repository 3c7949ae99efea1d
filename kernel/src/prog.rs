//! Programs of the kernel: loading them through the verifier, and running them on demand.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::map::kernel_name;
use crate::sys::{self, ProgLoadAttr, TestRunAttr};

/// Kinds of programs; the numbers are `enum bpf_prog_type`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProgKind {
    /// `BPF_PROG_TYPE_SOCKET_FILTER`.
    SocketFilter = 1,
    /// `BPF_PROG_TYPE_SCHED_CLS`.
    SchedCls = 3,
    /// `BPF_PROG_TYPE_XDP`.
    Xdp = 6,
    /// `BPF_PROG_TYPE_SYSCALL`, Linux 5.14.
    Syscall = 31,
}

/// Blueprint of a program.
#[derive(Clone, Debug)]
pub struct ProgLoad<'a> {
    /// At most 15 letters, digits, `_` and `.`.
    pub name: &'a str,
    /// What it is.
    pub kind: ProgKind,
    /// The instructions, eight bytes each in this machine's byte order, file descriptors in place.
    pub insns: &'a [u8],
    /// `GPL` or another; some helpers ask for it.
    pub license: &'a str,
    /// `BPF_F_*` of `linux/bpf.h` for programs.
    pub flags: u32,
}

/// A program that the verifier took.
#[derive(Debug)]
pub struct Prog {
    fd: OwnedFd,
    name: String,
}

/// The first size of the verifier's log, and the most it can be (`UINT_MAX >> 2` before Linux 6.4).
const LOG_SIZES: std::ops::RangeInclusive<usize> = 1 << 16..=1 << 24;
/// How often a load is tried that ends in `EAGAIN`: a signal came while the verifier was at it.
const ATTEMPTS: usize = 5;

impl Prog {
    /// `BPF_PROG_LOAD`: at first without a log, which is faster; when it fails again with one, in a buffer that grows
    /// until the end of the log fits, which says why; a long log comes without its beginning.
    pub fn load(spec: &ProgLoad<'_>) -> Result<Self, Error> {
        let name = spec.name.to_owned();
        let cause = match attempt(spec, &mut []) {
            Ok(fd) => return Ok(Self { fd, name }),
            Err(cause) => cause,
        };
        let mut error = Error::new("PROG_LOAD", spec.name, cause);
        let mut size = *LOG_SIZES.start();
        loop {
            let mut log = vec![0; size];
            let cause = match attempt(spec, &mut log) {
                Ok(fd) => return Ok(Self { fd, name }),
                Err(cause) => cause,
            };
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            error.log = String::from_utf8_lossy(&log[..end]).into_owned();
            // Since Linux 6.4 a log that does not fit keeps its end, and the end is what says why.
            let complete = cause.raw_os_error() != Some(libc::ENOSPC) || has_end(&error.log);
            if complete || size >= *LOG_SIZES.end() {
                return Err(error);
            }
            size *= 4;
        }
    }

    /// `BPF_PROG_TEST_RUN`: runs it here and now, `repeat` times on the same input.
    pub fn test_run(&self, run: &TestRun<'_>) -> Result<TestRunResult, Error> {
        let mut data_out = vec![0; run.data.len() + run.headroom];
        let mut ctx_out = vec![0; run.ctx.len()];
        let mut attr = TestRunAttr {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_size_in: run.data.len() as u32,
            data_size_out: data_out.len() as u32,
            data_in: address(run.data),
            data_out: address_of(&mut data_out),
            repeat: run.repeat,
            ctx_size_in: run.ctx.len() as u32,
            ctx_size_out: ctx_out.len() as u32,
            ctx_in: address(run.ctx),
            ctx_out: address_of(&mut ctx_out),
            ..TestRunAttr::default()
        };
        sys::run(&mut attr).map_err(|cause| Error::new("PROG_TEST_RUN", &self.name, cause))?;
        data_out.truncate(attr.data_size_out as usize);
        ctx_out.truncate(attr.ctx_size_out as usize);
        Ok(TestRunResult { r0: attr.retval, duration_ns: attr.duration, data: data_out, ctx: ctx_out })
    }
}

impl AsFd for Prog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the verifier's last line is there, its statistics.
fn has_end(log: &str) -> bool {
    log.lines().next_back().is_some_and(|line| line.starts_with("processed "))
}

/// The address of a buffer, 0 for none: what the kernel wants where it is to leave a buffer alone.
fn address(bytes: &[u8]) -> u64 {
    if bytes.is_empty() { 0 } else { bytes.as_ptr() as u64 }
}

/// The same of a buffer that the kernel writes.
fn address_of(bytes: &mut [u8]) -> u64 {
    if bytes.is_empty() { 0 } else { bytes.as_mut_ptr() as u64 }
}

fn attempt(spec: &ProgLoad<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let license = [spec.license.as_bytes(), b"\0"].concat();
    let mut attr = ProgLoadAttr {
        prog_type: spec.kind as u32,
        insn_cnt: (spec.insns.len() / 8) as u32,
        insns: spec.insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log_buf: address_of(log),
        prog_flags: spec.flags,
        prog_name: kernel_name(spec.name),
        ..ProgLoadAttr::default()
    };
    let mut result = sys::make(&mut attr);
    for _ in 1..ATTEMPTS {
        match &result {
            Err(cause) if cause.raw_os_error() == Some(libc::EAGAIN) => result = sys::make(&mut attr),
            _ => break,
        }
    }
    result
}

/// Input of a run. What a kind of program does not take must be left empty, or the kernel refuses.
#[derive(Clone, Debug, Default)]
pub struct TestRun<'a> {
    /// The packet, for programs that have one.
    pub data: &'a [u8],
    /// Bytes that the packet may grow by.
    pub headroom: usize,
    /// The context.
    pub ctx: &'a [u8],
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
