//! Mistakes in addresses: of the arena and of the BPF frame.

use std::mem::offset_of;

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::types::{I32, I64, I64X2};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, MemFlagsData, Opcode, Value};
use twinbpf_vm::host::native::Context;
use twinbpf_vm::mem::MARGIN;

use super::edit::{
    Access, accesses, any, constant, def_inst, each_address, each_index, in_loop, offset, opcode, operands, param,
    set_offset, set_operand, unmasked, with_base,
};
use super::{Mistake, passed, translated};

pub(super) const ALL: &[Mistake] = &[
    translated("load_mask", "loads take all 64 bits of a pointer", |func| {
        each_index(func, |func, access| is(func, access, |opcode| opcode.can_load() && !opcode.can_store()), unmasked)
    }),
    translated("store_mask", "stores take all 64 bits of a pointer", |func| {
        each_index(func, |func, access| is(func, access, |opcode| opcode.can_store() && !opcode.can_load()), unmasked)
    }),
    translated("atomic_mask", "atomic operations take all 64 bits of a pointer", |func| {
        each_index(func, |func, access| is(func, access, |opcode| opcode.can_store() && opcode.can_load()), unmasked)
    }),
    passed("loop_mask", "the mask of a pointer is taken out of a loop and lost", |func| {
        each_index(
            func,
            |func, access| func.layout.inst_block(access.inst).is_some_and(|it| in_loop(func, it)),
            unmasked,
        )
    }),
    translated("sign_extension", "pointers are extended with their sign", |func| each_index(func, any, sign_extended)),
    passed("sum_64", "a sum that wraps around at 32 bits is made with 64", |func| {
        each_index(func, any, |cursor, index| widened(cursor, index, Opcode::Iadd))
    }),
    passed("shift_64", "a shift of 32 bits is made with 64", |func| {
        each_index(func, any, |cursor, index| widened(cursor, index, Opcode::Ishl))
    }),
    passed("product_64", "a product of 32 bits is made with 64", |func| {
        each_index(func, any, |cursor, index| widened(cursor, index, Opcode::Imul))
    }),
    passed("difference_64", "a difference of 32 bits is made with 64", |func| {
        each_index(func, any, |cursor, index| widened(cursor, index, Opcode::Isub))
    }),
    passed("zeros_above_sign", "a sign-extending load is taken to leave zeros above 32 bits", |func| {
        each_index(func, any, |cursor, index| elided(cursor, index, is_signed_load))
    }),
    passed("zeros_above_and", "a conjunction is taken to have zeros above 32 bits", |func| {
        each_index(func, any, |cursor, index| elided(cursor, index, |opcode| opcode == Opcode::Band))
    }),
    passed("zeros_above_shift", "a right shift is taken to leave zeros above 32 bits", |func| {
        each_index(func, any, |cursor, index| {
            elided(cursor, index, |opcode| matches!(opcode, Opcode::Ushr | Opcode::Sshr))
        })
    }),
    translated("zeros_above_call", "the result of a call is taken to have 32 bits", |func| {
        each_index(func, any, |cursor, index| elided(cursor, index, |opcode| opcode.is_call()))
    }),
    passed("mask_around_loop", "a masked value is taken for masked in the next iteration, too", |func| {
        each_index(func, any, from_param)
    }),
    translated("mask_33", "the mask has a bit too many", |func| {
        each_index(func, any, |cursor, index| {
            let whole = unmasked(cursor, index)?;
            Some(cursor.ins().band_imm_u(whole, (1 << 33) - 1))
        })
    }),
    translated("constant_sign", "a constant pointer is extended with its sign", |func| {
        each_index(func, any, |cursor, index| {
            let number = constant(cursor.func, index)?;
            ((number as i32) < 0).then(|| cursor.ins().iconst(I64, i64::from(number as i32)))
        })
    }),
    translated(
        "far_displacement",
        "what is added to a pointer goes into the displacement however large it is",
        |func| fold(func, |_, _| true),
    ),
    translated("margin_twice", "a displacement may be as large as two margins", |func| {
        fold(func, |far, _| far.unsigned_abs() <= 2 * MARGIN)
    }),
    translated("width_not_counted", "an access may begin where the margin ends", |func| {
        fold(func, |far, bytes| (0..bytes).contains(&(MARGIN as i64 - far)))
    }),
    passed("displacement_twice", "a displacement is added and left in the instruction, too", |func| {
        each_address(
            func,
            |func, access| offset(func, access.inst) != 0,
            |cursor, access| {
                let off = i64::from(offset(cursor.func, access.inst));
                let off = cursor.ins().iconst(I64, off);
                let sum = cursor.ins().iadd(access.arena, access.index);
                Some(cursor.ins().iadd(sum, off))
            },
        )
    }),
    passed("index_scaled", "a masked index gets the scale that it had before", |func| {
        each_index(func, any, |cursor, index| Some(cursor.ins().ishl_imm_u(index, 3)))
    }),
    translated("base_dropped", "the arena's address is not added", |func| {
        each_address(func, any, |_, access| Some(access.index))
    }),
    translated("base_twice", "the arena's address is added twice", |func| {
        each_address(func, any, |cursor, access| {
            let twice = cursor.ins().iadd(access.arena, access.arena);
            Some(cursor.ins().iadd(twice, access.index))
        })
    }),
    passed("base_minus_index", "a pointer is subtracted from the arena's address", |func| {
        each_address(func, any, |cursor, access| Some(cursor.ins().isub(access.arena, access.index)))
    }),
    translated("base_field", "another field of the context is taken for the arena's address", |func| {
        each_address(func, any, |cursor, access| {
            let (cx, flags) = (param(cursor.func, 0), MemFlagsData::trusted());
            let base = cursor.ins().load(I64, flags, cx, offset_of!(Context, frame_limit) as i32);
            Some(cursor.ins().iadd(base, access.index))
        })
    }),
    passed("load_widened", "a narrow load is made with 8 bytes", widen_loads),
    passed("store_widened", "a narrow store is made with 8 bytes", widen_stores),
    passed("load_paired", "a load of 8 bytes is merged with one after it that is not there", pair_loads),
    translated("frame_base", "r1 is taken for r10", |func| {
        let (fp, r1) = (param(func, 1), param(func, 2));
        let all = with_base(func, fp);
        all.iter().for_each(|(inst, operand)| set_operand(func, *inst, *operand, r1));
        !all.is_empty()
    }),
    passed("frame_offset_unsigned", "an offset from r10 is extended with zeros", |func| {
        frame(func, |cursor, fp, off| {
            let off = cursor.ins().iconst(I64, i64::from(off as u32));
            cursor.ins().iadd(fp, off)
        })
    }),
    translated("frame_in_arena", "the arena's address is added to r10", |func| {
        frame(func, |cursor, fp, off| {
            let (cx, flags) = (param(cursor.func, 0), MemFlagsData::trusted());
            let base = cursor.ins().load(I64, flags, cx, offset_of!(Context, arena_base) as i32);
            let sum = cursor.ins().iadd(base, fp);
            cursor.ins().iadd_imm_s(sum, i64::from(off))
        })
    }),
    passed("frame_low_half", "r10 is kept in 32 bits", |func| {
        frame(func, |cursor, fp, off| {
            let low = cursor.ins().ireduce(I32, fp);
            let wide = cursor.ins().uextend(I64, low);
            cursor.ins().iadd_imm_s(wide, i64::from(off))
        })
    }),
];

fn is(func: &Function, access: &Access, wanted: impl Fn(Opcode) -> bool) -> bool {
    wanted(func.dfg.insts[access.inst].opcode())
}

fn sign_extended(cursor: &mut FuncCursor<'_>, index: Value) -> Option<Value> {
    let low = operands(cursor.func, index, Opcode::Uextend)?[0];
    (cursor.func.dfg.value_type(low) == I32).then(|| cursor.ins().sextend(I64, low))
}

/// An operation of 32 bits, made with 64.
fn widened(cursor: &mut FuncCursor<'_>, index: Value, wanted: Opcode) -> Option<Value> {
    let low = operands(cursor.func, index, Opcode::Uextend)?[0];
    let args = operands(cursor.func, low, wanted).filter(|_| cursor.func.dfg.value_type(low) == I32)?;
    let a = cursor.ins().uextend(I64, args[0]);
    Some(match wanted {
        Opcode::Ishl => cursor.ins().ishl(a, args[1]),
        _ => {
            let b = cursor.ins().uextend(I64, args[1]);
            match wanted {
                Opcode::Iadd => cursor.ins().iadd(a, b),
                Opcode::Isub => cursor.ins().isub(a, b),
                _ => cursor.ins().imul(a, b),
            }
        }
    })
}

/// A value whose mask is left out where this instruction makes it.
fn elided(cursor: &mut FuncCursor<'_>, index: Value, wanted: impl Fn(Opcode) -> bool) -> Option<Value> {
    let low = operands(cursor.func, index, Opcode::Uextend)?[0];
    let whole = operands(cursor.func, low, Opcode::Ireduce)?[0];
    let is_wide = cursor.func.dfg.value_type(whole) == I64;
    opcode(cursor.func, whole).is_some_and(wanted).then_some(whole).filter(|_| is_wide)
}

fn is_signed_load(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Sload8 | Opcode::Sload16 | Opcode::Sload32 | Opcode::Sextend)
}

/// The same where it is a parameter of a block.
fn from_param(cursor: &mut FuncCursor<'_>, index: Value) -> Option<Value> {
    let low = operands(cursor.func, index, Opcode::Uextend)?[0];
    let whole = operands(cursor.func, low, Opcode::Ireduce)?[0];
    let entry = cursor.func.layout.entry_block()?;
    let is_own = cursor.func.dfg.block_params(entry).contains(&whole);
    (def_inst(cursor.func, whole).is_none() && !is_own).then_some(whole)
}

/// Moves what is added to a pointer into the displacement, where `wanted` says so of the displacement and the bytes.
fn fold(func: &mut Function, wanted: impl Fn(i64, i64) -> bool) -> bool {
    let mut found = Vec::new();
    for access in accesses(func) {
        let Some(low) = operands(func, access.index, Opcode::Uextend).map(|args| args[0]) else { continue };
        let Some(args) = operands(func, low, Opcode::Iadd) else { continue };
        let Some(term) = constant(func, args[1]) else { continue };
        let far = i64::from(term as i32) + i64::from(offset(func, access.inst));
        let bytes = bytes(func, access.inst, func.dfg.insts[access.inst].opcode());
        if bytes > 0 && wanted(far, bytes) {
            found.push((access.inst, args[0], far as i32));
        }
    }
    for (inst, low, far) in &found {
        let rest = |_: &Function, access: &Access| access.inst == *inst;
        each_index(func, rest, |cursor, _| Some(cursor.ins().uextend(I64, *low)));
        set_offset(func, *inst, *far);
    }
    !found.is_empty()
}

/// Bytes of a load or store, 0 of anything else.
fn bytes(func: &Function, inst: Inst, opcode: Opcode) -> i64 {
    match opcode {
        Opcode::Uload8 | Opcode::Sload8 | Opcode::Istore8 => 1,
        Opcode::Uload16 | Opcode::Sload16 | Opcode::Istore16 => 2,
        Opcode::Uload32 | Opcode::Sload32 | Opcode::Istore32 => 4,
        Opcode::Load => i64::from(func.dfg.ctrl_typevar(inst).bytes()),
        Opcode::Store => i64::from(func.dfg.value_type(func.dfg.inst_args(inst)[0]).bytes()),
        _ => 0,
    }
}

fn widen_loads(func: &mut Function) -> bool {
    let mut changed = false;
    for Access { inst, .. } in accesses(func) {
        let InstructionData::Load { opcode, flags, arg, offset } = func.dfg.insts[inst] else { continue };
        if opcode != Opcode::Load {
            let flags = func.dfg.mem_flags[flags];
            func.replace(inst).load(I64, flags, arg, offset);
            changed = true;
        }
    }
    changed
}

fn widen_stores(func: &mut Function) -> bool {
    let mut changed = false;
    for Access { inst, .. } in accesses(func) {
        let InstructionData::Store { opcode, flags, args, offset } = func.dfg.insts[inst] else { continue };
        let narrow = bytes(func, inst, opcode) < 8;
        let flags = func.dfg.mem_flags[flags];
        if narrow {
            let wide = match func.dfg.value_type(args[0]) {
                I64 => args[0],
                _ => FuncCursor::new(func).at_inst(inst).ins().uextend(I64, args[0]),
            };
            func.replace(inst).store(flags, wide, args[1], offset);
            changed = true;
        }
    }
    changed
}

fn pair_loads(func: &mut Function) -> bool {
    let mut changed = false;
    for Access { inst, .. } in accesses(func) {
        let InstructionData::Load { opcode: Opcode::Load, flags, arg, offset } = func.dfg.insts[inst] else { continue };
        if func.dfg.ctrl_typevar(inst) == I64 {
            let flags = func.dfg.mem_flags[flags];
            let both = FuncCursor::new(func).at_inst(inst).ins().load(I64X2, flags, arg, offset);
            func.replace(inst).extractlane(both, 0);
            changed = true;
        }
    }
    changed
}

/// Gives accesses of the BPF frame another address.
fn frame(func: &mut Function, new: impl Fn(&mut FuncCursor<'_>, Value, i32) -> Value) -> bool {
    let fp = param(func, 1);
    let all = with_base(func, fp);
    for (inst, operand) in &all {
        let off = offset(func, *inst);
        let at = new(&mut FuncCursor::new(func).at_inst(*inst), fp, off);
        set_operand(func, *inst, *operand, at);
        set_offset(func, *inst, 0);
    }
    !all.is_empty()
}
