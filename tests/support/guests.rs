//! Kernels other than this machine's, which QEMU boots.

#[path = "../../cli/src/fuzz/guest.rs"]
pub(crate) mod emulated;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// How the first process of each guest begins: tools, and the file systems of a kernel.
pub(crate) const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tracefs none /sys/kernel/tracing
mount -t debugfs none /sys/kernel/debug
mount -t bpf none /sys/fs/bpf
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /tmp
ip link set lo up
stty -F /dev/ttyS1 raw -echo
";

/// What came out of a guest.
pub(crate) struct Sent {
    /// Through the second serial line.
    pub(crate) bytes: Vec<u8>,
    /// How QEMU ended, and what the console has.
    pub(crate) console: String,
}

/// Boots a kernel with the files of a folder, and waits until it has ended.
pub(crate) fn boot(kernel: &Path, files: &Path, seconds: u32) -> Result<Sent, String> {
    let fail = |error: io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(fail)?;
    let [memory, console, sent] = ["memory", "console", "sent"].map(|name| folder.path().join(name));
    emulated::pack(files, &memory).map_err(fail)?;
    let image = emulated::image(kernel).ok_or("no image of a kernel")?;
    let qemu = emulated::qemu(&image, &memory);
    let mut timed = std::process::Command::new("timeout");
    timed.arg(seconds.to_string()).arg(qemu.get_program()).args(qemu.get_args()).stdin(Stdio::null());
    for path in [&console, &sent] {
        timed.args(["-serial", &format!("file:{}", path.display())]);
    }
    let status = timed.status().map_err(fail)?;
    let text = String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).replace('\r', "");
    Ok(Sent { bytes: fs::read(sent).unwrap_or_default(), console: format!("{status}: {text}") })
}

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
