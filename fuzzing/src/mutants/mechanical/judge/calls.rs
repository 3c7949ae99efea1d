//! Calls: which of them lead elsewhere than before.

use iced_x86::{FlowControl, Instruction};
use twinbpf_verify::{Argument, Callee};

use super::super::event::Event;
use super::super::facts::{Base, Fact, PARAMETERS, RSP, SAVED, State, What};
use super::Judge;

impl Judge<'_> {
    /// A call of a function, or of one in C.
    pub(super) fn call(&mut self, at: usize, ins: &Instruction, state: &mut State) {
        let target = match ins.flow_control() {
            FlowControl::Call => Fact::new(What::number(ins.near_branch_target())),
            _ => self.read(at, ins, state, 0),
        };
        // What is called by a known address is a function of the module, or one in C; all others are from the table.
        let is_function = target.what.constant().is_none_or(|address| self.functions.contains(&address));
        let differs = |reg: usize, wanted| state.regs[reg].differs() && state.regs[reg].what != wanted;
        let frame = What::at(Base::Frame, self.layout.stride.into());
        let argument = differs(7, What::at(Base::Context, 0)) || is_function && differs(6, frame);
        if is_function {
            self.tell(Event::Call { at });
        }
        let address = target.what.constant();
        let mut callees = self.layout.callees.iter().filter(|callee| Some(callee.address) == address);
        // Host functions of one type share their code: which of them runs is an argument.
        let takes = |argument: &Argument, reg: usize| match argument {
            Argument::Any => true,
            Argument::Context => state.regs[reg].what == What::at(Base::Context, 0),
            Argument::Number(number) => state.regs[reg].what.constant() == Some(*number),
            Argument::Below(_) => false,
        };
        let fits =
            |callee: &Callee| callee.arguments.iter().zip(PARAMETERS).all(|(argument, reg)| takes(argument, reg));
        let is_listed = callees.clone().any(|callee| !callee.arguments.is_empty() && fits(callee));
        let known = target.what == What::Function || callees.next().is_some();
        if argument && !is_listed || target.differs() && !known {
            self.tell(Event::Leads { at });
        }
        let stack = state.stack().unwrap_or(0);
        for reg in (0..16).filter(|reg| *reg != RSP && !SAVED.contains(reg)) {
            state.regs[reg] = Fact::new(What::Any);
        }
        state.flags = None;
        state.forget_below(stack);
    }
}
