//! Mistakes in what code does with the VM context.

use std::mem::offset_of;

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::types::{I64, I64X2};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, Opcode};
use twinbpf_vm::host::native::Context;

use super::edit::{offset, param, set_offset, with_base};
use super::{Mistake, passed, translated};

pub(super) const ALL: &[Mistake] = &[
    translated("exit_frame_field", "r10 is left in the field after its own, and more", |func| {
        stores(func, offset_of!(Context, exit_frame), offset_of!(Context, bridge))
    }),
    translated("exit_pc_field", "the pc is left in the field of the arena's address", |func| {
        stores(func, offset_of!(Context, exit_pc), offset_of!(Context, arena_base))
    }),
    translated("fuel_field", "the fuel is left in the field before its own", |func| {
        stores(func, offset_of!(Context, remaining), offset_of!(Context, frame_limit))
    }),
    translated("target_field", "the number of a callee is left in the field of the table", |func| {
        stores(func, offset_of!(Context, target), offset_of!(Context, functions))
    }),
    passed("stores_paired", "two stores to the context are merged, and the second is not there", |func| {
        let refused = offset_of!(Context, refused) as i32;
        each(func, Opcode::Store, refused..refused + 1, |func, inst| {
            let InstructionData::Store { flags, args, offset, .. } = func.dfg.insts[inst] else { return };
            let flags = func.dfg.mem_flags[flags];
            if func.dfg.value_type(args[0]) == I64 {
                let both = FuncCursor::new(func).at_inst(inst).ins().scalar_to_vector(I64X2, args[0]);
                func.replace(inst).store(flags, both, args[1], offset);
            }
        })
    }),
    passed("context_end", "a field is loaded from past the end of the context", |func| {
        let all = 0..size_of::<Context>() as i32;
        each(func, Opcode::Load, all, |func, inst| {
            set_offset(func, inst, offset(func, inst) + size_of::<Context>() as i32);
        })
    }),
];

/// Changes accesses of the context with this opcode and an offset in the range.
fn each(
    func: &mut Function,
    opcode: Opcode,
    offsets: std::ops::Range<i32>,
    change: impl Fn(&mut Function, Inst),
) -> bool {
    let cx = param(func, 0);
    let all = with_base(func, cx).into_iter().map(|(inst, _)| inst);
    let wanted = |inst: &Inst| func.dfg.insts[*inst].opcode() == opcode && offsets.contains(&offset(func, *inst));
    let all: Vec<Inst> = all.filter(wanted).collect();
    all.iter().for_each(|inst| change(func, *inst));
    !all.is_empty()
}

/// Stores to another field.
fn stores(func: &mut Function, old: usize, new: usize) -> bool {
    let old = old as i32;
    each(func, Opcode::Store, old..old + 1, |func, inst| set_offset(func, inst, new as i32))
}
