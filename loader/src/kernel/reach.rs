//! Whether a program gets to its invalid instructions, as far as constants decide.
//!
//! A small part of what the verifier does: registers that hold a constant (what CO-RE put there, a read-only global, a
//! configuration value) decide branches, both successors of any other branch are reached. Called functions count as
//! reached with any arguments. The result is for messages only: it decides nothing that the kernel would accept.

use std::collections::BTreeMap;

use twinbpf_isa::Raw;
use twinbpf_isa::opcode::{self, ATOMIC, CALL, CALLX, CLASS, EXIT, GOTO, GOTOL, GOTOX, LDDW, MAY_GOTO, MODE, SOURCE};

use super::{KernelMap, KernelProgram, Reach};

/// Longer programs are left to the kernel.
const MAX_INSNS: usize = 100_000;
/// Instructions that the walk along the only path takes.
const MAX_STEPS: usize = 100_000;
/// Calls that it goes into.
const MAX_CALLS: usize = 64;
/// Registers.
const COUNT: usize = 11;

/// Says of each invalid instruction whether the program gets there.
pub(super) fn mark(program: &mut KernelProgram, maps: &[KernelMap]) {
    if program.insns.len() > MAX_INSNS {
        return;
    }
    let code = Code { insns: &program.insns, maps };
    let (Some(possible), certain) = (code.possible(), code.certain()) else { return };
    for poison in &mut program.poisons {
        poison.reach = match possible.contains_key(&poison.pc) {
            _ if certain.contains(&poison.pc) => Reach::Certain,
            true => Reach::Possible,
            false => Reach::Never,
        };
    }
}

/// Registers of a program before each instruction that may be reached.
pub(super) struct Registers(BTreeMap<usize, State>);

impl Registers {
    /// Of a longer program, or one that computes where it jumps to, nothing is known.
    pub(super) fn of(program: &KernelProgram, maps: &[KernelMap]) -> Registers {
        let short = program.insns.len() <= MAX_INSNS;
        let states = short.then(|| Code { insns: &program.insns, maps }.possible()).flatten();
        Registers(states.unwrap_or_default())
    }

    /// Index of the map in a register, if all paths to the instruction put the same there.
    pub(super) fn map(&self, pc: usize, reg: usize) -> Option<usize> {
        match self.0.get(&pc)?.get(reg)? {
            Known::Map(map) => Some(*map),
            Known::Nothing | Known::Number(_) | Known::Value { .. } => None,
        }
    }
}

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Number(u64),
    /// A map itself.
    Map(usize),
    /// An address in the value of a map.
    Value {
        map: usize,
        off: u64,
    },
}

type State = [Known; COUNT];
const NOTHING: State = [Known::Nothing; COUNT];

/// Where an instruction leads.
enum Next {
    /// To the instruction after it.
    On,
    To(usize),
    Either(usize),
    /// Into a function, and then on.
    Call(usize),
    /// A function's address is taken here; then on.
    Taken(usize),
    End,
    /// Any instruction may follow.
    Anywhere,
}

struct Code<'a> {
    insns: &'a [Raw],
    maps: &'a [KernelMap],
}

impl Code<'_> {
    /// Every instruction that may be reached; `None` if that cannot be said.
    fn possible(&self) -> Option<BTreeMap<usize, State>> {
        let mut states: BTreeMap<usize, State> = BTreeMap::new();
        let mut work = vec![(0, NOTHING)];
        while let Some((pc, state)) = work.pop() {
            if pc >= self.insns.len() {
                continue;
            }
            let merged = match states.get(&pc) {
                Some(old) => {
                    let merged: State = std::array::from_fn(|reg| merge(old[reg], state[reg]));
                    if merged == *old {
                        continue;
                    }
                    merged
                }
                None => state,
            };
            states.insert(pc, merged);
            let mut after = merged;
            match self.step(pc, &mut after) {
                Next::On => work.push((pc + self.width(pc), after)),
                Next::To(target) => work.push((target, after)),
                Next::Either(target) => work.extend([(pc + 1, after), (target, after)]),
                Next::Call(target) => work.extend([(pc + 1, after), (target, NOTHING)]),
                Next::Taken(target) => work.extend([(pc + 2, after), (target, NOTHING)]),
                Next::End => {}
                Next::Anywhere => return None,
            }
        }
        Some(states)
    }

    /// The instructions up to the first branch that constants do not decide.
    fn certain(&self) -> Vec<usize> {
        let mut path = Vec::new();
        let (mut pc, mut state, mut calls) = (0, NOTHING, Vec::new());
        while pc < self.insns.len() && path.len() < MAX_STEPS {
            path.push(pc);
            let next = self.step(pc, &mut state);
            match next {
                Next::On | Next::Taken(_) => pc += self.width(pc),
                Next::To(target) => pc = target,
                Next::Call(target) if calls.len() < MAX_CALLS => {
                    calls.push((pc + 1, state));
                    (pc, state) = (target, NOTHING);
                }
                Next::End => match calls.pop() {
                    Some(back) => (pc, state) = back,
                    None => break,
                },
                Next::Call(_) | Next::Either(_) | Next::Anywhere => break,
            }
        }
        path
    }

    fn width(&self, pc: usize) -> usize {
        if self.insns[pc].opcode == LDDW { 2 } else { 1 }
    }

    /// Does one instruction to the registers.
    fn step(&self, pc: usize, state: &mut State) -> Next {
        let insn = self.insns[pc];
        let (dst, src) = (usize::from(insn.dst()), usize::from(insn.src()));
        let operand = match insn.opcode & SOURCE {
            0 => Known::Number(i64::from(insn.imm).cast_unsigned()),
            _ => state.get(src).copied().unwrap_or(Known::Nothing),
        };
        match insn.opcode & CLASS {
            0 if insn.opcode == LDDW => return self.load_imm(pc, state),
            // Packet loads clobber what calls do.
            0 => state[..6].fill(Known::Nothing),
            1 => set(state, dst, self.load(insn, state.get(src).copied().unwrap_or(Known::Nothing))),
            // Atomics may write their source, and r0.
            3 if insn.opcode & MODE == ATOMIC => [src, 0].into_iter().for_each(|reg| set(state, reg, Known::Nothing)),
            2 | 3 => {}
            4 | 7 => {
                let old = state.get(dst).copied().unwrap_or(Known::Nothing);
                set(state, dst, arithmetic(insn, old, operand));
            }
            _ => return self.jump(pc, operand, state),
        }
        Next::On
    }

    fn load_imm(&self, pc: usize, state: &mut State) -> Next {
        let insn = self.insns[pc];
        let high = self.insns.get(pc + 1).map_or(0, |high| high.imm);
        let known = match insn.src() {
            1 => Known::Map(insn.imm.cast_unsigned() as usize),
            0 => Known::Number(u64::from(high.cast_unsigned()) << 32 | u64::from(insn.imm.cast_unsigned())),
            2 => Known::Value { map: insn.imm.cast_unsigned() as usize, off: high.cast_unsigned().into() },
            _ => Known::Nothing,
        };
        set(state, usize::from(insn.dst()), known);
        match insn.src() {
            4 => target(pc, i64::from(insn.imm)).map_or(Next::Anywhere, Next::Taken),
            _ => Next::On,
        }
    }

    /// A load from a read-only map is a constant.
    fn load(&self, insn: Raw, from: Known) -> Known {
        let Known::Value { map, off } = from else { return Known::Nothing };
        let size = opcode::bytes(insn.opcode);
        let data = self.maps.get(map).and_then(|map| map.spec.data.as_ref()).filter(|data| data.read_only);
        let start = usize::try_from(off.wrapping_add_signed(insn.off.into())).ok();
        let bytes = start.and_then(|start| data?.bytes.get(start..start.checked_add(size)?));
        match bytes {
            Some(bytes) if insn.opcode & 0xe0 == 0x60 => {
                Known::Number(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            }
            _ => Known::Nothing,
        }
    }

    fn jump(&self, pc: usize, operand: Known, state: &mut State) -> Next {
        let insn = self.insns[pc];
        let to = |off: i64| target(pc, off);
        let branch = |next: fn(usize) -> Next, off: i64| to(off).map_or(Next::Anywhere, next);
        match insn.opcode {
            EXIT => return Next::End,
            GOTO => return branch(Next::To, insn.off.into()),
            GOTOL => return branch(Next::To, insn.imm.into()),
            GOTOX => return Next::Anywhere,
            MAY_GOTO => return branch(Next::Either, insn.off.into()),
            CALL | CALLX => {
                state[..6].fill(Known::Nothing);
                let local = insn.opcode == CALL && insn.src() == 1;
                return if local { branch(Next::Call, insn.imm.into()) } else { Next::On };
            }
            _ => {}
        }
        let left = state.get(usize::from(insn.dst())).copied().unwrap_or(Known::Nothing);
        let (Known::Number(left), Known::Number(right)) = (left, operand) else {
            return branch(Next::Either, insn.off.into());
        };
        let narrow = insn.opcode & CLASS == 6;
        let (left, right) = if narrow { (left as u32 as u64, right as u32 as u64) } else { (left, right) };
        let signed = |value: u64| if narrow { i64::from(value as i32) } else { value.cast_signed() };
        let taken = match insn.opcode & 0xf0 {
            0x10 => left == right,
            0x20 => left > right,
            0x30 => left >= right,
            0x40 => left & right != 0,
            0x50 => left != right,
            0x60 => signed(left) > signed(right),
            0x70 => signed(left) >= signed(right),
            0xa0 => left < right,
            0xb0 => left <= right,
            0xc0 => signed(left) < signed(right),
            0xd0 => signed(left) <= signed(right),
            _ => return branch(Next::Either, insn.off.into()),
        };
        if taken { branch(Next::To, insn.off.into()) } else { Next::On }
    }
}

fn target(pc: usize, off: i64) -> Option<usize> {
    usize::try_from(pc as i64 + 1 + off).ok()
}

fn merge(a: Known, b: Known) -> Known {
    if a == b { a } else { Known::Nothing }
}

fn set(state: &mut State, reg: usize, known: Known) {
    if let Some(slot) = state.get_mut(reg) {
        *slot = known;
    }
}

fn arithmetic(insn: Raw, old: Known, operand: Known) -> Known {
    let wide = insn.opcode & CLASS == 7;
    let op = insn.opcode & 0xf0;
    // A move that extends the sign, and signed division, are not followed.
    if insn.off != 0 {
        return Known::Nothing;
    }
    if op == 0xb0 {
        return match operand {
            Known::Number(value) if !wide => Known::Number(u64::from(value as u32)),
            other if wide => other,
            _ => Known::Nothing,
        };
    }
    if let (Known::Value { map, off }, Known::Number(add), 0x00, true) = (old, operand, op, wide) {
        return Known::Value { map, off: off.wrapping_add(add) };
    }
    let (Known::Number(left), Known::Number(right)) = (old, operand) else { return Known::Nothing };
    let (left, shift) = match wide {
        true => (left, right as u32 & 63),
        false => (u64::from(left as u32), right as u32 & 31),
    };
    let value = match op {
        0x00 => left.wrapping_add(right),
        0x10 => left.wrapping_sub(right),
        0x20 => left.wrapping_mul(right),
        0x40 => left | right,
        0x50 => left & right,
        0x60 => left << shift,
        0x70 => left >> shift,
        0xa0 => left ^ right,
        _ => return Known::Nothing,
    };
    Known::Number(if wide { value } else { u64::from(value as u32) })
}
