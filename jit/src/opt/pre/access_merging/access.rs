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
        let (addr, offset) = match func.dfg.insts[inst] {
            InstructionData::Load { arg, offset, .. } => (arg, offset),
            InstructionData::Store { args, offset, .. } => (args[1], offset),
            _ => return None,
        };
        let size = size(func, inst)?;
        let flags = func.dfg.mem_flags[func.dfg.insts[inst].memflags()?];
        let traps = flags.trap_code().is_some();
        (size <= 8).then(|| Access { inst, addr: resolve(func, addr), off: offset.into(), size, traps })
    }

    pub(super) fn end(&self) -> i32 {
        self.off + i32::from(self.size)
    }
}

/// Bytes that an instruction accesses, if it is such an access.
pub(super) fn size(func: &Function, inst: Inst) -> Option<u8> {
    let bytes = |value| func.dfg.value_type(value).bytes() as u8;
    match func.dfg.insts[inst].opcode() {
        Opcode::Uload8 | Opcode::Istore8 => Some(1),
        Opcode::Uload16 | Opcode::Istore16 => Some(2),
        Opcode::Uload32 | Opcode::Istore32 => Some(4),
        Opcode::Load => Some(bytes(func.dfg.first_result(inst))),
        Opcode::Store => Some(bytes(func.dfg.inst_args(inst)[0])),
        _ => None,
    }
}
