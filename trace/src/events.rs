//! Event loop of a session: polls for records, timers, signals and the end of the workload, and calls the scripts that
//! handle them.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use twinbpf_kernel::share::Take;

use crate::error::Error;
use crate::kernel_side::KernelSide;
use crate::output::Output;
use crate::script::SymbolSnapshots;
use crate::signals::Signals;
use crate::sys;
use crate::user_side::{Outcome, UserSide};
use crate::workload::Child;

/// Cause of the end of the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The workload or the process that was watched has ended.
    Ended,
    /// SIGTERM has arrived.
    Terminated,
    /// SIGINT or SIGQUIT.
    Interrupted,
    /// A script called `exit(status)`.
    Exit(u8),
    /// There was nothing to wait for.
    Idle,
}

/// A source of events that [`Loop`] polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Ended,
    Terminate,
    Interrupt,
    Signal(usize),
    Timer { user_side: usize, timer: usize },
    Records { kernel_side: usize },
}

/// See the module documentation.
pub(crate) struct Loop<'a> {
    pub(crate) user_sides: &'a mut [UserSide],
    pub(crate) kernel_sides: &'a mut [KernelSide],
    pub(crate) output: &'a Output,
    pub(crate) child: Option<&'a Child>,
    /// Other processes whose end is that of the session: that of `-p`, perf.
    pub(crate) ends: Vec<BorrowedFd<'a>>,
    pub(crate) signals: &'a Signals,
    /// Numbers of the signals that scripts handle, in the order in which they are watched.
    pub(crate) numbers: &'a [i32],
    /// Snapshots of the workload's mappings.
    pub(crate) snapshots: Option<SymbolSnapshots>,
}

impl Loop<'_> {
    pub(crate) fn run(mut self) -> Result<SessionEnd, Error> {
        loop {
            let Some(ready) = self.wait()? else { return Ok(SessionEnd::Idle) };
            // Records first: they are older than what else woke us.
            let records = self.read(&ready)?;
            if let Outcome::Exit(status) = records {
                return Ok(SessionEnd::Exit(status));
            }
            for token in ready {
                match self.handle(token)? {
                    None => {}
                    Some(over) => return Ok(over),
                }
            }
        }
    }

    /// Waits until a source is ready and returns all that are. `None`: no source can become ready any more.
    fn wait(&mut self) -> Result<Option<Vec<Token>>, Error> {
        let mut waited: Vec<(Token, BorrowedFd<'_>)> =
            vec![(Token::Terminate, self.signals.terminate()), (Token::Interrupt, self.signals.interrupt())];
        let always = waited.len();
        waited.extend(self.child.map(|child| (Token::Ended, child.fd())));
        waited.extend(self.ends.iter().map(|process| (Token::Ended, *process)));
        waited.extend((0..self.numbers.len()).map(|index| (Token::Signal(index), self.signals.other(index))));
        for (index, user_side) in self.user_sides.iter().enumerate() {
            waited.extend(user_side.running_timers().map(|(timer, fd)| (Token::Timer { user_side: index, timer }, fd)));
        }
        for (kernel_side, source) in self.kernel_sides.iter().enumerate() {
            waited.extend(source.sources().map(|fd| (Token::Records { kernel_side }, fd)));
        }
        if waited.len() == always && !self.kernel_sides.iter().any(KernelSide::is_attached) {
            return Ok(None);
        }
        let update = self.snapshots.as_mut().map(SymbolSnapshots::update);
        let unsettled = self.kernel_sides.iter().any(KernelSide::is_unsettled);
        let fds: Vec<BorrowedFd<'_>> = waited.iter().map(|(_, fd)| *fd).collect();
        let ready = sys::poll(&fds, unsettled.then_some(SETTLE).or(update))
            .map_err(|cause| Error::System { what: "wait for events", cause })?;
        let ready = waited.iter().zip(ready).filter(|(_, ready)| *ready).map(|((token, _), _)| *token);
        Ok(Some(ready.collect()))
    }

    /// Calls EVENT programs for the records that have come, and flushes what they print once.
    fn read(&mut self, ready: &[Token]) -> Result<Outcome, Error> {
        self.output.set_batched(true);
        let mut outcome = perform(self.user_sides, self.kernel_sides, Take::Settled)?;
        for (index, (user_side, kernel_side)) in
            self.user_sides.iter_mut().zip(self.kernel_sides.iter_mut()).enumerate()
        {
            if outcome != Outcome::Done {
                break;
            }
            let new = ready.contains(&Token::Records { kernel_side: index });
            if new || kernel_side.is_unsettled() {
                outcome = kernel_side.read(user_side, new)?;
            }
        }
        self.output.set_batched(false);
        self.output.finish()?;
        Ok(outcome)
    }

    fn handle(&mut self, token: Token) -> Result<Option<SessionEnd>, Error> {
        let outcome = match token {
            Token::Ended => return Ok(Some(SessionEnd::Ended)),
            Token::Terminate => return Ok(Some(SessionEnd::Terminated)),
            Token::Interrupt => return Ok(Some(SessionEnd::Interrupted)),
            Token::Records { .. } => return Ok(None),
            Token::Timer { user_side, timer } => self.user_sides[user_side].on_timer(timer)?,
            Token::Signal(index) => self.signal(index)?,
        };
        Ok(match outcome {
            Outcome::Exit(status) => Some(SessionEnd::Exit(status)),
            Outcome::Done | Outcome::Aborted => None,
        })
    }

    fn signal(&mut self, index: usize) -> Result<Outcome, Error> {
        sys::drain(self.signals.other(index));
        for user_side in self.user_sides.iter_mut() {
            if let Outcome::Exit(status) = user_side.on_signal(self.numbers[index])? {
                return Ok(Outcome::Exit(status));
            }
        }
        Ok(Outcome::Done)
    }
}

/// Time until perf buffers are read again, after which no CPU can deliver an older record.
const SETTLE: Duration = Duration::from_millis(2);

/// Does what the records of all objects ask for, in the order of their times.
///
/// # Errors
/// A format that cannot be obeyed, an output that takes no more.
pub(crate) fn perform(
    user_sides: &mut [UserSide],
    kernel_sides: &mut [KernelSide],
    take: Take,
) -> Result<Outcome, Error> {
    let mut requests = Vec::new();
    for (index, kernel_side) in kernel_sides.iter_mut().enumerate() {
        let read = kernel_side.printer().map(|printer| printer.read(take)).unwrap_or_default();
        requests.extend(read.into_iter().map(|request| (index, request)));
    }
    requests.sort_by_key(|(_, request)| request.time);
    for (index, request) in &requests {
        if let Outcome::Exit(status) = user_sides[*index].perform(request)? {
            return Ok(Outcome::Exit(status));
        }
    }
    Ok(Outcome::Done)
}
