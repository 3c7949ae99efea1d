//! Memory of a live process, by `process_vm_readv(2)`.

use std::io;
use std::path::Path;

use twinbpf_vm::host::{TargetMemory, read_on};

use super::Mapping;
use crate::sys::memory::{page_size, read_process};

/// A process whose memory cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is none of this number.
    #[error("there is no process {0}")]
    None(u32),
    /// It has ended, or is a thread of the kernel.
    #[error("process {0} has no memory: it has ended, or is a thread of the kernel")]
    Ended(u32),
    /// Programs in a sandbox would read what is outside of it.
    #[error("process {0} is this one, whose memory programs may not read")]
    Own(u32),
    /// The kernel refuses it.
    #[error("the memory of process {pid} cannot be read: {error}")]
    Refused {
        /// Number of the process.
        pid: u32,
        /// What the kernel says.
        error: io::Error,
    },
}

/// The memory of a live process.
#[derive(Clone, Debug)]
pub struct ProcessMemory {
    pid: u32,
    mappings: Vec<Mapping>,
}

impl ProcessMemory {
    /// The memory of the process with that number.
    ///
    /// # Errors
    /// There is no other process of that number that we may look into.
    pub fn open(pid: u32) -> Result<ProcessMemory, ProcessError> {
        // A thread's number leads to the memory of its process.
        if Path::new("/proc/self/task").join(pid.to_string()).exists() {
            return Err(ProcessError::Own(pid));
        }
        let mappings = Mapping::of_process(pid).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => ProcessError::None(pid),
            _ => ProcessError::Refused { pid, error },
        })?;
        let Some(first) = mappings.first() else { return Err(ProcessError::Ended(pid)) };
        // Its permissions are not those of the file above.
        match read_process(pid, first.start, &mut [0]) {
            Err(error) if error.raw_os_error() != Some(libc::EFAULT) => Err(ProcessError::Refused { pid, error }),
            _ => Ok(ProcessMemory { pid, mappings }),
        }
    }

    /// Files that it had mapped when this was made.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

impl TargetMemory for ProcessMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let page = page_size() as u64;
        read_on(address, bytes, |at, rest| {
            // The kernel may copy nothing where it cannot copy all.
            let count = rest.len().min((page - at % page) as usize);
            read_process(self.pid, at, &mut rest[..count]).unwrap_or(0)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn memory_of_another_process_is_read_to_its_end() {
        let mut command = Command::new("sh");
        let mut child =
            command.args(["-c", "echo; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It has memory of its own when it writes.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let memory = ProcessMemory::open(child.id()).unwrap();
        let text = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let stack = text.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let end = u64::from_str_radix(&stack[stack.find('-').unwrap() + 1..stack.find(' ').unwrap()], 16).unwrap();
        let mut bytes = [0xff; 16];
        // The kernel leaves eight bytes of zeros there, after the file's name.
        assert_eq!(memory.read(end - 8, &mut bytes), 8);
        assert_eq!(bytes[..8], [0; 8]);
        let mut long = vec![0; 10_000];
        assert_eq!(memory.read(end - 9000, &mut long), 9000);
        assert_eq!(memory.read(16, &mut bytes), 0);
        child.kill().unwrap();
        child.wait().unwrap();
        let error = ProcessMemory::open(child.id()).unwrap_err();
        assert_eq!(error.to_string(), format!("there is no process {}", child.id()));
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let thread: u32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
        for own in [std::process::id(), thread] {
            let error = ProcessMemory::open(own).unwrap_err();
            assert!(error.to_string().ends_with("is this one, whose memory programs may not read"), "{error}");
        }
        // A thread of the kernel.
        assert!(matches!(
            ProcessMemory::open(2),
            Err(ProcessError::Ended(2) | ProcessError::None(2) | ProcessError::Refused { .. })
        ));
    }
}
