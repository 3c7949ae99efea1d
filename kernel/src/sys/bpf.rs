//! `bpf(2)`, one function a command.
#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Once;

use super::attr::{self, Attr};
use super::{answer, number};

/// `enum bpf_cmd`.
mod command {
    pub(super) const MAP_CREATE: u32 = 0;
    pub(super) const MAP_LOOKUP_ELEM: u32 = 1;
    pub(super) const MAP_UPDATE_ELEM: u32 = 2;
    pub(super) const MAP_DELETE_ELEM: u32 = 3;
    pub(super) const MAP_GET_NEXT_KEY: u32 = 4;
    pub(super) const PROG_LOAD: u32 = 5;
    pub(super) const OBJ_PIN: u32 = 6;
    pub(super) const OBJ_GET: u32 = 7;
    pub(super) const PROG_ATTACH: u32 = 8;
    pub(super) const PROG_DETACH: u32 = 9;
    pub(super) const PROG_TEST_RUN: u32 = 10;
    pub(super) const OBJ_GET_INFO_BY_FD: u32 = 15;
    pub(super) const RAW_TRACEPOINT_OPEN: u32 = 17;
    pub(super) const BTF_LOAD: u32 = 18;
    pub(super) const MAP_LOOKUP_AND_DELETE_ELEM: u32 = 21;
    pub(super) const MAP_FREEZE: u32 = 22;
    pub(super) const MAP_LOOKUP_BATCH: u32 = 24;
    pub(super) const MAP_UPDATE_BATCH: u32 = 26;
    pub(super) const MAP_DELETE_BATCH: u32 = 27;
    pub(super) const LINK_CREATE: u32 = 28;
    pub(super) const LINK_UPDATE: u32 = 29;
    pub(super) const ITER_CREATE: u32 = 33;
    pub(super) const PROG_BIND_MAP: u32 = 35;
}

/// Kinds of kernel objects that can be opened by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    /// Programs (`BPF_PROG_*` commands).
    Prog,
    /// Maps (`BPF_MAP_*` commands).
    Map,
    /// BTF objects (`BPF_BTF_*` commands).
    Btf,
    /// Links (`BPF_LINK_*` commands).
    Link,
}

impl ObjectKind {
    fn next(self) -> u32 {
        match self {
            ObjectKind::Prog => 11,
            ObjectKind::Map => 12,
            ObjectKind::Btf => 23,
            ObjectKind::Link => 31,
        }
    }

    fn open(self) -> u32 {
        match self {
            ObjectKind::Prog => 13,
            ObjectKind::Map => 14,
            ObjectKind::Btf => 19,
            ObjectKind::Link => 30,
        }
    }
}

/// One `bpf(2)`; what it returns is a number, for some commands a file descriptor.
///
/// Every address inside `attr` must be valid for what the command does with it, and is checked by the kernel: a wrong
/// one is `EFAULT`, except that a buffer to write to must not be anything else's memory. The callers in this crate
/// fill it from slices that outlive the call.
fn bpf<A: Attr>(command: u32, attr: &mut A) -> io::Result<i32> {
    raise_memlock();
    // SAFETY: `attr` is a live, exclusive value of the given size, whose layout `Attr` vouches for.
    answer(unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<A>()) })
}

fn done<A: Attr>(command: u32, attr: &mut A) -> io::Result<()> {
    bpf(command, attr).map(drop)
}

fn make<A: Attr>(command: u32, attr: &mut A) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: the commands that `make` is used for opened this descriptor for us in the call above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Kernels before 5.11 charge maps and programs to RLIMIT_MEMLOCK. Failing is no error: newer ones do not care.
fn raise_memlock() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `limit` is a valid rlimit for the duration of the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) } != 0 {
            log::debug!("RLIMIT_MEMLOCK stays as it is: {}", io::Error::last_os_error());
        }
    });
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident($attr:ty) = $command:ident $how:ident -> $result:ty;)*) => { $(
        $(#[$doc])*
        pub(crate) fn $name(attr: &mut $attr) -> io::Result<$result> {
            $how(command::$command, attr)
        }
    )* };
}

commands! {
    /// Makes a map.
    map_create(attr::MapCreate) = MAP_CREATE make -> OwnedFd;
    /// Copies a value out.
    map_lookup(attr::Elem) = MAP_LOOKUP_ELEM done -> ();
    /// Copies a value in.
    map_update(attr::Elem) = MAP_UPDATE_ELEM done -> ();
    /// Removes an element.
    map_delete(attr::Elem) = MAP_DELETE_ELEM done -> ();
    /// Takes a value out.
    map_lookup_and_delete(attr::Elem) = MAP_LOOKUP_AND_DELETE_ELEM done -> ();
    /// The key after a key.
    map_next_key(attr::Elem) = MAP_GET_NEXT_KEY done -> ();
    /// No system call changes it any more.
    map_freeze(attr::Freeze) = MAP_FREEZE done -> ();
    /// Copies many elements out; `count` says how many, also where it fails.
    map_lookup_batch(attr::Batch) = MAP_LOOKUP_BATCH done -> ();
    /// Copies many elements in.
    map_update_batch(attr::Batch) = MAP_UPDATE_BATCH done -> ();
    /// Removes many elements.
    map_delete_batch(attr::Batch) = MAP_DELETE_BATCH done -> ();
    /// Verifies a program.
    prog_load(attr::ProgLoad) = PROG_LOAD make -> OwnedFd;
    /// Runs a program.
    prog_test_run(attr::TestRun) = PROG_TEST_RUN done -> ();
    /// Attaches a program with `BPF_PROG_ATTACH`, for kernels without links.
    prog_attach(attr::Attach) = PROG_ATTACH done -> ();
    /// Detaches with `BPF_PROG_DETACH`.
    prog_detach(attr::Attach) = PROG_DETACH done -> ();
    /// Keeps a map as long as a program.
    prog_bind_map(attr::BindMap) = PROG_BIND_MAP done -> ();
    /// Gives something a name in a BPF file system.
    obj_pin(attr::Obj) = OBJ_PIN done -> ();
    /// Opens what has such a name.
    obj_get(attr::Obj) = OBJ_GET make -> OwnedFd;
    /// Attaches a program to a raw tracepoint, or, without a name, to what it was loaded for.
    raw_tracepoint_open(attr::RawTracepoint) = RAW_TRACEPOINT_OPEN make -> OwnedFd;
    /// Has the kernel check and keep BTF.
    btf_load(attr::BtfLoad) = BTF_LOAD make -> OwnedFd;
    /// Replaces the program of a link.
    link_update(attr::LinkUpdate) = LINK_UPDATE done -> ();
    /// A file whose text an iterator writes.
    iter_create(attr::IterCreate) = ITER_CREATE make -> OwnedFd;
}

/// Attaches a program; the attribute depends on to what.
pub(crate) fn link_create<A: Attr>(attr: &mut A) -> io::Result<OwnedFd> {
    make(command::LINK_CREATE, attr)
}

/// The number after `id`.
pub(crate) fn next_id(kind: ObjectKind, id: u32) -> io::Result<u32> {
    let mut attr = attr::Id { id, ..attr::Id::default() };
    done(kind.next(), &mut attr)?;
    Ok(attr.next_id)
}

/// The numbers of all that there are.
pub(crate) fn ids(kind: ObjectKind) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    loop {
        match next_id(kind, ids.last().copied().unwrap_or(0)) {
            Ok(id) => ids.push(id),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(ids),
            Err(error) => return Err(error),
        }
    }
}

/// Opens the object with a number.
pub(crate) fn open_id(kind: ObjectKind, id: u32) -> io::Result<OwnedFd> {
    make(kind.open(), &mut attr::Id { id, ..attr::Id::default() })
}

/// What the kernel says of a descriptor; `info` may hold addresses of buffers on entry.
pub(crate) fn info<T: Attr>(fd: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let address = std::ptr::from_mut(info) as u64;
    let mut attr = attr::Info { bpf_fd: number(fd), info_len: size_of::<T>() as u32, info: address };
    done(command::OBJ_GET_INFO_BY_FD, &mut attr)
}
