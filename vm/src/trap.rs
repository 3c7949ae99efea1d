//! Traps: faults and limits that end a program. A trap is no error of the runtime: it is how validated code ends when
//! it cannot continue.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

macro_rules! trap_codes {
    ($($Name:ident = $number:literal $text:literal;)*) => {
        /// Why a program stopped. Numbers are pinned: they cross the C API and corpus files.
        ///
        /// ```
        /// use twinbpf_vm::trap::TrapCode;
        ///
        /// assert_eq!((TrapCode::Timeout as u8, TrapCode::Timeout.text()), (7, "time limit reached"));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum TrapCode { $(#[doc = $text] $Name = $number),* }

        impl TrapCode {
            /// Every code, in the order of its numbers.
            pub const ALL: &'static [TrapCode] = &[$(TrapCode::$Name),*];

            /// What happened, in a few words.
            pub const fn text(self) -> &'static str {
                match self { $(TrapCode::$Name => $text),* }
            }
        }
    };
}

trap_codes! {
    OutOfBounds = 1 "memory access out of bounds";
    ReadOnly = 2 "store to read-only memory";
    Misaligned = 3 "misaligned atomic access";
    CallDepth = 4 "call depth exceeded";
    StackOverflow = 5 "stack bytes exceeded";
    OutOfInsns = 6 "instruction limit reached";
    Timeout = 7 "time limit reached";
    Unresolved = 8 "call of an unresolved symbol";
    BadCall = 9 "indirect call to something that is not a function";
    BadJump = 10 "indirect jump to something that is not a jump target";
    Host = 11 "host function failed";
    BadArgument = 12 "bad argument to a host function";
    Deadlock = 13 "spin lock already held";
    Exit = 14 "exit() called";
    Panic = 15 "host function panicked";
    HostFault = 16 "fault inside a C function";
    Poisoned = 17 "the engine cannot be used any more";
    Cancelled = 18 "the call was cancelled";
    LimitUnavailable = 19 "the limit of the call cannot be enforced";
}

/// The end of a program that could not continue: code, location, backtrace and particulars.
///
/// ```
/// use twinbpf_vm::trap::{Trap, TrapCode};
///
/// let trap = Trap::new(TrapCode::Host, "the file is gone");
/// assert_eq!(trap.code(), TrapCode::Host);
/// assert_eq!(trap.to_string(), "host function failed: the file is gone");
/// assert_eq!(Trap::exit(3).exit_status(), Some(3));
/// ```
#[derive(Clone, Debug)]
pub struct Trap(Box<TrapInner>);

#[derive(Clone, Debug)]
struct TrapInner {
    code: TrapCode,
    /// The particulars: address, nearest region, argument.
    detail: String,
    /// `exit(status)`, for [`TrapCode::Exit`].
    status: i32,
    location: Option<Location>,
    backtrace: Backtrace,
}

/// The functions that had not returned, innermost first, without the faulting place.
///
/// ```
/// use twinbpf_vm::trap::{Trap, TrapCode};
///
/// let trap = Trap::new(TrapCode::Host, "before any call");
/// assert!(trap.backtrace().sites.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backtrace {
    /// Where they were called.
    pub sites: Vec<CallSite>,
    /// Number of calls that are left out before the last site.
    pub omitted: u32,
}

/// A call, or as many calls in a row from the same place.
///
/// ```
/// use twinbpf_vm::trap::Trap;
///
/// /// Names of the functions that had called, the innermost first.
/// fn callers(trap: &Trap) -> Vec<&str> {
///     trap.backtrace().sites.iter().map(|site| &*site.location.function).collect()
/// }
/// assert!(callers(&Trap::exit(0)).is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSite {
    /// Location of the call instruction.
    pub location: Location,
    /// How often in a row.
    pub times: u32,
}

/// A place in a program: instruction and C line.
///
/// ```
/// use twinbpf_vm::trap::Trap;
///
/// /// Where a trap happened, for a log.
/// fn place(trap: &Trap) -> String {
///     trap.location().map_or_else(|| "nowhere".to_owned(), |place| format!("{}:{}", place.function, place.pc))
/// }
/// assert_eq!(place(&Trap::exit(0)), "nowhere");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// Name of the object file.
    pub object: Arc<str>,
    /// Entry function of the program.
    pub program: Arc<str>,
    /// Function that contains the instruction.
    pub function: Arc<str>,
    /// Instruction index in the linked program.
    pub pc: usize,
    /// The instruction as text.
    pub insn: String,
    /// `file:line: text`, where line info exists.
    pub line: Option<String>,
}

impl Trap {
    /// A trap whose place is not known yet; the engine adds it.
    pub fn new(code: TrapCode, detail: impl Into<String>) -> Trap {
        Trap(Box::new(TrapInner {
            code,
            detail: detail.into(),
            status: 0,
            location: None,
            backtrace: Backtrace::default(),
        }))
    }

    /// `exit(status)`: ends the run; not a fault.
    pub fn exit(status: i32) -> Trap {
        let mut trap = Trap::new(TrapCode::Exit, format!("status {status}"));
        trap.0.status = status;
        trap
    }

    /// The kind of the trap.
    pub fn code(&self) -> TrapCode {
        self.0.code
    }

    /// The particulars, such as the address of an access.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Status of an `exit(status)`.
    pub fn exit_status(&self) -> Option<i32> {
        (self.0.code == TrapCode::Exit).then_some(self.0.status)
    }

    /// Where, once an engine has filled it in.
    pub fn location(&self) -> Option<&Location> {
        self.0.location.as_ref()
    }

    /// Callers of the faulting function.
    pub fn backtrace(&self) -> &Backtrace {
        &self.0.backtrace
    }

    /// With other particulars.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Trap {
        self.0.detail = detail.into();
        self
    }

    /// Records where it happened. The innermost place is kept if there is one already.
    pub fn at(mut self, location: Location, backtrace: Backtrace) -> Trap {
        if self.0.location.is_none() {
            self.0.location = Some(location);
            self.0.backtrace = backtrace;
        }
        self
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: program {}", self.object, self.program)?;
        if self.function != self.program {
            write!(f, ", function {}", self.function)?;
        }
        write!(f, ", insn {}: {}", self.pc, self.insn)?;
        match &self.line {
            Some(line) => write!(f, "\n    {line}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, site) in self.sites.iter().enumerate() {
            if self.omitted > 0 && index + 1 == self.sites.len() {
                write!(f, "\n  and {} more calls, down to", self.omitted)?;
            }
            write!(f, "\n  called from {}", site.location)?;
            match site.times {
                1 => {}
                2 => write!(f, "\n    and once more from there")?,
                times => write!(f, "\n    and {} more times from there", times - 1)?,
            }
        }
        Ok(())
    }
}

/// One line; `{:#}` adds the place and the callers.
impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.code.text())?;
        if !self.0.detail.is_empty() {
            write!(f, ": {}", self.0.detail)?;
        }
        if f.alternate() {
            if let Some(location) = &self.0.location {
                write!(f, "\n  at {location}")?;
            }
            self.0.backtrace.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Trap {}

/// What a panic said, if it was text.
pub fn panic_words(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
