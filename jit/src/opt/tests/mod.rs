//! What became of branches, in Cranelift's IR. That the results are the same, `crate::tests` shows.

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I16, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, BlockArg, Function, InstBuilder as _, InstructionData, MemFlagsData, Opcode, Value,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use super::analysis::Analysis;
use super::pass::{Input, Pass};
use super::pipeline::PassSet;
use super::pipeline::{Pipeline, Subject};
use super::target_model::TargetModel;
use crate::OptLevel;
use crate::context::field;
use crate::settings::{Registers, isa};
use crate::stage::{At, Stages};

mod files;
mod loops;
mod places;
mod subregisters;

/// A function of two words whose body `build` adds to the entry block.
fn function(build: impl FnOnce(&mut FunctionBuilder<'_>, Value, Value)) -> Context {
    let isa = isa(OptLevel::Speed, Registers::Backtracking, true).unwrap();
    let mut func = Function::new();
    func.signature.params.extend([AbiParam::new(I64); 2]);
    func.signature.returns.push(AbiParam::new(I64));
    let mut memory = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut func, &mut memory);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let (x, y) = (b.block_params(entry)[0], b.block_params(entry)[1]);
    build(&mut b, x, y);
    b.seal_all_blocks();
    b.finalize(isa.frontend_config());
    Context::for_function(func)
}

/// Runs one pass. Returns how many places it changed.
fn run<P: Pass>(context: &mut Context, mutant: &str) -> usize {
    let isa = isa(OptLevel::Speed, Registers::Backtracking, true).unwrap();
    let mut analysis = Analysis::default();
    analysis.require(P::NEEDS, context);
    let (analysis, target, sites) = (&mut analysis, TargetModel::of(&*isa), &mut Vec::new());
    P::default().run(&mut Input { context, analysis, target, counted: false, sites, mutant })
}

fn optimised(context: Context) -> Function {
    optimised_for(context, false)
}

fn optimised_for(mut context: Context, counted: bool) -> Function {
    let isa = isa(OptLevel::Speed, Registers::Backtracking, true).unwrap();
    let mut pipeline = Pipeline::default();
    let stages = Stages { at: &At::new(""), each: true, fault: "" };
    let subject = Subject { function: 0, passes: PassSet::ALL, counted, stages };
    let sites = &mut Vec::new();
    pipeline.pre(&mut context, &*isa, subject, sites).unwrap();
    context.optimize(&*isa, &mut ControlPlane::default()).unwrap();
    pipeline.post(&mut context, &*isa, subject, sites).unwrap();
    context.compute_cfg();
    context.compute_domtree();
    context.verify(&*isa).unwrap();
    context.func
}

fn count(func: &Function, opcode: Opcode) -> usize {
    let blocks = func.layout.blocks();
    let insts = blocks.flat_map(|block| func.layout.block_insts(block));
    insts.filter(|inst| func.dfg.insts[*inst].opcode() == opcode).count()
}

/// `if x < y`, then `then`, and the value of either path.
fn branch(b: &mut FunctionBuilder<'_>, x: Value, y: Value, then: impl FnOnce(&mut FunctionBuilder<'_>) -> Value) {
    let (side, join) = (b.create_block(), b.create_block());
    b.append_block_param(join, I64);
    let less = b.ins().icmp(IntCC::UnsignedLessThan, x, y);
    b.ins().brif(less, side, &[], join, &[BlockArg::Value(x)]);
    b.switch_to_block(side);
    let value = then(b);
    b.ins().jump(join, &[BlockArg::Value(value)]);
    b.switch_to_block(join);
    let value = b.block_params(join)[0];
    b.ins().return_(&[value]);
}

#[test]
fn a_branch_around_little_is_a_select() {
    let func = optimised(function(|b, x, y| branch(b, x, y, |b| b.ins().iadd(x, y))));
    assert_eq!((count(&func, Opcode::Brif), count(&func, Opcode::Select)), (0, 1), "{func}");
    assert_eq!(func.layout.blocks().count(), 1, "{func}");
}

#[test]
fn a_branch_around_work_or_effects_stays() {
    let func = optimised(function(|b, x, y| {
        branch(b, x, y, |b| {
            let value = b.ins().iadd(x, y);
            let value = b.ins().bxor(value, y);
            b.ins().ishl(value, x)
        });
    }));
    assert_eq!(count(&func, Opcode::Brif), 1, "{func}");
    let func = optimised(function(|b, x, y| branch(b, x, y, |b| b.ins().load(I64, MemFlagsData::new(), y, 0))));
    assert_eq!(count(&func, Opcode::Brif), 1, "{func}");
}

#[test]
fn a_branch_that_chooses_the_next_address_stays() {
    let chase = |load: bool| {
        optimised(function(|b, x, y| {
            let (side, join) = (b.create_block(), b.create_block());
            b.append_block_param(join, I64);
            let decider = if load { b.ins().load(I64, MemFlagsData::new(), y, 0) } else { y };
            let less = b.ins().icmp(IntCC::UnsignedLessThan, decider, x);
            b.ins().brif(less, side, &[], join, &[BlockArg::Value(x)]);
            b.switch_to_block(side);
            let next = b.ins().iadd_imm_s(x, 24);
            b.ins().jump(join, &[BlockArg::Value(next)]);
            b.switch_to_block(join);
            let base = b.block_params(join)[0];
            let at = b.ins().iadd(base, y);
            let value = b.ins().load(I64, MemFlagsData::new(), at, 0);
            b.ins().return_(&[value]);
        }))
    };
    assert_eq!((count(&chase(true), Opcode::Brif), count(&chase(true), Opcode::Select)), (1, 0));
    assert_eq!((count(&chase(false), Opcode::Brif), count(&chase(false), Opcode::Select)), (0, 1));
}

#[test]
fn counting_waits_for_a_sum_only() {
    // Both paths subtract from a budget.
    let func = optimised(function(|b, x, y| {
        let (side, join) = (b.create_block(), b.create_block());
        b.append_block_param(join, I64);
        let less = b.ins().icmp(IntCC::UnsignedLessThan, x, y);
        let a = b.ins().iadd_imm_s(y, -3);
        b.ins().brif(less, side, &[], join, &[BlockArg::Value(a)]);
        b.switch_to_block(side);
        let a = b.ins().iadd_imm_s(a, -5);
        b.ins().jump(join, &[BlockArg::Value(a)]);
        b.switch_to_block(join);
        let value = b.block_params(join)[0];
        b.ins().return_(&[value]);
    }));
    assert_eq!((count(&func, Opcode::Select), count(&func, Opcode::Iadd)), (1, 1), "{func}");
}

/// Compares of `x` with 0, 1, 2, ... one after the other.
fn chain(b: &mut FunctionBuilder<'_>, x: Value, y: Value, cases: i64) {
    let end = b.create_block();
    b.append_block_param(end, I64);
    for case in 0..cases {
        let (hit, next) = (b.create_block(), b.create_block());
        let equal = b.ins().icmp_imm_u(IntCC::Equal, x, case);
        b.ins().brif(equal, hit, &[], next, &[]);
        b.switch_to_block(hit);
        let value = b.ins().load(I64, MemFlagsData::new(), y, case as i32);
        b.ins().jump(end, &[BlockArg::Value(value)]);
        b.switch_to_block(next);
    }
    b.ins().jump(end, &[BlockArg::Value(y)]);
    b.switch_to_block(end);
    let value = b.block_params(end)[0];
    b.ins().return_(&[value]);
}

#[test]
fn a_tree_of_compares_is_a_table() {
    let wide = optimised(function(|b, x, y| chain(b, x, y, 8)));
    assert_eq!(count(&wide, Opcode::BrTable), 1, "{wide}");
    let narrow = optimised(function(|b, x, y| {
        let x = b.ins().ireduce(I32, x);
        chain(b, x, y, 8);
    }));
    assert_eq!(count(&narrow, Opcode::BrTable), 1, "{narrow}");
    let few = optimised(function(|b, x, y| chain(b, x, y, 5)));
    assert_eq!(count(&few, Opcode::BrTable), 0, "{few}");
}

#[test]
fn two_charges_by_one_condition_are_one() {
    for second in [IntCC::UnsignedLessThan, IntCC::UnsignedGreaterThanOrEqual, IntCC::Equal] {
        let twice = function(|b, x, y| {
            let mut budget = x;
            for (cc, more) in [(IntCC::UnsignedLessThan, -5), (second, -14)] {
                let (side, join) = (b.create_block(), b.create_block());
                b.append_block_param(join, I64);
                let holds = b.ins().icmp(cc, y, x);
                let charged = b.ins().iadd_imm_s(budget, -3);
                b.ins().brif(holds, side, &[], join, &[BlockArg::Value(charged)]);
                b.switch_to_block(side);
                let charged = b.ins().iadd_imm_s(charged, more);
                b.ins().jump(join, &[BlockArg::Value(charged)]);
                b.switch_to_block(join);
                budget = b.block_params(join)[0];
            }
            b.ins().return_(&[budget]);
        });
        let func = optimised_for(twice, true);
        let expected = if second == IntCC::Equal { 2 } else { 1 };
        assert_eq!(count(&func, Opcode::Select), expected, "{func}");
    }
}

/// The sum of two words at indices from `y` on, from a base that `base` makes.
fn indexing(base: impl FnOnce(&mut FunctionBuilder<'_>, Value) -> Value) -> Function {
    optimised(function(|b, x, y| {
        let base = base(b, x);
        let index = b.ins().ireduce(I32, y);
        let words = [1, 2].map(|more| {
            let index = b.ins().iadd_imm_u(index, more);
            let scaled = b.ins().ishl_imm_u(index, 3);
            let start = b.ins().iconst(I32, 0x10040);
            let low = b.ins().iadd(start, scaled);
            let wide = b.ins().uextend(I64, low);
            let addr = b.ins().iadd(base, wide);
            b.ins().load(I64, MemFlagsData::new(), addr, 0)
        });
        let sum = b.ins().iadd(words[0], words[1]);
        b.ins().return_(&[sum]);
    }))
}

#[test]
fn constants_in_an_index_are_offsets_in_the_arena() {
    let arena = indexing(|b, cx| {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        b.ins().load(I64, flags, cx, field!(arena_base))
    });
    let offsets = |func: &Function| -> Vec<i32> {
        let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
        let loads = insts.filter_map(|inst| match func.dfg.insts[inst] {
            InstructionData::Load { offset, .. } => Some(offset.into()),
            _ => None,
        });
        loads.collect()
    };
    assert_eq!(offsets(&arena), [field!(arena_base), 8, 16], "{arena}");
    // Sums of 16 bits wrap around long before the arena's ends.
    let narrow = optimised(function(|b, x, y| {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let base = b.ins().load(I64, flags, x, field!(arena_base));
        let index = b.ins().ireduce(I16, y);
        let start = b.ins().ushr_imm_u(y, 16);
        let start = b.ins().ireduce(I16, start);
        let index = b.ins().iadd_imm_u(index, 500);
        let low = b.ins().iadd(start, index);
        let wide = b.ins().uextend(I64, low);
        let addr = b.ins().iadd(base, wide);
        let word = b.ins().load(I64, MemFlagsData::new(), addr, 0);
        b.ins().return_(&[word]);
    }));
    assert_eq!(offsets(&narrow), [field!(arena_base), 0], "{narrow}");
    // Elsewhere the sum of 32 bits may wrap around.
    let elsewhere = indexing(|_, x| x);
    assert_eq!(offsets(&elsewhere), [0, 0], "{elsewhere}");
}

#[test]
fn an_offset_of_32_bits_is_extended_where_it_is_made() {
    let func = optimised(function(|b, x, y| {
        let (head, done) = (b.create_block(), b.create_block());
        let at = b.append_block_param(head, I32);
        let start = b.ins().ireduce(I32, y);
        b.ins().jump(head, &[BlockArg::Value(start)]);
        b.switch_to_block(head);
        let wide = b.ins().uextend(I64, at);
        let addr = b.ins().iadd(x, wide);
        let word = b.ins().load(I64, MemFlagsData::new(), addr, 0);
        let next = b.ins().iadd_imm_u(at, 8);
        b.ins().brif(word, head, &[BlockArg::Value(next)], done, &[]);
        b.switch_to_block(done);
        b.ins().return_(&[word]);
    }));
    let head = func.layout.blocks().nth(1).unwrap();
    assert_eq!(func.dfg.value_type(func.dfg.block_params(head)[0]), I64, "{func}");
    let step = func.layout.block_insts(head).find(|inst| func.dfg.insts[*inst].opcode() == Opcode::Uextend).unwrap();
    assert_ne!(func.dfg.inst_args(step)[0], func.dfg.block_params(head)[0], "{func}");
}
