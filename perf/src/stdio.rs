//! perf's standard output: its own lines and those of scripts go through one buffer, that of C.
#![expect(unsafe_code, reason = "functions of C for its standard output")]

use std::io::{self, IsTerminal, Write};

use libc::{FILE, c_int};
use twinbpf_trace::terminal::Escaped;

unsafe extern "C" {
    static stdout: *mut FILE;
    safe fn raise(signal: c_int) -> c_int;
}

/// `stdout` of C.
#[derive(Debug)]
pub(crate) struct Stdio;

impl Write for Stdio {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: C's own stream, and as many bytes as are there.
        let written = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stdout) };
        if written == 0 && !bytes.is_empty() { Err(io::Error::last_os_error()) } else { Ok(written) }
    }

    /// Leaves it to C when to write.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where scripts print. perf's pager shows a terminal what it gets.
pub(crate) fn output() -> Box<dyn Write + Send> {
    let terminal = io::stdout().is_terminal() || std::env::var_os("PERF_PAGER_IN_USE").is_some();
    Box::new(Escaped::new(terminal, Stdio))
}

/// Writes out what C has buffered, so that a message comes after it.
///
/// # Errors
/// A write failed, now or before.
pub(crate) fn flush() -> io::Result<()> {
    // SAFETY: C's own stream.
    let (flushed, failed) = unsafe { (libc::fflush(stdout), libc::ferror(stdout)) };
    match (flushed, failed) {
        (0, 0) => Ok(()),
        (0, _) => Err(io::Error::other("an earlier write failed")),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets perf stop reading in order, as at ^C, if it has a handler for that.
pub(crate) fn interrupt() {
    // SAFETY: all zeroes are valid for it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: it only reads the action.
    let queried = unsafe { libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut action) };
    if queried == 0 && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
        raise(libc::SIGINT);
    }
}

/// Ends the process with a status, as `exit` of C does: streams are flushed, perf's pager is waited for.
pub(crate) fn exit(status: u8) -> ! {
    // SAFETY: perf is at its end, and calls from one thread.
    unsafe { libc::exit(status.into()) }
}
