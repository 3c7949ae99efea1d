//! Value ranges: the greatest number that a value can be.

use cranelift_codegen::ir::{Function, InstructionData, Opcode, Value};

use super::ir::{constant, def_inst};

/// Definitions that a bound is followed through, at most.
const DEPTH: u32 = 6;

/// The greatest number, unsigned, that an integer can be by what defines it.
pub(super) fn greatest(func: &Function, value: Value) -> u64 {
    bound(func, value, DEPTH)
}

fn bound(func: &Function, value: Value, depth: u32) -> u64 {
    let bits = func.dfg.value_type(value).bits().min(64);
    let all = u64::MAX >> (64 - bits);
    let Some(inst) = def_inst(func, value).filter(|_| depth > 0) else { return all };
    let of = |value| bound(func, value, depth - 1);
    let shift = |by| constant(func, by).map(|by| by as u32 & (bits - 1));
    let data = func.dfg.insts[inst];
    let found = match (data.opcode(), data) {
        (_, InstructionData::UnaryImm { opcode: Opcode::Iconst, imm }) => Some(imm.bits() as u64 & all),
        (Opcode::Uload8, _) => Some(0xff),
        (Opcode::Uload16, _) => Some(0xffff),
        (Opcode::Uload32, _) => Some(0xffff_ffff),
        (Opcode::Icmp, _) => Some(1),
        (Opcode::Uextend | Opcode::Ireduce, InstructionData::Unary { arg, .. }) => Some(of(arg)),
        (Opcode::Band | Opcode::Umin, InstructionData::Binary { args, .. }) => Some(of(args[0]).min(of(args[1]))),
        (Opcode::Bor | Opcode::Bxor, InstructionData::Binary { args, .. }) => {
            let ones = (of(args[0]) | of(args[1])).leading_zeros();
            Some(u64::MAX.checked_shr(ones).unwrap_or(0))
        }
        (Opcode::Iadd, InstructionData::Binary { args, .. }) => of(args[0]).checked_add(of(args[1])),
        (Opcode::Imul, InstructionData::Binary { args, .. }) => of(args[0]).checked_mul(of(args[1])),
        (Opcode::Ushr, InstructionData::Binary { args, .. }) => shift(args[1]).map(|by| of(args[0]) >> by),
        (Opcode::Ishl, InstructionData::Binary { args, .. }) => {
            shift(args[1]).and_then(|by| of(args[0]).checked_mul(1 << by))
        }
        (Opcode::Select, InstructionData::Ternary { args, .. }) => Some(of(args[1]).max(of(args[2]))),
        _ => None,
    };
    // What exceeds the type has wrapped around.
    found.filter(|most| *most <= all).unwrap_or(all)
}
