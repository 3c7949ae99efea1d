//! Events that are sampled, and how often.

use std::fmt;

/// `PERF_TYPE_HARDWARE`.
const HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;

/// What makes a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time of a CPU, whatever runs there: `PERF_COUNT_SW_CPU_CLOCK`.
    Cpu,
    /// Time that a task runs: `PERF_COUNT_SW_TASK_CLOCK`.
    Task,
    /// Any other event, by type and config of `struct perf_event_attr`.
    Event {
        /// `PERF_TYPE_*`, or a number of `/sys/bus/event_source/devices`.
        kind: u32,
        /// `perf_event_attr.config` of the event.
        config: u64,
    },
}

impl Clock {
    /// Type and config of `struct perf_event_attr`.
    pub(crate) fn event(self) -> (u32, u64) {
        match self {
            Clock::Cpu => (SOFTWARE, 0),
            Clock::Task => (SOFTWARE, 1),
            Clock::Event { kind, config } => (kind, config),
        }
    }
}

/// Events by name, as perf has them: `PERF_COUNT_SW_*` and `PERF_COUNT_HW_*` of `linux/perf_event.h`.
pub const EVENTS: &[(&str, Clock)] = &[
    ("cpu-clock", Clock::Cpu),
    ("task-clock", Clock::Task),
    ("page-faults", Clock::Event { kind: SOFTWARE, config: 2 }),
    ("context-switches", Clock::Event { kind: SOFTWARE, config: 3 }),
    ("cpu-migrations", Clock::Event { kind: SOFTWARE, config: 4 }),
    ("minor-faults", Clock::Event { kind: SOFTWARE, config: 5 }),
    ("major-faults", Clock::Event { kind: SOFTWARE, config: 6 }),
    ("alignment-faults", Clock::Event { kind: SOFTWARE, config: 7 }),
    ("emulation-faults", Clock::Event { kind: SOFTWARE, config: 8 }),
    ("cgroup-switches", Clock::Event { kind: SOFTWARE, config: 11 }),
    ("cycles", Clock::Event { kind: HARDWARE, config: 0 }),
    ("instructions", Clock::Event { kind: HARDWARE, config: 1 }),
    ("cache-references", Clock::Event { kind: HARDWARE, config: 2 }),
    ("cache-misses", Clock::Event { kind: HARDWARE, config: 3 }),
    ("branches", Clock::Event { kind: HARDWARE, config: 4 }),
    ("branch-misses", Clock::Event { kind: HARDWARE, config: 5 }),
    ("bus-cycles", Clock::Event { kind: HARDWARE, config: 6 }),
    ("stalled-cycles-frontend", Clock::Event { kind: HARDWARE, config: 7 }),
    ("stalled-cycles-backend", Clock::Event { kind: HARDWARE, config: 8 }),
    ("ref-cycles", Clock::Event { kind: HARDWARE, config: 9 }),
];

/// Samples at a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Event whose occurrences are sampled.
    pub clock: Clock,
    /// A sample each time this much has passed (nanoseconds for clocks), or this often a second.
    pub rate: Rate,
    /// Only of this thread or process, and of the children that inherit it; of all CPUs otherwise.
    pub pid: Option<u32>,
    /// On these CPUs; on all that are online when empty.
    pub cpus: Vec<u32>,
}

/// Sampling rate, by frequency or by period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Every so many events.
    Period(u64),
    /// So many a second.
    Frequency(u64),
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = match self.clock {
            Clock::Cpu => "cpu-clock".to_owned(),
            Clock::Task => "task-clock".to_owned(),
            Clock::Event { kind, config } => format!("event {kind}:{config:#x}"),
        };
        match self.rate {
            Rate::Period(period) => write!(f, "{clock} every {period}"),
            Rate::Frequency(hertz) => write!(f, "{clock} at {hertz} Hz"),
        }
    }
}
