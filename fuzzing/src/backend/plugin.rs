//! An external machine that speaks the protocol of bpf_conformance's plugins: `PLUGIN MEMORY`, the program in hexadecimal
//! digits on standard input, r0 on standard output.
//!
//! Such a machine has no maps. So the state and the context become the memory that r1 points to, and a digest of them
//! the result. Cases that need more are none for it, nor are those whose functions work on the state.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use twinbpf_isa::{AluOp, CallKind, Endian, Insn, Operand, Raw, Reg, Size, Width, encode_all, splice};

use super::Engine;
use super::outcome::{DIGEST_FACTOR, End, Outcome, Ran};
use crate::generate::world::{CONTEXT_SIZE, STATE, STATE_SIZE};
use crate::generate::{Case, Input, program_of};

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Plugin {
    command: String,
    args: Vec<String>,
}

/// Where programs keep the address of the memory.
const SLOT: i16 = -112;

impl Plugin {
    /// A command, and the arguments that follow the memory.
    pub fn new(command: &str) -> Plugin {
        let mut words = command.split_whitespace().map(str::to_owned);
        Plugin { command: words.next().unwrap_or_default(), args: words.collect() }
    }

    fn request(&self, program: &str, memory: &str) -> Result<u64, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.command);
        let mut command = Command::new(&self.command);
        command.arg(memory).args(&self.args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            // One that does not read says so by its status.
            let _ = input.write_all(program.as_bytes());
        }
        let output = child.wait_with_output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let text = text.trim();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = if why.trim().is_empty() { text } else { why.trim() };
            return Err(why.lines().next().unwrap_or("it failed without a word").to_owned());
        }
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u64::from_str_radix(digits, 16).map_err(|_| format!("'{text}' is not a number in hexadecimal digits"))
    }
}

fn hex(bytes: impl IntoIterator<Item = u8>, between: &str) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{}{byte:02x}", if text.is_empty() { "" } else { between });
    }
    text
}

/// The program for a machine that has memory only, if it can do without maps and helpers.
fn translated(case: &Case) -> Option<Vec<u8>> {
    let program = program_of(case.main.clone());
    let end = program.functions.get(1).map_or(case.main.len(), |function| function.start);
    let helpless = |insn: &Insn| !matches!(insn, Insn::Call { kind: CallKind::Helper | CallKind::Extern, .. });
    if !case.tails.is_empty() || !case.main.iter().all(helpless) || program.bindings.range(end..).next().is_some() {
        return None;
    }
    let mov = |dst, src| Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src };
    let add = |dst, imm| Insn::Alu { width: Width::W64, op: AluOp::Add, dst, src: Operand::Imm(imm) };
    let load = |dst| Insn::Load { size: Size::Dw, signed: false, dst, base: Reg::FP, off: SLOT };
    let mut raws: Vec<Raw> = case.main.iter().map(|insn| insn.encode()).collect();
    let put = |raws: &mut Vec<Raw>, at, remove, insns: &[Insn]| {
        let insert: Vec<Raw> = insns.iter().map(|insn| insn.encode()).collect();
        splice(raws, at, remove, &insert).ok()
    };
    for pc in (0..end).rev() {
        match (case.main[pc], case.main.get(pc + 1)) {
            (Insn::LoadImm { dst, kind: 2, imm }, Some(Insn::LoadImmHi { imm: off })) if imm == STATE as i32 => {
                put(&mut raws, pc, 2, &[load(dst), add(dst, *off)])?;
            }
            (Insn::LoadImm { kind: 1.., .. }, _) => return None,
            (Insn::Exit, _) => {
                put(&mut raws, pc, 1, &digest_code(load(Reg::R1)))?;
            }
            _ => {}
        }
    }
    let store = Insn::Store { size: Size::Dw, base: Reg::FP, off: SLOT, src: Operand::Reg(Reg::R1) };
    put(&mut raws, 0, 0, &[store, add(Reg::R1, STATE_SIZE as i32), mov(Reg::R0, Operand::Imm(0))])?;
    let insns: Result<Vec<Insn>, _> = raws.into_iter().map(Insn::decode).collect();
    Some(encode_all(&insns.ok()?, Endian::Little))
}

/// Computes [`super::outcome::digest`] of the memory.
fn digest_code(memory: Insn) -> Vec<Insn> {
    let words = (STATE_SIZE + CONTEXT_SIZE) / 8;
    let alu = |op, dst, src| Insn::Alu { width: Width::W64, op, dst, src };
    vec![
        memory,
        alu(AluOp::Mov, Reg::R0, Operand::Imm(0)),
        alu(AluOp::Mov, Reg::R2, Operand::Imm(words as i32)),
        Insn::Load { size: Size::Dw, signed: false, dst: Reg::R3, base: Reg::R1, off: 0 },
        alu(AluOp::Xor, Reg::R0, Operand::Reg(Reg::R3)),
        alu(AluOp::Mul, Reg::R0, Operand::Imm(DIGEST_FACTOR)),
        alu(AluOp::Add, Reg::R1, Operand::Imm(8)),
        alu(AluOp::Sub, Reg::R2, Operand::Imm(1)),
        Insn::Branch { width: Width::W64, cond: twinbpf_isa::Cond::Ne, dst: Reg::R2, src: Operand::Imm(0), off: -6 },
        Insn::Exit,
    ]
}

fn memory(input: &Input) -> String {
    hex(input.state().into_iter().chain(input.context), "")
}

impl Engine for Plugin {
    fn name(&self) -> String {
        format!("plugin({})", self.command.rsplit('/').next().unwrap_or(&self.command))
    }

    fn run(&mut self, cases: &[Case]) -> Vec<Ran> {
        let one = |case: &Case| {
            let Some(bytes) = translated(case) else { return Ran::Skipped };
            let program = hex(bytes, "  ");
            let outcomes = case.inputs.iter().map(|input| {
                if input.limit.is_some() {
                    return Ok(None);
                }
                let digest = Some(self.request(&program, &memory(input))?);
                let end = End::Returned(0);
                let (state, context) = (input.state(), input.context);
                let (array, hash, executed) = ([0; _], Vec::new(), None);
                Ok(Some(Outcome { end, narrow: true, state, context, array, hash, executed, digest }))
            });
            outcomes.collect::<Result<Vec<_>, String>>().map_or_else(Ran::Refused, Ran::Ended)
        };
        cases.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests;
