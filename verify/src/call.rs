//! Transfer functions of calls, returns, and jumps through tables.

use iced_x86::{Code, Instruction, OpKind};

use crate::access::MemoryEffect;
use crate::registers::{C_ARGUMENTS, RAX, RDI, RDX, RSI, RSP, SAVED};
use crate::reject::Reason;
use crate::state::State;
use crate::table::{Argument, Callee, Returns};
use crate::value::{Base, Value, Word};
use crate::walk::{Next, Walk};

/// Bytes of an entry of a jump table.
const ENTRY: u64 = 4;

impl Walk<'_, '_> {
    pub(crate) fn call(&mut self, instruction: &Instruction, state: &mut State) -> Result<Next, Reason> {
        let target = match instruction.code() {
            Code::Call_rel32_64 => Value::number(instruction.near_branch_target()),
            Code::Call_rm64 => self.read(instruction, state, 0)?.value,
            _ => return Err(Reason::Unknown),
        };
        let stack = state.stack().ok_or(Reason::StackPointer)?;
        if stack.rem_euclid(16) != 8 {
            return Err(Reason::Misaligned);
        }
        self.touch(stack - 8, state)?;
        self.statistics.calls += usize::from(self.first);
        let is_function = match (target, target.constant()) {
            (Value::Function, _) => true,
            (_, Some(address)) => self.module.functions.binary_search_by_key(&address, |known| known.start).is_ok(),
            _ => false,
        };
        if is_function {
            self.call_function(state, stack)?;
            return Ok(Next::On);
        }
        let callees = &self.module.layout.callees;
        let first = target.constant().map(|address| callees.partition_point(|callee| callee.address < address));
        let candidates = callees[first.unwrap_or(callees.len())..].iter();
        let mut fits = Err(Reason::Call { to: target.to_string() });
        for callee in candidates.take_while(|callee| Some(callee.address) == target.constant()) {
            fits = arguments(state, callee).map(|()| callee);
            if fits.is_ok() {
                break;
            }
        }
        self.call_c(instruction, state, stack, fits?)?;
        Ok(Next::On)
    }

    fn call_function(&mut self, state: &mut State, stack: i64) -> Result<(), Reason> {
        let stride = i64::from(self.module.layout.stride);
        argument(state, 0, RDI, Value::at(Base::Context, 0), "the context")?;
        argument(state, 1, RSI, Value::at(Base::Frame, stride), "the r10 of a callee")?;
        if state.room < stride {
            let value = "that r10, which is not known to be within the limit".to_owned();
            return Err(Reason::Argument { index: 1, value, wanted: "checked" });
        }
        self.give_stack(state, stack, 0)
    }

    fn call_c(
        &mut self,
        instruction: &Instruction,
        state: &mut State,
        stack: i64,
        callee: &Callee,
    ) -> Result<(), Reason> {
        self.give_stack(state, stack, 8 * i64::from(callee.stack))?;
        if callee.returns == Returns::TailTarget {
            let id = self.id(instruction);
            self.fresh(id, state);
            state.regs[RAX] = Word::new(Value::Pending(id));
            state.regs[RDX] = Word::new(Value::Status(id));
        }
        Ok(())
    }

    /// A callee may write to its own frame and to its arguments, and to all registers but those that are saved.
    fn give_stack(&self, state: &mut State, stack: i64, arguments: i64) -> Result<(), Reason> {
        if stack + arguments > 0 {
            return Err(Reason::ReadOnly { at: "the return address".to_owned() });
        }
        state.forget(i64::MIN, stack + arguments);
        for (reg, word) in state.regs.iter_mut().enumerate() {
            if reg != RSP && !SAVED.contains(&reg) {
                *word = Word::ANY;
            }
        }
        Ok(())
    }

    pub(crate) fn ret(&mut self, instruction: &Instruction, state: &State) -> Result<Next, Reason> {
        restored(state)?;
        match instruction.code() {
            Code::Retnq => Ok(Next::Nowhere),
            Code::Retnq_imm16 => {
                let value = format!("{} bytes above", instruction.immediate16());
                Err(Reason::Restored { what: "the stack pointer", value })
            }
            _ => Err(Reason::Unknown),
        }
    }

    pub(crate) fn jump(&mut self, instruction: &Instruction, state: &mut State) -> Result<Next, Reason> {
        match instruction.code() {
            Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => {
                return self.target(instruction.near_branch_target()).map(Next::To);
            }
            Code::Jmp_rm64 => {}
            _ => return Err(Reason::Unknown),
        }
        let target = self.read(instruction, state, 0)?.value;
        match target {
            Value::Target { table, first, more } => {
                self.statistics.switches += usize::from(self.first);
                let entries = (0..=u64::from(more)).map(|index| {
                    let entry =
                        self.code.offset(first + ENTRY * index).and_then(|off| self.code.read(off, ENTRY as usize));
                    let entry = entry.ok_or_else(|| Reason::Jump { to: target.to_string() })?;
                    self.target(table.wrapping_add(entry as i32 as u64))
                });
                let mut targets = entries.collect::<Result<Vec<usize>, Reason>>()?;
                targets.sort_unstable();
                targets.dedup();
                Ok(Next::Any(targets))
            }
            Value::Function => {
                restored(state)?;
                argument(state, 0, RDI, Value::at(Base::Context, 0), "the context")?;
                argument(state, 1, RSI, Value::at(Base::Frame, 0), "the function's r10")?;
                self.statistics.calls += usize::from(self.first);
                Ok(Next::Nowhere)
            }
            _ => Err(Reason::Jump { to: target.to_string() }),
        }
    }

    pub(crate) fn push(&mut self, instruction: &Instruction, state: &mut State) -> Result<Next, Reason> {
        if instruction.stack_pointer_increment() != -8 {
            return Err(Reason::Unknown);
        }
        let word = self.read(instruction, state, 0)?;
        let stack = state.stack().ok_or(Reason::StackPointer)? - 8;
        state.regs[RSP] = Word::new(Value::at(Base::Stack, stack));
        self.access_at(Value::at(Base::Stack, stack).into(), 8, state, MemoryEffect::Store(word))?;
        Ok(Next::On)
    }

    pub(crate) fn pop(&mut self, instruction: &Instruction, state: &mut State) -> Result<Next, Reason> {
        if instruction.stack_pointer_increment() != 8 || instruction.op0_kind() != OpKind::Register {
            return Err(Reason::Unknown);
        }
        let stack = state.stack().ok_or(Reason::StackPointer)?;
        let word = self.access_at(Value::at(Base::Stack, stack).into(), 8, state, MemoryEffect::Load)?;
        state.regs[RSP] = Word::new(Value::at(Base::Stack, stack + 8));
        self.write(instruction, state, 0, word)?;
        Ok(Next::On)
    }
}

/// Checks the arguments of a C function.
fn arguments(state: &State, callee: &Callee) -> Result<(), Reason> {
    for (index, (wanted, reg)) in callee.arguments.iter().zip(C_ARGUMENTS).enumerate() {
        match *wanted {
            Argument::Any => {}
            Argument::Context => argument(state, index, reg, Value::at(Base::Context, 0), "the context")?,
            Argument::Number(number) => argument(state, index, reg, Value::number(number), "what it must get")?,
            Argument::Below(limit) => {
                let value = state.regs[reg].value;
                if value.range().is_none_or(|(_, hi)| hi >= limit) {
                    let value = value.to_string();
                    return Err(Reason::Argument { index, value, wanted: "a number that the VM knows" });
                }
            }
        }
    }
    Ok(())
}

/// Checks what a register holds that is an argument.
fn argument(state: &State, index: usize, reg: usize, wanted: Value, name: &'static str) -> Result<(), Reason> {
    let value = state.regs[reg].value;
    if value == wanted { Ok(()) } else { Err(Reason::Argument { index, value: value.to_string(), wanted: name }) }
}

/// Checks that stack pointer and registers are as at entry.
fn restored(state: &State) -> Result<(), Reason> {
    let value = state.regs[RSP].value;
    if value != Value::at(Base::Stack, 0) {
        return Err(Reason::Restored { what: "the stack pointer", value: value.to_string() });
    }
    const NAMES: [&str; SAVED.len()] = ["rbx", "rbp", "r12", "r13", "r14", "r15"];
    for (reg, what) in SAVED.into_iter().zip(NAMES) {
        let value = state.regs[reg].value;
        if value != Value::Saved(reg as u8) {
            return Err(Reason::Restored { what, value: value.to_string() });
        }
    }
    Ok(())
}
