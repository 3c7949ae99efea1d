//! Block parameters of which only the low half is looked at become 32 bits wide.
//!
//! BPF has 32-bit operations and 64-bit registers, so each result is extended. Where such a register lives on into
//! another block, both widths are kept, in two machine registers. The code that hands over to the interpreter looks
//! at whole registers, but it is cold: it extends what it needs, if the upper half is known to be zero.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{BlockArg, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::{constant, destinations, maker, pass, resolve};

/// Passes before everything stays as wide as it is.
const MAX_PASSES: u32 = 32;

/// What is asked of a value.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Asked {
    /// All of its bits.
    whole: bool,
    /// All of its bits, but only in cold blocks.
    rarely: bool,
}

#[derive(Default)]
pub(super) struct Scratch {
    asked: SecondaryMap<Value, Asked>,
    /// Values, and what is made from them bit by bit from below: the same is asked of both.
    flows: Vec<(Value, Value)>,
    /// Parameters that become narrow.
    params: SecondaryMap<Value, bool>,
}

pub(super) fn run(func: &mut Function, scratch: &mut Scratch) {
    scratch.asked.clear();
    scratch.flows.clear();
    scratch.params.clear();
    // Users first, as a rule: what is asked of them is known then.
    let mut block = func.layout.last_block();
    while let Some(current) = block {
        let cold = func.layout.is_cold(current);
        for inst in func.layout.block_insts(current).rev() {
            scratch.uses(func, inst, cold);
        }
        block = func.layout.prev_block(current);
    }
    if scratch.spread() && scratch.choose(func) {
        scratch.rewrite(func);
    }
}

impl Scratch {
    /// Notes what an instruction asks of its operands.
    fn uses(&mut self, func: &Function, inst: Inst, cold: bool) {
        let data = &func.dfg.insts[inst];
        let opcode = data.opcode();
        let flows =
            matches!(opcode, Opcode::Iadd | Opcode::Isub | Opcode::Imul | Opcode::Band | Opcode::Bor | Opcode::Bxor);
        for arg in data.arguments(&func.dfg.value_lists) {
            if flows {
                self.flow(func, *arg, func.dfg.first_result(inst));
            } else if opcode != Opcode::Ireduce || func.dfg.value_type(func.dfg.first_result(inst)).bits() > 32 {
                self.ask(resolve(func, *arg), Asked { whole: !cold, rarely: cold });
            }
        }
        if !opcode.is_branch() {
            return;
        }
        for call in data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables) {
            let params = func.dfg.block_params(call.block(&func.dfg.value_lists));
            for (param, arg) in params.iter().zip(call.args(&func.dfg.value_lists)) {
                if let BlockArg::Value(arg) = arg {
                    self.flow(func, arg, *param);
                }
            }
        }
    }

    /// Asks of a value what is asked of another that it flows to. If that is all, it stays so.
    fn flow(&mut self, func: &Function, from: Value, to: Value) {
        let from = resolve(func, from);
        self.ask(from, self.asked[to]);
        if !self.asked[from].whole {
            self.flows.push((from, to));
        }
    }

    /// Asks this of a value, too. True if it is new.
    fn ask(&mut self, value: Value, more: Asked) -> bool {
        let asked = self.asked[value];
        let sum = Asked { whole: asked.whole || more.whole, rarely: asked.rarely || more.rarely };
        self.asked[value] = sum;
        sum != asked
    }

    /// Asks of values what is asked of those that are made from them. False if that takes too long.
    fn spread(&mut self) -> bool {
        for _ in 0..MAX_PASSES {
            let mut again = false;
            for at in 0..self.flows.len() {
                let (from, to) = self.flows[at];
                again |= self.ask(from, self.asked[to]);
            }
            if !again {
                return true;
            }
        }
        false
    }

    /// Chooses parameters. False if there are none.
    fn choose(&mut self, func: &Function) -> bool {
        let entry = func.layout.entry_block();
        let mut any = false;
        for block in func.layout.blocks().filter(|block| Some(*block) != entry) {
            for param in func.dfg.block_params(block) {
                if func.dfg.value_type(*param) == I64 && !self.asked[*param].whole {
                    self.params[*param] = true;
                    any = true;
                }
            }
        }
        for _ in 0..MAX_PASSES {
            if !any {
                return false;
            }
            let mut again = false;
            for block in func.layout.blocks() {
                for call in destinations(func, block) {
                    let params = func.dfg.block_params(call.block(&func.dfg.value_lists));
                    for (param, arg) in params.iter().zip(call.args(&func.dfg.value_lists)) {
                        let Some(arg) = arg.as_value() else { continue };
                        if self.params[*param] && self.asked[*param].rarely && !self.extended(func, arg) {
                            self.params[*param] = false;
                            again = true;
                        }
                    }
                }
            }
            if !again {
                return true;
            }
        }
        false
    }

    /// Whether the upper half of a value is zero.
    fn extended(&self, func: &Function, value: Value) -> bool {
        let value = func.dfg.resolve_aliases(value);
        let Some(made) = maker(func, value) else { return self.params[value] };
        match &func.dfg.insts[made] {
            InstructionData::Unary { opcode: Opcode::Uextend, .. } => true,
            InstructionData::Load { opcode, .. } => {
                matches!(opcode, Opcode::Uload8 | Opcode::Uload16 | Opcode::Uload32)
            }
            _ => constant(func, value).is_some_and(|bits| u32::try_from(bits).is_ok()),
        }
    }

    fn rewrite(&self, func: &mut Function) {
        let mut next = func.layout.entry_block();
        while let Some(block) = next {
            next = func.layout.next_block(block);
            pass(func, block, &self.params, |func, last, arg| {
                let low = low_half(func, arg);
                low.unwrap_or_else(|| FuncCursor::new(func).at_inst(last).ins().ireduce(I32, arg))
            });
        }
        next = func.layout.entry_block();
        while let Some(block) = next {
            next = func.layout.next_block(block);
            let params = func.dfg.block_params(block).to_vec();
            for param in params.into_iter().filter(|param| self.params[*param]) {
                let narrow = func.dfg.replace_block_param(param, I32);
                let first = func.layout.first_inst(block).expect("blocks end");
                let wide = FuncCursor::new(func).at_inst(first).ins().uextend(I64, narrow);
                func.dfg.change_to_alias(param, wide);
            }
        }
    }
}

/// What a value was extended from, if it was from 32 bits.
fn low_half(func: &Function, value: Value) -> Option<Value> {
    match func.dfg.insts[maker(func, value)?] {
        InstructionData::Unary { opcode: Opcode::Uextend, arg } if func.dfg.value_type(arg) == I32 => Some(arg),
        _ => None,
    }
}
