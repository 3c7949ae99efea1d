//! A case as a program: a prologue fills the registers, an epilogue writes them where the test can read them.
//!
//! The program gets one memory block as its context: eighty bytes for r0 to r9, before and after the body, then the
//! memory of the case. Its address is kept in the upper 16 bytes of the frame, so bodies use the stack from
//! `r10 - 24` down.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use twinbpf_isa::program::{Binding, Function, Program};
use twinbpf_isa::{CallKind, DecodeError, Endian, Insn, asm, decode_all};

use crate::case::{self, Case, Input, Run, Value};

/// Bytes before the memory of a case, where the epilogue puts the registers.
pub(crate) const DUMP: usize = 80;

/// The host functions that bodies can `call @name`, in the order of their externs.
pub(crate) const EXTERNS: [&str; 6] = ["sum", "s32", "u8", "one", "two", "nothing"];

/// A case with one of its inputs, before validation.
pub(crate) struct Built {
    pub(crate) program: Program,
    /// pcs of the body.
    pub(crate) body: std::ops::Range<usize>,
}

/// What a register holds that no input names: both halves set, and different from its neighbours.
pub(crate) fn dirty(reg: usize) -> u64 {
    0xdead_bee0_c0ff_ee00 + reg as u64 * 0x1_0000_0001
}

/// The value of a register before the body, with `mem` at this address.
pub(crate) fn initial(input: &Input, reg: usize, mem: u64) -> u64 {
    input.regs[reg].map_or(dirty(reg), |value| resolve(value, mem))
}

pub(crate) fn resolve(value: Value, mem: u64) -> u64 {
    match value {
        Value::Number(number) => number,
        Value::Mem(off) => mem.wrapping_add_signed(off),
    }
}

/// Where registers get their values from before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prologue {
    /// From constants, with which a compiler may compute.
    Constants,
    /// From the context, so that one program serves every input.
    Loads,
}

fn prologue(input: &Input, prologue: Prologue) -> String {
    let mut text = String::from("*(u64 *)(r10 - 8) = r1\n");
    if prologue == Prologue::Loads {
        for reg in [0, 2, 3, 4, 5, 6, 7, 8, 9, 1] {
            let _ = writeln!(text, "r{reg} = *(u64 *)(r1 + {})", reg * 8);
        }
        return text;
    }
    for reg in 0..10 {
        let _ = match input.regs[reg] {
            Some(Value::Mem(off)) => {
                writeln!(text, "r{reg} = *(u64 *)(r10 - 8)\nr{reg} += {}", off + DUMP as i64)
            }
            Some(Value::Number(number)) => writeln!(text, "r{reg} = {number:#x} ll"),
            None => writeln!(text, "r{reg} = {:#x} ll", dirty(reg)),
        };
    }
    text
}

fn epilogue() -> String {
    let mut text = String::from("end: *(u64 *)(r10 - 16) = r0\nr0 = *(u64 *)(r10 - 8)\n");
    for reg in 1..10 {
        let _ = writeln!(text, "*(u64 *)(r0 + {}) = r{reg}", reg * 8);
    }
    text + "r1 = *(u64 *)(r10 - 16)\n*(u64 *)(r0 + 0) = r1\nr0 = r1\nexit\n"
}

/// The body with the texts of the input put in and repetitions written out, and the functions after it.
fn texts(case: &Case, input: &Input) -> (String, String) {
    let mut body = case.body.clone();
    for (name, text) in &input.texts {
        body = body.replace(&format!("${name}"), text);
    }
    for (index, name) in EXTERNS.iter().enumerate() {
        body = body.replace(&format!("call @{name}\n"), &format!("call extern({index})\n"));
        body = body.replace(&format!("addr @{name}\n"), &format!("{} ll\n", MARK + index as u64));
    }
    let body: String = body.lines().map(repeated).collect();
    match body.find("fn ") {
        Some(at) => (body[..at].to_owned(), body[at..].to_owned()),
        None => (body, String::new()),
    }
}

/// `rep 3 r0 += 1` is three lines.
fn repeated(line: &str) -> String {
    let count = line.strip_prefix("rep ").and_then(|rest| rest.split_once(' '));
    match count.and_then(|(count, text)| Some((count.parse().ok()?, text))) {
        Some((count, text)) => format!("{text}\n").repeat(count),
        None => format!("{line}\n"),
    }
}

/// An `lddw` of this and an index takes the address of an extern.
const MARK: u64 = 0x6164_6472_0000_0000;

/// The program of a case with one of its inputs, or why its `raw` bytes are no instructions.
pub(crate) fn build(case: &Case, run: &Run, from: Prologue) -> Result<Built, DecodeError> {
    let name = case.name(run);
    let (body, functions) = texts(case, &run.input);
    let prologue = prologue(&run.input, from);
    let (raw, body) = raw_lines(&body)?;
    let text = format!("{prologue}{body}{}{}", epilogue(), functions.replace("fn ", ""));
    let assembled = asm::assemble(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    let start = asm::parse(&prologue).expect("assembles").len();
    let epilogue = assembled.labels["end"];
    let names = functions.lines().filter_map(|line| line.strip_prefix("fn ")?.split_once(':'));
    let starts = names.map(|(name, _)| assembled.labels[name]);
    let mut insns = assembled.insns;
    if let Some(raw) = raw {
        insns.splice(start..start, raw);
    }
    let starts: BTreeSet<usize> = starts.chain([0]).collect();
    let function = |start| Function { name: format!("f{start}").into(), start, signature: None };
    Ok(Built {
        body: start..epilogue,
        program: Program {
            object: name.as_str().into(),
            // A C identifier, for cases that become C functions.
            name: format!("{}_{}", case.file.replace('.', "_"), run.line).into(),
            section: ".text".into(),
            bindings: bindings(&mut insns),
            insns,
            functions: starts.into_iter().map(function).collect(),
            lines: Vec::new(),
            stack_size: 512,
        },
    })
}

/// Lines `raw 0f21000000000000`, which must come first in a body, as instructions; and the rest.
fn raw_lines(body: &str) -> Result<(Option<Vec<Insn>>, String), DecodeError> {
    let (raw, rest): (Vec<&str>, Vec<&str>) = body.lines().partition(|line| line.starts_with("raw "));
    if raw.is_empty() {
        return Ok((None, body.to_owned()));
    }
    let hex: String = raw.iter().flat_map(|line| line.split_whitespace().skip(1)).collect();
    let bytes = case::bytes(&hex).expect("hex bytes");
    let insns = decode_all(&bytes, Endian::Little).map_err(|(_, error)| error)?;
    Ok((Some(insns), rest.join("\n") + "\n"))
}

/// What the loader would have bound: externs by index, functions by their offset.
fn bindings(insns: &mut [Insn]) -> BTreeMap<usize, Binding> {
    let mut bindings = BTreeMap::new();
    for pc in 0..insns.len() {
        let hi = match insns.get(pc + 1) {
            Some(Insn::LoadImmHi { imm }) => *imm as u32,
            _ => 0,
        };
        match &mut insns[pc] {
            Insn::Call { kind: CallKind::Extern, imm, .. } => {
                bindings.insert(pc, Binding::Extern(*imm as usize));
                *imm = 0;
            }
            Insn::LoadImm { kind: 4, imm, .. } => {
                bindings.insert(pc, Binding::Function((pc as i64 + 1 + i64::from(*imm)) as usize));
                *imm = 0;
            }
            Insn::LoadImm { kind: 0, imm, .. } if hi == (MARK >> 32) as u32 => {
                bindings.insert(pc, Binding::Extern(*imm as usize));
                *imm = 0;
            }
            _ => {}
        }
    }
    bindings
}
