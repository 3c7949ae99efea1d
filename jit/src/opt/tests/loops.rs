//! Instruction order inside loops, and their exit edges.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstBuilder as _, InstructionData, MemFlagsData, Opcode};

use super::{function, optimised, run};
use cranelift_codegen::verify_function;

use crate::opt::post::{LICM_MUTANT, Licm};
use crate::options::OptLevel;
use crate::settings::{Registers, isa};

/// The optimiser folds sums of constants, as a rule.
#[test]
fn a_sum_of_constants_leaves_a_loop_with_both() {
    let isa = isa(OptLevel::Speed, Registers::Backtracking, true).unwrap();
    for (ty, mutant) in [(I32, false), (I64, false), (I32, true)] {
        let mut context = function(|b, x, _| {
            let (head, done) = (b.create_block(), b.create_block());
            let i = b.append_block_param(head, ty);
            let start = if ty == I32 { b.ins().ireduce(ty, x) } else { x };
            b.ins().jump(head, &[BlockArg::Value(start)]);
            b.switch_to_block(head);
            let [zero, one] = [0, 1].map(|bits| b.ins().iconst(ty, bits));
            let sum = b.ins().iadd(zero, one);
            let next = b.ins().isub(i, one);
            let more = b.ins().icmp(IntCC::UnsignedLessThan, sum, next);
            b.ins().brif(more, head, &[BlockArg::Value(next)], done, &[]);
            b.switch_to_block(done);
            b.ins().return_(&[x]);
        });
        run::<Licm>(&mut context, if mutant { LICM_MUTANT } else { "" });
        assert_eq!(verify_function(&context.func, &*isa).is_err(), mutant, "{}", context.func);
    }
}

#[test]
fn increments_sink_below_the_last_use() {
    let func = optimised(function(|b, x, y| {
        let (head, done) = (b.create_block(), b.create_block());
        b.append_block_param(head, I64);
        b.append_block_param(head, I64);
        let zero = b.ins().iconst(I64, 0);
        b.ins().jump(head, &[BlockArg::Value(zero), BlockArg::Value(x)]);
        b.switch_to_block(head);
        let (i, sum) = (b.block_params(head)[0], b.block_params(head)[1]);
        let next = b.ins().iadd_imm_s(i, 1);
        let product = b.ins().imul(sum, y);
        let sum = b.ins().bxor(product, i);
        let more = b.ins().icmp(IntCC::UnsignedLessThan, next, y);
        b.ins().brif(more, head, &[BlockArg::Value(next), BlockArg::Value(sum)], done, &[]);
        b.switch_to_block(done);
        b.ins().return_(&[sum]);
    }));
    let body = func
        .layout
        .blocks()
        .find(|block| func.dfg.block_params(*block).len() == 2 && *block != func.layout.entry_block().unwrap());
    let order: Vec<Opcode> = func.layout.block_insts(body.unwrap()).map(|inst| func.dfg.insts[inst].opcode()).collect();
    let at = |opcode| order.iter().position(|other| *other == opcode).unwrap();
    assert!(at(Opcode::Bxor) < at(Opcode::Isub) && at(Opcode::Isub) < at(Opcode::Icmp), "{func}");
}

/// `loop { if *x == y { return x } x = *(x + 8); if x == 0 { return y } }`
fn search() -> Function {
    optimised(function(|b, x, y| {
        let (head, rest, end) = (b.create_block(), b.create_block(), b.create_block());
        let (at, found) = (b.append_block_param(head, I64), b.append_block_param(end, I64));
        b.ins().jump(head, &[BlockArg::Value(x)]);
        b.switch_to_block(head);
        let key = b.ins().load(I64, MemFlagsData::new(), at, 0);
        let other = b.ins().icmp(IntCC::NotEqual, key, y);
        b.ins().brif(other, rest, &[], end, &[BlockArg::Value(at)]);
        b.switch_to_block(rest);
        let next = b.ins().load(I64, MemFlagsData::new(), at, 8);
        b.ins().brif(next, head, &[BlockArg::Value(next)], end, &[BlockArg::Value(y)]);
        b.switch_to_block(end);
        b.ins().return_(&[found]);
    }))
}

#[test]
fn loops_fall_through_past_their_exits() {
    let func = search();
    let mut exits = 0;
    for block in func.layout.blocks() {
        let branch = func.layout.last_inst(block).unwrap();
        let InstructionData::Brif { blocks, .. } = func.dfg.insts[branch] else { continue };
        // The second branch can go back where the loop begins, and does so first.
        let moves = func.layout.last_inst(blocks[exits].block(&func.dfg.value_lists)).unwrap();
        assert_eq!(func.dfg.insts[moves].opcode(), Opcode::Jump, "{func}");
        exits += 1;
    }
    assert_eq!(exits, 2, "{func}");
}

#[test]
fn invariant_terms_are_added_in_the_preheader() {
    for term in [0, 5] {
        let func = optimised(function(|b, x, y| {
            let (head, end) = (b.create_block(), b.create_block());
            let i = b.append_block_param(head, I32);
            let (base, at, zero) = (b.ins().ireduce(I32, x), b.ins().ireduce(I32, y), b.ins().iconst(I32, 0));
            b.ins().jump(head, &[BlockArg::Value(zero)]);
            b.switch_to_block(head);
            let here = b.ins().iadd(base, i);
            let here = b.ins().iadd(here, at);
            let here = b.ins().iadd_imm_u(here, term);
            let here = b.ins().uextend(I64, here);
            let here = b.ins().iadd(y, here);
            let found = b.ins().load(I32, MemFlagsData::new(), here, 0);
            let next = b.ins().bxor(i, found);
            b.ins().brif(found, head, &[BlockArg::Value(next)], end, &[]);
            b.switch_to_block(end);
            b.ins().return_(&[x]);
        }));
        let blocks: Vec<Block> = func.layout.blocks().collect();
        let sums = |block| {
            let narrow = |inst: &Inst| {
                matches!(func.dfg.insts[*inst].opcode(), Opcode::Iadd | Opcode::Isub)
                    && func.dfg.value_type(func.dfg.first_result(*inst)) == I32
            };
            func.layout.block_insts(block).filter(narrow).count()
        };
        assert_eq!([sums(blocks[0]), sums(blocks[1])], [if term == 0 { 1 } else { 2 }, 1], "{func}");
    }
}
