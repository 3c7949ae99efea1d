//! Kernels other than this machine's, which QEMU boots.

#[path = "../../cli/src/fuzz/guest.rs"]
pub(crate) mod emulated;

use std::path::PathBuf;

/// The kernels that `.ci/kernels` unpacked, or why none can run.
pub(crate) fn kernels(installed: fn(&str) -> bool) -> Result<Vec<PathBuf>, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the guest runs what was compiled for this machine, and its kernels are for x86_64".to_owned());
    }
    if let Some(tool) = ["qemu-system-x86_64", "cpio", "strip"].into_iter().find(|tool| !installed(tool)) {
        return Err(format!("{tool} is not installed"));
    }
    if !PathBuf::from(emulated::BUSYBOX).exists() {
        return Err("busybox-static is not installed".to_owned());
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("vm");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut kernels: Vec<PathBuf> = entries.filter(|path| emulated::image(path).is_some()).collect();
    kernels.sort();
    if kernels.is_empty() {
        return Err(format!("no kernel in {}, where .ci/kernels puts some", folder.display()));
    }
    Ok(kernels)
}
