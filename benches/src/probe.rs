//! The first run of a peer, in a process of its own.
//!
//! A peer that computes the wrong thing may as well never end, or end the process it runs in. So its first two runs
//! happen in a child, with a time limit; what comes back is whether they gave the right result.
#![expect(unsafe_code, reason = "calls of the C library and of generated code")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use twinbpf_vm::trap::panic_words;

use crate::peers::Make;

/// Seconds that a peer has for being made and for two runs.
const LIMIT: u32 = 20;

/// Whether the machine returns `expected`, twice, because the second run finds memory as the first one left it.
pub fn probe(make: &Make, expected: u64) -> Result<(), String> {
    let mut ends = [0; 2];
    // SAFETY: `ends` is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(format!("no pipe: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: both were opened just now, and nothing else uses them.
    let [mut reader, mut writer] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
    // SAFETY: the child runs on its copy of this thread alone and ends in `_exit`. Other threads of this process
    // hold no lock that it takes: it allocates, which the C library makes safe, and runs a machine that it makes.
    match unsafe { libc::fork() } {
        -1 => Err(format!("no process: {}", std::io::Error::last_os_error())),
        0 => {
            // SAFETY: takes a number.
            unsafe { libc::alarm(LIMIT) };
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(make, expected)));
            let answer = answer.unwrap_or_else(|panic| Err(words(&*panic)));
            let written = writer.write_all(answer.as_ref().err().map_or("", String::as_str).as_bytes());
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(answer.is_err() || written.is_err())) }
        }
        child => {
            drop(writer);
            let mut answer = String::new();
            let read = reader.read_to_string(&mut answer);
            let mut status = 0;
            // SAFETY: waits for the child made above; `status` is room for the answer.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            assert!(waited == child && read.is_ok(), "the child is ours");
            match (libc::WIFSIGNALED(status), libc::WTERMSIG(status)) {
                (true, libc::SIGALRM) => Err(format!("did not end within {LIMIT} s")),
                (true, signal) => Err(format!("ended its process by signal {signal}")),
                (false, _) if libc::WEXITSTATUS(status) == 0 => Ok(()),
                (false, _) => Err(answer),
            }
        }
    }
}

/// What the child does, and what is done with our own machines here.
pub fn check(make: &Make, expected: u64) -> Result<(), String> {
    let mut machine = make()?;
    for result in [machine.run()?, machine.run()?] {
        if result != expected {
            return Err(format!("returned {result:#x} instead of {expected:#x}"));
        }
    }
    Ok(())
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic_words(panic).unwrap_or("without words");
    format!("panicked: {}", text.lines().next().unwrap_or_default())
}
