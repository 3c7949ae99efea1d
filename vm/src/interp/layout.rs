//! Lays out threaded code: which instructions share a handler, and where slots begin.
//!
//! The [superinstructions](super::superinstructions) are of two forms. *Folding* makes one operation of two instructions, where the
//! first only copies or prepares: `r1 = r2; r1 += 3` is one addition with three operands, a pair of shifts by 32 a zero extension.
//! *Joining* gives a slot a handler that does the work of the next slots too, and leaves these in place.
//! Neither reaches over an instruction that something jumps to.

use super::handlers::{Handler, Slot, Threaded, direct_call, single};
use super::kind::Kind;
use super::ops::{Goto, MayGoto, Op, Pick};
use super::rows;
use super::superinstructions::{SuperinstructionSet, find_fold, find_pair, find_triple};
use super::translate::Step;
use super::unit::Unit;
use crate::image::{Image, Link};
use twinbpf_isa::Insn;

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
    let back = unit.jumps_back();
    match unit.kind {
        Kind::Branch(width, cond, right) if back => rows::branch(width, cond, right, PickBack),
        Kind::Goto if back => PickBack.pick::<Goto>(),
        Kind::MayGoto if back => PickBack.pick::<MayGoto>(),
        kind => kind.select(PickSingle),
    }
}

/// The host function of a call that may need no machine. Not at the end of a function, where a call must not return.
fn direct_host(image: &Image, unit: &Unit) -> Option<u32> {
    let Link::Host(host) = image.links()[unit.pc as usize] else { return None };
    let call = matches!(image.insns()[unit.pc as usize], Insn::Call { .. }) && unit.o.imm == 0;
    (call && image.hosts()[host as usize].is_direct()).then_some(host)
}

/// Superinstructions to use, and what gets the flat pc and the row of each use.
struct Choice<'a> {
    set: SuperinstructionSet,
    used: &'a mut dyn FnMut(u32, usize),
}

/// Operations of an image in order, folded.
fn units(image: &Image, steps: &[Step], choice: &mut Choice<'_>) -> Vec<Unit> {
    let leaders = leaders(image, steps);
    let mut units: Vec<Unit> = Vec::with_capacity(steps.len());
    for (pc, step) in steps.iter().enumerate() {
        if matches!(image.insns()[pc], Insn::LoadImmHi { .. }) {
            continue;
        }
        let unit = Unit { kind: step.how.kind, o: step.o, pc: pc as u32, weight: 1, leader: leaders[pc] };
        push(&mut units, unit, choice);
    }
    units
}

/// Appends a unit, or folds it into the last ones.
fn push(units: &mut Vec<Unit>, mut unit: Unit, choice: &mut Choice<'_>) {
    while let Some(last) = units.last()
        && !unit.leader
        && let Some((row, (kind, o))) = find_fold(choice.set, last, &unit)
    {
        (choice.used)(last.pc, row);
        unit = Unit { kind, o, weight: last.weight + unit.weight, ..*last };
        units.pop();
    }
    units.push(unit);
}

/// Flat pcs that control can enter: jump targets, functions, labels, return addresses.
fn leaders(image: &Image, steps: &[Step]) -> Vec<bool> {
    let mut leaders = vec![false; steps.len() + 1];
    for function in image.functions() {
        leaders[function.start as usize] = true;
    }
    for (pc, step) in steps.iter().enumerate() {
        if step.how.kind.jumps() {
            leaders[step.o.x as usize] = true;
        } else if step.how.kind == Kind::Event {
            leaders[pc + 1] |= !matches!(image.insns()[pc], Insn::LoadImmHi { .. });
        }
    }
    for pc in image.labels() {
        leaders[pc] = true;
    }
    leaders
}

/// Threaded code of an image, with the superinstructions of a set. `used` is called for each place that has one, with its flat
/// pc and its row.
pub(super) fn threaded(
    image: &Image,
    steps: &[Step],
    set: SuperinstructionSet,
    used: &mut dyn FnMut(u32, usize),
) -> Threaded {
    let mut choice = Choice { set, used };
    let units = units(image, steps, &mut choice);
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
        if unit.kind.jumps() {
            let target = entry[o.x as usize];
            o.y = (weight[target as usize] - weight[at + 1]) as i32;
            o.x = target as i32;
        }
        let mut f = handler(unit);
        if let Some(host) = direct_host(image, unit) {
            (f, o.x) = (direct_call, host as i32);
        }
        slots.push(Slot { f, o });
    }
    join(&units, &mut slots, &mut choice);
    let origin = units.iter().map(|unit| unit.pc).collect();
    let longest = image.functions().iter().map(|function| i64::from(function.end - function.start)).max();
    Threaded { slots, origin, weight, entry, floor: total + longest.unwrap_or(0) }
}

/// Gives slots handlers that do the work of the next slots too, from the left.
fn join(units: &[Unit], slots: &mut [Slot], choice: &mut Choice<'_>) {
    let mut at = 0;
    while at + 1 < units.len() {
        let triple = find_triple(choice.set, &units[at..]).map(|found| (found, 3));
        let second = &units[at + 1];
        let pair = || find_pair(choice.set, &units[at], second).filter(|_| !second.leader).map(|found| (found, 2));
        at += match triple.or_else(pair) {
            Some(((row, handler), count)) => {
                (choice.used)(units[at].pc, row);
                slots[at].f = handler;
                count
            }
            None => 1,
        };
    }
}
