//! Kernel BTF and configuration from files, in place of those of the running kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twinbpf_btf::{Btf, Endian};
use twinbpf_kernel::system::System;
use twinbpf_kernel::user::Binary;
use twinbpf_loader::kernel::{Kernel, KernelOptions, Module, kernel_version};

/// What `--btf` and `--kconfig` say. By default, nothing.
#[derive(Clone, Debug, Default)]
pub struct KernelFiles {
    /// The first is the kernel's, the others are modules' or further sets. Empty for a kernel without types.
    types: Option<Vec<Module>>,
    config: Option<String>,
}

/// Why such a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// It cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the read.
        cause: std::io::Error,
    },
    /// It is no BTF, alone or on top of the first one.
    #[error("{}: no types: {why}", .path.display())]
    Types {
        /// Path of the file.
        path: PathBuf,
        /// Error of the ELF or BTF parser.
        why: String,
    },
}

impl KernelFiles {
    /// Reads files of types: BTF, or ELF files with a section `.BTF`. An empty one stands for a kernel without types.
    ///
    /// # Errors
    /// A file that cannot be read or is something else.
    pub fn read(btf: &[PathBuf], config: Option<&Path>) -> Result<KernelFiles, FilesError> {
        let bytes = |path: &Path| fs::read(path).map_err(|cause| FilesError::Read { path: path.to_owned(), cause });
        let mut types: Vec<Module> = Vec::new();
        for path in btf {
            let bytes = bytes(path)?;
            if bytes.is_empty() {
                continue;
            }
            let base = types.first().map(|first| Arc::clone(&first.btf));
            let parsed = parse(bytes, base.as_ref()).map_err(|why| FilesError::Types { path: path.clone(), why })?;
            let name = path.file_name().map_or_else(|| "types".into(), |name| name.to_string_lossy());
            types.push(Module { name: (*name).into(), btf: Arc::new(parsed) });
        }
        let config = config.map(bytes).transpose()?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(KernelFiles { types: (!btf.is_empty()).then_some(types), config })
    }

    /// Whether there are any.
    pub fn are_given(&self) -> bool {
        self.types.is_some() || self.config.is_some()
    }

    /// The kernel whose types and configuration programs see.
    pub fn kernel(&self) -> Arc<dyn Kernel> {
        match self.are_given() {
            false => System::shared(),
            true => Arc::new(Described { system: System::shared(), files: self.clone() }),
        }
    }

    /// How to link for the running kernel: the types are CO-RE's alone, as programs attach to what is there.
    pub(crate) fn for_loading(&self) -> (Arc<dyn Kernel>, KernelOptions) {
        match &self.types {
            Some(types) if !types.is_empty() => {
                let options =
                    KernelOptions { core: types.clone(), config: self.config.clone(), ..KernelOptions::default() };
                (System::shared(), options)
            }
            Some(_) | None => (self.kernel(), KernelOptions::default()),
        }
    }
}

fn parse(bytes: Vec<u8>, base: Option<&Arc<Btf>>) -> Result<Btf, String> {
    let bytes = match Btf::detect_endian(&bytes) {
        Some(_) => bytes,
        None => {
            let binary = Binary::parse(bytes).map_err(|error| error.to_string())?;
            binary.section(".BTF").ok_or("it has no section .BTF")?.to_vec()
        }
    };
    let alone = Btf::parse(&bytes, Endian::Little);
    // A module's types continue where the kernel's end.
    match (alone, base) {
        (Ok(btf), _) => Ok(btf),
        (Err(error), None) => Err(error.to_string()),
        (Err(_), Some(base)) => Btf::parse_split(&bytes, base).map_err(|error| error.to_string()),
    }
}

/// The running kernel, but for what files say.
#[derive(Debug)]
struct Described {
    system: Arc<System>,
    files: KernelFiles,
}

impl Kernel for Described {
    fn btf(&self) -> Option<&Btf> {
        match &self.files.types {
            Some(types) => types.first().map(|first| &*first.btf),
            None => Kernel::btf(&*self.system),
        }
    }

    fn modules(&self) -> &[Module] {
        match &self.files.types {
            Some(types) => types.get(1..).unwrap_or_default(),
            None => self.system.modules(),
        }
    }

    fn config(&self) -> Option<&str> {
        self.files.config.as_deref().or_else(|| Kernel::config(&*self.system))
    }

    fn kallsyms(&self) -> Option<&str> {
        Kernel::kallsyms(&*self.system)
    }

    /// Version of a configuration, by its first line: `# Linux/x86 6.1.0 Kernel Configuration`.
    fn version(&self) -> u32 {
        let configured = self.files.config.as_deref().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("# Linux/"))?;
            kernel_version(line.split_once(' ')?.1)
        });
        configured.unwrap_or_else(|| Kernel::version(&*self.system))
    }

    fn has_bpf_cookie(&self) -> bool {
        self.system.has_bpf_cookie()
    }

    fn has_syscall_wrapper(&self) -> bool {
        self.system.has_syscall_wrapper()
    }
}
