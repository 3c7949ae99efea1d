//! Programs that call, rewritten for machines with calling conventions of their own.

use twinbpf_isa::program::Program;
use twinbpf_isa::{CallKind, Endian, Insn, encode_all};

/// How a machine wants its calls.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Immediate of a call of the only host function.
    pub host: i32,
    /// Calls of subprograms name the pc of the target like a helper.
    pub by_pc: bool,
}

/// The program as bytes, its calls in the words of the machine.
pub fn code_with(program: &Program, calls: Calls) -> Vec<u8> {
    let rewritten = program.insns.iter().enumerate().map(|(pc, insn)| match *insn {
        Insn::Call { kind: CallKind::Extern, .. } => Insn::Call { kind: CallKind::Helper, off: 0, imm: calls.host },
        Insn::Call { kind: CallKind::Local, imm, .. } if calls.by_pc => {
            Insn::Call { kind: CallKind::Helper, off: 0, imm: pc as i32 + 1 + imm }
        }
        other => other,
    });
    encode_all(&rewritten.collect::<Vec<_>>(), Endian::Little)
}
