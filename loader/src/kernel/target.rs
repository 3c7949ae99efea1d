//! Description of the target kernel for the linker: BTF, configuration, symbols and version that the caller has read.

use std::fmt;
use std::sync::Arc;

use twinbpf_btf::Btf;
use twinbpf_isa::Endian;

/// A kernel to link for.
///
/// The linker calls a method only if an object needs its result, so that implementations may read files lazily. The
/// same call must always return the same.
///
/// ```
/// use twinbpf_loader::kernel::{Kernel, KernelData};
///
/// let kernel = KernelData { config: Some("CONFIG_HZ=250\n".to_owned()), ..KernelData::default() };
/// assert_eq!(kernel.config(), Some("CONFIG_HZ=250\n"));
/// assert!(kernel.btf().is_none());
/// ```
pub trait Kernel: fmt::Debug + Send + Sync {
    /// The types of the kernel itself (`/sys/kernel/btf/vmlinux`), if it has any.
    fn btf(&self) -> Option<&Btf>;

    /// The types of its modules. Searched where the kernel itself has no type or function of a name.
    fn modules(&self) -> &[Module];

    /// How it was configured (`/boot/config-RELEASE`, or `/proc/config.gz` unpacked): lines `CONFIG_X=y`.
    fn config(&self) -> Option<&str>;

    /// Its byte order: the kernel takes objects of no other.
    fn endian(&self) -> Endian {
        Endian::Little
    }

    /// Its symbols, as in `/proc/kallsyms`.
    fn kallsyms(&self) -> Option<&str>;

    /// Value of `LINUX_KERNEL_VERSION`; see [`kernel_version`].
    fn version(&self) -> u32;

    /// Bytes of a page: of those an arena is made.
    fn page_size(&self) -> u32 {
        4096
    }

    /// Whether instructions name every byte of a map, also beyond 512 MiB (libbpf's `FEAT_LDIMM64_FULL_RANGE_OFF`): that
    /// decides where the global variables of an arena lie.
    fn takes_every_offset(&self) -> bool {
        true
    }

    /// Whether attachments carry a cookie (`LINUX_HAS_BPF_COOKIE`).
    fn has_bpf_cookie(&self) -> bool;

    /// Whether system calls are functions with one `pt_regs` argument (`LINUX_HAS_SYSCALL_WRAPPER`).
    fn has_syscall_wrapper(&self) -> bool;
}

/// The types of a kernel module, or of another set of types with a name.
#[derive(Clone, Debug)]
pub struct Module {
    /// Name, for example `nf_conntrack`.
    pub name: Arc<str>,
    /// Its types, read with [`Btf::parse_split`].
    pub btf: Arc<Btf>,
}

/// A kernel that was read beforehand, or one that is not running here.
#[derive(Clone, Default)]
pub struct KernelData {
    /// What [`Kernel::btf`] returns.
    pub btf: Option<Arc<Btf>>,
    /// What [`Kernel::modules`] returns.
    pub modules: Vec<Module>,
    /// What [`Kernel::config`] returns.
    pub config: Option<String>,
    /// What [`Kernel::kallsyms`] returns.
    pub kallsyms: Option<String>,
    /// What [`Kernel::version`] returns.
    pub version: u32,
    /// What [`Kernel::has_bpf_cookie`] returns.
    pub bpf_cookie: bool,
    /// What [`Kernel::has_syscall_wrapper`] returns.
    pub syscall_wrapper: bool,
}

impl fmt::Debug for KernelData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modules: Vec<&str> = self.modules.iter().map(|module| &*module.name).collect();
        let mut out = f.debug_struct("KernelData");
        out.field("version", &format_args!("{:#x}", self.version)).field("btf", &self.btf.is_some());
        out.field("modules", &modules).finish_non_exhaustive()
    }
}

impl Kernel for KernelData {
    fn btf(&self) -> Option<&Btf> {
        self.btf.as_deref()
    }

    fn modules(&self) -> &[Module] {
        &self.modules
    }

    fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    fn kallsyms(&self) -> Option<&str> {
        self.kallsyms.as_deref()
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn has_bpf_cookie(&self) -> bool {
        self.bpf_cookie
    }

    fn has_syscall_wrapper(&self) -> bool {
        self.syscall_wrapper
    }
}

/// `KERNEL_VERSION(a, b, c)` of a release such as `6.1.0-38-amd64`: the kernel's macro, where `c` ends at 255.
///
/// On Debian and Ubuntu the release lacks `c`; there it is in the text of `uname -v` ("Debian 6.1.192-2")
/// and in `/proc/version_signature`.
pub fn kernel_version(release: &str) -> Option<u32> {
    let start = release.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = release[start..].split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let patch = numbers.next().and_then(Result::ok).unwrap_or(0);
    Some((major << 16) + (minor << 8) + patch.min(255))
}
