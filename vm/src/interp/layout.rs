//! Lays out threaded code: which instructions share a handler, and where slots begin.
//!
//! Two kinds of joining. *Folding* makes one operation of several instructions, where the first only copies or
//! prepares: `r1 = r2; r1 += 3` is one addition with three operands, a pair of shifts by 32 a zero extension.
//! *Pairing* puts two operations into one handler and leaves both slots in place ([superinstructions](super::superinstructions)).
//! Neither reaches over an instruction that something jumps to.

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::code::Step;
use super::kind::Kind;
use super::ops::{Goto, MayGoto, Op, Operands, Pick, R};
use super::rows;
use super::superinstructions;
use super::threaded::{Handler, Slot, Threaded, rotate, single};
use crate::image::Image;
use twinbpf_isa::{AluOp, Insn, Width};

/// One operation of the layout.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) kind: Kind,
    /// Jump targets are flat pcs.
    pub(super) o: Operands,
    pub(super) pc: u32,
    /// Instructions it stands for.
    pub(super) weight: u32,
    /// Something other than the unit before it comes here.
    pub(super) leader: bool,
}

struct PickSingle;

impl Pick for PickSingle {
    type Out = Handler;

    fn pick<O: Op>(&self) -> Handler {
        single::<O, false>
    }
}

/// For jumps that go backwards.
struct PickBack;

impl Pick for PickBack {
    type Out = Handler;

    fn pick<O: Op>(&self) -> Handler {
        single::<O, true>
    }
}

/// The handler of a unit by itself.
fn handler(unit: &Unit) -> Handler {
    let back = jumps(unit.kind) && unit.o.x <= unit.pc as i32;
    match unit.kind {
        Kind::Branch(width, cond, imm) if back => rows::branch(width, cond, imm, PickBack),
        Kind::Goto if back => PickBack.pick::<Goto>(),
        Kind::MayGoto if back => PickBack.pick::<MayGoto>(),
        kind => kind.select(PickSingle),
    }
}

/// Operations of an image in order, folded.
pub(super) fn units(image: &Image, steps: &[Step]) -> Vec<Unit> {
    let leaders = leaders(image, steps);
    let mut units: Vec<Unit> = Vec::with_capacity(steps.len());
    for (pc, step) in steps.iter().enumerate() {
        if matches!(image.insns()[pc], Insn::LoadImmHi { .. }) {
            continue;
        }
        let unit = Unit { kind: step.how.kind, o: step.o, pc: pc as u32, weight: 1, leader: leaders[pc] };
        push(&mut units, unit);
    }
    units
}

/// Appends a unit, or folds it into the last ones.
fn push(units: &mut Vec<Unit>, unit: Unit) {
    if let Some(last) = units.last()
        && !unit.leader
        && let Some((kind, o)) = fold(last, &unit)
    {
        let last = units.pop().expect("just seen");
        push(units, Unit { kind, o, weight: last.weight + unit.weight, ..last });
        return;
    }
    units.push(unit);
}

/// One operation that does what two do, if there is one.
fn fold(first: &Unit, second: &Unit) -> Option<(Kind, Operands)> {
    let (a, b) = (&first.o, &second.o);
    if b.b != a.a || b.a != a.a {
        return None;
    }
    let Kind::Alu(width, op, imm) = first.kind else { return None };
    if op == AluOp::Mov && !imm {
        // `r1 = r2; r1 op= r3`, unless the right operand is r1 too. A 32-bit copy cuts off what a 64-bit
        // operation would see.
        let fits = match second.kind {
            Kind::Alu(_, op, _) if !op.reads_dst() => false,
            Kind::Alu(second, _, imm) => (width == Width::W64 || second == Width::W32) && (imm || b.c != a.a),
            Kind::Endian(..) | Kind::CastKernel | Kind::CastUser => width == Width::W64,
            Kind::LoadImm
            | Kind::Load(..)
            | Kind::Store(..)
            | Kind::Atomic(..)
            | Kind::Acquire(_)
            | Kind::Release(_)
            | Kind::Branch(..)
            | Kind::Goto
            | Kind::MayGoto
            | Kind::Event => false,
        };
        return fits.then_some((second.kind, Operands { b: a.c, ..*b }));
    }
    // `r1 <<= 32; r1 >>= 32`: how code for machines without 32-bit operations extends the lower half.
    if (width, op, imm, a.imm, b.imm) != (Width::W64, AluOp::Lsh, true, 32, 32) {
        return None;
    }
    let extend = |width, op| Some((Kind::Alu(width, op, false), Operands { c: a.b, ..*b }));
    if second.kind == Kind::Alu(Width::W64, AluOp::Rsh, true) {
        extend(Width::W32, AluOp::Mov)
    } else if second.kind == Kind::Alu(Width::W64, AluOp::Arsh, true) {
        extend(Width::W64, AluOp::Movsx32)
    } else {
        None
    }
}

/// Flat pcs that control can enter: jump targets, functions, labels, return addresses.
fn leaders(image: &Image, steps: &[Step]) -> Vec<bool> {
    let mut leaders = vec![false; steps.len() + 1];
    for function in image.functions() {
        leaders[function.start as usize] = true;
    }
    for (pc, step) in steps.iter().enumerate() {
        match step.how.kind {
            Kind::Branch(..) | Kind::Goto | Kind::MayGoto => leaders[step.o.x as usize] = true,
            Kind::Event => leaders[pc + 1] |= !matches!(image.insns()[pc], Insn::LoadImmHi { .. }),
            Kind::Alu(..)
            | Kind::Endian(..)
            | Kind::LoadImm
            | Kind::Load(..)
            | Kind::Store(..)
            | Kind::Atomic(..)
            | Kind::Acquire(_)
            | Kind::Release(_)
            | Kind::CastKernel
            | Kind::CastUser => {}
        }
    }
    for pc in image.labels() {
        leaders[pc] = true;
    }
    leaders
}

/// Threaded code of an image.
pub(super) fn threaded(image: &Image, steps: &[Step]) -> Threaded {
    let units = units(image, steps);
    let mut entry = vec![u32::MAX; steps.len()];
    let mut weight = Vec::with_capacity(units.len() + 1);
    let mut total = 0;
    for (at, unit) in units.iter().enumerate() {
        entry[unit.pc as usize] = at as u32;
        weight.push(total);
        total += i64::from(unit.weight);
    }
    weight.push(total);
    let mut slots: Vec<Slot> = Vec::with_capacity(units.len());
    for (at, unit) in units.iter().enumerate() {
        let mut o = unit.o;
        if jumps(unit.kind) {
            let target = entry[o.x as usize];
            o.y = (weight[target as usize] - weight[at + 1]) as i32;
            o.x = target as i32;
        }
        slots.push(Slot { f: handler(unit), o });
    }
    join(&units, &mut slots);
    let origin = units.iter().map(|unit| unit.pc).collect();
    let longest = image.functions().iter().map(|function| i64::from(function.end - function.start)).max();
    Threaded { slots, origin, weight, entry, floor: total + longest.unwrap_or(0) }
}

/// Whether `x` is a jump target.
pub(super) fn jumps(kind: Kind) -> bool {
    match kind {
        Kind::Branch(..) | Kind::Goto | Kind::MayGoto => true,
        Kind::Alu(..)
        | Kind::Endian(..)
        | Kind::LoadImm
        | Kind::Load(..)
        | Kind::Store(..)
        | Kind::Atomic(..)
        | Kind::Acquire(_)
        | Kind::Release(_)
        | Kind::CastKernel
        | Kind::CastUser
        | Kind::Event => false,
    }
}

/// Gives slots handlers that do the next slot's work too, from the left.
fn join(units: &[Unit], slots: &mut [Slot]) {
    static PAIRS: LazyLock<HashMap<(Kind, Kind, bool), [Handler; 2]>> =
        LazyLock::new(|| superinstructions::all().collect());
    let pairs = &*PAIRS;
    let mut at = 0;
    while at + 1 < units.len() {
        if let Some(handler) = rotation(&units[at..]) {
            slots[at].f = handler;
            at += 3;
            continue;
        }
        let (first, second) = (&units[at], &units[at + 1]);
        let found = |chained| pairs.get(&(first.kind, second.kind, chained));
        let both = || if chains(first, second) { found(true).or_else(|| found(false)) } else { found(false) };
        match both().filter(|_| !second.leader) {
            Some(handlers) => {
                let back = jumps(second.kind) && second.o.x <= second.pc as i32;
                slots[at].f = handlers[usize::from(back)];
                at += 2;
            }
            None => at += 1,
        }
    }
}

/// Whether the second operation reads the result of the first as its left operand.
pub(super) fn chains(first: &Unit, second: &Unit) -> bool {
    let writes = match first.kind {
        Kind::Alu(..)
        | Kind::Endian(..)
        | Kind::LoadImm
        | Kind::Load(..)
        | Kind::Acquire(_)
        | Kind::CastKernel
        | Kind::CastUser => true,
        Kind::Store(..)
        | Kind::Atomic(..)
        | Kind::Release(_)
        | Kind::Branch(..)
        | Kind::Goto
        | Kind::MayGoto
        | Kind::Event => false,
    };
    let reads = match second.kind {
        Kind::Alu(_, op, _) => op.reads_dst(),
        Kind::Goto | Kind::MayGoto | Kind::LoadImm | Kind::Event => false,
        Kind::Endian(..)
        | Kind::Load(..)
        | Kind::Store(..)
        | Kind::Atomic(..)
        | Kind::Acquire(_)
        | Kind::Release(_)
        | Kind::Branch(..)
        | Kind::CastKernel
        | Kind::CastUser => true,
    };
    writes && reads && second.o.b == first.o.a
}

/// `t = x >> n; d = x << (bits - n); d |= t` at the start of `units`, if the registers are different ones.
fn rotation(units: &[Unit]) -> Option<Handler> {
    let [right, left, or, ..] = units else { return None };
    let (Kind::Alu(width, AluOp::Rsh, true), Kind::Alu(second, AluOp::Lsh, true), Kind::Alu(third, AluOp::Or, false)) =
        (right.kind, left.kind, or.kind)
    else {
        return None;
    };
    let bits = if width == Width::W64 { 64 } else { 32 };
    let (t, x, d): (R, R, R) = (right.o.a, right.o.b, left.o.a);
    let fits = width == second
        && width == third
        && !left.leader
        && !or.leader
        && (1..bits).contains(&right.o.imm)
        && left.o.imm == bits - right.o.imm
        && left.o.b == x
        && t != d
        && t != x
        && (or.o.a, or.o.b, or.o.c) == (d, d, t);
    fits.then_some(if width == Width::W64 { rotate::<true> } else { rotate::<false> })
}
