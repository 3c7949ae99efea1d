//! Sessions whose events are samples that a host feeds: perf, as it reads a recording.

use crate::control::Control;
use crate::errln;
use crate::error::Error;
use crate::options::{Mode, Options};
use crate::output::Output;
use crate::plan::Plan;
use crate::session::{STATUS_ABORTED, STATUS_FAILED, Session};
use crate::user_side::{Give, Outcome, Sample, UserSide};
use twinbpf::Linker;

/// What becomes of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The programs keep it.
    Keep,
    /// A program returned 0.
    Drop,
    /// The session needs no more samples: it has failed, or a program called `exit`.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// END runs, with this status unless it calls `exit`.
    Over {
        status: u8,
    },
    /// A BEGIN returned below 0, so that END does not run.
    Aborted,
}

/// A session without kernel side and without event loop. See the module documentation.
#[derive(Debug)]
pub struct SampleSession {
    session: Session,
    stage: Stage,
}

impl Options {
    /// Those of a session that a host feeds with samples.
    pub fn of_samples() -> Options {
        Options { mode: Mode::User, samples: true, ..Options::default() }
    }
}

impl SampleSession {
    /// Makes maps and instances, by a plan and options of [`Options::of_samples`].
    ///
    /// # Errors
    /// What cannot be made.
    ///
    /// # Panics
    /// When there are not as many linkers as objects.
    pub fn new(
        plan: Plan,
        options: Options,
        output: Output,
        linkers: Vec<Linker<Control>>,
    ) -> Result<SampleSession, Error> {
        Ok(SampleSession { session: Session::new(plan, options, output, linkers)?, stage: Stage::Running })
    }

    /// Messages of loading and linking that are no errors.
    pub fn warnings(&self) -> &[String] {
        self.session.warnings()
    }

    /// Runs BEGIN. Returns whether samples are wanted: a BEGIN may end the session.
    ///
    /// # Errors
    /// A BEGIN faulted, or its output cannot be written: the session is over without END.
    pub fn begin(&mut self) -> Result<bool, Error> {
        self.stage = match self.session.begin() {
            Ok(Outcome::Done) => Stage::Running,
            Ok(Outcome::Exit(status)) => Stage::Over { status },
            Ok(Outcome::Aborted) => Stage::Aborted,
            Err(error) => {
                self.stage = Stage::Aborted;
                return Err(error);
            }
        };
        if self.stage == Stage::Running {
            self.session.start_samples()?;
        }
        Ok(self.stage == Stage::Running)
    }

    /// Whether programs want samples before the host has chosen them: [`SampleSession::early`].
    pub fn has_early(&self) -> bool {
        self.session.has_early()
    }

    /// Runs the EARLY programs of a sample that the host may yet leave out. An error is reported on standard error and ends
    /// the session in order.
    pub fn early(&mut self, sample: &Sample<'_>) -> Verdict {
        self.give(sample, UserSide::on_early)
    }

    /// Runs the timers that are over by the time of a sample, and its EVENT programs. An error is reported on standard error
    /// and ends the session in order.
    pub fn sample(&mut self, sample: &Sample<'_>) -> Verdict {
        self.give(sample, UserSide::on_sample)
    }

    #[inline(always)]
    fn give(&mut self, sample: &Sample<'_>, give: Give) -> Verdict {
        if self.stage != Stage::Running {
            return Verdict::Over;
        }
        match self.session.on_sample(sample, give) {
            Ok((Outcome::Exit(status), _)) => self.stage = Stage::Over { status },
            Ok((Outcome::Done | Outcome::Aborted, true)) => return Verdict::Keep,
            Ok((Outcome::Done | Outcome::Aborted, false)) => return Verdict::Drop,
            Err(error) => {
                errln!("twinbpf: {error:#}");
                self.stage = Stage::Over { status: STATUS_FAILED };
            }
        }
        Verdict::Over
    }

    /// Reports samples that were lost before anything could read them, as other losses are reported.
    pub fn lost(&mut self, count: u64) {
        self.session.report_lost(count);
    }

    /// Whether the session has failed already, so that what END fails in is not the first error.
    fn has_failed(&self) -> bool {
        self.stage == Stage::Over { status: STATUS_FAILED }
    }

    /// Runs END. The status: that of a script's `exit`, else 0; [`STATUS_ABORTED`] when a BEGIN ended it;
    /// [`STATUS_FAILED`] after an error.
    ///
    /// # Errors
    /// A trap in END, or an output that cannot be written.
    pub fn end(self) -> Result<u8, Error> {
        let failed = self.has_failed();
        let status = match self.stage {
            Stage::Aborted => return Ok(STATUS_ABORTED),
            Stage::Over { status } => status,
            Stage::Running => {
                self.session.report_unmet();
                0
            }
        };
        let ended = self.session.end(status)?;
        Ok(if failed { STATUS_FAILED } else { ended })
    }
}
