//! Dead code that demanded-bits narrowing removes before the optimiser runs.

use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{BlockArg, Function, InstBuilder as _, Opcode};

use super::{count, function, isa};
use crate::OptLevel;
use crate::opt::pipeline::PassSet;
use crate::opt::pipeline::{Pipeline, Subject};
use crate::settings::Registers;
use crate::stage::{At, Stages};

fn before(mut context: Context) -> Function {
    let isa = isa(OptLevel::Speed, Registers::Backtracking, true).unwrap();
    let stages = Stages { at: &At::new(""), each: true, fault: "" };
    let subject = Subject { function: 0, passes: PassSet::ALL, counted: false, stages };
    let sites = &mut Vec::new();
    Pipeline::default().pre(&mut context, &*isa, subject, sites).unwrap();
    context.compute_cfg();
    context.compute_domtree();
    context.verify(&*isa).unwrap();
    context.func
}

#[test]
fn a_low_half_is_taken_once() {
    let func = before(function(|b, x, y| {
        let blocks = [b.create_block(), b.create_block()];
        let sum = b.ins().iadd(x, y);
        b.ins().brif(x, blocks[0], &[], blocks[1], &[]);
        for block in blocks {
            b.switch_to_block(block);
            let low = b.ins().ireduce(I32, sum);
            let product = b.ins().imul(low, low);
            let wide = b.ins().uextend(I64, product);
            let again = b.ins().ireduce(I32, wide);
            let wide = b.ins().uextend(I64, again);
            b.ins().return_(&[wide]);
        }
    }));
    assert_eq!((count(&func, Opcode::Ireduce), count(&func, Opcode::Uextend)), (1, 2), "{func}");
}

#[test]
fn dead_code_is_removed() {
    let func = before(function(|b, x, y| {
        let five = b.ins().iconst(I64, 5);
        let sum = b.ins().iadd(x, five);
        b.ins().imul(sum, five);
        b.ins().return_(&[y]);
    }));
    let left = [Opcode::Iconst, Opcode::Iadd, Opcode::Imul].map(|opcode| count(&func, opcode));
    assert_eq!(left, [0, 0, 0], "{func}");
}

#[test]
fn values_with_users_in_other_blocks_stay() {
    // The user is laid out before what it uses, and so is visited last.
    let func = before(function(|b, x, y| {
        let (user, definition, other) = (b.create_block(), b.create_block(), b.create_block());
        b.ins().brif(x, definition, &[], other, &[]);
        b.func.layout.append_block(user);
        b.switch_to_block(definition);
        let three = b.ins().iconst(I64, 3);
        let sum = b.ins().iadd(y, three);
        b.ins().jump(user, &[]);
        b.switch_to_block(user);
        let double = b.ins().iadd(sum, sum);
        b.ins().return_(&[double]);
        b.switch_to_block(other);
        b.ins().return_(&[y]);
    }));
    assert_eq!((count(&func, Opcode::Iadd), count(&func, Opcode::Iconst)), (2, 1), "{func}");
}

#[test]
fn a_narrow_parameter_is_passed_on_as_it_is() {
    // Two loops pass a 32-bit induction variable to each other.
    let func = before(function(|b, x, y| {
        let (outer, inner, end) = (b.create_block(), b.create_block(), b.create_block());
        let [first, second, last] = [outer, inner, end].map(|block| b.append_block_param(block, I64));
        b.ins().jump(outer, &[BlockArg::Value(x)]);
        b.switch_to_block(outer);
        b.ins().brif(y, inner, &[BlockArg::Value(first)], end, &[BlockArg::Value(first)]);
        b.switch_to_block(inner);
        let low = b.ins().ireduce(I32, second);
        let next = b.ins().iadd_imm_u(low, 1);
        let wide = b.ins().uextend(I64, next);
        let less = b.ins().icmp_imm_u(IntCC::UnsignedLessThan, next, 9);
        b.ins().brif(less, inner, &[BlockArg::Value(wide)], outer, &[BlockArg::Value(wide)]);
        b.switch_to_block(end);
        let low = b.ins().ireduce(I32, last);
        let wide = b.ins().uextend(I64, low);
        b.ins().return_(&[wide]);
    }));
    // One for the argument that comes in, one for the result.
    assert_eq!((count(&func, Opcode::Ireduce), count(&func, Opcode::Uextend)), (1, 1), "{func}");
}
