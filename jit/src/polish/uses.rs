//! Who uses values.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Function, Inst, Value};
use cranelift_codegen::packed_option::PackedOption;

use super::{acts, each_use};

#[derive(Clone, Copy, Default)]
struct Use {
    count: u32,
    /// Whether one is not as an address.
    as_value: bool,
    /// The last user, unless it is gone.
    user: PackedOption<Inst>,
}

/// As counted last.
#[derive(Default)]
pub(super) struct Uses {
    values: SecondaryMap<Value, Use>,
    known: bool,
}

impl Uses {
    /// Forgets what is known.
    pub(super) fn clear(&mut self) {
        self.known = false;
    }

    /// Counts all uses in a function without aliases, if they are not known.
    pub(super) fn know(&mut self, func: &Function) {
        if std::mem::replace(&mut self.known, true) {
            return;
        }
        self.values.clear();
        self.values.resize(func.dfg.num_values());
        for inst in func.layout.blocks().flat_map(|block| func.layout.block_insts(block)) {
            self.count(func, inst);
        }
    }

    /// Counts what an instruction uses.
    fn count(&mut self, func: &Function, inst: Inst) {
        let opcode = func.dfg.insts[inst].opcode();
        let (loads, stores) = (opcode.can_load(), opcode.can_store());
        each_use(func, inst, |at, value| {
            let used = &mut self.values[value];
            used.count += 1;
            used.as_value |= !(loads && at == 0 || stores && at == 1);
            used.user = Some(inst).into();
        });
    }

    /// A value that one other instruction used has a new user, or its first one.
    pub(super) fn moved(&mut self, value: Value, user: Inst) {
        let used = &mut self.values[value];
        *used = Use { count: used.count.max(1), as_value: true, user: Some(user).into() };
    }

    /// Counts again, without aliases if there are some, and removes what makes values that nothing uses.
    pub(super) fn renew(&mut self, func: &mut Function, aliased: bool) {
        self.clear();
        if aliased {
            resolve(func);
        }
        self.know(func);
        self.sweep(func);
    }

    /// Removes what makes values that nothing uses.
    fn sweep(&mut self, func: &mut Function) {
        let mut block = func.layout.last_block();
        while let Some(current) = block {
            let mut next = func.layout.last_inst(current);
            while let Some(inst) = next {
                next = func.layout.prev_inst(inst);
                let unused = func.dfg.inst_results(inst).iter().all(|value| self.values[*value].count == 0);
                if unused && !acts(func.dfg.insts[inst].opcode()) {
                    for value in func.dfg.inst_values(inst) {
                        let used = &mut self.values[value];
                        used.count -= 1;
                        if used.user == Some(inst).into() {
                            used.user = None.into();
                        }
                    }
                    func.layout.remove_inst(inst);
                }
            }
            block = func.layout.prev_block(current);
        }
    }

    /// Whether something uses a value once, and nothing else does.
    pub(super) fn once(&self, value: Value) -> bool {
        self.values[value].count == 1
    }

    /// The instruction that does, if it is known.
    pub(super) fn only(&self, value: Value) -> Option<Inst> {
        self.values[value].user.expand().filter(|_| self.once(value))
    }

    /// Whether something uses a value otherwise than as an address.
    pub(super) fn as_value(&self, value: Value) -> bool {
        self.values[value].as_value
    }
}

/// Puts values in the place of their aliases. Cranelift does it also in all instructions that are gone by now.
fn resolve(func: &mut Function) {
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        let mut next = func.layout.first_inst(current);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            let mut aliased = false;
            each_use(func, inst, |_, value| aliased |= func.dfg.value_is_alias(value));
            if aliased {
                let values = func.dfg.inst_values(inst).map(|value| func.dfg.resolve_aliases(value));
                let values: Vec<Value> = values.collect();
                func.dfg.overwrite_inst_values(inst, values.into_iter());
            }
        }
        block = func.layout.next_block(current);
    }
}
