//! Programs of many instructions, in one function and in many: both engines get through them, in time and memory that
//! grow with the length. `TWINBPF_INSNS=1000000` for more of it, `--nocapture` for the figures.

use std::sync::Arc;
use std::time::Instant;

use twinbpf_isa::program::{Function, Program};
use twinbpf_isa::{AluOp, CallKind, Cond, Groups, Insn, Mode, Operand, Policy, Reg, Width};
use twinbpf_jit::{Code, Memory, OptLevel, Options};
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::interp::{Driver, Limits, Machine};
use twinbpf_vm::mem::Arena;

use crate::run::{self, Reach};

/// Instructions of a function where there are many.
const FUNCTION: usize = 1000;
const OPS: [AluOp; 8] =
    [AluOp::Add, AluOp::Sub, AluOp::Mul, AluOp::Xor, AluOp::Or, AluOp::Lsh, AluOp::Rsh, AluOp::Arsh];
const CONDS: [Cond; 4] = [Cond::Gt, Cond::Set, Cond::Slt, Cond::Ne];
const REGS: [Reg; 7] = [Reg::R0, Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5, Reg::R6];

fn mov(dst: Reg, imm: i32) -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Imm(imm) }
}

/// Straight code with branches over parts of it, always the same, of exactly `count` instructions.
fn function(count: usize, seed: &mut u64) -> Vec<Insn> {
    let mut random = |below: usize| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize % below
    };
    let mut insns: Vec<Insn> = REGS.iter().enumerate().map(|(index, reg)| mov(*reg, index as i32 * 77 + 5)).collect();
    while insns.len() < count - 1 {
        let (dst, other) = (REGS[random(REGS.len())], REGS[random(REGS.len())]);
        let width = if random(3) == 0 { Width::W32 } else { Width::W64 };
        let left = count - 1 - insns.len();
        if random(8) == 0 && left > 1 {
            let (cond, off) = (CONDS[random(CONDS.len())], 1 + random(left.min(20) - 1) as i16);
            insns.push(Insn::Branch { width, cond, dst, src: Operand::Reg(other), off });
            continue;
        }
        let op = OPS[random(OPS.len())];
        let shift = matches!(op, AluOp::Lsh | AluOp::Rsh | AluOp::Arsh);
        let src = match random(2) {
            0 if !shift => Operand::Reg(other),
            _ => Operand::Imm(1 + random(if shift { 20 } else { 1 << 20 }) as i32),
        };
        insns.push(Insn::Alu { width, op, dst, src });
    }
    insns.push(Insn::Exit);
    insns
}

/// A program with these functions, of which the first calls the others and adds up what they give.
fn program(name: &str, bodies: Vec<Vec<Insn>>) -> Program {
    let mut bodies = bodies.into_iter();
    let mut insns = bodies.next().expect("at least one");
    let mut starts = vec![0];
    if bodies.len() > 0 {
        insns = vec![mov(Reg::R6, 0)];
        let main = 1 + 2 * bodies.len() + 2;
        let mut at = main;
        for body in bodies.clone() {
            insns.push(Insn::Call { kind: CallKind::Local, off: 0, imm: (at - insns.len() - 1) as i32 });
            insns.push(Insn::Alu { width: Width::W64, op: AluOp::Add, dst: Reg::R6, src: Operand::Reg(Reg::R0) });
            starts.push(at);
            at += body.len();
        }
        let result = Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R0, src: Operand::Reg(Reg::R6) };
        insns.extend([result, Insn::Exit]);
        insns.extend(bodies.flatten());
    }
    let function = |start| Function { name: format!("f{start}").into(), start, signature: None };
    Program {
        object: name.into(),
        name: name.into(),
        section: ".text".into(),
        bindings: Default::default(),
        insns,
        functions: starts.into_iter().map(function).collect(),
        lines: Vec::new(),
        stack_size: 512,
    }
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Runs it in the interpreter and as native code.
fn check(program: Program) {
    let (name, count) = (program.name.clone(), program.insns.len());
    let policy = Policy { groups: Groups::ALL, mode: Mode::Rfc };
    let valid = program.validate(&policy, &|_| true).unwrap_or_else(|error| panic!("{error:#}"));
    let arena = Arena::new(1 << 26).expect("address space");
    let (externs, helper) = (run::externs(), |id| run::helper(id));
    let resolve = Resolve { maps: &[], values: &[], externs: &externs, helper: &helper, labels: &[], pointed: &[] };
    let image = Arc::new(Image::new(&arena, vec![valid], resolve).expect("an image"));
    let machine = || run::machine(&arena, &image, Driver::Threaded, Limits::default(), Reach::Exact);
    let timed = |machine: &mut Machine| {
        let start = Instant::now();
        (machine.run(0, [0; 5]).unwrap_or_else(|trap| panic!("{name}: {trap:#}")), start.elapsed())
    };
    let (expected, first) = timed(&mut machine());
    let before = resident();
    let start = Instant::now();
    let options = Options { memory: Memory::Sandbox, opt: OptLevel::Speed, verify: false, ..Options::default() };
    let code = Code::new(Arc::clone(&image), options).expect("a compiler for this machine");
    code.compile_all().unwrap_or_else(|error| panic!("{name}: {error}"));
    let (compiled, more) = (start.elapsed(), resident().saturating_sub(before) >> 20);
    let mut native = machine();
    native.set_native(Some(Arc::new(code))).expect("a native stack");
    let (value, took) = timed(&mut native);
    assert_eq!(value, expected, "{name}");
    println!(
        "{name}: {count} instructions, interpreted {first:?}, compiled in {compiled:?} and {more} MiB, ran {took:?}"
    );
}

fn insns() -> usize {
    std::env::var("TWINBPF_INSNS").ok().and_then(|insns| insns.parse().ok()).unwrap_or(20_000)
}

pub(crate) fn a_long_function() {
    check(program("long", vec![function(insns(), &mut 1)]));
}

pub(crate) fn many_functions() {
    let mut seed = 2;
    let bodies = (0..=insns().div_ceil(FUNCTION)).map(|_| function(FUNCTION, &mut seed)).collect();
    check(program("many", bodies));
}
