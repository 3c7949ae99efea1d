//! A machine that QEMU emulates: what lies in its memory when it boots, and the command line. `tests/vm` has it from
//! here too.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One program that is all the tools of the guest, and needs no library.
pub(crate) const BUSYBOX: &str = "/bin/busybox";

/// Two CPUs, in turns: kernels change their own code while another CPU runs it, which goes wrong at times where QEMU
/// runs each in a thread. The model of a CPU is one that kernels boot on: with `cx16`, some do not.
const MACHINE: [&str; 12] = [
    "-accel",
    "tcg,thread=single",
    "-cpu",
    "qemu64,-cx16",
    "-m",
    "1024",
    "-smp",
    "2",
    "-no-reboot",
    "-display",
    "none",
    "-nodefaults",
];

/// QEMU with a kernel and what its memory begins with. Serial lines are for the caller to add, the first one for the
/// console.
pub(crate) fn qemu(image: &Path, memory: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(MACHINE).arg("-kernel").arg(image).arg("-initrd").arg(memory);
    // On a busy machine the emulated timer is late, which a kernel takes for broken.
    command.args(["-append", "console=ttyS0 panic=-1 quiet no_timer_check lsm=capability,bpf"]);
    command
}

/// The kernel's image in an unpacked package, or the image itself.
pub(crate) fn image(kernel: &Path) -> Option<PathBuf> {
    if kernel.is_file() {
        return Some(kernel.to_owned());
    }
    let entries = fs::read_dir(kernel.join("boot")).ok()?.flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| path.to_string_lossy().contains("/vmlinuz-"))
}

/// A folder that becomes the guest's memory: places to mount, tools, what runs first.
pub(crate) fn begin(root: &Path, init: &str) -> io::Result<()> {
    for folder in ["bin", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy(BUSYBOX, root.join("bin/busybox"))?;
    fs::write(root.join("init"), init)?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    symlink("/bin", root.join("sbin"))
}

/// Puts a program there, with the libraries that it needs. Names of functions stay: some are probed.
pub(crate) fn program(root: &Path, from: &Path, name: &str) -> io::Result<()> {
    let to = root.join("bin").join(name);
    let stripped = Command::new("strip").arg("-g").arg("-o").arg(&to).arg(from).stderr(Stdio::null()).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(from, &to)?;
    }
    for library in libraries(from)? {
        let to = root.join(library.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(to.parent().expect("a folder"))?;
        fs::copy(&library, to)?;
    }
    Ok(())
}

/// The shared libraries of a program, and what loads them.
fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(words.map(PathBuf::from).collect())
}

/// Makes an archive of a folder, as the kernel unpacks it.
pub(crate) fn pack(folder: &Path, archive: &Path) -> io::Result<()> {
    let names = Command::new("find").arg(".").current_dir(folder).output()?;
    let mut cpio = Command::new("cpio");
    cpio.args(["-o", "-H", "newc", "--quiet"]).current_dir(folder);
    let mut child = cpio.stdin(Stdio::piped()).stdout(fs::File::create(archive)?).spawn()?;
    let written = child.stdin.take().expect("it is piped").write_all(&names.stdout);
    let status = child.wait()?;
    written?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cpio: {status}"))) }
}
