//! The child that records: `perf record`, which opens its events disabled and takes commands by a pipe.

use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use twinbpf_kernel::link::event_number;

use super::command::Known;
use crate::errln;
use crate::error::Error;
use crate::sys;

/// Its name, searched for in PATH.
const PERF: &str = "perf";
/// How long it may take to obey before it gets a signal.
const PATIENCE: Duration = Duration::from_secs(2);

/// A `perf record` that runs. Dropping it ends it in order: what it has is written.
#[derive(Debug)]
pub(super) struct Perf {
    child: Child,
    /// Readable when it has ended.
    process: OwnedFd,
    commands: PipeWriter,
    answers: PipeReader,
    messages: Option<JoinHandle<()>>,
    status: Option<ExitStatus>,
    /// A signal asked it to end, by which it dies when all is written.
    interrupted: bool,
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// perf has obeyed.
    Done,
    /// perf takes no commands any more: it completes its file, or has ended.
    Over,
    /// The time is over.
    Late,
}

/// What `perf record -h` says of its options.
///
/// # Errors
/// There is no perf.
pub(super) fn known_options() -> Result<Known, Error> {
    let output = Command::new(PERF).args(["record", "-h"]).stdin(Stdio::null()).output();
    let output = output.map_err(|cause| Error::NoPerf { cause })?;
    let known = Known::of_help(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    if known == Known::default() {
        let cause = io::Error::new(io::ErrorKind::Unsupported, "`perf record -h` lists no options");
        return Err(Error::NoPerf { cause });
    }
    Ok(known)
}

impl Perf {
    /// Starts it, and returns when it has opened its events. `known` gets its number at once.
    ///
    /// # Errors
    /// It ended before, and has said why.
    pub(super) fn start(options: &[String], mut known: impl FnMut(u32)) -> Result<Perf, Error> {
        let failed = |cause| Error::System { what: "run perf record", cause };
        let (told, commands) = pipe().map_err(failed)?;
        let (answers, acks) = pipe().map_err(failed)?;
        let mut command = Command::new(PERF);
        command.args(["record", "-D", "-1", "--control"]);
        command.arg(format!("fd:{},{}", told.as_raw_fd(), acks.as_raw_fd()));
        // A terminal's Ctrl-C is for the session, which ends it in order.
        command.args(options).stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        // With both ends of each perf sees no end where this process ends: it would give up instead of completing its file.
        let ends = [told.as_raw_fd(), acks.as_raw_fd(), commands.as_raw_fd(), answers.as_raw_fd()];
        sys::bind(&mut command, libc::SIGINT, ends);
        let mut child = command.spawn().map_err(|cause| Error::NoPerf { cause })?;
        known(child.id());
        let messages = child.stderr.take().map(|messages| std::thread::spawn(move || pass_on(messages)));
        let process = sys::pidfd(child.id() as i32).map_err(failed)?;
        let mut perf = Perf { child, process, commands, answers, messages, status: None, interrupted: false };
        match perf.command("ping", None)? {
            Answer::Done => Ok(perf),
            Answer::Over | Answer::Late => Err(perf.failure()),
        }
    }

    /// Records an event from now on, or all. `false`: it has ended.
    pub(super) fn enable(&mut self, event: &str) -> Result<bool, Error> {
        Ok(self.command(&format!("enable {event}"), None)? == Answer::Done)
    }

    /// Records an event no more, or all. `false`: it has ended, or has no time to listen.
    pub(super) fn disable(&mut self, event: &str) -> Result<bool, Error> {
        Ok(self.command(&format!("disable {event}"), Some(PATIENCE))? == Answer::Done)
    }

    /// Readable when it has ended.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Sends a command and waits until it is obeyed.
    fn command(&mut self, command: &str, limit: Option<Duration>) -> Result<Answer, Error> {
        let failed = |cause| Error::System { what: "control perf record", cause };
        match self.commands.write_all(format!("{}\n", command.trim_end()).as_bytes()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Answer::Over),
            Err(error) => return Err(failed(error)),
        }
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let fds = [self.answers.as_fd(), self.commands.as_fd(), self.process.as_fd()];
            let ready = sys::poll(&fds, left).map_err(failed)?;
            if ready[0] {
                let mut answer = [0; 16];
                // `ack`, or the end.
                let count = self.answers.read(&mut answer).map_err(failed)?;
                return Ok(if count > 0 { Answer::Done } else { Answer::Over });
            }
            match left {
                _ if ready[1] || ready[2] => return Ok(Answer::Over),
                Some(Duration::ZERO) => return Ok(Answer::Late),
                _ => {}
            }
        }
    }

    /// Its perf events, in the order in which it opened them.
    ///
    /// # Errors
    /// The kernel does not let this process have them (`pidfd_getfd`).
    pub(super) fn events(&self) -> io::Result<Vec<OwnedFd>> {
        let mut events = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))? {
            let entry = entry?;
            let is_event = std::fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[perf_event]");
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (true, Some(number)) = (is_event, number) {
                let event = sys::descriptor_of(self.process.as_fd(), number)?;
                events.push((event_number(event.as_fd())?, event));
            }
        }
        events.sort_by_key(|(number, _)| *number);
        Ok(events.into_iter().map(|(_, event)| event).collect())
    }

    /// Lets it write what it has, and waits for that however long it takes.
    ///
    /// # Errors
    /// It did not end well, and has said why.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.end();
        match self.status {
            Some(status) if status.success() => Ok(()),
            Some(status) if self.interrupted && status.signal() == Some(libc::SIGINT) => Ok(()),
            _ => Err(self.failure()),
        }
    }

    fn failure(&mut self) -> Error {
        self.end();
        Error::Perf { status: self.status.map_or_else(|| "an unknown status".to_owned(), |status| status.to_string()) }
    }

    /// Waits until it has written what it has.
    pub(super) fn end(&mut self) {
        if self.status.is_some() {
            return;
        }
        // While it has no time to listen it may be interrupted, but not once it completes its file.
        if matches!(self.command("stop", Some(PATIENCE)), Ok(Answer::Late)) {
            self.interrupted = true;
            let _ = sys::kill(self.child.id() as i32, libc::SIGINT);
        }
        self.status = self.child.wait().ok();
        if let Some(messages) = self.messages.take() {
            // Its standard error may be open elsewhere, but it says nothing after its end.
            let _ = messages.join();
        }
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        self.end();
    }
}

/// Passes on what perf says.
fn pass_on(messages: impl Read) {
    for line in BufReader::new(messages).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line);
        if !is_answer(line.trim()) {
            errln!("{line}");
        }
    }
}

/// Whether perf says that it has obeyed a command of ours.
fn is_answer(line: &str) -> bool {
    let is_done = line.ends_with(" enabled") || line.ends_with(" disabled");
    is_done && (line.starts_with("Event ") || line.starts_with("Events "))
}
