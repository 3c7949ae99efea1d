//! Where instructions stand, and which operand comes first.

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, Block, DebugTag, Function, InstBuilder as _, InstructionData, MemFlagsData, Opcode, Signature, SourceLoc,
    Value,
};
use cranelift_frontend::FunctionBuilder;

use super::{function, optimised};

/// Opcodes of a block that some instruction of this opcode is in, without constants.
fn around(func: &Function, opcode: Opcode) -> Vec<Opcode> {
    let of = |block: Block| func.layout.block_insts(block).map(|inst| func.dfg.insts[inst].opcode());
    let block = func.layout.blocks().find(|block| of(*block).any(|other| other == opcode)).unwrap();
    of(block).filter(|opcode| *opcode != Opcode::Iconst).collect()
}

/// A quarter round of ChaCha20, and what it says of where it is in the program.
fn quarter(b: &mut FunctionBuilder<'_>, state: &mut [Value; 16], [i, j, k, l]: [usize; 4], loc: &mut u32) {
    for (to, from, turned, by) in [(i, j, l, 16), (k, l, j, 12), (i, j, l, 8), (k, l, j, 7)] {
        *loc += 1;
        b.set_srcloc(SourceLoc::new(*loc));
        state[to] = b.ins().iadd(state[to], state[from]);
        state[turned] = b.ins().bxor(state[turned], state[to]);
        state[turned] = b.ins().rotl_imm_u(state[turned], by);
    }
}

/// Two double rounds of ChaCha20 over words at `x`, stored at `y`; `store` is called before each of the stores.
fn rounds(b: &mut FunctionBuilder<'_>, x: Value, y: Value, mut store: impl FnMut(&mut FunctionBuilder<'_>, u32)) {
    let mut loc = 1;
    let flags = MemFlagsData::new();
    let mut state = std::array::from_fn(|at| b.ins().load(I64, flags, x, 8 * at as i32));
    for _ in 0..2 {
        for at in 0..4 {
            quarter(b, &mut state, [at, 4 + at, 8 + at, 12 + at], &mut loc);
        }
        for at in 0..4 {
            quarter(b, &mut state, [at, 4 + (at + 1) % 4, 8 + (at + 2) % 4, 12 + (at + 3) % 4], &mut loc);
        }
    }
    for (at, value) in (0..).zip(state) {
        b.set_srcloc(SourceLoc::new(loc + 1 + at));
        store(b, at);
        b.ins().store(flags, value, y, 8 * at as i32);
    }
    b.ins().return_(&[x]);
}

#[test]
fn instructions_are_in_the_order_of_the_program() {
    let func = optimised(function(|b, x, y| rounds(b, x, y, |_, _| {})));
    let mut order = around(&func, Opcode::Rotl);
    order.retain(|opcode| !matches!(opcode, Opcode::Load | Opcode::Store | Opcode::Return));
    assert_eq!(order, [Opcode::Iadd, Opcode::Bxor, Opcode::Rotl].repeat(64), "{func}");
}

#[test]
fn effects_keep_their_order() {
    let func = optimised(function(|b, x, y| rounds(b, x, y, |b, at| b.set_srcloc(SourceLoc::new(200 - at)))));
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    let offsets = insts.filter_map(|inst| match func.dfg.insts[inst] {
        InstructionData::Store { offset, .. } => Some(i32::from(offset)),
        _ => None,
    });
    assert_eq!(offsets.collect::<Vec<i32>>(), (0..16).map(|at| 8 * at).collect::<Vec<i32>>(), "{func}");
}

#[test]
fn a_listing_has_the_same_order() {
    let orders = [false, true].map(|listing| {
        let mut context = function(|b, x, y| {
            let point = |b: &mut FunctionBuilder<'_>, wanted: bool| {
                if wanted {
                    let point = b.ins().sequence_point();
                    b.func.debug_tags.set(point, [DebugTag::User(1)]);
                }
            };
            // Something of the compiler's own comes first, as the arena's address does.
            b.set_srcloc(SourceLoc::new(60));
            point(b, listing);
            point(b, true);
            b.set_srcloc(SourceLoc::default());
            let x = b.ins().load(I64, MemFlagsData::new(), x, 0);
            rounds(b, x, y, |b, _| point(b, true));
        });
        context.set_disasm(listing);
        let func = optimised(context);
        let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
        let all = insts.map(|inst| (func.dfg.insts[inst].opcode(), func.srcloc(inst)));
        all.filter(|(opcode, _)| *opcode != Opcode::SequencePoint).collect::<Vec<(Opcode, SourceLoc)>>()
    });
    assert_eq!(orders[0], orders[1]);
}

#[test]
fn an_order_that_needs_more_registers_is_not_brought_back() {
    // Made early, needed late, each by one that the next waits for.
    let func = optimised(function(|b, x, y| {
        let made = (0..24).map(|at| {
            b.set_srcloc(SourceLoc::new(at));
            let by = b.ins().iadd_imm_s(y, i64::from(at) * 3);
            b.ins().rotl(x, by)
        });
        let made: Vec<Value> = made.collect();
        b.set_srcloc(SourceLoc::new(50));
        let sum = made.into_iter().fold(x, |sum, value| {
            let sum = b.ins().bxor(sum, value);
            b.ins().imul(sum, y)
        });
        b.ins().return_(&[sum]);
    }));
    let order = around(&func, Opcode::Rotl);
    let first = order.iter().position(|opcode| *opcode == Opcode::Imul).unwrap();
    assert!(order[first..].contains(&Opcode::Rotl), "{func}");
}

#[test]
fn instructions_do_not_move_across_a_call() {
    // The stores wait for all of it, and the call for nothing.
    let func = optimised(function(|b, x, y| {
        let mut signature = Signature::new(b.func.signature.call_conv);
        signature.params.push(AbiParam::new(I64));
        let signature = b.import_signature(signature);
        rounds(b, x, y, |b, at| {
            if at == 0 {
                b.ins().call_indirect(signature, x, &[y]);
            }
        });
    }));
    let order = around(&func, Opcode::Rotl);
    let call = order.iter().position(|opcode| opcode.is_call()).unwrap();
    assert!(!order[..call].contains(&Opcode::Rotl), "{func}");
}
