//! The machine: what lies in its memory when it boots, QEMU's command line, and what comes back.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{guest, support};

/// One program that is all the tools of the guest, and needs no library.
pub(crate) const BUSYBOX: &str = "/bin/busybox";

/// Modules of the kernel that checks need, each after those that it needs itself.
const MODULES: [&str; 2] = ["net/sched/sch_ingress", "net/sched/cls_bpf"];

/// A kernel to boot.
pub(crate) struct Machine {
    /// Its unpacked package.
    pub(crate) kernel: PathBuf,
}

/// The kernel's image in an unpacked package.
pub(crate) fn image(package: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(package.join("boot")).ok()?.flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| path.to_string_lossy().contains("/vmlinuz-"))
}

impl Machine {
    /// Boots, lets all checks run, and collects what they found: nothing, or what is wrong.
    ///
    /// # Errors
    /// What the console said when the guest did not get to the end.
    pub(crate) fn run(&self) -> Result<guest::Results, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let files = folder.path().join("files");
        self.fill(&files).map_err(|error| format!("{}: {error}", files.display()))?;
        let memory = folder.path().join("memory");
        pack(&files, &memory)?;
        let (console, report) = (folder.path().join("console"), folder.path().join("report"));
        let image = image(&self.kernel).ok_or("no image of a kernel")?;
        // Two CPUs, in turns: kernels change their own code while another CPU runs it, which goes wrong at times where QEMU
        // runs each in a thread.
        let status = Command::new("timeout")
            .args(["400", "qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "qemu64,-cx16"])
            .args(["-m", "1024", "-smp", "2"])
            .args(["-no-reboot", "-display", "none", "-nodefaults", "-kernel"])
            .arg(image)
            .arg("-initrd")
            .arg(&memory)
            .args(["-append", "console=ttyS0 panic=-1 quiet lsm=capability,bpf"])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-serial", &format!("file:{}", report.display())])
            .stdin(Stdio::null())
            .status()
            .map_err(|error| format!("qemu: {error}"))?;
        let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "");
        let report = read(&report);
        let (console, ended) = (read(&console), report.lines().any(|line| line == guest::END));
        if std::env::var_os("TWINBPF_VM_CONSOLE").is_some() {
            eprintln!("{console}");
        }
        if !ended {
            return Err(format!("the guest did not get to its end ({status})\n{report}\n{console}"));
        }
        Ok(guest::results(&report))
    }

    /// Writes what the guest finds: tools, this program, the command, their libraries, the corpus.
    fn fill(&self, root: &Path) -> std::io::Result<()> {
        for folder in ["bin", "proc", "sys", "dev", "tmp", "modules", "corpus"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::copy(BUSYBOX, root.join("bin/busybox"))?;
        let own = std::env::current_exe()?;
        for (from, name) in [(own.as_path(), "checks"), (Path::new(env!("CARGO_BIN_EXE_twinbpf")), "twinbpf")] {
            let to = root.join("bin").join(name);
            // Names of functions stay: some are probed.
            let stripped = Command::new("strip").arg("-g").arg("-o").arg(&to).arg(from).status()?;
            assert!(stripped.success(), "strip of {}", from.display());
            for library in libraries(from)? {
                let to = root.join(library.strip_prefix("/").expect("an absolute path"));
                fs::create_dir_all(to.parent().expect("a folder"))?;
                fs::copy(&library, to)?;
            }
        }
        for folder in ["scripts", "probes", "kernel"] {
            fs::create_dir_all(root.join("corpus").join(folder))?;
            for entry in fs::read_dir(support::corpus().join(folder))? {
                let entry = entry?;
                fs::copy(entry.path(), root.join("corpus").join(folder).join(entry.file_name()))?;
            }
        }
        for (number, module) in MODULES.iter().enumerate() {
            if let Some(path) = self.module(module) {
                fs::copy(path, root.join(format!("modules/{number}.ko")))?;
            }
        }
        fs::write(root.join("init"), include_str!("init"))?;
        fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
        symlink("/bin", root.join("sbin"))
    }

    /// Where a module of this kernel is, if it has it as a file.
    fn module(&self, name: &str) -> Option<PathBuf> {
        let releases = fs::read_dir(self.kernel.join("lib/modules")).ok()?.flatten();
        let files = releases.map(|release| release.path().join("kernel").join(format!("{name}.ko")));
        files.into_iter().find(|file| file.exists())
    }
}

/// The shared libraries of a program, and what loads them.
fn libraries(program: &Path) -> std::io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(words.map(PathBuf::from).collect())
}

/// Makes an archive of a folder, as the kernel unpacks it.
fn pack(folder: &Path, archive: &Path) -> Result<(), String> {
    let names = Command::new("find").arg(".").current_dir(folder).output().map_err(|error| format!("find: {error}"))?;
    let file = fs::File::create(archive).map_err(|error| error.to_string())?;
    let mut cpio = Command::new("cpio");
    cpio.args(["-o", "-H", "newc", "--quiet"]).current_dir(folder).stdin(Stdio::piped()).stdout(file);
    let mut child = cpio.spawn().map_err(|error| format!("cpio: {error}"))?;
    let written = child.stdin.take().expect("a pipe").write_all(&names.stdout);
    let status = child.wait().map_err(|error| format!("cpio: {error}"))?;
    if written.is_ok() && status.success() { Ok(()) } else { Err(format!("cpio: {status}")) }
}
