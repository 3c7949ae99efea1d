//! Output of scripts: standard output or a file, as text or JSON, in one order. No write error is lost.
//!
//! A reader of standard output that went away ends the process as it ends any C program, by SIGPIPE; but where that must
//! not be, since a session has to end in order ([`Output::set_lasting`]), and whatever else goes wrong: the error is kept
//! until it is queried, because a script need not check what `printf` returns.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use twinbpf_vm::host::OutputFormat;

use crate::error::Error;
use crate::terminal::{Escaped, Stderr, end_by_pipe};

const STDERR: &str = "standard error";
/// Bytes that are buffered where lines are not flushed one by one.
const BUFFER: usize = 64 << 10;

/// A handle of the output; clones share it.
#[derive(Clone)]
pub struct Output {
    state: Arc<Mutex<State>>,
    /// Something was written since [`Output::finish`].
    written: Arc<AtomicBool>,
}

struct State {
    out: BufWriter<Box<dyn Write + Send>>,
    name: String,
    format: OutputFormat,
    /// Complete lines stay buffered.
    batched: bool,
    /// After a failed write, what comes goes to standard error, and the process lives on.
    lasting: bool,
    error: Option<(String, io::Error)>,
    /// A file with what it had before, which the first write removes.
    old: Option<File>,
}

/// Standard output without the buffer of [`io::stdout`], which would write each line by itself; escaped for a terminal.
fn stdout() -> Box<dyn Write + Send> {
    let terminal = io::stdout().is_terminal();
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(fd) => Box::new(Escaped::new(terminal, File::from(fd))),
        // No descriptor is left, or it was closed: the standard library knows what to do.
        Err(_) => Box::new(Escaped::new(terminal, io::stdout())),
    }
}

impl Default for Output {
    fn default() -> Output {
        Output::new(stdout(), "standard output".to_owned(), OutputFormat::Text)
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("Output").field("name", &state.name).field("format", &state.format).finish_non_exhaustive()
    }
}

impl Output {
    fn new(out: Box<dyn Write + Send>, name: String, format: OutputFormat) -> Output {
        let out = BufWriter::with_capacity(BUFFER, out);
        let state = State { out, name, format, batched: false, lasting: false, error: None, old: None };
        Output { state: Arc::new(Mutex::new(state)), written: Arc::default() }
    }

    /// Standard output, or a file. A file that is there is emptied by the first write, or when a session begins.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn open(path: Option<&Path>, format: OutputFormat) -> Result<Output, Error> {
        let Some(path) = path else {
            return Ok(Output::new(stdout(), "standard output".to_owned(), format));
        };
        let name = path.display().to_string();
        let made = File::options().write(true).create(true).truncate(false).open(path).and_then(|file| {
            let old = if file.metadata()?.is_file() { Some(file.try_clone()?) } else { None };
            Ok((file, old))
        });
        match made {
            Ok((file, old)) => {
                let output = Output::new(Box::new(file), name, format);
                output.lock().old = old;
                Ok(output)
            }
            Err(cause) => Err(Error::Output { what: name, cause }),
        }
    }

    /// Removes what the file had before.
    ///
    /// # Errors
    /// It cannot be emptied.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        let mut state = self.lock();
        state.empty().map_err(|cause| Error::Output { what: state.name.clone(), cause })
    }

    /// A writer of a host that prints to the same place, by the name that messages have for it. Nothing is escaped.
    pub fn to(out: Box<dyn Write + Send>, name: &str, format: OutputFormat) -> Output {
        Output::new(out, name.to_owned(), format)
    }

    /// For an instance: where its programs print.
    pub fn boxed(&self) -> Box<dyn Write + Send> {
        Box::new(self.clone())
    }

    /// Sends out what is buffered, so that what a workload or a message prints comes after it.
    ///
    /// # Errors
    /// The first write that failed since the last call.
    #[inline]
    pub fn finish(&self) -> Result<(), Error> {
        // Most calls print nothing, and a read is less than an exchange.
        if !self.written.load(Ordering::Relaxed) || !self.written.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.flush_all()
    }

    fn flush_all(&self) -> Result<(), Error> {
        let mut state = self.lock();
        let flushed = state.flush();
        match (state.error.take(), flushed) {
            (Some((what, cause)), _) => Err(Error::Output { what, cause }),
            (None, Err(cause)) => Err(Error::Output { what: state.name.clone(), cause }),
            (None, Ok(())) => Ok(()),
        }
    }

    /// Sets whether a failed write is followed by writes to standard error, so that what comes is not lost.
    pub(crate) fn set_lasting(&self, lasting: bool) {
        self.lock().lasting = lasting;
    }

    /// Sets whether complete lines stay buffered until [`Output::finish`], for many records at a time.
    pub(crate) fn set_batched(&self, batched: bool) {
        self.lock().batched = batched;
    }

    /// The output format.
    pub(crate) fn format(&self) -> OutputFormat {
        self.lock().format
    }

    /// In JSON, one object; nothing in text.
    pub(crate) fn object(&self, kind: &str, data: &Value) {
        let mut state = self.lock_to_write();
        if state.format == OutputFormat::Json {
            // What fails is kept.
            let _ = state.write(format!("{}\n", json!({ "type": kind, "data": data })).as_bytes());
        }
    }

    /// What is in the output's format already.
    pub(crate) fn print(&self, bytes: &[u8]) {
        // What fails is kept.
        let _ = self.lock_to_write().write(bytes);
    }

    /// To write.
    fn lock_to_write(&self) -> MutexGuard<'_, State> {
        self.written.store(true, Ordering::Relaxed);
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn empty(&mut self) -> io::Result<()> {
        self.old.take().map_or(Ok(()), |file| file.set_len(0))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let result = self.empty().and_then(|()| self.out.write_all(bytes));
        self.keep(result)?;
        if self.batched || !bytes.contains(&b'\n') { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.keep(result)
    }

    fn keep(&mut self, result: io::Result<()>) -> io::Result<()> {
        let Err(error) = result else { return Ok(()) };
        if error.kind() == ErrorKind::BrokenPipe && !self.lasting {
            end_by_pipe();
        }
        let copy = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        self.error.get_or_insert((self.name.clone(), copy));
        if self.lasting && self.name != STDERR {
            let stderr = BufWriter::with_capacity(BUFFER, Box::new(Stderr) as Box<dyn Write + Send>);
            let (_, unwritten) = std::mem::replace(&mut self.out, stderr).into_parts();
            STDERR.clone_into(&mut self.name);
            if let Ok(unwritten) = unwritten {
                self.out.write_all(&unwritten)?;
            }
        }
        Err(error)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock_to_write().write(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock().flush()
    }
}
