//! A case as text, which is what a corpus holds: inputs as hexadecimal numbers, programs as the assembler has them.
//!
//! ```text
//! # what was found, in as many lines as it takes
//! input r0=0x1 r3=0xffffffff memory=00ff.. context=.. limit=20
//! program
//!   r1 = map_value(0) ll
//!   exit
//! tail
//!   exit
//! ```
//!
//! Registers that are not named are 0, and so is what follows the given bytes.

use std::fmt::{self, Display, Formatter, Write as _};

use twinbpf_isa::{asm, disasm};

use super::{Case, Input};
use crate::generate::world::{CONTEXT_SIZE, MEMORY_SIZE};

/// Text that is not a case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct CaseError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Display for Input {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("input")?;
        for (reg, value) in self.regs.iter().enumerate().filter(|(_, value)| **value != 0) {
            write!(f, " r{reg}={value:#x}")?;
        }
        for (name, bytes) in [("memory", &self.memory[..]), ("context", &self.context[..])] {
            let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if len > 0 {
                let mut hex = String::new();
                bytes[..len].iter().try_for_each(|byte| write!(hex, "{byte:02x}"))?;
                write!(f, " {name}={hex}")?;
            }
        }
        self.limit.map_or(Ok(()), |limit| write!(f, " limit={limit}"))
    }
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inputs.iter().try_for_each(|input| writeln!(f, "{input}"))?;
        write!(f, "program\n{}", disasm(&self.main))?;
        self.tails.iter().try_for_each(|tail| write!(f, "tail\n{}", disasm(tail)))
    }
}

impl std::str::FromStr for Case {
    type Err = CaseError;

    fn from_str(text: &str) -> Result<Case, CaseError> {
        let mut inputs = Vec::new();
        let mut programs: Vec<(usize, String)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words = line.trim();
            match words.split(' ').next().unwrap_or("") {
                "input" => inputs.push(input(words).map_err(|what| CaseError { line: index + 1, what })?),
                "program" if programs.is_empty() => programs.push((index + 1, String::new())),
                "tail" if !programs.is_empty() => programs.push((index + 1, String::new())),
                _ => match programs.last_mut() {
                    Some((_, text)) => writeln!(text, "{line}").expect("a string takes it"),
                    None if words.is_empty() || words.starts_with('#') => {}
                    None => {
                        let what = format!("'{words}' is none of input, program and tail");
                        return Err(CaseError { line: index + 1, what });
                    }
                },
            }
        }
        let assembled = programs.into_iter().map(|(first, text)| {
            asm::parse(&text).map_err(|error| CaseError { line: first + error.line, what: error.to_string() })
        });
        let mut programs = assembled.collect::<Result<Vec<_>, _>>()?.into_iter();
        let missing = || CaseError { line: text.lines().count(), what: "there is no program".to_owned() };
        let main = programs.next().ok_or_else(missing)?;
        Ok(Case { main, tails: programs.collect(), inputs })
    }
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is not a number"))
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let mut found = [0; N];
    if !text.len().is_multiple_of(2) || text.len() / 2 > N || !text.is_ascii() {
        return Err(format!("'{text}' is not up to {N} bytes in hexadecimal digits"));
    }
    for (byte, at) in found.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| format!("'{text}' is not hexadecimal"))?;
    }
    Ok(found)
}

fn input(line: &str) -> Result<Input, String> {
    let mut input = Input { regs: [0; 10], memory: [0; MEMORY_SIZE], context: [0; CONTEXT_SIZE], limit: None };
    for word in line.split_whitespace().skip(1) {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not NAME=VALUE"))?;
        let reg = name.strip_prefix('r').and_then(|reg| reg.parse::<usize>().ok()).filter(|reg| *reg < 10);
        match (name, reg) {
            (_, Some(reg)) => input.regs[reg] = number(value)?,
            ("memory", None) => input.memory = bytes(value)?,
            ("context", None) => input.context = bytes(value)?,
            ("limit", None) => input.limit = Some(number(value)?),
            (other, None) => return Err(format!("'{other}' is none of r0 to r9, memory, context and limit")),
        }
    }
    Ok(input)
}
