//! The loop of a session: waits for records, timers, signals and the end of the workload, and calls what is for them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::error::Error;
use crate::kernel::Half;
use crate::output::Output;
use crate::script::Remembering;
use crate::signals::Signals;
use crate::sys;
use crate::tool::{Outcome, Tool};
use crate::workload::Child;

/// Why the loop is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The workload or the process that was watched has ended.
    Ended,
    /// SIGTERM.
    Terminated,
    /// SIGINT or SIGQUIT.
    Interrupted,
    /// A script called `exit(status)`.
    Exit(u8),
    /// There was nothing to wait for.
    Idle,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Ended,
    Terminate,
    Interrupt,
    Signal(usize),
    Timer { tool: usize, timer: usize },
    Records { half: usize },
}

/// See the module documentation.
pub(crate) struct Loop<'a> {
    pub(crate) tools: &'a mut [Tool],
    pub(crate) halves: &'a mut [Half],
    pub(crate) output: &'a Output,
    pub(crate) child: Option<&'a Child>,
    pub(crate) target: Option<&'a OwnedFd>,
    pub(crate) signals: &'a Signals,
    /// Signals that programs are for, in the order in which they are watched.
    pub(crate) numbers: &'a [i32],
    /// Of the workload.
    pub(crate) remembering: Option<Remembering>,
}

impl Loop<'_> {
    pub(crate) fn run(mut self) -> Result<Over, Error> {
        loop {
            let Some(ready) = self.wait()? else { return Ok(Over::Idle) };
            // Records first: they are older than what else woke us.
            let records = self.read(&ready)?;
            if let Outcome::Exit(status) = records {
                return Ok(Over::Exit(status));
            }
            for token in ready {
                match self.handle(token)? {
                    None => {}
                    Some(over) => return Ok(over),
                }
            }
        }
    }

    /// What is ready. None where nothing ever will be.
    fn wait(&mut self) -> Result<Option<Vec<Token>>, Error> {
        let mut waited: Vec<(Token, BorrowedFd<'_>)> =
            vec![(Token::Terminate, self.signals.terminate()), (Token::Interrupt, self.signals.interrupt())];
        let always = waited.len();
        waited.extend(self.child.map(|child| (Token::Ended, child.fd())));
        waited.extend(self.target.map(|target| (Token::Ended, target.as_fd())));
        waited.extend((0..self.numbers.len()).map(|index| (Token::Signal(index), self.signals.other(index))));
        for (index, tool) in self.tools.iter().enumerate() {
            waited.extend(tool.running_timers().map(|(timer, fd)| (Token::Timer { tool: index, timer }, fd)));
        }
        for (half, source) in self.halves.iter().enumerate() {
            waited.extend(source.sources().map(|fd| (Token::Records { half }, fd)));
        }
        if waited.len() == always && !self.halves.iter().any(Half::is_attached) {
            return Ok(None);
        }
        let look = self.remembering.as_mut().map(Remembering::look);
        let unsettled = self.halves.iter().any(Half::is_unsettled);
        let fds: Vec<BorrowedFd<'_>> = waited.iter().map(|(_, fd)| *fd).collect();
        let ready = sys::poll(&fds, unsettled.then_some(SETTLE).or(look))
            .map_err(|cause| Error::System { what: "wait for events", cause })?;
        let ready = waited.iter().zip(ready).filter(|(_, ready)| *ready).map(|((token, _), _)| *token);
        Ok(Some(ready.collect()))
    }

    /// Calls EVENT for the records that have come; what they print goes out together.
    fn read(&mut self, ready: &[Token]) -> Result<Outcome, Error> {
        let mut outcome = Outcome::Done;
        self.output.hold(true);
        for (index, (tool, half)) in self.tools.iter_mut().zip(self.halves.iter_mut()).enumerate() {
            let new = ready.contains(&Token::Records { half: index });
            if new || half.is_unsettled() {
                outcome = half.read(tool, new)?;
            }
            if outcome != Outcome::Done {
                break;
            }
        }
        self.output.hold(false);
        self.output.finish()?;
        Ok(outcome)
    }

    fn handle(&mut self, token: Token) -> Result<Option<Over>, Error> {
        let outcome = match token {
            Token::Ended => return Ok(Some(Over::Ended)),
            Token::Terminate => return Ok(Some(Over::Terminated)),
            Token::Interrupt => return Ok(Some(Over::Interrupted)),
            Token::Records { .. } => return Ok(None),
            Token::Timer { tool, timer } => self.tools[tool].on_timer(timer)?,
            Token::Signal(index) => self.signal(index)?,
        };
        Ok(match outcome {
            Outcome::Exit(status) => Some(Over::Exit(status)),
            Outcome::Done | Outcome::Aborted => None,
        })
    }

    fn signal(&mut self, index: usize) -> Result<Outcome, Error> {
        sys::drain(self.signals.other(index));
        for tool in self.tools.iter_mut() {
            if let Outcome::Exit(status) = tool.on_signal(self.numbers[index])? {
                return Ok(Outcome::Exit(status));
            }
        }
        Ok(Outcome::Done)
    }
}

/// When records of several CPUs are looked at again, after which none older can come.
const SETTLE: Duration = Duration::from_millis(2);
