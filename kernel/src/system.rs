//! What the running kernel says of itself: types, configuration, symbols, version. Each is read once, at its first use.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use flate2::read::GzDecoder;
use twinbpf_btf::{Btf, Endian};
use twinbpf_loader::kernel::{Module, kernel_version};

use crate::user::Binary;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct System {
    btf: OnceLock<Option<Arc<Btf>>>,
    config: OnceLock<Option<String>>,
    kallsyms: OnceLock<Option<String>>,
    modules: OnceLock<Vec<Module>>,
}

/// Where distributions put the kernel with its symbols; `RELEASE` stands for the release.
const IMAGES: [&str; 7] = [
    "/boot/vmlinux-RELEASE",
    "/lib/modules/RELEASE/vmlinux-RELEASE",
    "/lib/modules/RELEASE/build/vmlinux",
    "/usr/lib/modules/RELEASE/kernel/vmlinux",
    "/usr/lib/debug/boot/vmlinux-RELEASE",
    "/usr/lib/debug/boot/vmlinux-RELEASE.debug",
    "/usr/lib/debug/lib/modules/RELEASE/vmlinux",
];

impl System {
    /// The one of this process.
    pub fn get() -> &'static System {
        System::only()
    }

    /// The same, for those who keep it.
    pub fn shared() -> Arc<System> {
        Arc::clone(System::only())
    }

    fn only() -> &'static Arc<System> {
        static SYSTEM: OnceLock<Arc<System>> = OnceLock::new();
        SYSTEM.get_or_init(Arc::default)
    }

    /// Types of `vmlinux`: `/sys/kernel/btf/vmlinux`, or those in an image of the kernel.
    pub fn btf(&self) -> Option<&Arc<Btf>> {
        let parse = |bytes: Vec<u8>| match Btf::parse(&bytes, Endian::Little) {
            Ok(btf) => Some(Arc::new(btf)),
            Err(error) => {
                log::warn!("the kernel's types: {error}");
                None
            }
        };
        self.btf.get_or_init(|| fs::read("/sys/kernel/btf/vmlinux").ok().or_else(image_btf).and_then(parse)).as_ref()
    }

    /// The kernel's configuration, as text: `/proc/config.gz`, or what lies beside the kernel's image.
    pub fn config(&self) -> Option<&str> {
        let read = || {
            let release = release();
            let files = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
            let own = || io::read_to_string(GzDecoder::new(File::open("/proc/config.gz").ok()?)).ok();
            files.iter().find_map(|file| fs::read_to_string(file).ok()).or_else(own)
        };
        self.config.get_or_init(read).as_deref()
    }

    /// Text of `/proc/kallsyms`; `None` if it cannot be read.
    pub fn kallsyms(&self) -> Option<&str> {
        self.kallsyms.get_or_init(|| fs::read_to_string("/proc/kallsyms").ok()).as_deref()
    }

    /// Names of all code, modules' included, as often as the table of symbols has them.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.kallsyms().unwrap_or_default().lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let kind = words.nth(1)?;
            words.next().filter(|_| matches!(kind, "t" | "T"))
        })
    }

    /// Types of `vmlinux`, or of a module.
    pub fn types(&self, module: Option<&str>) -> Option<&Arc<Btf>> {
        match module {
            None | Some("vmlinux") => self.btf(),
            Some(name) => self.modules().iter().find(|module| *module.name == *name).map(|module| &module.btf),
        }
    }

    /// Whether the kernel has a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        let names = self.kallsyms().unwrap_or_default().lines().filter_map(|line| line.split_whitespace().nth(2));
        names.into_iter().any(|other| other == name)
    }

    /// Types of the modules that are there.
    pub(crate) fn modules(&self) -> &[Module] {
        self.modules.get_or_init(|| self.btf().map(modules).unwrap_or_default())
    }

    /// As `LINUX_VERSION_CODE` has it. Distributions put the real one elsewhere: Ubuntu into
    /// `/proc/version_signature`, Debian into the build's text.
    pub fn version(&self) -> u32 {
        static VERSION: OnceLock<u32> = OnceLock::new();
        *VERSION.get_or_init(|| {
            let read = |path| fs::read_to_string(path).unwrap_or_default();
            let ubuntu = read("/proc/version_signature");
            let ubuntu = ubuntu.split_whitespace().nth(2);
            let build = read("/proc/sys/kernel/version");
            let debian = build.split("Debian ").nth(1);
            ubuntu.or(debian).and_then(kernel_version).or_else(|| kernel_version(&release())).unwrap_or(0)
        })
    }
}

/// The types of the modules that are there.
fn modules(base: &Arc<Btf>) -> Vec<Module> {
    let Ok(entries) = fs::read_dir("/sys/kernel/btf") else { return Vec::new() };
    let module = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| name != "vmlinux")?;
        let btf = Btf::parse_split(&fs::read(entry.path()).ok()?, base).ok()?;
        Some(Module { name: name.into(), btf: Arc::new(btf) })
    };
    let mut modules: Vec<Module> = entries.filter_map(|entry| module(entry.ok()?)).collect();
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    modules
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn image_btf() -> Option<Vec<u8>> {
    let release = release();
    let images = IMAGES.iter().map(|image| image.replace("RELEASE", &release));
    images.into_iter().find_map(|image| {
        let binary = Binary::read(Path::new(&image)).ok()?;
        binary.section(".BTF").map(<[u8]>::to_vec)
    })
}

#[cfg(test)]
mod tests {
    use super::System;

    #[test]
    fn this_kernel_has_a_version() {
        assert!(System::get().version() > 4 << 16);
    }

    #[test]
    fn this_kernel_has_symbols() {
        if System::get().kallsyms().is_some_and(|text| !text.is_empty()) {
            assert!(System::get().has_function("schedule"));
            assert!(!System::get().has_function("no_such_function"));
        }
    }
}
