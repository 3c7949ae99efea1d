//! Reasons for which the verifier rejects machine code.

use std::fmt;

use iced_x86::{Decoder, DecoderOptions, Formatter as _, IntelFormatter};

/// A place in code that cannot be proved safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Index of the function, if it is in one.
    pub function: Option<usize>,
    /// Address of the instruction.
    pub address: u64,
    /// What cannot be proved.
    pub reason: Reason,
    bytes: Vec<u8>,
}

/// What cannot be proved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The bytes are no instruction.
    #[error("it is no instruction")]
    Undecodable,
    /// The instruction is none of those that compiled programs need.
    #[error("it is no instruction that verified code may have")]
    Unknown,
    /// Two instructions share bytes.
    #[error("it overlaps another instruction")]
    Overlap,
    /// Control leaves the function without a return.
    #[error("control leaves the function")]
    Leaves,
    /// Bytes that nothing reaches are no padding.
    #[error("nothing reaches it, and it is no padding")]
    NotPadding,
    /// The memory that is accessed is not known.
    #[error("{bytes} bytes are accessed at {at}, which is not known to be the program's")]
    Unproved {
        /// Width of the access in bytes.
        bytes: usize,
        /// What is known of the address.
        at: String,
    },
    /// An access goes past the end of what may be accessed.
    #[error("{bytes} bytes are accessed at {at}, outside {inside}")]
    Outside {
        /// Width of the access in bytes.
        bytes: usize,
        /// What is known of the address.
        at: String,
        /// What may be accessed.
        inside: String,
    },
    /// A store into what must not change.
    #[error("it stores to {at}, which must not change")]
    ReadOnly {
        /// What is known of the address.
        at: String,
    },
    /// A field of the context gets a value that the machine does not expect.
    #[error("it stores {value} into field {offset:#x} of the context, which must be {wanted}")]
    Field {
        /// Offset of the field in the context, in bytes.
        offset: u64,
        /// What is known of the value.
        value: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// The stack pointer is not known.
    #[error("the stack pointer is not known after it")]
    StackPointer,
    /// The stack may grow past its guard.
    #[error("{bytes} bytes of stack may be untouched above it, more than the guard has")]
    Guard {
        /// Stack that may be untouched, in bytes.
        bytes: i64,
    },
    /// An indirect jump goes anywhere.
    #[error("it jumps to {to}, which is no entry of a jump table")]
    Jump {
        /// What is known of the target.
        to: String,
    },
    /// A call goes anywhere.
    #[error("it calls {to}, which is nothing that may be called")]
    Call {
        /// What is known of the target.
        to: String,
    },
    /// An argument is not what the callee must get.
    #[error("argument {index} of the call is {value}, not {wanted}")]
    Argument {
        /// Number, from 0.
        index: usize,
        /// What is known of it.
        value: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// The stack is not aligned for a call.
    #[error("the stack is not aligned for a call")]
    Misaligned,
    /// A register or the stack is not as the function found it.
    #[error("{what} is {value}, not what the function found")]
    Restored {
        /// The register, or the stack pointer.
        what: &'static str,
        /// What is known of it.
        value: String,
    },
    /// The analysis does not end.
    #[error("too many states")]
    TooComplex,
}

impl Rejection {
    pub(crate) fn new(function: Option<usize>, address: u64, bytes: Vec<u8>, reason: Reason) -> Rejection {
        Rejection { function, address, reason, bytes }
    }

    /// The instruction, in Intel's syntax.
    pub fn instruction(&self) -> String {
        let mut text = String::new();
        let mut decoder = Decoder::with_ip(64, &self.bytes, self.address, DecoderOptions::NONE);
        IntelFormatter::new().format(&decoder.decode(), &mut text);
        text
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` at {:#x}: {}", self.instruction(), self.address, self.reason)
    }
}

impl std::error::Error for Rejection {}
