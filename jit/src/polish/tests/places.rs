//! Where instructions stand, and which operand comes first.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, Function, Inst, InstBuilder as _, MemFlagsData, Opcode, Signature, SourceLoc, Value,
};
use cranelift_frontend::FunctionBuilder;

use super::{function, polished};
use crate::polish::maker;

/// Opcodes of a block that some instruction of this opcode is in, without constants.
fn around(func: &Function, opcode: Opcode) -> Vec<Opcode> {
    let of = |block: Block| func.layout.block_insts(block).map(|inst| func.dfg.insts[inst].opcode());
    let block = func.layout.blocks().find(|block| of(*block).any(|other| other == opcode)).unwrap();
    of(block).filter(|opcode| *opcode != Opcode::Iconst).collect()
}

/// Eight pairs of a rotation and a product of `x` and `y`, and between them whatever; returns all of them, the last first.
fn pairs(b: &mut FunctionBuilder<'_>, x: Value, y: Value, mut between: impl FnMut(&mut FunctionBuilder<'_>, i32)) {
    let mut made = Vec::new();
    for pair in 0..8 {
        b.set_srcloc(SourceLoc::new(4 * pair));
        let by = b.ins().iadd_imm_s(y, i64::from(pair) * 3);
        let turned = b.ins().rotl(x, by);
        b.set_srcloc(SourceLoc::new(4 * pair + 1));
        let product = b.ins().imul(turned, by);
        made.extend([turned, product]);
        b.set_srcloc(SourceLoc::new(4 * pair + 2));
        between(b, pair as i32);
    }
    b.set_srcloc(SourceLoc::new(100));
    let sum = made.into_iter().rev().reduce(|a, c| b.ins().bxor(a, c)).unwrap();
    b.ins().return_(&[sum]);
}

#[test]
fn instructions_are_in_the_order_of_the_program() {
    let func = polished(function(|b, x, y| {
        pairs(b, x, y, |b, pair| {
            b.ins().store(MemFlagsData::new(), x, y, 8 * pair);
        });
    }));
    let order = around(&func, Opcode::Imul);
    let order: Vec<&Opcode> = order.iter().filter(|opcode| matches!(opcode, Opcode::Imul | Opcode::Store)).collect();
    assert_eq!(order, [&Opcode::Imul, &Opcode::Store].repeat(8), "{func}");
}

#[test]
fn what_waits_for_a_call_goes_on_waiting() {
    let func = polished(function(|b, x, y| {
        let mut signature = Signature::new(b.func.signature.call_conv);
        signature.params.push(AbiParam::new(I64));
        let signature = b.import_signature(signature);
        pairs(b, x, y, |b, pair| {
            if pair == 3 {
                b.ins().call_indirect(signature, x, &[y]);
            }
        });
    }));
    let order = around(&func, Opcode::Imul);
    let call = order.iter().position(|opcode| opcode.is_call()).unwrap();
    assert!(!order[..call].contains(&Opcode::Imul), "nothing is needed in front of it: {func}");
}

#[test]
fn what_nobody_needs_any_more_comes_first() {
    for opcode in [Opcode::Bxor, Opcode::Band, Opcode::Bor, Opcode::Imul] {
        let func = polished(function(|b, x, y| {
            let (head, end) = (b.create_block(), b.create_block());
            let (old, other) = (b.append_block_param(head, I64), b.append_block_param(head, I64));
            b.ins().jump(head, &[BlockArg::Value(x), BlockArg::Value(y)]);
            b.switch_to_block(head);
            let kept = b.ins().load(I64, MemFlagsData::new(), old, 0);
            let loose = b.ins().rotr(other, kept);
            let (inst, dfg) = b.ins().Binary(opcode, I64, kept, loose);
            let result = dfg.first_result(inst);
            let more = b.ins().icmp(IntCC::UnsignedLessThan, result, y);
            b.ins().brif(more, head, &[BlockArg::Value(kept), BlockArg::Value(result)], end, &[]);
            b.switch_to_block(end);
            b.ins().return_(&[x]);
        }));
        let all = |func: &Function| -> Vec<Inst> {
            func.layout.blocks().flat_map(|block| func.layout.block_insts(block).collect::<Vec<Inst>>()).collect()
        };
        let inst = all(&func).into_iter().find(|inst| func.dfg.insts[*inst].opcode() == opcode).unwrap();
        let first = maker(&func, func.dfg.inst_args(inst)[0]).unwrap();
        assert_eq!(func.dfg.insts[first].opcode(), Opcode::Rotr, "{func}");
    }
}
