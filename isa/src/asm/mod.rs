//! The assembler: exact inverse of the text form, plus labels and comments.
//!
//! ```text
//! loop:                       ; a label; also `//` and `#` start a comment
//!   r1 += -1                  // numbers are decimal or 0x
//!   if r1 != 0 goto loop      # jumps take a label or an offset (+5, -3)
//!   call function             ; a label calls a function of this program, a number a helper
//!   exit
//! ```
//!
//! Skips a pc before an instruction (`12: exit`) and llvm-objdump's `<symbol>` after a jump, so that listings paste. It
//! knows nothing of sections, data or symbols of other objects.

mod lex;
mod stmt;

use std::collections::BTreeMap;
use std::fmt;

use super::Insn;

/// Text that is not an instruction: where, what, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsmError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub col: usize,
    /// What is wrong.
    pub what: String,
    /// What to write instead, where that is clear.
    pub hint: Option<String>,
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.col, self.what)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for AsmError {}

/// Result of assembling a text: its instructions, with the source line of each.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Assembled {
    /// One per 8-byte slot.
    pub insns: Vec<Insn>,
    /// The pc of every label; one at the very end is one past the last instruction.
    pub labels: BTreeMap<String, usize>,
    /// Line of text, from 1, of every slot.
    pub lines: Vec<usize>,
}

/// What went wrong inside a line: column, what, hint.
struct Fault {
    col: usize,
    what: String,
    hint: Option<String>,
}

impl Fault {
    fn new(col: usize, what: impl Into<String>) -> Fault {
        Fault { col, what: what.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }

    fn on(self, line: usize) -> AsmError {
        AsmError { line, col: self.col, what: self.what, hint: self.hint }
    }
}

/// A jump or call whose label is still to be found.
struct Fixup {
    pc: usize,
    label: String,
    line: usize,
    col: usize,
}

/// Instructions of a text.
///
/// # Errors
/// The first line that is not an instruction, or the first jump whose label is missing or out of reach.
pub fn parse(text: &str) -> Result<Vec<Insn>, AsmError> {
    assemble(text).map(|assembled| assembled.insns)
}

/// As [`parse`], with the labels.
///
/// # Errors
/// As [`parse`].
pub fn assemble(text: &str) -> Result<Assembled, AsmError> {
    let mut out = Assembled::default();
    let mut fixups = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        let tokens = lex::tokens(text).map_err(|fault| fault.on(line))?;
        let parsed = stmt::line(tokens).map_err(|fault| fault.on(line))?;
        for (label, col) in parsed.labels {
            if out.labels.insert(label.clone(), out.insns.len()).is_some() {
                return Err(Fault::new(col, format!("label {label} is defined twice")).on(line));
            }
        }
        if let Some((label, col)) = parsed.target {
            fixups.push(Fixup { pc: out.insns.len(), label, line, col });
        }
        out.insns.extend(parsed.insns);
        out.lines.resize(out.insns.len(), line);
    }
    for fixup in fixups {
        resolve(&mut out, &fixup)?;
    }
    Ok(out)
}

/// Puts the distance to its label into a jump.
fn resolve(out: &mut Assembled, fixup: &Fixup) -> Result<(), AsmError> {
    let fault = |what: String| Fault::new(fixup.col, what);
    let Some(&target) = out.labels.get(&fixup.label) else {
        let fault = fault(format!("there is no label {}", fixup.label));
        return Err(fault.hint("define it as `name:` on any line").on(fixup.line));
    };
    let distance = target as i64 - fixup.pc as i64 - 1;
    let far = || {
        let fault = fault(format!("label {} is {distance} instructions away, too far", fixup.label));
        fault.hint("a 16-bit jump reaches 32767 instructions, gotol reaches all").on(fixup.line)
    };
    let (short, long) = (i16::try_from(distance).map_err(|_| far()), i32::try_from(distance).map_err(|_| far()));
    match &mut out.insns[fixup.pc] {
        Insn::Branch { off, .. } | Insn::Goto { off } | Insn::MayGoto { off } => *off = short?,
        Insn::Gotol { off } => *off = long?,
        Insn::Call { imm, .. } | Insn::LoadImm { imm, .. } => *imm = long?,
        other => unreachable!("{other:?} takes no label"),
    }
    Ok(())
}
