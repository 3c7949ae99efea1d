//! Who uses values.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Function, Inst, Value};
use cranelift_codegen::packed_option::PackedOption;

#[derive(Clone, Copy, Default)]
struct Use {
    count: u32,
    /// Whether one is not as an address.
    as_value: bool,
    /// The last user.
    user: PackedOption<Inst>,
}

/// As counted last.
#[derive(Default)]
pub(super) struct Uses(SecondaryMap<Value, Use>);

impl Uses {
    /// Counts all uses in a function without aliases.
    pub(super) fn count(&mut self, func: &Function) {
        self.0.clear();
        for inst in func.layout.blocks().flat_map(|block| func.layout.block_insts(block)) {
            let opcode = func.dfg.insts[inst].opcode();
            for (at, value) in func.dfg.inst_values(inst).enumerate() {
                let address = opcode.can_load() && at == 0 || opcode.can_store() && at == 1;
                let used = &mut self.0[value];
                used.count += 1;
                used.as_value |= !address;
                used.user = Some(inst).into();
            }
        }
    }

    /// Whether something uses a value once, and nothing else does.
    pub(super) fn once(&self, value: Value) -> bool {
        self.0[value].count == 1
    }

    /// The instruction that does.
    pub(super) fn only(&self, value: Value) -> Option<Inst> {
        self.0[value].user.expand().filter(|_| self.once(value))
    }

    /// Whether something uses a value otherwise than as an address.
    pub(super) fn as_value(&self, value: Value) -> bool {
        self.0[value].as_value
    }
}
