//! Random straight-line and forward-jumping programs: both drivers against an independent evaluator, which works
//! on 128-bit integers and knows nothing of the rows.

use super::choices::Choices;
use super::*;
use twinbpf_isa::program::Program;
use twinbpf_isa::{AluOp, AtomicOp, ByteOrder, Cond, Insn, Operand, Reg, Size, Width};

/// Bytes of memory at r8 that programs use.
const MEMORY: usize = 64;

fn reg(n: usize) -> Reg {
    Reg::new(n as u8).unwrap()
}

/// r8 stays the address of the memory; everything else is fair game. r9 and r7 are rarely sources.
fn insn(choices: &mut Choices<'_>, left: usize) -> Insn {
    let dst = reg(choices.below(6));
    let other = reg(choices.below(8));
    let width = choices.pick(&[Width::W32, Width::W64]);
    let imm = choices.imm();
    let src = if choices.below(2) == 0 { Operand::Reg(other) } else { Operand::Imm(imm) };
    let size = choices.pick(&[Size::B, Size::H, Size::W, Size::Dw]);
    let off = choices.below(MEMORY - 8) as i16;
    let cell = if width == Width::W32 { off & !3 } else { off & !7 };
    let base = reg(8);
    match choices.below(10) {
        0 => Insn::Load { size, signed: size != Size::Dw && choices.below(2) == 0, dst, base, off },
        1 => Insn::Store { size, base, off, src },
        2 => Insn::Atomic {
            width,
            op: choices.pick(&AtomicOp::TABLE.iter().map(|row| row.op).collect::<Vec<_>>()),
            base,
            off: cell,
            src: dst,
        },
        3 => Insn::Endian { order: choices.pick(&ByteOrder::ALL), bits: choices.pick(&[16, 32, 64]), dst },
        4 | 5 if left > 1 => {
            let cond = choices.pick(&Cond::TABLE.iter().map(|row| row.op).collect::<Vec<_>>());
            Insn::Branch { width, cond, dst, src, off: choices.below((left - 1).min(4)) as i16 }
        }
        6 => Insn::Alu { width, op: AluOp::Mov, dst, src },
        _ => {
            let row = choices.pick(&AluOp::TABLE.iter().collect::<Vec<_>>());
            let unary = row.shape == twinbpf_isa::Shape::Unary;
            let only_reg = matches!(row.op, AluOp::Movsx8 | AluOp::Movsx16 | AluOp::Movsx32);
            let width = if row.op == AluOp::Movsx32 { Width::W64 } else { width };
            let src = if unary {
                Operand::Imm(0)
            } else if only_reg {
                Operand::Reg(other)
            } else {
                src
            };
            Insn::Alu { width, op: row.op, dst, src }
        }
    }
}

/// The independent evaluator: registers and memory after the program, and how many instructions that took.
fn evaluate(insns: &[Insn], r: &mut [u64; 11], memory: &mut [u8]) -> u64 {
    let (mut pc, mut count) = (0, 0);
    loop {
        count += 1;
        let mut jump = 0;
        match insns[pc] {
            Insn::Alu { width, op, dst, src } => {
                let right = operand(src, r);
                r[dst.index()] = arithmetic(width, op, r[dst.index()], right);
            }
            Insn::Endian { order, bits, dst } => {
                let bytes = usize::from(bits) / 8;
                let mut low = r[dst.index()].to_le_bytes()[..bytes].to_vec();
                if order != ByteOrder::ToLe {
                    low.reverse();
                }
                low.resize(8, 0);
                r[dst.index()] = u64::from_le_bytes(low.try_into().unwrap());
            }
            Insn::Load { size, signed, dst, off, .. } => {
                let value = get(memory, off, size.bytes());
                r[dst.index()] = if signed { signed_of(value, size.bytes() as u32 * 8) as u64 } else { value };
            }
            Insn::Store { size, off, src, .. } => put(memory, off, size.bytes(), operand(src, r)),
            Insn::Atomic { width, op, off, src, .. } => atomic(width, op, r, src.index(), memory, off),
            Insn::Branch { width, cond, dst, src, off } => {
                if holds(width, cond, r[dst.index()], operand(src, r)) {
                    jump = off;
                }
            }
            Insn::Exit => return count,
            other => unreachable!("not generated: {other}"),
        }
        pc += 1 + jump as usize;
    }
}

fn operand(src: Operand, r: &[u64; 11]) -> u64 {
    match src {
        Operand::Reg(reg) => r[reg.index()],
        Operand::Imm(imm) => imm as i64 as u64,
    }
}

fn get(memory: &[u8], off: i16, bytes: usize) -> u64 {
    (0..bytes).map(|index| u64::from(memory[off as usize + index]) << (8 * index)).sum()
}

fn put(memory: &mut [u8], off: i16, bytes: usize, value: u64) {
    for index in 0..bytes {
        memory[off as usize + index] = (value >> (8 * index)) as u8;
    }
}

fn bits_of(width: Width) -> u32 {
    if width == Width::W32 { 32 } else { 64 }
}

/// The low bits as a signed number.
fn signed_of(value: u64, bits: u32) -> i128 {
    let value = i128::from(value) & ((1 << bits) - 1);
    if value >> (bits - 1) != 0 { value - (1 << bits) } else { value }
}

fn unsigned_of(value: u64, bits: u32) -> i128 {
    i128::from(value) & ((1 << bits) - 1)
}

fn arithmetic(width: Width, op: AluOp, a: u64, b: u64) -> u64 {
    let bits = bits_of(width);
    let (ua, ub) = (unsigned_of(a, bits), unsigned_of(b, bits));
    let (sa, sb) = (signed_of(a, bits), signed_of(b, bits));
    let count = ub % i128::from(bits);
    let value = match op {
        AluOp::Add => ua + ub,
        AluOp::Sub => ua - ub,
        AluOp::Mul => i128::from(a.wrapping_mul(b)),
        AluOp::Div => {
            if ub == 0 {
                0
            } else {
                ua / ub
            }
        }
        AluOp::Sdiv => {
            if sb == 0 {
                0
            } else {
                sa / sb
            }
        }
        AluOp::Mod => {
            if ub == 0 {
                ua
            } else {
                ua % ub
            }
        }
        AluOp::Smod => {
            if sb == 0 {
                sa
            } else {
                sa % sb
            }
        }
        AluOp::Or => ua | ub,
        AluOp::And => ua & ub,
        AluOp::Xor => ua ^ ub,
        AluOp::Lsh => ua << count,
        AluOp::Rsh => ua >> count,
        AluOp::Arsh => sa >> count,
        AluOp::Neg => -ua,
        AluOp::Mov => ub,
        AluOp::Movsx8 => signed_of(b, 8),
        AluOp::Movsx16 => signed_of(b, 16),
        AluOp::Movsx32 => signed_of(b, 32),
    };
    (value & ((1 << bits) - 1)) as u64
}

fn holds(width: Width, cond: Cond, a: u64, b: u64) -> bool {
    let bits = bits_of(width);
    let (ua, ub) = (unsigned_of(a, bits), unsigned_of(b, bits));
    let (sa, sb) = (signed_of(a, bits), signed_of(b, bits));
    match cond {
        Cond::Eq => ua == ub,
        Cond::Ne => ua != ub,
        Cond::Set => ua & ub != 0,
        Cond::Gt => ua > ub,
        Cond::Ge => ua >= ub,
        Cond::Lt => ua < ub,
        Cond::Le => ua <= ub,
        Cond::Sgt => sa > sb,
        Cond::Sge => sa >= sb,
        Cond::Slt => sa < sb,
        Cond::Sle => sa <= sb,
    }
}

fn atomic(width: Width, op: AtomicOp, r: &mut [u64; 11], src: usize, memory: &mut [u8], off: i16) {
    let (bits, bytes) = (bits_of(width), bits_of(width) as usize / 8);
    let old = get(memory, off, bytes);
    let operand = unsigned_of(r[src], bits) as u64;
    let new = match op {
        AtomicOp::Add | AtomicOp::FetchAdd => old.wrapping_add(operand),
        AtomicOp::Or | AtomicOp::FetchOr => old | operand,
        AtomicOp::And | AtomicOp::FetchAnd => old & operand,
        AtomicOp::Xor | AtomicOp::FetchXor => old ^ operand,
        AtomicOp::Xchg => operand,
        AtomicOp::Cmpxchg => {
            if old == unsigned_of(r[0], bits) as u64 {
                operand
            } else {
                old
            }
        }
    };
    put(memory, off, bytes, new);
    match op {
        AtomicOp::Add | AtomicOp::Or | AtomicOp::And | AtomicOp::Xor => {}
        AtomicOp::FetchAdd | AtomicOp::FetchOr | AtomicOp::FetchAnd | AtomicOp::FetchXor | AtomicOp::Xchg => {
            r[src] = old
        }
        AtomicOp::Cmpxchg => r[0] = old,
    }
}

#[test]
fn both_drivers_agree_with_an_independent_evaluator() {
    let mut choices = Choices::from_seed(1);
    for round in 0..400 {
        let len = 8 + choices.below(120);
        let mut insns: Vec<Insn> = (0..len).map(|pc| insn(&mut choices, len - pc)).collect();
        insns.push(Insn::Exit);
        let mut rig = Rig::new();
        rig.valid(Program { insns: insns.clone(), ..crate::image::rig::program("main", "exit") });
        let image = rig.image();
        let mut registers: [u64; 11] = std::array::from_fn(|_| choices.number());
        registers[8] = rig.memory.addr();
        let memory: Vec<u8> = (0..MEMORY).map(|_| choices.word() as u8).collect();
        let (mut expected, mut bytes) = (registers, memory.clone());
        let count = evaluate(&insns, &mut expected, &mut bytes);
        for driver in DRIVERS {
            for limit in [None, Some(count)] {
                let limits = Limits { max_insns: limit, ..Limits::default() };
                let mut machine = Machine::new(image.clone(), rig.runtime(), limits).unwrap();
                machine.set_driver(driver);
                rig.memory.write(0, &memory);
                let r0 = machine.run_with(0, registers).unwrap();
                let context = || format!("{driver:?}, round {round}\n{}", twinbpf_isa::disasm(&insns));
                assert_eq!(r0, expected[0], "{}", context());
                assert_eq!(machine.registers()[..10], expected[..10], "{}", context());
                assert_eq!(rig.memory.to_vec(0, MEMORY), bytes, "{}", context());
                assert_eq!(machine.insns_executed(), count, "{}", context());
            }
        }
    }
}
