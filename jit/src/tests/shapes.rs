//! Programs of any length that repeat one thing: what a compiler must get through in time that grows with the length.
//!
//! A [`Shape`] stresses one part of a compiler: the values that live across calls, the depth of loops, the edges of one
//! block. Each gives a valid program of about `n` instructions. They are made to be compiled; not all of them end.

use std::sync::Arc;

use twinbpf_isa::program::{Function, Program};
use twinbpf_isa::{AluOp, AtomicOp, ByteOrder, CallKind, Cond, Groups, Insn, Operand, Policy, Reg, Size, Width};
use twinbpf_vm::host::HostFn;
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::mem::Arena;

use Operand::{Imm, Reg as R};

/// One thing, repeated.
pub(crate) struct Shape {
    /// What it is called in tables.
    pub(crate) name: &'static str,
    build: fn(&mut Asm, usize),
}

/// A program of a shape, not validated yet, and its instructions whose addresses a data section holds: targets of `gotox`.
struct Shaped {
    program: Program,
    labels: Vec<usize>,
}

impl Shape {
    /// The program of about `n` instructions, in an arena of its own. Its helper adds one to the first argument.
    ///
    /// # Panics
    /// There is no room for the arena.
    pub(crate) fn image(&self, n: usize) -> Arc<Image> {
        let mut asm = Asm { functions: vec![0], ..Asm::default() };
        (self.build)(&mut asm, n);
        let Shaped { program, labels } = asm.finish();
        let policy = Policy { groups: Groups::ALL, ..Policy::default() };
        let program = program.validate(&policy, &|_| true);
        let program = program.unwrap_or_else(|error| panic!("{}: {error:#}", self.name));
        let labels: Vec<(usize, usize)> = labels.iter().map(|pc| (0, *pc)).collect();
        let helper = |_| Some(HostFn::typed::<(), _>("next", |a: u64| a.wrapping_add(1)));
        let resolve = Resolve { maps: &[], values: &[], externs: &[], helper: &helper, labels: &labels, pointed: &[] };
        let arena = Arena::new(1 << 26).expect("room for an arena");
        Arc::new(Image::new(&arena, vec![program], resolve).expect("a shape is valid"))
    }
}

macro_rules! shapes {
    ($($name:literal: $build:expr,)*) => {
        /// Every shape of this module.
        pub(crate) const SHAPES: &[Shape] = &[$(Shape { name: $name, build: $build }),*];
    };
}

shapes! {
    "straight": straight,
    "mixed widths": mixed_widths,
    "divisions": |a, n| a.repeat(n, |a, _| a.alu(Width::W64, AluOp::Div, Reg::R0, R(Reg::R2))),
    "constants": constants,
    "loads": |a, n| a.repeat(n / 2, |a, i| { a.load(Reg::R2, Reg::R1, i); a.add(Reg::R0, R(Reg::R2)) }),
    "loads of many pointers": |a, n| a.repeat(n / 3, |a, i| {
        a.load(Reg::R3, Reg::R1, i); a.load(Reg::R2, Reg::R3, i); a.add(Reg::R0, R(Reg::R2))
    }),
    "stores": |a, n| a.repeat(n / 2, |a, i| { a.add(Reg::R0, Imm(i as i32)); a.store(Reg::R1, i, Reg::R0) }),
    "copies": |a, n| a.repeat(n / 2, |a, i| { a.load(Reg::R2, Reg::R1, i); a.store(Reg::R1, i + 1, Reg::R2) }),
    "frame words": |a, n| a.repeat(n / 2, |a, i| { a.load(Reg::R0, Reg::FP, i); a.store(Reg::FP, i + 1, Reg::R0) }),
    "atomic operations": atomics,
    "calls": |a, n| a.repeat(n / 2, |a, _| { a.helper(); a.add(Reg::R6, R(Reg::R0)) }),
    "calls, values live across": live_across,
    "calls by address": |a, n| a.repeat(n / 2, |a, _| { a.push(Insn::Callx { dst: Reg::R6 }); a.add(Reg::R6, R(Reg::R0)) }),
    "long live ranges": long_ranges,
    "branches to one exit": branches_to_exit,
    "branches with immediates": |a, n| a.repeat(n / 2, |a, i| {
        a.skip(Cond::Eq, Reg::R1, Imm(i as i32), 1); a.add(Reg::R0, Imm(i as i32))
    }),
    "ladder": |a, n| a.repeat(n / 2, |a, _| { a.skip(Cond::Eq, Reg::R1, R(Reg::R0), 1); a.add(Reg::R0, Imm(1)) }),
    "diamonds": diamonds,
    "selects": selects,
    "nested ifs": nested_ifs,
    "switch, chain of compares": switch_chain,
    "switch, gotox": |a, n| gotox(a, 1, n / 2),
    "gotox, many of many": |a, n| { let k = n.isqrt(); gotox(a, k, k) },
    "back edges": back_edges,
    "loops with may_goto": may_goto,
    "nested loops": |a, n| { a.set(Reg::R0, 0); nest(a, n / 4) },
    "nested loops, eight deep": |a, n| { a.set(Reg::R0, 0); a.repeat(n / 32, |a, _| nest(a, 8)) },
    "loops with calls": |a, n| a.repeat(n / 4, |a, _| {
        let top = a.label();
        a.bind(top);
        a.helper();
        a.add(Reg::R6, R(Reg::R0));
        a.add(reg(7), Imm(1));
        a.branch(Cond::Ne, reg(7), R(reg(8)), top);
    }),
    "one loop, straight": |a, n| one_loop(a, n, straight),
    "one loop, loads": |a, n| one_loop(a, n / 2, |a, n| a.repeat(n, |a, i| {
        a.load(Reg::R2, Reg::R1, i); a.add(Reg::R0, R(Reg::R2))
    })),
    "one loop, copies": |a, n| one_loop(a, n / 2, |a, n| a.repeat(n, |a, i| {
        a.load(Reg::R2, Reg::R1, i); a.store(Reg::R1, i + 1, Reg::R2)
    })),
    "one loop, exits": |a, n| one_loop(a, n, branches_to_exit),
    "one loop, diamonds": |a, n| one_loop(a, n, diamonds),
    "one loop, selects": |a, n| one_loop(a, n, selects),
    "one loop, calls": |a, n| one_loop(a, n / 2, |a, n| a.repeat(n, |a, _| { a.helper(); a.add(Reg::R6, R(Reg::R0)) })),
    "entries into loops": irreducible,
    "subprograms": |a, n| subprograms(a, n / 4, false),
    "subprograms, last first": |a, n| subprograms(a, n / 4, true),
    "many calls of one subprogram": many_calls,
}

fn reg(n: usize) -> Reg {
    Reg::new((n % 10) as u8).expect("fewer than 11")
}

fn straight(a: &mut Asm, n: usize) {
    let ops = [AluOp::Add, AluOp::Xor, AluOp::Sub, AluOp::Mul, AluOp::Or];
    a.repeat(n, |a, i| a.alu(Width::W64, ops[i % 5], reg(i % 6), R(reg(i / 6 + i))));
}

fn mixed_widths(a: &mut Asm, n: usize) {
    a.repeat(n / 4, |a, i| {
        a.alu(Width::W32, AluOp::Add, reg(i), R(reg(i + 1)));
        a.alu(Width::W64, AluOp::Xor, reg(i + 1), R(reg(i)));
        a.push(Insn::Endian { order: ByteOrder::ToBe, bits: 16, dst: reg(i + 2) });
        a.alu(Width::W32, AluOp::Rsh, reg(i + 2), Imm(3));
    });
}

fn constants(a: &mut Asm, n: usize) {
    a.repeat(n / 3, |a, i| {
        a.push(Insn::LoadImm { dst: Reg::R2, kind: 0, imm: i as i32 });
        a.push(Insn::LoadImmHi { imm: !i as i32 });
        a.add(Reg::R0, R(Reg::R2));
    });
}

fn atomics(a: &mut Asm, n: usize) {
    let ops = [AtomicOp::Add, AtomicOp::FetchAdd, AtomicOp::Xchg, AtomicOp::Cmpxchg, AtomicOp::FetchXor];
    a.repeat(n, |a, i| {
        let off = (i % 64 * 8) as i16;
        a.push(Insn::Atomic { width: Width::W64, op: ops[i % 5], base: Reg::R1, off, src: Reg::R2 });
    });
}

/// Values computed from what was there before each call are used after it.
fn live_across(a: &mut Asm, n: usize) {
    a.repeat(n / 10, |a, i| {
        for reg in [Reg::R6, reg(7), reg(8), reg(9)] {
            a.load(Reg::R1, Reg::FP, i);
            a.alu(Width::W64, AluOp::Xor, reg, R(Reg::R1));
        }
        a.helper();
        a.store(Reg::FP, i, Reg::R0);
    });
}

/// The first half makes values in the frame that the second half uses in the opposite order.
fn long_ranges(a: &mut Asm, n: usize) {
    a.repeat(n / 4, |a, i| {
        a.load(Reg::R2, Reg::R1, i);
        a.store(Reg::FP, i, Reg::R2);
    });
    let count = n / 4;
    a.repeat(count, |a, i| {
        a.load(Reg::R2, Reg::FP, count - i);
        a.alu(Width::W64, AluOp::Mul, Reg::R0, R(Reg::R2));
    });
}

fn branches_to_exit(a: &mut Asm, n: usize) {
    let exit = a.exit;
    a.repeat(n / 3, |a, i| {
        a.add(Reg::R0, Imm(i as i32));
        a.far(Cond::Eq, Reg::R0, Imm(7), exit);
    });
}

fn diamonds(a: &mut Asm, n: usize) {
    a.repeat(n / 4, |a, i| {
        a.skip(Cond::Gt, reg(i), R(reg(i + 1)), 2);
        a.add(reg(i + 2), R(reg(i)));
        a.push(Insn::Goto { off: 1 });
        a.alu(Width::W64, AluOp::Xor, reg(i + 2), Imm(i as i32));
    });
}

fn selects(a: &mut Asm, n: usize) {
    a.repeat(n / 4, |a, i| {
        a.alu(Width::W64, AluOp::Mov, Reg::R2, Imm(1));
        a.skip(Cond::Gt, Reg::R1, R(reg(i % 6)), 1);
        a.alu(Width::W64, AluOp::Mov, Reg::R2, Imm(0));
        a.add(Reg::R0, R(Reg::R2));
    });
}

fn nested_ifs(a: &mut Asm, n: usize) {
    let count = n / 3;
    let ends: Vec<usize> = (0..count).map(|_| a.label()).collect();
    for (i, end) in ends.iter().enumerate() {
        a.far(Cond::Eq, Reg::R1, Imm(i as i32), *end);
    }
    for end in ends.iter().rev() {
        a.add(Reg::R0, Imm(1));
        a.bind(*end);
    }
}

fn switch_chain(a: &mut Asm, n: usize) {
    let count = n / 4;
    let cases: Vec<usize> = (0..count).map(|_| a.label()).collect();
    for (i, case) in cases.iter().enumerate() {
        a.far(Cond::Eq, Reg::R1, Imm(i as i32), *case);
    }
    let exit = a.exit;
    a.goto(exit);
    for (i, case) in cases.iter().enumerate() {
        a.bind(*case);
        a.set(Reg::R0, (i * 3) as i32);
        a.goto(exit);
    }
}

/// So many jumps to any of so many labels.
fn gotox(a: &mut Asm, jumps: usize, labels: usize) {
    let exit = a.exit;
    a.load(Reg::R2, Reg::R1, 0);
    for i in 0..jumps.max(labels) {
        if i < labels {
            a.labels.push(a.insns.len());
            a.add(Reg::R0, Imm(i as i32));
        }
        if i < jumps {
            a.push(Insn::Gotox { dst: Reg::R2 });
        } else {
            a.goto(exit);
        }
    }
}

fn back_edges(a: &mut Asm, n: usize) {
    a.repeat(n / 2, |a, _| {
        a.add(Reg::R0, Imm(1));
        a.skip(Cond::Lt, Reg::R0, R(Reg::R1), -2);
    });
}

fn may_goto(a: &mut Asm, n: usize) {
    a.repeat(n / 3, |a, i| {
        a.push(Insn::MayGoto { off: 2 });
        a.add(reg(i), R(reg(i + 1)));
        a.push(Insn::Goto { off: -3 });
    });
}

/// Loops in each other, so many deep.
fn nest(a: &mut Asm, depth: usize) {
    let tops: Vec<usize> = (0..depth).map(|_| a.label()).collect();
    for (i, top) in tops.iter().enumerate() {
        a.bind(*top);
        a.add(reg(2 + i % 8), Imm(1));
    }
    for (i, top) in tops.iter().enumerate().rev() {
        a.add(Reg::R0, Imm(1));
        a.far(Cond::Ne, reg(2 + i % 8), R(Reg::R1), *top);
    }
}

fn one_loop(a: &mut Asm, n: usize, body: fn(&mut Asm, usize)) {
    let top = a.label();
    a.bind(top);
    body(a, n);
    a.add(reg(9), Imm(-1));
    a.far(Cond::Ne, reg(9), Imm(0), top);
}

/// Each loop has a second entry.
fn irreducible(a: &mut Asm, n: usize) {
    a.repeat(n / 4, |a, _| {
        a.skip(Cond::Eq, Reg::R1, R(Reg::R2), 1);
        a.add(Reg::R0, Imm(1));
        a.add(Reg::R3, R(Reg::R0));
        a.skip(Cond::Lt, Reg::R3, R(Reg::R1), -3);
    });
}

/// A chain of functions; with `backward`, each calls the one before it.
fn subprograms(a: &mut Asm, count: usize, backward: bool) {
    let starts: Vec<usize> = (0..count.max(1)).map(|_| a.label()).collect();
    a.call(starts[if backward { starts.len() - 1 } else { 0 }]);
    a.push(Insn::Exit);
    for (i, start) in starts.iter().enumerate() {
        a.functions.push(a.insns.len());
        a.bind(*start);
        a.set(Reg::R0, i as i32);
        let callee = if backward { i.checked_sub(1) } else { Some(i + 1) };
        if let Some(callee) = callee.and_then(|callee| starts.get(callee)) {
            a.call(*callee);
        }
        a.add(Reg::R0, R(Reg::R6));
        a.push(Insn::Exit);
    }
    a.functions.push(a.insns.len());
}

fn many_calls(a: &mut Asm, n: usize) {
    let callee = a.label();
    a.repeat(n / 2, |a, _| {
        a.call(callee);
        a.add(Reg::R6, R(Reg::R0));
    });
    a.push(Insn::Exit);
    a.functions.push(a.insns.len());
    a.bind(callee);
    a.set(Reg::R0, 1);
    // A function with a frame is not inlined.
    a.store(Reg::FP, 0, Reg::R0);
}

/// Instructions, with jumps to labels that may come later.
#[derive(Default)]
struct Asm {
    insns: Vec<Insn>,
    /// Starts of functions.
    functions: Vec<usize>,
    /// Where each label is.
    bound: Vec<usize>,
    /// Instructions that refer to labels.
    patches: Vec<(usize, usize)>,
    /// The label of the last instruction.
    exit: usize,
    labels: Vec<usize>,
}

impl Asm {
    fn finish(mut self) -> Shaped {
        let exit = self.exit;
        self.bind(exit);
        self.push(Insn::Exit);
        for (at, label) in std::mem::take(&mut self.patches) {
            let distance = self.bound[label] as i32 - at as i32 - 1;
            match &mut self.insns[at] {
                Insn::Branch { off, .. } => *off = distance.try_into().expect("near"),
                Insn::Gotol { off } => *off = distance,
                Insn::Call { imm, .. } => *imm = distance,
                other => unreachable!("{other:?} refers to no label"),
            }
        }
        let function = |start: &usize| Function { name: format!("f{start}").into(), start: *start, signature: None };
        let program = Program {
            object: "shape.o".into(),
            name: "f0".into(),
            section: "shape".into(),
            functions: self.functions.iter().map(function).collect(),
            lines: Vec::new(),
            stack_size: 512,
            insns: self.insns,
            bindings: Default::default(),
        };
        Shaped { program, labels: self.labels }
    }

    fn repeat(&mut self, times: usize, mut each: impl FnMut(&mut Asm, usize)) {
        (0..times).for_each(|i| each(self, i));
    }

    fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    fn alu(&mut self, width: Width, op: AluOp, dst: Reg, src: Operand) {
        self.push(Insn::Alu { width, op, dst, src });
    }

    fn add(&mut self, dst: Reg, src: Operand) {
        self.alu(Width::W64, AluOp::Add, dst, src);
    }

    fn set(&mut self, dst: Reg, imm: i32) {
        self.alu(Width::W64, AluOp::Mov, dst, Imm(imm));
    }

    fn load(&mut self, dst: Reg, base: Reg, word: usize) {
        self.push(Insn::Load { size: Size::Dw, signed: false, dst, base, off: offset(base, word) });
    }

    fn store(&mut self, base: Reg, word: usize, src: Reg) {
        self.push(Insn::Store { size: Size::Dw, base, off: offset(base, word), src: R(src) });
    }

    fn helper(&mut self) {
        self.push(Insn::Call { kind: CallKind::Helper, off: 0, imm: 5 });
    }

    fn label(&mut self) -> usize {
        // The first one is the exit.
        self.bound.resize(self.bound.len().max(1) + 1, 0);
        self.bound.len() - 1
    }

    fn bind(&mut self, label: usize) {
        if label >= self.bound.len() {
            self.bound.resize(label + 1, 0);
        }
        self.bound[label] = self.insns.len();
    }

    fn call(&mut self, label: usize) {
        self.patches.push((self.insns.len(), label));
        self.push(Insn::Call { kind: CallKind::Local, off: 0, imm: 0 });
    }

    fn goto(&mut self, label: usize) {
        self.patches.push((self.insns.len(), label));
        self.push(Insn::Gotol { off: 0 });
    }

    fn branch(&mut self, cond: Cond, dst: Reg, src: Operand, label: usize) {
        self.patches.push((self.insns.len(), label));
        self.skip(cond, dst, src, 0);
    }

    /// A branch by an offset.
    fn skip(&mut self, cond: Cond, dst: Reg, src: Operand, off: i16) {
        self.push(Insn::Branch { width: Width::W64, cond, dst, src, off });
    }

    /// A branch to a label that may be far.
    fn far(&mut self, cond: Cond, dst: Reg, src: Operand, label: usize) {
        let inverse = if cond == Cond::Eq { Cond::Ne } else { Cond::Eq };
        self.skip(inverse, dst, src, 1);
        self.goto(label);
    }
}

/// Of one of 64 words, in the frame below r10.
fn offset(base: Reg, word: usize) -> i16 {
    let off = (word % 64 * 8) as i16;
    if base == Reg::FP { -8 - off } else { off }
}
