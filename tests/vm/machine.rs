//! The machine: what lies in its memory when it boots, QEMU's command line, and what comes back.

use std::fs;
use std::path::{Path, PathBuf};

use crate::guests::{INIT, Sent, boot, emulated};
use crate::{guest, support};

/// Modules of the kernel that checks need, each after those that it needs itself.
const MODULES: [&str; 2] = ["net/sched/sch_ingress", "net/sched/cls_bpf"];

/// A kernel to boot.
pub(crate) struct Machine {
    /// Its unpacked package.
    pub(crate) kernel: PathBuf,
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
        let Sent { bytes, console } = boot(&self.kernel, &files, 400)?;
        let report = String::from_utf8_lossy(&bytes).replace('\r', "");
        if std::env::var_os("TWINBPF_VM_CONSOLE").is_some() {
            eprintln!("{console}");
        }
        if !report.lines().any(|line| line == guest::END) {
            return Err(format!("the guest did not get to its end\n{report}\n{console}"));
        }
        Ok(guest::results(&report))
    }

    /// Writes what the guest finds: tools, this program, the command, their libraries, the corpus.
    fn fill(&self, root: &Path) -> std::io::Result<()> {
        emulated::begin(root, &[INIT, include_str!("init")].concat())?;
        fs::create_dir_all(root.join("modules"))?;
        emulated::program(root, &std::env::current_exe()?, "checks")?;
        emulated::program(root, Path::new(env!("CARGO_BIN_EXE_twinbpf")), "twinbpf")?;
        for folder in ["scripts", "probes", "kernel"] {
            fs::create_dir_all(root.join("corpus").join(folder))?;
            for entry in fs::read_dir(support::corpus().join(folder))? {
                let entry = entry?;
                // Folders inside have sources that nothing here runs.
                if entry.file_type()?.is_file() {
                    fs::copy(entry.path(), root.join("corpus").join(folder).join(entry.file_name()))?;
                }
            }
        }
        for (number, module) in MODULES.iter().enumerate() {
            if let Some(path) = self.module(module) {
                fs::copy(path, root.join(format!("modules/{number}.ko")))?;
            }
        }
        Ok(())
    }

    /// Where a module of this kernel is, if it has it as a file.
    fn module(&self, name: &str) -> Option<PathBuf> {
        let releases = fs::read_dir(self.kernel.join("lib/modules")).ok()?.flatten();
        let files = releases.map(|release| release.path().join("kernel").join(format!("{name}.ko")));
        files.into_iter().find(|file| file.exists())
    }
}
