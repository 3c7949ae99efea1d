//! Why a program was rejected, with all a person needs to find the place.

use std::fmt;
use std::sync::Arc;

use crate::program::{Binding, Line, Program};
use crate::{DecodeError, text_at};

/// A rule that an instruction breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is nothing to run.
    #[error("the program has no instructions")]
    Empty,
    /// Not sorted, not starting at 0, or outside the program.
    #[error("the function table is empty, out of order, or does not cover the program from instruction 0")]
    FunctionTable,
    /// A reserved field is not zero, or the opcode does not exist.
    #[error("{0}")]
    Decode(DecodeError),
    /// A combination of operation and operands that no encoding expresses.
    #[error("the instruction has no encoding")]
    Unencodable,
    /// Its conformance group is switched off.
    #[error("the instruction belongs to conformance group {0}, which is switched off")]
    Group(&'static str),
    /// Kernel policy: division by an immediate zero.
    #[error("division by an immediate zero")]
    ZeroDivisor,
    /// Kernel policy: an immediate shift count out of range.
    #[error("shift by {count} in a {bits}-bit operation")]
    ShiftCount {
        /// The shift count, as the immediate holds it.
        count: i32,
        /// Width of the operation.
        bits: u32,
    },
    /// A cast goes from address space 0 to 1 or back; every other immediate is reserved.
    #[error("addr_space_cast between other address spaces than 0 and 1")]
    AddressSpaces,
    /// r10 is read only.
    #[error("the frame pointer r10 is written")]
    WritesFp,
    /// An access relative to r10 that leaves the frame.
    #[error("{size} bytes at r10{off:+} are outside the frame of {stack} bytes")]
    Frame {
        /// Offset from r10.
        off: i16,
        /// Number of bytes that it accesses.
        size: usize,
        /// Bytes of a frame.
        stack: u32,
    },
    /// The first half of an `lddw` has no second.
    #[error("lddw without its second half")]
    TruncatedLddw,
    /// The second half of an `lddw` has no first.
    #[error("second half of an lddw without its first")]
    StrayHalf,
    /// A jump leaves its function.
    #[error("jump to instruction {target}, outside its function ({start} to {})", end - 1)]
    JumpOutside {
        /// Where it goes.
        target: i64,
        /// First instruction of the function.
        start: usize,
        /// One past its last.
        end: usize,
    },
    /// A jump goes between the halves of an `lddw`.
    #[error("jump to instruction {target}, the second half of an lddw")]
    JumpIntoLddw {
        /// Where it goes.
        target: i64,
    },
    /// The last instruction of a function lets control run on.
    #[error("control runs past the end of the function")]
    FallsOff,
    /// A helper number that the machine does not have.
    #[error("there is no helper {0}")]
    UnknownHelper(i32),
    /// A local call to something that is not the start of a function.
    #[error("call of instruction {target}, where no function starts")]
    LocalCall {
        /// Where it goes.
        target: i64,
    },
    /// The address of something that is not the start of a function is taken.
    #[error("address of instruction {target} is taken as a function, but no function starts there")]
    FunctionAddress {
        /// Slot whose address is taken.
        target: usize,
    },
    /// What the linker bound to this instruction is missing, or is not what the instruction refers to.
    #[error("{}", describe(binding))]
    Binding {
        /// What is bound.
        binding: Option<Binding>,
    },
}

fn describe(binding: &Option<Binding>) -> String {
    let what = match binding {
        None => return "the reference was not resolved".to_owned(),
        Some(Binding::Map(map)) => format!("map {map}"),
        Some(Binding::MapValue { map, off }) => format!("the value of map {map} at {off}"),
        Some(Binding::Function(start)) => format!("the function at instruction {start}"),
        Some(Binding::Extern(index)) => format!("extern {index}"),
    };
    format!("the instruction cannot refer to {what}")
}

impl Reason {
    /// What to do about it, where there is something to do.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Reason::Group(_) => "switch the group on (--enable, Config::policy), or compile for an older -mcpu",
            Reason::ZeroDivisor | Reason::ShiftCount { .. } | Reason::AddressSpaces => {
                "the kernel rejects this; the rfc policy runs it"
            }
            Reason::Frame { .. } => {
                "a larger frame needs -mllvm -bpf-stack-size=BYTES for clang and the same size for the machine"
            }
            Reason::FallsOff => "end the function in exit or a jump",
            Reason::UnknownHelper(_) => {
                "give the machine a helper of this number (Linker::helper), or run the program in a kernel that has it"
            }
            Reason::Binding { binding: None } => "link the object first: a map, function or symbol is still open here",
            Reason::JumpOutside { .. } | Reason::LocalCall { .. } => {
                "functions are distinguished by symbol: one label in the middle of a function splits it"
            }
            Reason::Empty
            | Reason::FunctionTable
            | Reason::Decode(_)
            | Reason::Unencodable
            | Reason::WritesFp
            | Reason::TruncatedLddw
            | Reason::StrayHalf
            | Reason::JumpIntoLddw { .. }
            | Reason::FunctionAddress { .. }
            | Reason::Binding { binding: Some(_) } => return None,
        })
    }
}

/// A program was rejected: where and why. One line; `{:#}` adds the source line and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidateError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    object: Arc<str>,
    program: Arc<str>,
    function: Option<Arc<str>>,
    pc: usize,
    insn: String,
    line: Option<Line>,
    reason: Reason,
}

impl ValidateError {
    pub(super) fn new(program: &Program, pc: usize, reason: Reason) -> ValidateError {
        ValidateError(Box::new(Inner {
            object: program.object.clone(),
            program: program.name.clone(),
            function: program.function_at(pc).map(|function| function.name.clone()),
            pc,
            insn: text_at(&program.insns, pc),
            line: program.line_at(pc).cloned(),
            reason,
        }))
    }

    /// File name of the object.
    pub fn object(&self) -> &str {
        &self.0.object
    }

    /// Name of the program's entry function.
    pub fn program(&self) -> &str {
        &self.0.program
    }

    /// Index of the instruction.
    pub fn pc(&self) -> usize {
        self.0.pc
    }

    /// The instruction as text.
    pub fn insn(&self) -> &str {
        &self.0.insn
    }

    /// Its source line, where the object has line info.
    pub fn line(&self) -> Option<&Line> {
        self.0.line.as_ref()
    }

    /// The broken rule.
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        self.0.reason.hint()
    }
}

impl fmt::Display for ValidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(f, "{}: program {}", inner.object, inner.program)?;
        if let Some(function) = inner.function.as_ref().filter(|function| **function != inner.program) {
            write!(f, ", function {function}")?;
        }
        write!(f, ", insn {}", inner.pc)?;
        if !inner.insn.is_empty() {
            write!(f, " `{}`", inner.insn)?;
        }
        if let Some(line) = &inner.line {
            write!(f, " at {}:{}", line.file, line.line)?;
        }
        write!(f, ": {}", inner.reason)?;
        if f.alternate() {
            if let Some(line) = &inner.line {
                write!(f, "\n  {}:{}:{}: {}", line.file, line.line, line.column, line.text.trim())?;
            }
            if let Some(hint) = inner.reason.hint() {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ValidateError {}
