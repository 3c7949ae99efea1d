//! Use counts: how often each value is used. Dead-code elimination by them.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Function, Inst, Value};
use smallvec::SmallVec;

use super::ir::{acts, def_inst, each_use, resolve};

/// How often the values of a function are used.
#[derive(Default)]
pub(crate) struct Uses {
    values: SecondaryMap<Value, u32>,
    known: bool,
    /// Instructions that may be dead: nothing may use their results.
    idle: Vec<Inst>,
}

impl Uses {
    /// Forgets what is known.
    pub(crate) fn clear(&mut self) {
        self.known = false;
    }

    /// Counts all uses in a function without aliases, if they are not known.
    pub(crate) fn know(&mut self, func: &Function) {
        if std::mem::replace(&mut self.known, true) {
            return;
        }
        self.values.clear();
        self.values.resize(func.dfg.num_values());
        for inst in func.layout.blocks().flat_map(|block| func.layout.block_insts(block)) {
            self.count(func, inst);
        }
    }

    /// Counts what an instruction uses. True if an alias is among it.
    fn count(&mut self, func: &Function, inst: Inst) -> bool {
        let mut aliased = false;
        each_use(func, inst, |_, value| {
            let original = resolve(func, value);
            aliased |= original != value;
            self.values[original] += 1;
        });
        aliased
    }

    /// Counts again, replaces aliases by their values, and removes dead instructions. Returns how many instructions are
    /// changed or removed.
    pub(crate) fn renew(&mut self, func: &mut Function) -> usize {
        let mut changes = 0;
        self.values.clear();
        self.values.resize(func.dfg.num_values());
        // Mostly users before definitions, so that most dead instructions are found in one walk.
        let mut block = func.layout.last_block();
        while let Some(current) = block {
            let mut next = func.layout.last_inst(current);
            while let Some(inst) = next {
                next = func.layout.prev_inst(inst);
                if matches!(func.dfg.inst_results(inst), [result] if !self.used(*result)) {
                    self.idle.push(inst);
                }
                if self.count(func, inst) {
                    // Cranelift does it also in all instructions that are gone by now.
                    let values = func.dfg.inst_values(inst).map(|value| func.dfg.resolve_aliases(value));
                    let values: SmallVec<[Value; 8]> = values.collect();
                    func.dfg.overwrite_inst_values(inst, values.into_iter());
                    changes += 1;
                }
            }
            block = func.layout.prev_block(current);
        }
        changes + sweep(func, self)
    }

    /// Whether something uses a value once, and nothing else does.
    pub(crate) fn once(&self, value: Value) -> bool {
        self.values[value] == 1
    }
}

impl Counts for Uses {
    fn used(&self, value: Value) -> bool {
        self.values[value] > 0
    }

    fn drop_use(&mut self, value: Value) -> bool {
        self.values[value] -= 1;
        !self.used(value)
    }

    fn idle(&mut self) -> &mut Vec<Inst> {
        &mut self.idle
    }
}

/// How often values are used.
pub(crate) trait Counts {
    /// Whether something uses a value.
    fn used(&self, value: Value) -> bool;

    /// An instruction uses a value once less. True if that was the last use.
    fn drop_use(&mut self, value: Value) -> bool;

    /// Instructions that may be dead: nothing may use their results.
    fn idle(&mut self) -> &mut Vec<Inst>;

    /// An instruction uses a value once less, whose definition may be dead now.
    fn less(&mut self, func: &Function, value: Value) {
        if self.drop_use(value) {
            self.idle().extend(def_inst(func, value));
        }
    }
}

/// Removes dead instructions, of the idle ones and those that only they used. Returns how many.
pub(crate) fn sweep(func: &mut Function, counts: &mut impl Counts) -> usize {
    let mut removed = 0;
    while let Some(inst) = counts.idle().pop() {
        let used = func.dfg.inst_results(inst).iter().any(|result| counts.used(*result));
        if used || func.layout.inst_block(inst).is_none() || acts(func.dfg.insts[inst].opcode()) {
            continue;
        }
        func.layout.remove_inst(inst);
        removed += 1;
        each_use(func, inst, |_, value| counts.less(func, resolve(func, value)));
    }
    removed
}
