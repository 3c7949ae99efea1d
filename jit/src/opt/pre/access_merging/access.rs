//! Accesses to memory in Cranelift's IR.

use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Value};

use super::super::super::ir::resolve;

/// An access to memory: the instruction, and which bytes it accesses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) inst: Inst,
    pub(super) addr: Value,
    pub(super) off: i32,
    /// In bytes.
    pub(super) size: u8,
    /// Whether it may trap; accesses to the frame do not.
    pub(super) traps: bool,
}

impl Access {
    /// A load that zero-extends, or a store.
    pub(super) fn of(func: &Function, inst: Inst) -> Option<Access> {
        let (opcode, addr, offset) = match func.dfg.insts[inst] {
            InstructionData::Load { opcode, arg, offset, .. } => (opcode, arg, offset),
            InstructionData::Store { opcode, args, offset, .. } => (opcode, args[1], offset),
            _ => return None,
        };
        let size = match opcode {
            Opcode::Uload8 | Opcode::Istore8 => 1,
            Opcode::Uload16 | Opcode::Istore16 => 2,
            Opcode::Uload32 | Opcode::Istore32 => 4,
            Opcode::Load => func.dfg.value_type(func.dfg.first_result(inst)).bytes() as u8,
            Opcode::Store => func.dfg.value_type(func.dfg.inst_args(inst)[0]).bytes() as u8,
            _ => return None,
        };
        let flags = func.dfg.mem_flags[func.dfg.insts[inst].memflags()?];
        let traps = flags.trap_code().is_some();
        (size <= 8).then(|| Access { inst, addr: resolve(func, addr), off: offset.into(), size, traps })
    }

    pub(super) fn end(&self) -> i32 {
        self.off + i32::from(self.size)
    }
}
