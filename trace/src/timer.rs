//! Timers of scripts, by the system's clock or by the times of samples.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::error::Error;
use crate::sys;

#[derive(Debug)]
enum Clock {
    System(OwnedFd),
    /// Nanoseconds of the period, and when it is over next; `None` before the first sample.
    Samples {
        span: u64,
        next: Option<u64>,
    },
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Timer {
    /// From its section; `None` where programs set it.
    period: Option<Duration>,
    clock: Clock,
    running: bool,
}

impl Timer {
    pub(crate) fn by_clock(period: Option<Duration>) -> Result<Timer, Error> {
        let fd = sys::timer().map_err(|cause| Error::System { what: "make a timer", cause })?;
        Ok(Timer { period, clock: Clock::System(fd), running: false })
    }

    pub(crate) fn by_samples(period: Option<Duration>) -> Timer {
        Timer { period, clock: Clock::Samples { span: 0, next: None }, running: false }
    }

    /// Whether `set_timer` sets its period.
    pub(crate) fn is_settable(&self) -> bool {
        self.period.is_none()
    }

    /// Starts it, if its section has a period.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        self.period.map_or(Ok(()), |period| self.set(period))
    }

    pub(crate) fn set(&mut self, period: Duration) -> Result<(), Error> {
        match &mut self.clock {
            Clock::System(fd) => {
                sys::set_timer(fd.as_fd(), period).map_err(|cause| Error::System { what: "set a timer", cause })?;
            }
            Clock::Samples { span, next } => {
                (*span, *next) = (u64::try_from(period.as_nanos()).unwrap_or(u64::MAX), None);
            }
        }
        self.running = !period.is_zero();
        Ok(())
    }

    /// The descriptor to wait for, while it runs by the system's clock.
    pub(crate) fn running(&self) -> Option<BorrowedFd<'_>> {
        match &self.clock {
            Clock::System(fd) if self.running => Some(fd.as_fd()),
            Clock::System(_) | Clock::Samples { .. } => None,
        }
    }

    /// Forgets its expirations.
    pub(crate) fn drain(&self) {
        if let Clock::System(fd) = &self.clock {
            sys::drain(fd.as_fd());
        }
    }

    /// Whether a period is over at the time of a sample; several are one. The first one begins with the first sample.
    pub(crate) fn expires(&mut self, now: u64) -> bool {
        let Clock::Samples { span, next } = &mut self.clock else { return false };
        if !self.running {
            return false;
        }
        let due = *next.get_or_insert(now.saturating_add(*span));
        if now < due {
            return false;
        }
        *next = Some(now.saturating_add(*span - (now - due) % *span));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Timer;

    #[test]
    fn times_of_samples_expire_it() {
        let mut timer = Timer::by_samples(Some(Duration::from_nanos(10)));
        assert!(!timer.expires(5));
        timer.start().unwrap();
        let times = [100, 109, 110, 111, 119, 120, 155, 159, 160];
        let expired: Vec<u64> = times.into_iter().filter(|now| timer.expires(*now)).collect();
        assert_eq!(expired, [110, 120, 155, 160]);
        timer.set(Duration::ZERO).unwrap();
        assert!(!timer.expires(1000));
    }
}
