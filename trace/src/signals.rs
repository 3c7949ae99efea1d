//! Signals of a session, as descriptors to poll.
//!
//! While they are watched, the first of those that end a process ends the session instead; the second time it ends
//! the process. After [`Signals::impatient`], the first does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

use crate::sys::{self, Patience};

/// Signals that end a session.
const ENDS: [i32; 3] = [SIGTERM, SIGINT, SIGQUIT];

/// Signals that are watched, until this is dropped; from then on those that end a process do so again.
#[derive(Debug)]
pub(crate) struct Signals {
    patience: Arc<Patience>,
    ids: Vec<SigId>,
    terminate: UnixStream,
    interrupt: UnixStream,
    others: Vec<UnixStream>,
}

impl Signals {
    /// Watches what ends a session, and these.
    pub(crate) fn watch(others: &[i32]) -> io::Result<Signals> {
        let patience = Arc::new(Patience::default());
        let ((terminate, first), (interrupt, second)) = (pair()?, pair()?);
        let mut signals = Signals { patience, ids: Vec::new(), terminate, interrupt, others: Vec::new() };
        for signal in ENDS.into_iter().filter(|signal| !others.contains(signal)) {
            // Stays for good: without any action of ours left, signal-hook would ignore the signal.
            sys::end_by(signal, &signals.patience)?;
            let writer = if signal == SIGTERM { &first } else { &second };
            signals.ids.push(pipe::register(signal, writer.try_clone()?)?);
        }
        for signal in others {
            let (reader, writer) = pair()?;
            signals.ids.push(pipe::register(*signal, writer)?);
            signals.others.push(reader);
        }
        Ok(signals)
    }

    /// Readable when the session is to end and the workload with it: SIGTERM.
    pub(crate) fn terminate(&self) -> BorrowedFd<'_> {
        self.terminate.as_fd()
    }

    /// Readable when the session is to end: signals that a terminal also sends to the workload.
    pub(crate) fn interrupt(&self) -> BorrowedFd<'_> {
        self.interrupt.as_fd()
    }

    /// Readable when the signal with this place in the list came.
    pub(crate) fn other(&self, index: usize) -> BorrowedFd<'_> {
        self.others[index].as_fd()
    }

    /// From now on a signal ends the process.
    pub(crate) fn impatient(&self) {
        self.patience.end();
    }
}

fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    Ok((reader, writer))
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.impatient();
        for id in self.ids.drain(..) {
            unregister(id);
        }
    }
}

/// Number of a signal by its name without `SIG`.
pub(crate) fn number(name: &str) -> Option<i32> {
    Some(match name {
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "QUIT" => libc::SIGQUIT,
        "USR1" => libc::SIGUSR1,
        "USR2" => libc::SIGUSR2,
        "ALRM" => libc::SIGALRM,
        "TERM" => libc::SIGTERM,
        "CONT" => libc::SIGCONT,
        "TSTP" => libc::SIGTSTP,
        "WINCH" => libc::SIGWINCH,
        "IO" => libc::SIGIO,
        "PWR" => libc::SIGPWR,
        _ => return None,
    })
}
