//! From a function's first instruction to all that control can come to.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::AddAssign;

use iced_x86::{Instruction, InstructionInfoFactory};

use crate::branch::Condition;
use crate::code::Code;
use crate::flow::{Flow, Set};
use crate::reject::{Reason, Rejection};
use crate::state::{Conditions, State};
use crate::table::{Function, Module};

/// How much time an attempt at a proof takes. Both are proofs: states differ in how much they say, never in whether they hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Forgets words that are not live, and what a loop is likely to change, and visits most blocks once.
    Quick,
    /// Forgets only what differs.
    Thorough,
}

impl Effort {
    /// How often an edge may make a state larger before its ranges grow by leaps.
    fn patience(self) -> u32 {
        match self {
            Effort::Quick => 0,
            Effort::Thorough => 3,
        }
    }
}

/// How often an edge may make a state larger at all.
const LIMIT: u32 = 4096;
/// How many stack pointers there may be at a place: as many pages as a loop may probe.
const STACKS: u32 = 256;
/// Bytes that a function may have: offsets and the numbers of words have 32 bits.
const LONGEST: usize = i32::MAX as usize;
/// No entry.
pub(crate) const NONE: u32 = u32::MAX;

/// What was proved. Accesses count as often as their instructions were interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of functions that were verified.
    pub functions: usize,
    /// Number of instructions that were verified.
    pub instructions: usize,
    /// Instructions that were interpreted, each as often as it was.
    pub steps: usize,
    /// Accesses to the arena.
    pub arena: usize,
    /// Accesses to BPF frames.
    pub frame: usize,
    /// Accesses to native frames.
    pub stack: usize,
    /// Accesses to the VM context.
    pub context: usize,
    /// Accesses to tables.
    pub tables: usize,
    /// Accesses to constants and jump tables.
    pub constants: usize,
    /// Calls and tail calls.
    pub calls: usize,
    /// Jumps through jump tables.
    pub switches: usize,
}

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Statistics) {
        self.functions += other.functions;
        self.instructions += other.instructions;
        self.steps += other.steps;
        self.arena += other.arena;
        self.frame += other.frame;
        self.stack += other.stack;
        self.context += other.context;
        self.tables += other.tables;
        self.constants += other.constants;
        self.calls += other.calls;
        self.switches += other.switches;
    }
}

/// Where control continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At the next instruction.
    On,
    /// At this offset.
    To(usize),
    /// At this offset if the condition holds, else at the next instruction.
    Either(usize, Condition),
    /// At one of these offsets.
    Any(Vec<usize>),
    /// Nowhere in this function.
    Nowhere,
}

/// What holds at a place whenever the stack pointer is what it is in the state.
pub(crate) struct Entry {
    pub(crate) state: State,
    pub(crate) stack: i64,
    pub(crate) off: u32,
    /// The next entry of the place.
    pub(crate) next: u32,
    pub(crate) queued: bool,
}

/// A function being interpreted.
pub(crate) struct Walk<'m, 'a> {
    pub(crate) module: &'m Module<'a>,
    pub(crate) function: &'m Function<'a>,
    pub(crate) code: Code<'a>,
    pub(crate) flow: Flow,
    effort: Effort,
    pub(crate) conditions: Conditions,
    pub(crate) statistics: Statistics,
    pub(crate) info: InstructionInfoFactory,
    /// The instruction in work was never interpreted before.
    pub(crate) first: bool,
    pub(crate) entries: Vec<Entry>,
    /// How often an edge that leads back made an entry's state larger.
    grown: HashMap<(u32, u32), u32>,
    /// First entry of each place.
    pub(crate) places: Vec<u32>,
    /// Entries in work, in reverse postorder.
    pub(crate) queue: BinaryHeap<Reverse<(u32, u32)>>,
    /// What happens at the end of a block once the function is proved.
    pub(crate) trial: crate::trial::Trial,
}

/// Proves a function. What a quick attempt cannot prove, a thorough one may.
pub(crate) fn function(module: &Module<'_>, index: usize) -> Result<Statistics, Box<Rejection>> {
    attempt(module, index, Effort::Quick).or_else(|_| attempt(module, index, Effort::Thorough))
}

pub(crate) fn attempt(module: &Module<'_>, index: usize, effort: Effort) -> Result<Statistics, Box<Rejection>> {
    let function = &module.functions[index];
    let reject = |off: usize, reason: Reason| {
        let bytes = function.code[off.min(function.code.len())..].iter().take(16).copied().collect();
        Box::new(Rejection::new(Some(index), function.start + off as u64, bytes, reason))
    };
    if function.code.is_empty() || function.frame > module.layout.stride {
        return Err(reject(0, Reason::Leaves));
    }
    if function.code.len() > LONGEST {
        return Err(reject(0, Reason::TooComplex));
    }
    let mut walk = Walk::new(module, index, effort);
    walk.all().map_err(|(off, reason)| reject(off, reason))?;
    walk.statistics.instructions = walk.code.count();
    Ok(walk.statistics)
}

pub(crate) type Failure = (usize, Reason);

impl<'m, 'a> Walk<'m, 'a> {
    pub(crate) fn new(module: &'m Module<'a>, index: usize, effort: Effort) -> Walk<'m, 'a> {
        let function = &module.functions[index];
        let code = Code::new(function.start, function.code);
        Walk {
            module,
            function,
            flow: Flow::new(&code),
            effort,
            code,
            conditions: Conditions::default(),
            statistics: Statistics { functions: 1, ..Statistics::default() },
            info: InstructionInfoFactory::new(),
            first: true,
            entries: Vec::new(),
            grown: HashMap::new(),
            places: vec![NONE; function.code.len()],
            queue: BinaryHeap::new(),
            trial: crate::trial::Trial::None,
        }
    }
}

impl Walk<'_, '_> {
    pub(crate) fn all(&mut self) -> Result<(), Failure> {
        let (mut state, mut taken) = (State::entry(), State::entry());
        self.come_to(0, 0, &state).map_err(|reason| (0, reason))?;
        self.drain(&mut state, &mut taken)?;
        if let Some(off) = self.code.overlap() {
            return Err((off, Reason::Overlap));
        }
        self.code.stray().map_or(Ok(()), |off| Err((off, Reason::NotPadding)))
    }

    /// Interprets what is in work, until nothing is. Both states are memory.
    pub(crate) fn drain(&mut self, state: &mut State, taken: &mut State) -> Result<(), Failure> {
        while let Some(Reverse((_, index))) = self.queue.pop() {
            let entry = &mut self.entries[index as usize];
            entry.queued = false;
            state.copy_from(&entry.state);
            let off = entry.off as usize;
            self.trial.visit(index, state);
            self.run(off, state, taken)?;
        }
        Ok(())
    }

    /// Interprets instructions up to where control may come together. `taken` is memory for a state.
    pub(crate) fn run(&mut self, mut off: usize, state: &mut State, taken: &mut State) -> Result<(), Failure> {
        loop {
            let fail = |reason| (off, reason);
            let (instruction, first) = self.code.reach(off).ok_or_else(|| fail(Reason::Undecodable))?;
            self.first = first;
            self.statistics.steps += 1;
            match self.step(&instruction, state).map_err(fail)? {
                Next::On => {}
                Next::To(to) => return self.come_to(off, to, state).map_err(fail),
                Next::Either(to, condition) if condition.decided().is_some() => {
                    if condition.decided() == Some(true) {
                        return self.come_to(off, to, state).map_err(fail);
                    }
                }
                Next::Either(to, condition) => {
                    taken.copy_from(state);
                    condition.assume(taken, &self.conditions);
                    self.come_to(off, to, taken).map_err(fail)?;
                    condition.not().assume(state, &self.conditions);
                }
                Next::Any(all) => {
                    return all.into_iter().try_for_each(|to| self.come_to(off, to, state).map_err(fail));
                }
                Next::Nowhere => return Ok(()),
            }
            let next = off + instruction.len();
            if next >= self.function.code.len() {
                return Err((off, Reason::Leaves));
            }
            if self.code.leads(next) {
                return self.come_to(off, next, state).map_err(fail);
            }
            off = next;
        }
    }

    /// Control comes from one place to another.
    fn come_to(&mut self, from: usize, off: usize, state: &State) -> Result<(), Reason> {
        let stack = state.stack().ok_or(Reason::StackPointer)?;
        if self.trial.decides() {
            return self.come_again(from, off, state, stack);
        }
        self.code.lead(off);
        let (mut index, mut known) = (self.places[off], 0);
        while index != NONE && self.entries[index as usize].stack != stack {
            index = self.entries[index as usize].next;
            known += 1;
        }
        if index == NONE {
            if known == STACKS {
                return Err(Reason::TooComplex);
            }
            index = self.entries.len() as u32;
            let next = std::mem::replace(&mut self.places[off], index);
            let state = self.first_state(off, state, stack);
            self.entries.push(Entry { state, stack, off: off as u32, next, queued: true });
            self.queue.push(Reverse((self.flow.order(off), index)));
            return Ok(());
        }
        let entry = &mut self.entries[index as usize];
        // Each cycle has an edge that leads back, and one that continues has an edge that does so again and again.
        let grown = if off <= from { self.grown.get(&(index, from as u32)).copied().unwrap_or(0) } else { 0 };
        let widen = (off <= from && grown >= self.effort.patience()).then_some(self.module.layout.margin as i64);
        if entry.state.join(state, widen) {
            if off <= from {
                self.grown.insert((index, from as u32), grown + 1);
            }
            if grown == LIMIT {
                return Err(Reason::TooComplex);
            }
            if !std::mem::replace(&mut entry.queued, true) {
                self.queue.push(Reverse((self.flow.order(off), index)));
            }
        }
        Ok(())
    }

    /// What is taken to hold at a place when control first comes there.
    fn first_state(&self, off: usize, state: &State, stack: i64) -> State {
        match self.effort {
            Effort::Thorough => state.living(Set::ALL, stack),
            Effort::Quick => {
                let mut state = state.living(self.flow.live(off), stack);
                if let Some(written) = self.flow.written(off) {
                    state.enter_loop(written, stack);
                }
                state
            }
        }
    }

    /// The offset of a jump's target.
    pub(crate) fn target(&self, address: u64) -> Result<usize, Reason> {
        self.code.offset(address).ok_or(Reason::Leaves)
    }

    /// The number that an instruction gives.
    pub(crate) fn id(&self, instruction: &Instruction) -> u32 {
        (instruction.ip() - self.function.start) as u32 + 1
    }

    /// Takes a number from all words that have it, for an instruction that gives it anew.
    pub(crate) fn fresh(&mut self, id: u32, state: &mut State) {
        if !self.first {
            let conditions = &self.conditions;
            state.retire(id, |index| conditions.mentions(index, id));
        }
    }
}
