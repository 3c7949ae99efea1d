//! Workload of a session: a child process that is forked and suspended before any attachment is enabled, and executes
//! its command after.
//!
//! It ends with the thread that forked it: suspended, because the pipe closes; running, by SIGKILL, unless it is to be
//! detached after an error.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::error::Error;
use crate::sys;

/// How long a workload whose status is not needed may take to end by SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// A forked child that waits on a pipe before `execve`.
#[derive(Debug)]
pub(crate) struct Suspended {
    /// Closed before the child is waited for: that ends it.
    release: PipeWriter,
    failure: PipeReader,
    child: Child,
}

/// A child that executes its command. Dropping it ends it: SIGTERM, then SIGKILL after [`GRACE`].
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    pid: i32,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
}

impl Suspended {
    /// Forks a child that will become this command. `bound`: it ends with the thread that calls this. `linger`: how many
    /// seconds later where that comes before it is released.
    ///
    /// # Errors
    /// The command cannot be executed, as far as that can be said before; fork or pipe failed.
    pub(crate) fn fork(command: &[String], bound: bool, linger: u32) -> Result<Suspended, Error> {
        let name = command.first().cloned().unwrap_or_default();
        let failed = |cause| Error::Workload { name: name.clone(), cause };
        executable(&name).map_err(failed)?;
        let words: Result<Vec<CString>, _> = command.iter().map(|word| CString::new(word.as_str())).collect();
        let words = words.map_err(|error| failed(error.into()))?;
        let (wait, release) = pipe().map_err(failed)?;
        let (failure, report) = pipe().map_err(failed)?;
        let ends = sys::Pipes { wait: wait.as_fd(), release: release.as_fd(), failure: report.as_fd(), linger };
        let pid = sys::fork(&words, &ends, bound).map_err(failed)?;
        let pidfd = sys::pidfd(pid).map_err(failed)?;
        Ok(Suspended { release, failure, child: Child { name, pid, pidfd, status: None } })
    }

    /// Its process id, which the command will have.
    pub(crate) fn pid(&self) -> i32 {
        self.child.pid
    }

    /// Lets the child continue and returns once the child has executed its command.
    ///
    /// # Errors
    /// The errno of `execve`.
    pub(crate) fn release(self) -> Result<Child, Error> {
        let Suspended { mut release, mut failure, mut child } = self;
        let failed = |cause| Error::Workload { name: child.name.clone(), cause };
        release.write_all(&[1]).map_err(failed)?;
        let mut errno = [0; 4];
        match failure.read_exact(&mut errno) {
            Ok(()) => {
                let error = failed(std::io::Error::from_raw_os_error(i32::from_ne_bytes(errno)));
                child.wait()?;
                Err(error)
            }
            Err(_) => Ok(child),
        }
    }
}

/// Whether `execvp` would find and execute a command: a file of the name, or in a folder of PATH, that may be executed, and
/// so may the interpreter in its first line.
fn executable(name: &str) -> io::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = match name.contains('/') {
        true => vec![name.into()],
        false => std::env::split_paths(&path).map(|folder| folder.join(name)).collect(),
    };
    let mut denied = None;
    for place in &places {
        match sys::may_execute(place) {
            Ok(()) => return interpreter(place),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => denied = Some((place, error)),
        }
    }
    let Some((place, error)) = denied else { return Err(io::Error::from_raw_os_error(libc::ENOENT)) };
    if name.contains('/') {
        return Err(error);
    }
    // The one that was named does not say where it was searched for.
    let why = match (place.symlink_metadata(), place.parent()) {
        (Err(_), Some(folder)) => {
            format!("{error}: PATH has the folder {}, which may not be searched", folder.display())
        }
        _ => format!("{error}: {}", place.display()),
    };
    Err(io::Error::new(error.kind(), why))
}

/// Whether the interpreter that a script names can be executed.
fn interpreter(script: &Path) -> io::Result<()> {
    let mut line = Vec::new();
    // A file that may be executed need not be readable.
    let Ok(file) = File::open(script) else { return Ok(()) };
    file.take(256).read_to_end(&mut line)?;
    let Some(rest) = line.strip_prefix(b"#!") else { return Ok(()) };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let name = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    sys::may_execute(Path::new(OsStr::from_bytes(name)))
}

impl Child {
    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable when it has ended.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether it ends within a time.
    pub(crate) fn ends_within(&self, time: Duration) -> bool {
        // A signal cuts the time short.
        self.status.is_some() || sys::poll(&[self.fd()], Some(time)).is_ok_and(|ended| ended[0])
    }

    /// Sends SIGTERM, unless it has ended.
    pub(crate) fn terminate(&self) {
        if self.status.is_none() {
            // It may end at this moment.
            let _ = sys::kill(self.pid, libc::SIGTERM);
        }
    }

    /// Leaves it alone: it runs on.
    pub(crate) fn detach(self) {
        std::mem::forget(self);
    }

    /// Waits for its end. Returns its exit status, or 128 plus the signal that killed it.
    pub(crate) fn wait(&mut self) -> Result<u8, Error> {
        let status = match self.status {
            Some(status) => status,
            None => sys::wait(self.pid).map_err(|cause| Error::System { what: "wait for the workload", cause })?,
        };
        self.status = Some(status);
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => code as u8,
            (None, signal) => 128 + signal.unwrap_or(0) as u8,
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_some() {
            return;
        }
        self.terminate();
        if !self.ends_within(GRACE) {
            let _ = sys::kill(self.pid, libc::SIGKILL);
        }
        if let Err(error) = self.wait() {
            log::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::Suspended;

    fn shell(script: &str) -> Suspended {
        Suspended::fork(&["sh".to_owned(), "-c".to_owned(), script.to_owned()], true, 0).unwrap()
    }

    #[test]
    fn a_suspended_child_does_nothing_and_keeps_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let suspended = shell(&format!("echo $$ > {}", file.display()));
        let pid = suspended.pid();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!file.exists());
        let mut child = suspended.release().unwrap();
        assert_eq!(child.wait().unwrap(), 0);
        assert_eq!(fs::read_to_string(file).unwrap().trim(), pid.to_string());
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let suspended = shell("exec sleep 60");
        let proc = format!("/proc/{}", suspended.pid());
        assert!(fs::exists(&proc).unwrap());
        drop(suspended);
        assert!(!fs::exists(&proc).unwrap());
        let child = shell("trap '' TERM; exec sleep 60").release().unwrap();
        assert!(!child.ends_within(Duration::from_millis(20)));
        drop(child);
    }

    #[test]
    fn statuses_are_a_shells() {
        for (script, status) in [("exit 7", 7), ("kill -KILL $$", 137), ("kill -PIPE $$", 141)] {
            assert_eq!(shell(script).release().unwrap().wait().unwrap(), status, "{script}");
        }
    }

    #[test]
    fn commands_that_cannot_be_executed_are_not_forked() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let fork =
            |name: &str| Suspended::fork(&[name.to_owned()], true, 0).map(drop).map_err(|error| error.to_string());
        assert!(fork(&file("script", "#! /bin/sh -e\n", 0o755)).is_ok() && fork("sh").is_ok());
        let missing = "No such file or directory (os error 2)";
        let denied = "Permission denied (os error 13)";
        let cases = [
            ("/no/such/command".to_owned(), missing),
            ("no-such-command".to_owned(), missing),
            (file("plain", "text", 0o644), denied),
            (folder.path().display().to_string(), denied),
            (file("orphan", "#!/no/such/shell\n", 0o755), missing),
        ];
        for (name, why) in cases {
            assert_eq!(fork(&name), Err(format!("cannot run the workload '{name}': {why}")));
        }
    }
}
