//! A line on a terminal that says how far something has come that takes long: the kernel waits up to a tenth of a second
//! for each of some attachments.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// Before that, nothing is shown.
const QUIET: Duration = Duration::from_millis(500);
const BETWEEN: Duration = Duration::from_millis(100);

/// See the module documentation. Dropping it clears the line.
#[derive(Debug)]
pub(crate) struct Progress {
    doing: &'static str,
    done: usize,
    total: usize,
    next: Instant,
    shown: bool,
}

impl Progress {
    /// Of a work of so many places. `doing`: what is done with them, as `attaching`.
    pub(crate) fn new(doing: &'static str, total: usize) -> Progress {
        Progress { doing, done: 0, total, next: Instant::now() + QUIET, shown: false }
    }

    /// One more is done.
    pub(crate) fn step(&mut self) {
        if let Some(line) = self.line(Instant::now())
            && stderr().is_terminal()
        {
            self.shown = true;
            // A line that cannot be written is not missed.
            let _ = write!(stderr(), "\r\x1b[K{line}");
        }
    }

    fn line(&mut self, now: Instant) -> Option<String> {
        self.done += 1;
        if now < self.next {
            return None;
        }
        self.next = now + BETWEEN;
        Some(format!("twinbpf: {} {} of {} places", self.doing, self.done, self.total))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_shows_nothing() {
        let mut progress = Progress::new("attaching", 3);
        let begun = Instant::now();
        assert!((0..3).all(|_| progress.line(begun).is_none()));
    }

    #[test]
    fn lines_are_a_tenth_of_a_second_apart() {
        let mut progress = Progress::new("attaching", 700);
        let at = Instant::now() + QUIET;
        assert_eq!(progress.line(at).unwrap(), "twinbpf: attaching 1 of 700 places");
        assert_eq!(progress.line(at + BETWEEN / 2), None);
        assert_eq!(progress.line(at + BETWEEN).unwrap(), "twinbpf: attaching 3 of 700 places");
    }
}
