//! `read_mem`: memory of the processes that a session traces. Our own memory is refused always, since the sandbox
//! would end there; so is that of a process which shares or copied it: a thread, a child that has not called `execve`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use twinbpf::{Caller, Fail, Ptr};
use twinbpf_vm::map::Errno;
use twinbpf_vm::mem::Access;

use crate::control::{Control, Reach};

/// Most bytes one `read_mem` reads.
const MAX_READ: u64 = 1 << 20;
/// Generations between the workload and a process that it started.
const MAX_GENERATIONS: u32 = 64;

/// A process as `/proc` has it, by one of its threads. It stays the same one if the number gets another owner.
struct Process {
    folder: File,
}

impl Process {
    fn open(tid: u32) -> io::Result<Process> {
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(format!("/proc/{tid}"))?;
        Ok(Process { folder })
    }

    fn path(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd())
    }

    /// A number from its `status`.
    fn status(&self, key: &str) -> io::Result<u32> {
        let text = fs::read_to_string(self.path("status"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok());
        value.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn pid(&self) -> io::Result<u32> {
        self.status("Tgid")
    }

    /// Where its stack, arguments and environment begin: those of an address space, which a child has until `execve`.
    fn layout(&self) -> io::Result<[u64; 3]> {
        let text = fs::read_to_string(self.path("stat"))?;
        // The name of the command may hold anything; the fields after it are numbered from 3, proc_pid_stat(5).
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        let layout = [28, 48, 50].map(field);
        match layout {
            [Some(stack), Some(arguments), Some(environment)] => Ok([stack, arguments, environment]),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Whether its memory is ours, or a copy of it.
    fn is_ours(&self) -> io::Result<bool> {
        Ok(self.pid()? == std::process::id() || self.layout()? == Process::open(std::process::id())?.layout()?)
    }

    fn descends_from(&self, ancestor: u32) -> io::Result<bool> {
        let mut pid = self.pid()?;
        for _ in 0..MAX_GENERATIONS {
            match pid {
                _ if pid == ancestor => return Ok(true),
                0 | 1 => return Ok(false),
                _ => pid = Process::open(pid)?.status("PPid")?,
            }
        }
        Ok(false)
    }
}

impl Reach {
    pub(crate) fn new(any: bool, chosen: Vec<u32>) -> Reach {
        Reach { any, chosen, refusal_reported: false }
    }

    /// Whether the process is within it; `workload` is 0 where there is none.
    fn allows(&self, process: &Process, workload: u32) -> io::Result<bool> {
        if self.any {
            return Ok(true);
        }
        let pid = process.pid()?;
        let is_chosen =
            |tid: &u32| Process::open(*tid).and_then(|chosen| chosen.pid()).is_ok_and(|chosen| chosen == pid);
        Ok(self.chosen.iter().any(is_chosen) || workload != 0 && process.descends_from(workload)?)
    }
}

/// Copies memory of another process; the number of bytes, which are fewer where it ends, or a negative errno.
pub(crate) fn read_mem(mut caller: Caller<'_, Control>, pid: u32, dst: Ptr, size: u64, from: u64) -> Result<i64, Fail> {
    if size > MAX_READ {
        return Err(Errno::E2BIG.into());
    }
    caller.check(dst, size, Access::Write)?;
    let mut bytes = vec![0; size as usize];
    let read = read(caller.data_mut(), pid, &mut bytes, from)?;
    caller.write(dst, &bytes[..read])?;
    Ok(read as i64)
}

fn read(control: &mut Control, pid: u32, bytes: &mut [u8], from: u64) -> Result<usize, Errno> {
    let failed = |error: io::Error| match error.raw_os_error() {
        // The file's word for an address where nothing is.
        Some(libc::EIO) | None => Errno::EFAULT,
        Some(number) => Errno(number),
    };
    let process = Process::open(pid).map_err(failed)?;
    // Opened before the checks: it is the memory of this moment, whatever the process executes later.
    let memory = File::open(process.path("mem"));
    let refusal = if process.is_ours().map_err(failed)? {
        Some("its memory is twinbpf's own, or a copy of it")
    } else if !control.reach.allows(&process, control.workload).map_err(failed)? {
        Some("it is neither the workload nor the process of -p or -t; --unsafe lets scripts read others")
    } else {
        None
    };
    if let Some(why) = refusal {
        if !std::mem::replace(&mut control.reach.refusal_reported, true) {
            log::warn!("read_mem of process {pid} is refused: {why}");
        }
        return Err(Errno::EPERM);
    }
    memory.and_then(|memory| memory.read_at(bytes, from)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    static MARK: u64 = 0x1122_3344_5566_7788;

    fn try_read(reach: Reach, workload: u32, pid: u32) -> Result<usize, Errno> {
        let mut control = Control { reach, workload, ..Control::default() };
        read(&mut control, pid, &mut [0; 8], &raw const MARK as u64)
    }

    fn sleeper() -> Child {
        // The shell starts another process, so that the workload has a child.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped()).process_group(0);
        command.spawn().unwrap()
    }

    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;

    #[test]
    fn our_own_memory_is_refused_by_any_thread() {
        let any = || Reach::new(true, vec![std::process::id()]);
        let (sender, receiver) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let tid: u32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            sender.send(tid).unwrap();
            let _ = wait.recv();
        });
        let tid = receiver.recv().unwrap();
        assert_ne!(tid, std::process::id());
        assert_eq!(try_read(any(), 0, tid), Err(Errno::EPERM));
        assert_eq!(try_read(any(), 0, std::process::id()), Err(Errno::EPERM));
        drop(done);
        thread.join().unwrap();
    }

    #[test]
    fn a_child_that_has_not_executed_another_program_is_ours() {
        let suspended = crate::workload::Suspended::fork(&["true".to_owned()], true, 0).unwrap();
        let pid = suspended.pid() as u32;
        assert_eq!(try_read(Reach::new(true, vec![pid]), pid, pid), Err(Errno::EPERM));
    }

    #[test]
    fn others_are_read_within_reach_only() {
        let mut shell = sleeper();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (workload, child): (u32, u32) = (shell.id(), line.trim().parse().unwrap());
        let fault = Err(Errno::EFAULT);
        // Wherever it is allowed, nothing is at our address in the other process. Of memory that it leaves by `execve` between
        // the checks there would be 0 bytes.
        for (pid, program) in [(workload, "sh"), (child, "sleep")] {
            while fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim_end() != program {
                std::thread::yield_now();
            }
            assert_eq!(try_read(Reach::default(), 0, pid), Err(Errno::EPERM));
            assert_eq!(try_read(Reach::default(), workload, pid), fault);
            assert_eq!(try_read(Reach::new(true, vec![]), 0, pid), fault);
            assert_eq!(try_read(Reach::new(false, vec![pid]), 0, pid), fault);
        }
        assert_eq!(try_read(Reach::new(false, vec![child]), 0, workload), Err(Errno::EPERM));
        // The group that the shell leads.
        assert!(Command::new("sh").args(["-c", &format!("kill -KILL -{workload}")]).status().unwrap().success());
        shell.wait().unwrap();
        assert_eq!(try_read(Reach::new(true, vec![]), 0, workload), Err(Errno(libc::ENOENT)));
    }
}
