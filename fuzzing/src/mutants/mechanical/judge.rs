//! A second opinion on code, which knows little that branches tell: which accesses, calls and jumps depend on what a
//! change has made different, and where those accesses lie.
//!
//! It is no second verifier. It asks only what a change may do that the verifier has not noticed, and has nothing in
//! common with it but the decoder.

mod calls;

use iced_x86::{ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic as M, OpAccess, OpKind};
use iced_x86::{Register, UsedMemory};
use twinbpf_verify::{Access, Layout, Load};

use super::event::Event;
use super::facts::{Base, Compared, Fact, Guard, RSP, SAVED, State, What};
use super::listing::{Listing, is_high, is_memory, reach, size};
use super::numbers::numbers;
use super::sites::Changed;

/// Identities of what was compared begin here; others are offsets.
const COMPARED: usize = 1 << 40;

pub(super) struct Judge<'a> {
    pub(super) listing: &'a Listing<'a>,
    pub(super) layout: &'a Layout,
    /// Starts of the module's functions, which pop the arguments on the stack.
    pub(super) functions: &'a [u64],
    /// The instruction that was changed, and how.
    pub(super) changed: Option<Changed>,
    info: InstructionInfoFactory,
    pub(super) events: Option<Vec<Event>>,
    pub(super) fits: bool,
    /// The changed instruction has loaded an equal word.
    same: bool,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        listing: &'a Listing<'a>,
        layout: &'a Layout,
        functions: &'a [u64],
        changed: Option<Changed>,
    ) -> Judge<'a> {
        Judge {
            listing,
            layout,
            functions,
            changed,
            info: InstructionInfoFactory::new(),
            events: None,
            fits: true,
            same: false,
        }
    }

    fn tell(&mut self, event: Event) {
        if let Some(events) = &mut self.events {
            events.push(event);
        }
    }

    /// Runs to the end of a block. Gives where it goes on.
    pub(super) fn block(&mut self, mut off: usize, mut state: State) -> Vec<(usize, State)> {
        loop {
            let instruction = match self.changed {
                Some(changed) if changed.at == off => changed.instruction,
                _ => match self.listing.at(off) {
                    Some(instruction) => *instruction,
                    None => return Vec::new(),
                },
            };
            let loaded = is_memory(&instruction, 1).then(|| self.address(&instruction, &state).what);
            self.step(off, &instruction, &mut state);
            let reg = instruction.op0_register();
            if instruction.op0_kind() == OpKind::Register && reg.is_gpr() && !is_high(reg) {
                let reg = reg.full_register().number();
                let fact = state.regs[reg];
                if fact.id == 0 && fact.what.has_identity() {
                    state.name(reg, off + 1);
                    let source = instruction.op1_register();
                    match (instruction.mnemonic(), loaded) {
                        // Where a word is loaded or copied from is equal to where it goes.
                        (M::Mov, Some(What::At { base: Base::Stack, lo, hi })) if lo == hi => {
                            state.store(lo, size(&instruction, 0), state.regs[reg]);
                        }
                        (M::Mov, None) if source.is_gpr64() => state.regs[source.number()].id = off + 1,
                        _ => {}
                    }
                }
            }
            if let Some(changed) = self.changed.filter(|changed| changed.at == off && !self.same) {
                self.fits &= !changed.mark(&mut state);
            }
            self.same = false;
            let next = off + instruction.len();
            let mut to = match instruction.flow_control() {
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    self.listing.offset(instruction.near_branch_target()).into_iter().collect()
                }
                FlowControl::IndirectBranch => self.listing.table(off).to_vec(),
                _ => Vec::new(),
            };
            let on = matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Call | FlowControl::IndirectCall
            );
            let ends = !on || !to.is_empty() || self.listing.leads(next);
            if on {
                to.push(next);
            }
            if ends {
                let code = instruction.condition_code();
                let states = to.into_iter().map(|to| {
                    let mut state = state.clone();
                    state.assume(code, to != next);
                    (to, state)
                });
                return states.collect();
            }
            off = next;
        }
    }

    pub(super) fn address(&self, instruction: &Instruction, state: &State) -> Fact {
        let displacement = What::number(instruction.memory_displacement64());
        if instruction.memory_base() == Register::RIP {
            return Fact::new(displacement);
        }
        let of = |reg: Register| match reg {
            Register::None => Fact::new(What::number(0)),
            reg => state.regs[reg.full_register().number()],
        };
        let (base, index) = (of(instruction.memory_base()), of(instruction.memory_index()));
        let scaled = index.what.times(instruction.memory_index_scale());
        let what = match base.what.plus(displacement) {
            What::Any => base.what.plus(scaled).plus(displacement),
            base => base.plus(scaled),
        };
        let differs = [base, index].iter().any(|fact| fact.differs());
        Fact { what, id: 0, low: differs, high: differs }
    }

    /// The memory operand. Gives what is loaded.
    fn access(&mut self, at: usize, instruction: &Instruction, state: &mut State, stores: Option<Fact>) -> Fact {
        let (address, bytes) = (self.address(instruction, state), instruction.memory_size().size());
        let stack = state.stack().unwrap_or(0);
        self.tell(Event::Access { at, address, bytes, stores, stack });
        match (address.what, stores) {
            (What::At { base: Base::Stack, lo, hi }, Some(fact)) if lo == hi => {
                if let Some(changed) = self.changed.filter(|changed| changed.at == at) {
                    // What would have been stored is still there, and something else is gone.
                    let before = lo.wrapping_sub(changed.moved);
                    let kept = state.load(before, bytes);
                    if !kept.equals(fact) {
                        state.store(before, bytes, Fact::other(kept.what));
                    }
                    state.store(lo, bytes, Fact { low: true, high: true, ..fact });
                } else {
                    state.store(lo, bytes, fact);
                }
                Fact::new(What::of_size(bytes))
            }
            (What::At { base: Base::Stack, lo, hi }, None) if lo == hi => {
                let found = state.load(lo, bytes);
                if let Some(changed) = self.changed.filter(|changed| changed.at == at) {
                    self.same = found.equals(state.load(lo.wrapping_sub(changed.moved), bytes));
                }
                found
            }
            (What::At { base: Base::Context, lo, hi }, _) if lo == hi => Fact::new(self.field(lo, bytes)),
            (What::At { base: Base::Table(index), lo, hi }, None) => {
                let what = match self.entry(index, (lo, hi), bytes) {
                    What::Function if lo != hi && instruction.memory_index_scale() != 8 => What::Any,
                    what => what,
                };
                Fact { what, ..address }
            }
            (What::Number { lo, hi }, None) if lo == hi => {
                let constant = self.listing.constant(lo, bytes).map_or(What::of_size(bytes), What::number);
                Fact { what: constant, ..address }
            }
            _ => Fact::new(What::of_size(bytes)),
        }
    }

    fn field(&self, off: i64, bytes: usize) -> What {
        let found = self.layout.fields.iter().find(|field| i64::from(field.offset) == off);
        match found.filter(|field| field.size as usize == bytes).map(|field| field.access) {
            Some(Access::Constant(Load::Arena)) => What::at(Base::Arena, 0),
            Some(Access::Constant(Load::FrameLimit)) => What::Limit(Guard::Frame),
            Some(Access::Constant(Load::Number(_))) => What::Limit(Guard::Slot),
            Some(Access::Constant(Load::Region(index))) => What::at(Base::Table(index), 0),
            Some(Access::Write(_)) | None => What::of_size(bytes),
        }
    }

    fn entry(&self, index: u16, (lo, hi): (i64, i64), bytes: usize) -> What {
        use twinbpf_verify::Content;
        match &self.layout.regions[usize::from(index)].content {
            Content::Functions(_) if bytes == 8 => What::Function,
            Content::Known(words) if bytes == 8 && lo == hi && lo >= 0 && lo % 8 == 0 => {
                words.get(lo as usize / 8).map_or(What::Any, |word| What::number(*word))
            }
            _ => What::of_size(bytes),
        }
    }

    fn read(&mut self, at: usize, instruction: &Instruction, state: &mut State, operand: u32) -> Fact {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let reg = instruction.op_register(operand);
                match reg.is_gpr() {
                    true if is_high(reg) => {
                        Fact { what: What::of_size(1), id: 0, ..state.regs[reg.full_register().number()] }
                    }
                    true => {
                        let fact = state.regs[reg.full_register().number()];
                        let high = fact.high && reg.size() == 8;
                        let what = fact.what.low(reg.size());
                        Fact { what, id: if what == fact.what { fact.id } else { 0 }, low: fact.low, high }
                    }
                    false => Fact::new(What::Any),
                }
            }
            OpKind::Memory => self.access(at, instruction, state, None),
            _ => Fact::new(What::number(instruction.immediate(operand))),
        }
    }

    fn write(&mut self, at: usize, instruction: &Instruction, state: &mut State, operand: u32, fact: Fact) {
        if is_memory(instruction, operand) {
            let what = fact.what.low(size(instruction, operand));
            let fact = Fact { what, id: if what == fact.what { fact.id } else { 0 }, ..fact };
            self.access(at, instruction, state, Some(fact));
            return;
        }
        let reg = instruction.op_register(operand);
        if !reg.is_gpr() {
            return;
        }
        let own = &mut state.regs[reg.full_register().number()];
        *own = match reg.size() {
            8 => fact,
            4 => {
                let what = fact.what.low(4);
                Fact { what, id: if what == fact.what { fact.id } else { 0 }, low: fact.low, high: false }
            }
            // The upper bits stay as they were.
            _ => {
                let (lo, hi) = bounds(own.what, self.layout);
                let was = if own.what == What::Limit(Guard::Slot) { What::Number { lo, hi } } else { own.what };
                let kept = was.with_low(reach(reg));
                let what = match fact.what {
                    What::Outcome { of, .. } if !is_high(reg) => {
                        What::Outcome { of, whole: kept.range().is_some_and(|(_, hi)| hi <= 0xff) }
                    }
                    _ => kept,
                };
                Fact { what, id: 0, low: own.low || fact.low, high: own.high }
            }
        };
    }

    fn step(&mut self, at: usize, ins: &Instruction, state: &mut State) {
        let flags = state.flags;
        if ins.rflags_modified() != 0 {
            state.flags = None;
        }
        let (code, count) = (ins.condition_code(), ins.op_count());
        match ins.mnemonic() {
            // What is loaded or moved with fewer bytes has no upper half.
            M::Mov | M::Movzx => {
                let fact = self.read(at, ins, state, 1);
                self.write(at, ins, state, 0, fact);
            }
            M::Lea => {
                let fact = self.address(ins, state);
                self.write(at, ins, state, 0, fact);
            }
            M::Movsx | M::Movsxd => self.sign_extend(at, ins, state),
            M::Cmp | M::Test => self.compare(at, ins, state),
            M::Add | M::Sub | M::And | M::Or | M::Xor | M::Shl | M::Shr => self.arithmetic(at, ins, state),
            M::Imul if count > 1 => self.arithmetic(at, ins, state),
            M::Call => self.call(at, ins, state),
            M::Ret => self.leaves(at, state),
            M::Jmp if ins.flow_control() == FlowControl::IndirectBranch => {
                let target = self.read(at, ins, state, 0);
                if target.differs() {
                    self.tell(Event::Leads { at });
                }
                if target.what != What::Entry {
                    self.leaves(at, state);
                }
            }
            M::Push => {
                let fact = self.read(at, ins, state, 0);
                let stack = state.stack().unwrap_or(0) - 8;
                state.regs[RSP].what = What::at(Base::Stack, stack);
                state.store(stack, 8, fact);
            }
            M::Pop => {
                let stack = state.stack().unwrap_or(0);
                let fact = state.load(stack, 8);
                state.regs[RSP].what = What::at(Base::Stack, stack + 8);
                self.write(at, ins, state, 0, fact);
            }
            _ if code != ConditionCode::None && count == 1 && ins.flow_control() == FlowControl::Next => {
                let outcome = match flags {
                    Some(Compared { guard: Some(Guard::Slot), ids: [id, _], bounds: [_, (_, count)], .. }) => {
                        state.pending = Some((id, count - 1));
                        (code == ConditionCode::ae).then_some(Guard::Slot)
                    }
                    flags => flags.and_then(|flags| flags.guard),
                };
                let what = outcome.map_or(What::Number { lo: 0, hi: 1 }, |of| What::Outcome { of, whole: true });
                self.write(at, ins, state, 0, Fact::new(what));
            }
            _ if code != ConditionCode::None && count == 2 => {
                let (mut if_not, mut if_so) = (state.clone(), state.clone());
                if_not.assume(code, false);
                if_so.assume(code, true);
                let (kept, moved) = (self.read(at, ins, &mut if_not, 0), self.read(at, ins, &mut if_so, 1));
                let fact = Fact {
                    what: kept.what.join(moved.what),
                    id: 0,
                    low: kept.low || moved.low,
                    high: kept.high || moved.high,
                };
                self.write(at, ins, state, 0, fact);
            }
            _ => self.other(at, ins, state),
        }
    }

    fn sign_extend(&mut self, at: usize, ins: &Instruction, state: &mut State) {
        let bytes = size(ins, 1);
        let is_table = is_memory(ins, 1) && matches!(self.address(ins, state).what, What::Number { .. });
        let fact = self.read(at, ins, state, 1);
        let what = match fact.what.range() {
            _ if is_table && bytes == 4 => What::Entry,
            Some((_, hi)) if hi >> (8 * bytes - 1) == 0 => fact.what,
            _ => What::Any,
        };
        // An entry of a table is where the code goes on; what holds then is known for all entries.
        let differs = (fact.low || is_table && self.address(ins, state).differs()) && !self.is_entry(at, ins, state);
        self.write(at, ins, state, 0, Fact { what, id: 0, low: differs, high: differs });
    }

    /// Whether a load gets an entry of the table that the next jump uses, whatever the index is.
    fn is_entry(&self, at: usize, ins: &Instruction, state: &State) -> bool {
        let base = ins.memory_base().full_register();
        let aligned = base.is_gpr() && state.regs[base.number()].what.constant().is_some();
        let range = self.address(ins, state).what.range().filter(|_| aligned && ins.memory_index_scale() == 4);
        size(ins, 1) == 4 && is_memory(ins, 1) && range.is_some_and(|range| self.listing.entries_at(at, range))
    }

    fn compare(&mut self, at: usize, ins: &Instruction, state: &mut State) {
        let mut words = [0; 2];
        for operand in 0..ins.op_count() {
            let reg = ins.op_register(operand);
            if ins.op_kind(operand) == OpKind::Register && reg.is_gpr() && !is_high(reg) {
                let fact = state.regs[reg.full_register().number()];
                if fact.id == 0 && fact.what.has_identity() {
                    state.name(reg.full_register().number(), COMPARED + 2 * at + operand as usize);
                }
                words[operand as usize] = state.regs[reg.full_register().number()].id;
            }
        }
        let (left, right) = (self.read(at, ins, state, 0), self.read(at, ins, state, 1));
        let itself = ins.mnemonic() == M::Test && words[0] != 0 && words[0] == words[1];
        let right = if itself { Fact::new(What::number(0)) } else { right };
        let guard = [left.what, right.what].into_iter().find_map(|what| match what {
            What::Limit(guard) | What::Outcome { of: guard, .. } => Some(guard),
            _ => None,
        });
        let bytes = size(ins, 0);
        let fits = |what: What| what == what.low(bytes);
        let whole = (itself || ins.mnemonic() == M::Cmp) && (bytes == 8 || fits(left.what) && fits(right.what));
        let ids = if whole { [left.id, right.id] } else { [0; 2] };
        let bounds = [left.what, right.what].map(|what| bounds(what, self.layout));
        let slot = matches!(left.what, What::Outcome { of: Guard::Slot, .. });
        let outcome = slot && right.what.constant() == Some(0);
        state.flags = Some(Compared { guard, outcome, ids, bounds });
        if let Some(guard) = guard {
            self.tell(Event::Guard { at, guard, sides: [left, right] });
        }
    }

    fn arithmetic(&mut self, at: usize, ins: &Instruction, state: &mut State) {
        let (count, bytes) = (ins.op_count(), size(ins, 0));
        let a = self.read(at, ins, state, if count == 3 { 1 } else { 0 });
        let b = self.read(at, ins, state, count - 1);
        let same = ins.op_kind(1) == OpKind::Register && ins.op_register(0) == ins.op_register(1);
        let equal = same || a.id != 0 && a.id == b.id;
        let whole = [a, b].iter().all(|fact| fact.what.range().is_some_and(|(_, hi)| hi <= 1));
        let mut what = match (ins.mnemonic(), a.what, b.what) {
            (M::Xor | M::Sub, ..) if equal => What::number(0),
            (M::Add, a, b) => a.plus(b),
            (M::Or, What::At { base: Base::Arena, lo: 0, hi: 0 }, number)
            | (M::Or, number, What::At { base: Base::Arena, lo: 0, hi: 0 })
                if number.range().is_some_and(|(_, hi)| hi <= super::facts::U32) =>
            {
                What::at(Base::Arena, 0).plus(number)
            }
            (M::Sub, a, b) => a.minus(b),
            (M::Or, What::Outcome { of: Guard::Slot, .. }, _) | (M::Or, _, What::Outcome { of: Guard::Slot, .. }) => {
                What::Outcome { of: Guard::Slot, whole }
            }
            (M::And | M::Or, What::Outcome { of, .. }, _) | (M::And | M::Or, _, What::Outcome { of, .. }) => {
                What::Outcome { of: if of == Guard::Slot { Guard::Frame } else { of }, whole }
            }
            (M::Shr, What::At { base: Base::Arena, lo: 0, hi: 0 }, _) => What::Limit(Guard::Half),
            (mnemonic, a, b) => numbers(mnemonic, a, b, bytes),
        };
        if bytes < 8 {
            what = what.low(bytes);
        }
        let shifts = matches!(ins.mnemonic(), M::Shr) && bytes == 8;
        let low = a.low || b.low || shifts && a.high;
        let high = bytes == 8 && (low || a.high || b.high);
        let clean = same && matches!(ins.mnemonic(), M::Xor | M::Sub);
        self.write(at, ins, state, 0, Fact { what, id: 0, low: low && !clean, high: high && !clean });
    }

    /// A return or a tail call.
    fn leaves(&mut self, at: usize, state: &State) {
        if SAVED.iter().any(|reg| state.regs[*reg].differs()) || state.regs[RSP].differs() {
            self.tell(Event::Leads { at });
        }
    }

    /// An instruction of which only what it reads and writes is known.
    fn other(&mut self, at: usize, ins: &Instruction, state: &mut State) {
        let info = self.info.info(ins).clone();
        let read = |access| matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite);
        let mut differs = false;
        for used in info.used_registers().iter().filter(|used| used.register().is_gpr()) {
            let fact = state.regs[used.register().full_register().number()];
            differs |= fact.differs() && (read(used.access()) || used.access() == OpAccess::ReadCondWrite);
        }
        let stored = |memory: &UsedMemory| !matches!(memory.access(), OpAccess::Read | OpAccess::NoMemAccess);
        if let [memory, ..] = info.used_memory() {
            let stores = stored(memory).then_some(Fact { what: What::Any, id: 0, low: differs, high: differs });
            differs |= self.access(at, ins, state, stores).differs();
        }
        for used in info.used_registers().iter().filter(|used| used.register().is_gpr()) {
            let index = used.register().full_register().number();
            if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None) && index != RSP {
                let own = state.regs[index];
                let part = reach(used.register()) < 4;
                let narrow = size(ins, 0) == 4 && used.access() == OpAccess::Write && !part;
                let what = match part {
                    true => own.what.with_low(reach(used.register())),
                    false if narrow => What::WORD,
                    false => What::Any,
                };
                let kept = (part || used.access() != OpAccess::Write) && own.differs();
                state.regs[index] = Fact { what, id: 0, low: differs || kept, high: (differs || kept) && !narrow };
            }
        }
    }
}

/// The least and the greatest that a word is.
fn bounds(what: What, layout: &Layout) -> (u64, u64) {
    let functions = layout.fields.iter().find_map(|field| match field.access {
        Access::Constant(Load::Number(count)) => Some((count, count)),
        _ => None,
    });
    let range = if what == What::Limit(Guard::Slot) { functions } else { what.range() };
    range.unwrap_or((0, u64::MAX))
}
