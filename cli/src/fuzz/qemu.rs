//! Another kernel: a machine that QEMU emulates, with a worker inside whose standard input and output are QEMU's own,
//! through the second serial line.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use twinbpf_fuzzing::Engine;

use super::guest;
use super::remote::{self, Connect};

/// The first process of the guest. The worker gives the kernel's answers, with native code and with its interpreter.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
stty -F /dev/ttyS1 raw -echo
twinbpf fuzz --worker --engines none --against kernel --against kernel-interp < /dev/ttyS1 > /dev/ttyS1
poweroff -f
";

/// The engines of a kernel: its compiler and its interpreter.
pub(super) fn engines(kernel: &str) -> Result<Vec<Box<dyn Engine>>> {
    let image = guest::image(Path::new(kernel));
    let image = image.with_context(|| format!("{kernel} is neither an image of a kernel nor an unpacked package"))?;
    let folder = tempfile::tempdir().context("a folder for the guest's memory")?;
    let files = folder.path().join("files");
    let fill = || {
        guest::begin(&files, INIT)?;
        guest::program(&files, &std::env::current_exe()?, "twinbpf")?;
        guest::pack(&files, &folder.path().join("memory"))?;
        std::fs::remove_dir_all(&files)
    };
    fill().context("the guest's memory (it takes busybox-static and cpio)")?;
    // The folder lives as long as the closure, which may have to start another machine.
    let connect: Connect = Box::new(move || {
        let qemu = guest::qemu(&image, &folder.path().join("memory"));
        // Ends QEMU with this process, however that ends: closed standard streams alone do not.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(qemu.get_program()).args(qemu.get_args());
        command.arg("-serial").arg(format!("file:{}", folder.path().join("console").display()));
        command.args(["-chardev", "stdio,id=work,signal=off", "-serial", "chardev:work"]);
        Ok(command)
    });
    remote::engines(connect).with_context(|| format!("--against qemu:{kernel}"))
}
