//! Mistakes in calls and in what is checked before them.

use std::mem::offset_of;

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};
use cranelift_codegen::isa::CallConv;
use twinbpf_vm::host::native::{Context, Services};

use super::edit::{insts, is_field, opcode, param, set_offset, set_operand, with_opcode};
use super::{Mistake, passed, translated};

pub(super) const ALL: &[Mistake] = &[
    translated("frame_limit", "nothing checks that there is room for a callee's frame", |func| {
        each_compare(func, offset_of!(Context, frame_limit), |func, inst, _, _| {
            func.replace(inst).iconst(I8, 0);
        })
    }),
    translated("callee_frame_low_half", "r10 of a callee is computed with 32 bits", |func| {
        each_argument(func, Opcode::Call, 1, |cursor, frame, _| {
            let low = cursor.ins().ireduce(I32, frame);
            cursor.ins().uextend(I64, low)
        })
    }),
    translated("callee_frame_is_r1", "r1 is passed to a callee in place of r10", |func| {
        each_argument(func, Opcode::Call, 1, |_, _, args| args[2])
    }),
    passed("callee_frame_twice", "r10 is added to that of a callee", |func| {
        each_argument(func, Opcode::Call, 1, |cursor, frame, _| {
            let fp = param(cursor.func, 1);
            cursor.ins().iadd(frame, fp)
        })
    }),
    translated("callee_context", "a callee gets r10 for the context", |func| {
        each_argument(func, Opcode::Call, 0, |_, _, args| args[1])
    }),
    passed("callx_bound", "nothing checks the index into the table of functions", |func| {
        each_compare(func, offset_of!(Context, slot_count), |func, inst, _, _| {
            func.replace(inst).iconst(I8, 0);
        })
    }),
    translated("callx_signed", "the index into the table of functions is compared as a signed number", |func| {
        compares_with(func, IntCC::SignedGreaterThanOrEqual)
    }),
    translated("callx_off_by_one", "the index into the table of functions may be their number", |func| {
        compares_with(func, IntCC::UnsignedGreaterThan)
    }),
    translated("callx_inverted", "the compare of the index into the table of functions is inverted", |func| {
        compares_with(func, IntCC::UnsignedLessThan)
    }),
    passed("callx_low_half", "only the low half of the index into the table of functions is compared", |func| {
        each_compare(func, offset_of!(Context, slot_count), |func, inst, cond, args| {
            let mut cursor = FuncCursor::new(func).at_inst(inst);
            let [a, b] = args.map(|arg| cursor.ins().ireduce(I32, arg));
            func.replace(inst).icmp(cond, a, b);
        })
    }),
    translated(
        "callx_other_bound",
        "the index is compared with the address of the functions, not with their number",
        |func| fields(func, offset_of!(Context, slot_count), offset_of!(Context, slots)),
    ),
    translated(
        "callx_either",
        "an index out of bounds is refused only where there is no room for a frame either",
        |func| {
            let all = with_opcode(func, Opcode::Bor).into_iter().filter(|inst| is_compare(func, *inst));
            let all: Vec<(Inst, [Value; 2])> =
                all.map(|inst| (inst, [0, 1].map(|arg| func.dfg.inst_args(inst)[arg]))).collect();
            for (inst, [a, b]) in &all {
                func.replace(*inst).band(*a, *b);
            }
            !all.is_empty()
        },
    ),
    passed("callx_scale", "elements of the table of functions are taken for 16 bytes", |func| {
        let table = offset_of!(Context, functions);
        let sums: Vec<(Inst, usize)> = with_opcode(func, Opcode::Iadd)
            .into_iter()
            .filter_map(|inst| {
                let args = func.dfg.inst_args(inst);
                let at = args.iter().position(|arg| opcode(func, *arg) == Some(Opcode::Ishl))?;
                is_field(func, args[1 - at], table).then_some((inst, at))
            })
            .collect();
        for (inst, operand) in &sums {
            let off = func.dfg.inst_args(*inst)[*operand];
            let twice = FuncCursor::new(func).at_inst(*inst).ins().ishl_imm_u(off, 1);
            set_operand(func, *inst, *operand, twice);
        }
        !sums.is_empty()
    }),
    translated("callx_other_table", "the table of host functions is taken for that of functions", |func| {
        fields(func, offset_of!(Context, functions), offset_of!(Context, hosts))
    }),
    translated("callx_address", "what a program takes for a function's address is called", |func| {
        let mut changed = false;
        for inst in with_opcode(func, Opcode::CallIndirect) {
            let of_slots = |slots: &[Value]| is_field(func, slots[1], offset_of!(Context, slots));
            let sub = with_opcode(func, Opcode::Isub).into_iter().find(|sub| of_slots(func.dfg.inst_args(*sub)));
            if let Some(sub) = sub.filter(|_| is_bpf(func, inst)) {
                let addr = func.dfg.inst_args(sub)[0];
                set_operand(func, inst, 0, addr);
                changed = true;
            }
        }
        changed
    }),
    translated("tail_call_status", "a tail call goes to what the service gave, whatever it says", |func| {
        let mut changed = false;
        for inst in with_opcode(func, Opcode::Brif) {
            let condition = func.dfg.inst_args(inst)[0];
            if func.dfg.value_type(condition) == I64 && leads_to_tail_call(func, inst) {
                let zero = FuncCursor::new(func).at_inst(inst).ins().iconst(I64, 0);
                set_operand(func, inst, 0, zero);
                changed = true;
            }
        }
        changed
    }),
    translated("tail_call_target", "a tail call goes to its first argument", |func| {
        each_argument(func, Opcode::ReturnCallIndirect, 7, |_, _, args| args[2])
    }),
    translated("tail_call_context", "the target of a tail call gets r10 for the context", |func| {
        each_argument(func, Opcode::ReturnCallIndirect, 0, |_, _, args| args[1])
    }),
    translated("tail_call_frame", "the target of a tail call gets r1 for r10", |func| {
        each_argument(func, Opcode::ReturnCallIndirect, 1, |_, _, args| args[2])
    }),
    translated("other_service", "the service that is for the bridge only is called", |func| {
        services(func, offset_of!(Services, interpret) as i32)
    }),
    translated("no_service", "a service past the last one is called", |func| {
        services(func, size_of::<Services>() as i32)
    }),
    translated("host_arguments", "a host function gets its first two arguments swapped", |func| {
        let hosts = with_opcode(func, Opcode::CallIndirect).into_iter();
        let hosts: Vec<Inst> =
            hosts.filter(|inst| !is_bpf(func, *inst) && func.dfg.inst_args(*inst)[1] != param(func, 0)).collect();
        for inst in &hosts {
            let args = func.dfg.inst_args(*inst).to_vec();
            set_operand(func, *inst, 1, args[2]);
            set_operand(func, *inst, 2, args[1]);
        }
        !hosts.is_empty()
    }),
];

/// Whether a call is of a function of the image.
fn is_bpf(func: &Function, inst: Inst) -> bool {
    let signature = func.dfg.call_signature(inst);
    signature.is_some_and(|signature| func.dfg.signatures[signature].call_conv == CallConv::Tail)
}

/// Whether an instruction has an operand that a compare makes.
fn is_compare(func: &Function, inst: Inst) -> bool {
    func.dfg.inst_args(inst).iter().all(|arg| opcode(func, *arg) == Some(Opcode::Icmp))
}

/// Changes compares with a field of the context.
fn each_compare(func: &mut Function, field: usize, change: impl Fn(&mut Function, Inst, IntCC, [Value; 2])) -> bool {
    let mut changed = false;
    for inst in with_opcode(func, Opcode::Icmp) {
        let InstructionData::IntCompare { cond, args, .. } = func.dfg.insts[inst] else { continue };
        if args.iter().any(|arg| is_field(func, *arg, field)) {
            change(func, inst, cond, args);
            changed = true;
        }
    }
    changed
}

/// Compares the index into the table of functions with another condition.
fn compares_with(func: &mut Function, other: IntCC) -> bool {
    each_compare(func, offset_of!(Context, slot_count), |func, inst, _, [a, b]| {
        func.replace(inst).icmp(other, a, b);
    })
}

/// Loads another field in place of one.
fn fields(func: &mut Function, old: usize, new: usize) -> bool {
    let all = insts(func).into_iter();
    let all: Vec<Inst> =
        all.filter(|inst| func.dfg.inst_results(*inst).first().is_some_and(|it| is_field(func, *it, old))).collect();
    all.iter().for_each(|inst| set_offset(func, *inst, new as i32));
    !all.is_empty()
}

/// Loads another service.
fn services(func: &mut Function, offset: i32) -> bool {
    let mut changed = false;
    for inst in with_opcode(func, Opcode::Load) {
        let at = func.dfg.inst_args(inst)[0];
        if is_field(func, at, offset_of!(Context, services)) {
            set_offset(func, inst, offset);
            changed = true;
        }
    }
    changed
}

/// Changes an argument of calls of functions: 0 is the context, 1 r10, 2 r1, 7 stands for what is called. Indirect calls
/// count as calls.
fn each_argument(
    func: &mut Function,
    wanted: Opcode,
    number: usize,
    new: impl Fn(&mut FuncCursor<'_>, Value, &[Value]) -> Value,
) -> bool {
    let mut changed = false;
    for inst in insts(func) {
        let opcode = func.dfg.insts[inst].opcode();
        let is_wanted = opcode == wanted || wanted == Opcode::Call && opcode == Opcode::CallIndirect;
        if !is_wanted || !is_bpf(func, inst) {
            continue;
        }
        let first = usize::from(opcode != Opcode::Call);
        let operand = if number == 7 { 0 } else { first + number };
        let args = func.dfg.inst_args(inst).to_vec();
        let value = new(&mut FuncCursor::new(func).at_inst(inst), args[operand], &args[first..]);
        set_operand(func, inst, operand, value);
        changed = true;
    }
    changed
}

/// Whether one successor of a branch is a block that ends with a tail call.
fn leads_to_tail_call(func: &Function, inst: Inst) -> bool {
    let calls = func.dfg.insts[inst].branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
    calls.iter().any(|call| {
        let last = func.layout.last_inst(call.block(&func.dfg.value_lists));
        last.is_some_and(|last| func.dfg.insts[last].opcode() == Opcode::ReturnCallIndirect)
    })
}
