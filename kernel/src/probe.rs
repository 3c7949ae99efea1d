//! Feature detection of the running kernel. Each feature is tried once, at its first use. Versions decide nothing, as
//! vendors backport features and leave others out.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use twinbpf_loader::section::{AttachType, ProgType};
use twinbpf_vm::map::{MapFlags, MapKind};

use crate::btf::blob::{self, Blob};
use crate::map::kernel_name;
use crate::sys::{ENOTSUPP, attr, bpf, number};

macro_rules! features {
    ($($(#[$doc:meta])* $Name:ident = $probe:expr;)*) => {
        /// Something that not every kernel has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Feature { $($(#[$doc])* $Name,)* }

        impl Feature {
            /// Every feature that can be probed for.
            pub const ALL: &'static [Feature] = &[$(Feature::$Name),*];

            fn probe(self) -> bool {
                match self { $(Feature::$Name => $probe),* }
            }
        }
    };
}

features! {
    /// Programs and maps have names.
    ProgName = program(ProgType::SocketFilter, 0, &RETURN_0, "probe").is_ok();
    /// BTF at all.
    Btf = btf(&Blob::new().int());
    /// BTF describes functions.
    BtfFunc = btf(&blob::function(0));
    /// Functions can be global there.
    BtfGlobalFunc = btf(&blob::function(1));
    /// BTF describes variables and their sections.
    BtfDatasec = btf(&blob::section("x"));
    /// Sections may have names with question marks and such.
    BtfDatasecName = btf(&blob::section("?.x"));
    /// BTF describes floating point types.
    BtfFloat = btf(&Blob::new().add(16, 0, 4));
    /// Tags of declarations.
    BtfDeclTag = btf(&blob::declaration_tag());
    /// Tags of types.
    BtfTypeTag = btf(&Blob::new().int().add(18, 0, 1).add(2, 0, 2));
    /// A tag says which argument of a global function is the context.
    ContextTag = context_tag();
    /// Enums of 64 bits.
    BtfEnum64 = btf(&Blob::new().add(19, 0, 8));
    /// Arrays in the memory of processes.
    ArrayMmap = array_mmap();
    /// The attach type is part of a program.
    ExpectedAttachType = program(ProgType::CgroupSock, AttachType::CgroupInetSockCreate as u32, &RETURN_0, "").is_ok();
    /// `bpf_probe_read_kernel` and `_user`, where it was `bpf_probe_read`.
    ProbeReadKernel = program(ProgType::Kprobe, 0, &PROBE_READ_KERNEL, "").is_ok();
    /// Links on perf events.
    PerfLink = perf_link();
    /// Attachments carry a number for the program.
    Cookie = program(ProgType::Tracepoint, 0, &GET_COOKIE, "").is_ok();
    /// One link for many places in files.
    UprobeMulti = uprobe_multi();
    /// A map can live as long as a program that does not use it.
    BindMap = bind_map();
    /// Instructions name addresses in a map's value beyond its first 512 MiB.
    EveryOffset = every_offset();
    /// Tables of functions (struct_ops) are registered by links, which end with their descriptor.
    StructOpsLink = struct_ops_link();
    /// System calls have wrappers that take `pt_regs`.
    SyscallWrapper = crate::system::System::get().has_function(crate::arch::SYSCALL_PROBE);
}

/// Whether this kernel has it. Where nothing can be tried for lack of privilege, it seems to have nothing.
pub fn has(feature: Feature) -> bool {
    static KNOWN: [OnceLock<bool>; Feature::ALL.len()] = [const { OnceLock::new() }; Feature::ALL.len()];
    *KNOWN[feature as usize].get_or_init(|| {
        let found = feature.probe();
        log::debug!("kernel feature {feature:?}: {}", if found { "yes" } else { "no" });
        found
    })
}

/// `r0 = 0; exit`.
pub(crate) const RETURN_0: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
/// `r1 = fp - 8; r2 = 8; r3 = 0; call bpf_probe_read_kernel; exit`.
const PROBE_READ_KERNEL: [[u8; 8]; 6] = [
    [0xbf, 0xa1, 0, 0, 0, 0, 0, 0],
    [0x07, 0x01, 0, 0, 0xf8, 0xff, 0xff, 0xff],
    [0xb7, 0x02, 0, 0, 8, 0, 0, 0],
    [0xb7, 0x03, 0, 0, 0, 0, 0, 0],
    [0x85, 0, 0, 0, 113, 0, 0, 0],
    [0x95, 0, 0, 0, 0, 0, 0, 0],
];
/// `call +1; exit`, and a function at instruction 2: `call bpf_get_func_ip; exit`, which needs the context.
const PASS_CONTEXT: [[u8; 8]; 4] = [
    [0x85, 0x10, 0, 0, 1, 0, 0, 0],
    [0x95, 0, 0, 0, 0, 0, 0, 0],
    [0x85, 0, 0, 0, 173, 0, 0, 0],
    [0x95, 0, 0, 0, 0, 0, 0, 0],
];
/// `call bpf_get_attach_cookie; exit`.
const GET_COOKIE: [[u8; 8]; 2] = [[0x85, 0, 0, 0, 174, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];

fn program(kind: ProgType, attach: u32, insns: &[[u8; 8]], name: &str) -> io::Result<OwnedFd> {
    bpf::prog_load(&mut program_attr(kind, attach, insns, name))
}

fn program_attr(kind: ProgType, attach: u32, insns: &[[u8; 8]], name: &str) -> attr::ProgLoad {
    attr::ProgLoad {
        prog_type: kind as u32,
        insn_cnt: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        prog_name: kernel_name(name),
        expected_attach_type: attach,
        kern_version: crate::system::System::get().version(),
        ..attr::ProgLoad::default()
    }
}

fn btf(blob: &Blob) -> bool {
    btf_object(blob).is_ok()
}

fn btf_object(blob: &Blob) -> io::Result<OwnedFd> {
    let bytes = blob.to_bytes();
    let mut attr =
        attr::BtfLoad { btf: bytes.as_ptr() as u64, btf_size: bytes.len() as u32, ..attr::BtfLoad::default() };
    bpf::btf_load(&mut attr)
}

fn context_tag() -> bool {
    let Ok(types) = btf_object(&blob::context_argument()) else { return false };
    // First instruction and type of each function.
    let functions = [[0_u32, 4], [2, 6]];
    let mut attr = attr::ProgLoad {
        prog_btf_fd: number(types.as_fd()),
        func_info_rec_size: 8,
        func_info: functions.as_ptr() as u64,
        func_info_cnt: functions.len() as u32,
        ..program_attr(ProgType::Kprobe, 0, &PASS_CONTEXT, "")
    };
    bpf::prog_load(&mut attr).is_ok()
}

fn array_mmap() -> bool {
    let mut attr = attr::MapCreate {
        map_type: MapKind::Array as u32,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
        map_flags: 1 << 10,
        ..attr::MapCreate::default()
    };
    bpf::map_create(&mut attr).is_ok()
}

/// A link of a program on a descriptor that is none: the kernel checks it only if it knows such links.
fn perf_link() -> bool {
    let Ok(prog) = program(ProgType::Tracepoint, 0, &RETURN_0, "") else { return false };
    let mut attr = attr::LinkPerf {
        fd: number(prog.as_fd()),
        target: u32::MAX,
        attach_type: AttachType::PerfEvent as u32,
        ..attr::LinkPerf::default()
    };
    matches!(bpf::link_create(&mut attr), Err(error) if error.raw_os_error() == Some(libc::EBADF))
}

/// A link on a directory, which is no place for probes: the kernel says `EBADF` if it knows such links.
fn uprobe_multi() -> bool {
    let attach = AttachType::TraceUprobeMulti as u32;
    let Ok(prog) = program(ProgType::Kprobe, attach, &RETURN_0, "") else { return false };
    let offset = 0_u64;
    let mut attr = attr::LinkUprobes {
        fd: number(prog.as_fd()),
        target: u32::MAX,
        attach_type: attach,
        path: c"/".as_ptr() as u64,
        offsets: std::ptr::from_ref(&offset) as u64,
        count: 1,
        ..attr::LinkUprobes::default()
    };
    matches!(bpf::link_create(&mut attr), Err(error) if error.raw_os_error() == Some(libc::EBADF))
}

/// A table of no type that the kernel knows: `ENOTSUPP` says that there was nothing else to object to.
fn struct_ops_link() -> bool {
    let mut attr = attr::MapCreate {
        map_type: MapKind::StructOps as u32,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
        map_flags: MapFlags::LINK.bits(),
        btf_vmlinux_value_type_id: 1,
        ..attr::MapCreate::default()
    };
    matches!(bpf::map_create(&mut attr), Err(error) if error.raw_os_error() == Some(ENOTSUPP))
}

fn bind_map() -> bool {
    let Ok(prog) = program(ProgType::SocketFilter, 0, &RETURN_0, "") else { return false };
    let mut attr = attr::MapCreate {
        map_type: MapKind::Array as u32,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
        ..attr::MapCreate::default()
    };
    let Ok(map) = bpf::map_create(&mut attr) else { return false };
    let mut attr = attr::BindMap { prog_fd: number(prog.as_fd()), map_fd: number(map.as_fd()), flags: 0 };
    bpf::prog_bind_map(&mut attr).is_ok()
}

/// An address far outside of an array: a kernel with a limit of its own says so before it accesses the array.
fn every_offset() -> bool {
    let mut attr = attr::MapCreate {
        map_type: MapKind::Array as u32,
        key_size: 4,
        value_size: 1,
        max_entries: 1,
        ..attr::MapCreate::default()
    };
    let Ok(map) = bpf::map_create(&mut attr) else { return false };
    let fd = number(map.as_fd()).to_le_bytes();
    let insns =
        [[0x18, 0x21, 0, 0, fd[0], fd[1], fd[2], fd[3]], [0, 0, 0, 0, 0, 0, 0, 0x40], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let mut log = [0_u8; 1024];
    let mut attr = attr::ProgLoad {
        prog_type: ProgType::SocketFilter as u32,
        insn_cnt: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr() as u64,
        ..attr::ProgLoad::default()
    };
    let refused = bpf::prog_load(&mut attr).is_err();
    refused && !String::from_utf8_lossy(&log).contains("direct value offset of") && log[0] != 0
}

/// Whether this kernel has maps of a kind.
///
/// # Errors
/// It does not let this process try.
pub fn map_kind(kind: MapKind) -> io::Result<bool> {
    let (key, value, entries, flags, extra) = match kind {
        MapKind::StackTrace => (4, 8, 1, 0, 0),
        MapKind::LpmTrie => (8, 8, 1, 1, 0),
        MapKind::CgroupStorage | MapKind::PercpuCgroupStorage => (16, 8, 0, 0, 0),
        MapKind::Queue | MapKind::Stack => (0, 4, 1, 0, 0),
        MapKind::BloomFilter => (0, 4, 1, 0, 0),
        MapKind::Ringbuf | MapKind::UserRingbuf => (0, 0, crate::sys::memory::page_size() as u32, 0, 0),
        MapKind::Arena => (0, 0, 1, 1 << 10, 0),
        MapKind::ReuseportSockarray => (4, 8, 1, 0, 0),
        MapKind::InsnArray => (4, 16, 1, 0, 0),
        // These want BTF, so that a refusal of the map's type must be distinguished from a refusal for want of BTF.
        MapKind::SkStorage | MapKind::InodeStorage | MapKind::TaskStorage | MapKind::CgrpStorage => (4, 4, 0, 1, 0),
        MapKind::StructOps => (4, 4, 1, 0, 0),
        MapKind::Hash
        | MapKind::Array
        | MapKind::ProgArray
        | MapKind::PerfEventArray
        | MapKind::PercpuHash
        | MapKind::PercpuArray
        | MapKind::CgroupArray
        | MapKind::LruHash
        | MapKind::LruPercpuHash
        | MapKind::ArrayOfMaps
        | MapKind::HashOfMaps
        | MapKind::Devmap
        | MapKind::Sockmap
        | MapKind::Cpumap
        | MapKind::Xskmap
        | MapKind::Sockhash
        | MapKind::DevmapHash => (4, 4, 1, 0, 0),
    };
    let storage =
        matches!(kind, MapKind::SkStorage | MapKind::InodeStorage | MapKind::TaskStorage | MapKind::CgrpStorage);
    let types = Blob::new().int().to_bytes();
    let types = if storage { Some(load_btf(&types)?) } else { None };
    let mut attr = attr::MapCreate {
        map_type: kind as u32,
        key_size: key,
        value_size: value,
        max_entries: entries,
        map_flags: flags,
        map_extra: extra,
        // No descriptor: a kernel with the kind searches for the inner map.
        inner_map_fd: u32::MAX,
        btf_fd: crate::sys::number_or_zero(types.as_ref().map(AsFd::as_fd)),
        btf_key_type_id: storage.into(),
        btf_value_type_id: storage.into(),
        btf_vmlinux_value_type_id: (kind == MapKind::StructOps).into(),
        ..attr::MapCreate::default()
    };
    answer(bpf::map_create(&mut attr), kind)
}

fn load_btf(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut attr =
        attr::BtfLoad { btf: bytes.as_ptr() as u64, btf_size: bytes.len() as u32, ..attr::BtfLoad::default() };
    bpf::btf_load(&mut attr)
}

fn answer(result: io::Result<OwnedFd>, kind: MapKind) -> io::Result<bool> {
    let nested = matches!(kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps);
    match result {
        Ok(_) => Ok(true),
        Err(error) if nested && error.raw_os_error() == Some(libc::EBADF) => Ok(true),
        // The value type of a struct_ops map is missing.
        Err(error) if kind == MapKind::StructOps && error.raw_os_error() == Some(ENOTSUPP) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Whether this kernel has programs of a type.
///
/// # Errors
/// It does not let this process try.
pub fn prog_type(kind: ProgType) -> io::Result<bool> {
    let attach = match kind {
        ProgType::CgroupSockAddr => AttachType::CgroupInet4Connect as u32,
        ProgType::CgroupSockopt => AttachType::CgroupGetsockopt as u32,
        ProgType::SkLookup => AttachType::SkLookup as u32,
        ProgType::SkReuseport | ProgType::Syscall => 0,
        ProgType::Netfilter => AttachType::Netfilter as u32,
        ProgType::Tracing => AttachType::TraceRawTp as u32,
        ProgType::Lsm => AttachType::LsmMac as u32,
        _ => 0,
    };
    let needs_target = matches!(kind, ProgType::Tracing | ProgType::Lsm | ProgType::Ext | ProgType::StructOps);
    let mut log = [0_u8; 4096];
    let mut attr = attr::ProgLoad {
        prog_type: kind as u32,
        insn_cnt: RETURN_0.len() as u32,
        insns: RETURN_0.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        expected_attach_type: attach,
        attach_btf_id: needs_target.into(),
        prog_flags: if kind == ProgType::Syscall { 1 << 4 } else { 0 },
        kern_version: crate::system::System::get().version(),
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr() as u64,
        ..attr::ProgLoad::default()
    };
    match bpf::prog_load(&mut attr) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(error),
        // What the verifier wrote shows that the type got as far as it.
        Err(_) => Ok(log[0] != 0),
    }
}
