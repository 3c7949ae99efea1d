//! Standard output: what programs print and what the command prints, in one order, with nothing lost in silence.
//!
//! A reader that went away ends the command as it ends any C program, by SIGPIPE; anything else that goes wrong is
//! kept until the end, because a script may not look at what `printf` returns.

use std::io::{self, ErrorKind, Stdout, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;

/// A handle of standard output; clones share what went wrong.
#[derive(Clone)]
pub(crate) struct Output {
    out: Arc<Stdout>,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { out: Arc::new(io::stdout()), error: Arc::default() }
    }

    /// For an instance: where its programs print.
    pub(crate) fn boxed(&self) -> Box<dyn Write + Send> {
        Box::new(self.clone())
    }

    /// Sends out what is buffered, so that a workload or a message comes behind it.
    ///
    /// # Errors
    /// The first write that failed since the last time this was asked.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let flushed = self.flush();
        let kept = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.map_or(flushed, Err).context("cannot write standard output")
    }

    fn keep<R>(&self, result: io::Result<R>) -> io::Result<R> {
        result.inspect_err(|error| {
            if error.kind() == ErrorKind::BrokenPipe {
                end_by_pipe();
            }
            let copy = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(copy);
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.keep(self.out.lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.keep(self.out.lock().flush())
    }
}

/// Ends the process as a write into a pipe without reader does where SIGPIPE is not ignored. Rust's startup ignores
/// it. Comes back only where the signal cannot be raised.
pub(crate) fn end_by_pipe() {
    let _ = emulate_default_handler(SIGPIPE);
}
