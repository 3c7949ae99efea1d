//! Handlers of the threaded driver: each executes an operation, or several, and calls the next.
//!
//! A handler has six words of arguments, which all fit into registers on x86-64, and gives a plain number, so
//! that the call at its end is a sibling call: one indirect jump per instruction, no dispatch loop, no stack.
//! The language does not promise sibling calls. So jumps backwards return to the loop that called the first handler: whatever
//! the build does, the stack holds at most one pass over the code. Where handlers turn out to take stack
//! ([`takes_no_stack`]), the threaded driver is not used at all.

use super::direct::DirectCall;
use super::operands::{Flow, Mem, Operands, R};
use super::ops::Op;
use super::rows::Add;
use super::state::{Refilled, Run, State};

/// Code, index of the slot, the slot, state, fuel. The result is a slot to continue at, or says why it stops.
pub(super) type Handler = fn(&[Slot], usize, &Slot, &mut State, i64) -> u64;

/// One instruction, or two of which the first jumps over the second, for this driver.
pub(super) struct Slot {
    pub(super) f: Handler,
    /// Jump targets are slots.
    pub(super) o: Operands,
}

/// The instruction at this slot trapped; the trap is in the state.
pub(super) const TRAP: u64 = 1 << 61;
/// The machine must execute the instruction at this slot.
pub(super) const EVENT: u64 = 2 << 61;
/// The budget is low, or the run is interrupted.
pub(super) const YIELD: u64 = 3 << 61;
/// Off the end of the code, which validated code never is. A value and not a panic: a handler that could call a
/// function which does not return would keep its stack aligned for that on every other exit.
pub(super) const LOST: u64 = 4 << 61;
/// The bits that say why; the others are the slot.
pub(super) const WHY: u64 = 7 << 61;

/// Threaded code of an image.
pub(super) struct Threaded {
    pub(super) slots: Vec<Slot>,
    /// Flat pc of each slot.
    pub(super) origin: Vec<u32>,
    /// Instructions before each slot, in layout order.
    pub(super) weight: Vec<i64>,
    /// Slot of each flat pc at which code can be entered.
    pub(super) entry: Vec<u32>,
    /// With less fuel than this, a forward path might use up the budget.
    pub(super) floor: i64,
}

#[inline(always)]
fn next(code: &[Slot], at: usize, s: &mut State, fuel: i64) -> u64 {
    match code.get(at) {
        Some(slot) => (slot.f)(code, at, slot, s, fuel),
        None => LOST,
    }
}

/// A taken jump: backwards ones return to the driver's loop.
#[inline(always)]
fn jump<const BACK: bool>(code: &[Slot], o: &Operands, s: &mut State, fuel: i64) -> u64 {
    let fuel = fuel + i64::from(o.y);
    if BACK {
        s.fuel = fuel;
        return u64::from(o.x as u32);
    }
    next(code, o.x as u32 as usize, s, fuel)
}

/// One operation.
pub(super) fn single<O: Op, const BACK: bool>(code: &[Slot], at: usize, slot: &Slot, s: &mut State, fuel: i64) -> u64 {
    match O::run(&slot.o, s, None, &mut 0) {
        Flow::Next => next(code, at + 1, s, fuel),
        Flow::Taken => jump::<BACK>(code, &slot.o, s, fuel),
        Flow::Miss => miss::<O>(code, at, slot, s, fuel),
        Flow::Event => {
            s.fuel = fuel;
            EVENT | at as u64
        }
    }
}

/// A call of a host function that may need no machine: `x` is its number.
pub(super) fn direct_call(code: &[Slot], at: usize, slot: &Slot, s: &mut State, fuel: i64) -> u64 {
    match s.call_direct(slot.o.x as usize) {
        DirectCall::Done => next(code, at + 1, s, fuel),
        DirectCall::Left => {
            s.fuel = fuel;
            EVENT | at as u64
        }
        DirectCall::Trapped => {
            s.fuel = fuel;
            TRAP | at as u64
        }
    }
}

/// Two operations in one handler; the second slot stays as it is. `CHAINED`: the second reads the result of the
/// first as its left operand or base.
pub(super) fn pair<A: Op, B: Op, const CHAINED: bool, const BACK: bool>(
    code: &[Slot],
    at: usize,
    slot: &Slot,
    s: &mut State,
    fuel: i64,
) -> u64 {
    let Some(second) = code.get(at + 1) else { return LOST };
    let mut value = 0;
    match A::run(&slot.o, s, None, &mut value) {
        Flow::Next => {}
        Flow::Miss => return miss::<A>(code, at, slot, s, fuel),
        Flow::Taken | Flow::Event => return LOST,
    }
    match B::run(&second.o, s, if CHAINED { Some(value) } else { None }, &mut 0) {
        Flow::Next => next(code, at + 2, s, fuel),
        Flow::Taken => jump::<BACK>(code, &second.o, s, fuel),
        Flow::Miss => miss::<B>(code, at + 1, second, s, fuel),
        Flow::Event => LOST,
    }
}

/// A rotation as clang writes it: `t = x >> n`, `d = x << (bits - n)`, `d |= t`.
pub(super) fn rotate<const WIDE: bool>(code: &[Slot], at: usize, slot: &Slot, s: &mut State, fuel: i64) -> u64 {
    let Some(left) = code.get(at + 1) else { return LOST };
    let (x, right) = (s.r[slot.o.b as usize], slot.o.imm as u32);
    let (shifted, rotated) = if WIDE {
        (x.wrapping_shr(right), x.rotate_right(right))
    } else {
        (u64::from((x as u32).wrapping_shr(right)), u64::from((x as u32).rotate_right(right)))
    };
    s.r[slot.o.a as usize] = shifted;
    s.r[left.o.a as usize] = rotated;
    next(code, at + 3, s, fuel)
}

/// After a miss: points the window at the right place and executes the instruction again. A call at the end of
/// its own, so that the handlers that can miss need no registers saved.
#[cold]
#[inline(never)]
fn miss<O: Op>(code: &[Slot], at: usize, slot: &Slot, s: &mut State, fuel: i64) -> u64 {
    match refill(s, O::MEM, &slot.o, |o, s| O::run(o, s, None, &mut 0)) {
        Some(Refilled::Again) => (slot.f)(code, at, slot, s, fuel),
        // Also where the slot does two operations: the second can be entered by itself.
        Some(Refilled::Done) => next(code, at + 1, s, fuel),
        None => {
            s.fuel = fuel;
            TRAP | at as u64
        }
    }
}

#[inline(never)]
fn refill(s: &mut State, mem: Option<Mem>, o: &Operands, run: Run) -> Option<Refilled> {
    match s.refill(mem.expect("only memory operations miss"), o, run) {
        Ok(refilled) => Some(refilled),
        Err(trap) => {
            s.trap = Some(trap);
            None
        }
    }
}

/// Whether handlers of this build leave the stack as it is: runs a few hundred and compares the stack's address.
pub(super) fn takes_no_stack(s: &mut State) -> bool {
    fn here() -> usize {
        let local = 0u8;
        std::ptr::from_ref(std::hint::black_box(&local)).addr()
    }
    #[inline(never)]
    fn leaf(_: &[Slot], _: usize, _: &Slot, s: &mut State, _: i64) -> u64 {
        s.r[0] = here() as u64;
        YIELD
    }
    type Step = super::ops::Alu<Add, true, true>;
    let o = Operands { a: R::R1, b: R::R1, c: R::R1, x: 0, imm: 1, y: 0 };
    let mut code: Vec<Slot> = Vec::new();
    for _ in 0..128 {
        let handlers: [Handler; 3] = [single::<Step, false>, pair::<Step, Step, true, false>, single::<Step, false>];
        code.extend(handlers.map(|f| Slot { f, o }));
    }
    code.push(Slot { f: leaf, o });
    let registers = s.r;
    let start = here();
    next(&code, 0, s, 0);
    let end = std::mem::replace(&mut s.r, registers)[0] as usize;
    start.abs_diff(end) < 4096
}
