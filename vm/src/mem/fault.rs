//! Faults of memory accesses, described with the nearest region.

use std::fmt;
use std::sync::Arc;

use crate::recover::Signal;
use crate::trap::{Trap, TrapCode};

/// Direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A load from memory.
    Read,
    /// Store or atomic.
    Write,
}

/// A refused access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Address as the program computed it.
    pub addr: u64,
    /// Number of bytes of the access.
    pub len: u64,
    /// Whether it reads or writes.
    pub access: Access,
    /// Why the access is invalid.
    pub reason: FaultReason,
}

/// Why an access was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultReason {
    /// In the first 64 KiB: a null pointer, perhaps plus an offset.
    Null,
    /// The upper half of the pointer is neither zero nor the arena's; the nearest region.
    Foreign(Option<Near>),
    /// No region there; the nearest one, if there is any.
    NoRegion(Option<Near>),
    /// Starts inside a region (or one of its elements) and ends outside, or lies in the gap after it.
    Overflow {
        /// Label of the region.
        region: Arc<str>,
        /// Bytes of the region or element.
        size: u32,
        /// Offset of the access from its start.
        off: u32,
    },
    /// The stack frame of a function that has returned.
    DeadFrame,
    /// Inside a region whose elements come and go, where none is now.
    Closed(Arc<str>),
    /// The region cannot be written by programs.
    ReadOnly(Arc<str>),
    /// Outside of everything that the arena knows of; what the system says to it.
    Signal(Signal),
}

/// The region next to an access that hit none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// How messages call it.
    pub label: Arc<str>,
    /// Number of elements.
    pub count: u32,
    /// Bytes of one.
    pub size: u32,
    /// How far away it is.
    pub distance: u64,
    /// The access is below its start, not past its end.
    pub below: bool,
}

/// `; nearest is ...`, if something is.
struct Nearest<'a>(&'a Option<Near>);

impl fmt::Display for Nearest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(near) = self.0 else { return Ok(()) };
        let side = if near.below { "below it" } else { "past its end" };
        write!(f, "; nearest is {} (", near.label)?;
        if near.count != 1 {
            write!(f, "{} x ", near.count)?;
        }
        match near.distance {
            0 => write!(f, "{} bytes), right {side}", near.size),
            distance => write!(f, "{} bytes), {distance} bytes {side}", near.size),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.access {
            Access::Read => "load from",
            Access::Write => "store to",
        };
        write!(f, "{}-byte {verb} {:#x}: ", self.len, self.addr)?;
        match &self.reason {
            FaultReason::Null => {
                write!(f, "a null pointer")?;
                if self.addr != 0 {
                    write!(f, " plus {}", self.addr)?;
                }
                write!(f, "; check the result of the lookup or helper it came from")
            }
            FaultReason::Foreign(near) => write!(f, "not a pointer into the sandbox{}", Nearest(near)),
            FaultReason::NoRegion(near) => write!(f, "no memory there{}", Nearest(near)),
            FaultReason::Overflow { region, size, off } => {
                let past = u64::from(*off).saturating_add(self.len) - u64::from(*size);
                let bytes = if past == 1 { "byte" } else { "bytes" };
                write!(f, "{past} {bytes} past the end of {region} ({size} bytes, access at offset {off})")
            }
            FaultReason::DeadFrame => write!(f, "a stack frame of a function that has returned"),
            FaultReason::Closed(region) => {
                write!(f, "no open {region} there; it was submitted or discarded, or never reserved")
            }
            FaultReason::ReadOnly(region) => write!(f, "{region} is read-only"),
            FaultReason::Signal(signal) => write!(f, "{}, there is nothing for it", signal.name()),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Trap {
    fn from(fault: Fault) -> Trap {
        let code = match fault.reason {
            FaultReason::ReadOnly(_) => TrapCode::ReadOnly,
            FaultReason::Null
            | FaultReason::Foreign(_)
            | FaultReason::NoRegion(_)
            | FaultReason::Overflow { .. }
            | FaultReason::DeadFrame
            | FaultReason::Closed(_)
            | FaultReason::Signal(_) => TrapCode::OutOfBounds,
        };
        Trap::new(code, fault.to_string())
    }
}

/// The arena could not give memory.
#[derive(Debug, thiserror::Error)]
pub enum MemError {
    /// More than the arena or the configured limit holds.
    #[error("{name}: {wanted} bytes requested, but {free} of the memory limit of {limit} bytes are left")]
    Limit {
        /// Label of the requested region.
        name: Arc<str>,
        /// Number of bytes requested.
        wanted: u64,
        /// Number of bytes left.
        free: u64,
        /// The memory limit in bytes.
        limit: u64,
    },
    /// More than there may be at all, whatever the limit.
    #[error("{name}: {wanted} bytes requested, but at most {most} are possible")]
    TooLarge {
        /// What was requested.
        name: &'static str,
        /// Number of bytes requested.
        wanted: u64,
        /// The most that is possible.
        most: u64,
    },
    /// The kernel refused.
    #[error("cannot reserve or commit memory: {0}")]
    System(#[from] std::io::Error),
    /// A handle table is full.
    #[error("too many {0} in one engine")]
    Handles(&'static str),
}
