//! The state of hooked functions, in ftrace's notation.

use std::fmt;

use crate::Preparation;

/// What a hooked function's entry leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trampoline {
    /// One callback, with arguments.
    ArgsPrivate,
    /// Several, with arguments.
    ArgsList,
    /// One callback, with all registers.
    RegsPrivate,
    /// Several, of which one wants all registers.
    RegsList,
    /// The trampoline that was attached as direct.
    Direct(u64),
}

/// A hooked function: what is wanted, and what its code says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Enabled {
    /// The function's name.
    pub name: String,
    /// Where it begins.
    pub address: u64,
    /// Callbacks, a direct trampoline included, a replacement not.
    pub count: usize,
    /// A callback wants all registers.
    pub registers: bool,
    /// The function is replaced.
    pub replaced: bool,
    /// There is a direct trampoline.
    pub direct: bool,
    /// Callbacks at its return.
    pub returns: usize,
    /// How it was prepared.
    pub preparation: Preparation,
    /// What the code leads to: read from the jump at the function's entry, the stub, and what that calls. Nothing where
    /// no jump is there.
    pub trampoline: Option<Trampoline>,
    /// The callback of a private trampoline.
    pub callback: Option<u64>,
    /// Calls that ran no callback: those that callbacks made, and those in signal handlers during a callback.
    pub skipped: u64,
    /// Returns that ran no callback, as too many were pending.
    pub lost_returns: u64,
}

impl fmt::Display for Enabled {
    /// As `enabled_functions` of the tracing file system (kernel/trace/ftrace.c, `t_show`): the function, callbacks, R, I
    /// and D, then a private trampoline with its callback, or the list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |set: bool, letter: &'static str| if set { letter } else { " " };
        let (r, i, d) = (flag(self.registers, "R"), flag(self.replaced, "I"), flag(self.direct, "D"));
        write!(f, "{} ({}) {r} {i} {d}", self.name, self.count)?;
        match (self.trampoline, self.callback) {
            (Some(Trampoline::ArgsPrivate), Some(callback)) => write!(f, "\ttramp: args ({callback:#x})"),
            (Some(Trampoline::RegsPrivate), Some(callback)) => write!(f, "\ttramp: regs ({callback:#x})"),
            (Some(Trampoline::Direct(to)), _) => write!(f, "\ttramp: direct ({to:#x})"),
            (Some(Trampoline::ArgsList), _) => write!(f, " ->args list"),
            (Some(Trampoline::RegsList), _) => write!(f, " ->regs list"),
            _ if self.returns > 0 => write!(f, "\ttramp: return"),
            _ => Ok(()),
        }?;
        if self.skipped > 0 {
            write!(f, ", skipped {}", self.skipped)?;
        }
        if self.lost_returns > 0 {
            write!(f, ", returns lost {}", self.lost_returns)?;
        }
        Ok(())
    }
}
