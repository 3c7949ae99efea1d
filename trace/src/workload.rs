//! Workload of a session: a child process that is forked and suspended before any attachment is enabled, and executes
//! its command after.
//!
//! It ends with the thread that forked it: suspended, because the pipe closes; running, by SIGKILL.

use std::ffi::CString;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
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
    /// Forks a child that will become this command.
    pub(crate) fn fork(command: &[String]) -> Result<Suspended, Error> {
        let name = command.first().cloned().unwrap_or_default();
        let failed = |cause| Error::Workload { name: name.clone(), cause };
        let words: Result<Vec<CString>, _> = command.iter().map(|word| CString::new(word.as_str())).collect();
        let words = words.map_err(|error| failed(error.into()))?;
        let (wait, release) = pipe().map_err(failed)?;
        let (failure, report) = pipe().map_err(failed)?;
        let ends = sys::Pipes { wait: wait.as_fd(), release: release.as_fd(), failure: report.as_fd() };
        let pid = sys::fork(&words, &ends).map_err(failed)?;
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
    use std::time::Duration;

    use super::Suspended;

    fn shell(script: &str) -> Suspended {
        Suspended::fork(&["sh".to_owned(), "-c".to_owned(), script.to_owned()]).unwrap()
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
        let error = Suspended::fork(&["/no/such/command".to_owned()]).unwrap().release().unwrap_err().to_string();
        assert_eq!(error, "cannot run the workload '/no/such/command': No such file or directory (os error 2)");
    }
}
