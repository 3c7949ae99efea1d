//! Transfer function: effect of one machine instruction on the abstract state.

use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic as M, OpAccess, OpKind, Register};

use crate::access::{MemoryEffect, address, has_odd_prefix};
use crate::arith::{binary, shift, sign_extended};
use crate::branch::{Condition, Flags, compare, test};
use crate::code::is_memory;
use crate::registers::{RAX, RDX, RSP};
use crate::reject::Reason;
use crate::state::{Meaning, State};
use crate::value::{Base, Value, Word};
use crate::walk::{Next, Walk};

/// Bytes of an operand.
fn size(instruction: &Instruction, operand: u32) -> usize {
    match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        OpKind::Memory => instruction.memory_size().size(),
        _ => 8,
    }
}

/// Whether more may become known of a value.
fn is_range(value: Value) -> bool {
    match value {
        Value::Any | Value::Bool { .. } => true,
        Value::Int { lo, hi } => lo != hi,
        _ => false,
    }
}

fn is_high(reg: Register) -> bool {
    matches!(reg, Register::AH | Register::BH | Register::CH | Register::DH)
}

impl Walk<'_, '_> {
    /// Interprets an instruction.
    pub(crate) fn step(&mut self, instruction: &Instruction, state: &mut State) -> Result<Next, Reason> {
        if self.first && (has_odd_prefix(instruction) || instruction.is_string_instruction()) {
            return Err(Reason::Unknown);
        }
        // What depends on a condition leaves the flags as they are.
        if state.flags != Flags::Unknown && instruction.rflags_modified() != 0 {
            state.flags = Flags::Unknown;
        }
        let condition = |state: &State| Condition { flags: state.flags, code: instruction.condition_code() };
        match instruction.mnemonic() {
            M::Mov => self.mov(instruction, state)?,
            M::Lea => {
                let at = address(instruction, state)?.at;
                self.write(instruction, state, 0, Word::new(at))?;
            }
            M::Add | M::Sub | M::And | M::Or | M::Xor => self.binary(instruction, state)?,
            M::Cmp | M::Test => self.compare(instruction, state)?,
            M::Movzx => {
                let word = self.read(instruction, state, 1)?;
                self.write(instruction, state, 0, word)?;
            }
            M::Movsx | M::Movsxd => self.sign_extend(instruction, state)?,
            M::Shl | M::Shr | M::Sar | M::Shlx | M::Shrx | M::Sarx => self.shift(instruction, state)?,
            M::Call => return self.call(instruction, state),
            M::Ret => return self.ret(instruction, state),
            M::Jmp => return self.jump(instruction, state),
            M::Push => return self.push(instruction, state),
            M::Pop => return self.pop(instruction, state),
            M::Ud2 => return Ok(Next::Nowhere),
            // A register may lead to bits far from the operand in memory.
            M::Bt if is_memory(instruction, 0) && instruction.op1_kind() == OpKind::Register => {
                return Err(Reason::Unknown);
            }
            M::Imul if instruction.op_count() > 1 => self.multiply(instruction, state)?,
            M::Andn => self.keep_bits(instruction, state, 2)?,
            M::Blsi | M::Blsr | M::Bzhi => self.keep_bits(instruction, state, 1)?,
            M::Shld if instruction.op2_kind() == OpKind::Immediate8 && !is_memory(instruction, 0) => {
                self.shift_in(instruction, state)?;
            }
            _ if instruction.is_jcc_short_or_near() && instruction.op0_kind() == OpKind::NearBranch64 => {
                let target = self.target(instruction.near_branch_target())?;
                return Ok(Next::Either(target, condition(state)));
            }
            _ if instruction.flow_control() != FlowControl::Next => return Err(Reason::Unknown),
            _ if instruction.condition_code() != ConditionCode::None && instruction.op_count() == 1 => {
                self.set(instruction, state, condition(state))?
            }
            _ if instruction.condition_code() != ConditionCode::None && instruction.op_count() == 2 => {
                self.choose(instruction, state, condition(state))?
            }
            M::Cdq => state.regs[RDX] = Word::new(Value::WORD),
            M::Cqo => state.regs[RDX] = Word::ANY,
            M::Cdqe => state.regs[RAX] = Word::new(sign_extended(state.regs[RAX].value, 4)),
            mnemonic if is_plain(mnemonic) => self.plain(instruction, state)?,
            _ => return Err(Reason::Unknown),
        }
        Ok(Next::On)
    }

    /// What an operand holds, memory included.
    pub(crate) fn read(&mut self, instruction: &Instruction, state: &mut State, operand: u32) -> Result<Word, Reason> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let reg = instruction.op_register(operand);
                if !reg.is_gpr() {
                    return Err(Reason::Unknown);
                }
                if is_high(reg) {
                    return Ok(Word::new(Value::of_size(1)));
                }
                let word = state.regs[reg.full_register().number()];
                let id = if word.value.fits(reg.size()) { word.id } else { 0 };
                Ok(Word { value: word.value.low(reg.size()), id })
            }
            OpKind::Memory => self.access(instruction, state, MemoryEffect::Load),
            _ => Ok(Word::new(Value::number(instruction.immediate(operand)))),
        }
    }

    /// What an operand holds, with all of a register of which it is the low bytes.
    fn read_whole(&mut self, instruction: &Instruction, state: &mut State, operand: u32) -> Result<Word, Reason> {
        match instruction.op_kind(operand) {
            OpKind::Register if !is_high(instruction.op_register(operand)) => {
                let reg = instruction.op_register(operand);
                if reg.is_gpr() { Ok(state.regs[reg.full_register().number()]) } else { Err(Reason::Unknown) }
            }
            _ => self.read(instruction, state, operand),
        }
    }

    /// Gives a register or memory a value.
    pub(crate) fn write(
        &mut self,
        instruction: &Instruction,
        state: &mut State,
        operand: u32,
        word: Word,
    ) -> Result<(), Reason> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let reg = instruction.op_register(operand);
                if reg.is_gpr() { assign(state, reg, word) } else { Err(Reason::Unknown) }
            }
            _ => {
                let bytes = size(instruction, operand);
                let id = if word.value.fits(bytes) { word.id } else { 0 };
                let word = Word { value: word.value.low(bytes), id };
                self.access(instruction, state, MemoryEffect::Store(word)).map(|_| ())
            }
        }
    }

    /// Gives a register a number if it has none, for those that will be equal to it or bounded with it.
    fn name(&mut self, instruction: &Instruction, state: &mut State, operand: u32) {
        // No other instruction begins one byte on.
        let id = self.id(instruction) + operand;
        if instruction.op_kind(operand) != OpKind::Register {
            return;
        }
        let reg = instruction.op_register(operand);
        if !reg.is_gpr() || is_high(reg) {
            return;
        }
        let index = reg.full_register().number();
        let word = state.regs[index];
        if is_range(word.value) && word.id == 0 {
            self.fresh(id, state);
            state.regs[index].id = id;
        }
    }

    fn mov(&mut self, instruction: &Instruction, state: &mut State) -> Result<(), Reason> {
        self.name(instruction, state, 1);
        let mut word = self.read(instruction, state, 1)?;
        let bytes = size(instruction, 0);
        if is_memory(instruction, 1)
            && word.id == 0
            && is_range(word.value)
            && let Value::Pointer { base: Base::Stack, lo, .. } = address(instruction, state)?.at
        {
            // The slot and the register are equal from here on.
            let id = self.id(instruction);
            self.fresh(id, state);
            if state.name_slot(lo, bytes, Word { id, ..word }) {
                word.id = id;
            }
        }
        word.value = word.value.low(bytes);
        self.write(instruction, state, 0, word)
    }

    fn binary(&mut self, instruction: &Instruction, state: &mut State) -> Result<(), Reason> {
        let mnemonic = instruction.mnemonic();
        let bytes = size(instruction, 0);
        if is_memory(instruction, 0) {
            return self.access(instruction, state, MemoryEffect::Update).map(|_| ());
        }
        let (a, b) = (self.read_whole(instruction, state, 0)?, self.read_whole(instruction, state, 1)?);
        let same_register =
            instruction.op_kind(1) == OpKind::Register && instruction.op_register(0) == instruction.op_register(1);
        let same = same_register || a.id != 0 && a.id == b.id;
        let value = match mnemonic {
            M::Xor | M::Sub if same => Value::number(0),
            M::And | M::Or if same => a.value,
            _ => binary(mnemonic, bytes, a.value.low(bytes), b.value.low(bytes), &mut self.conditions),
        };
        self.write(instruction, state, 0, Word::new(value))
    }

    fn compare(&mut self, instruction: &Instruction, state: &mut State) -> Result<(), Reason> {
        let bytes = size(instruction, 0);
        self.name(instruction, state, 0);
        if instruction.mnemonic() == M::Test {
            let (word, other) = (self.read_whole(instruction, state, 0)?, self.read_whole(instruction, state, 1)?);
            let same = match word.value {
                Value::Status(_) => word.value == other.value,
                _ => word.id != 0 && word.id == other.id,
            };
            state.flags = if same { test(bytes, word) } else { Flags::Unknown };
            return Ok(());
        }
        self.name(instruction, state, 1);
        let left = self.read_whole(instruction, state, 0)?;
        let right = self.read_whole(instruction, state, 1)?;
        state.flags = compare(bytes, left, right);
        Ok(())
    }

    fn sign_extend(&mut self, instruction: &Instruction, state: &mut State) -> Result<(), Reason> {
        let bytes = size(instruction, 1);
        let word = self.read(instruction, state, 1)?;
        let mut value = sign_extended(word.value, bytes);
        if is_memory(instruction, 1) && bytes == 4 {
            let address = address(instruction, state)?;
            if let (Value::Int { lo, hi }, 4) = (address.at, address.step)
                && let Ok(more) = u32::try_from((hi - lo) / 4)
            {
                value = Value::Offset { first: lo, more };
            }
        }
        let value = if size(instruction, 0) < 8 { value.low(size(instruction, 0)) } else { value };
        self.write(instruction, state, 0, Word::new(value))
    }

    fn shift(&mut self, instruction: &Instruction, state: &mut State) -> Result<(), Reason> {
        let bytes = size(instruction, 0);
        if is_memory(instruction, 0) {
            return self.access(instruction, state, MemoryEffect::Update).map(|_| ());
        }
        let from = if instruction.op_count() > 2 { 1 } else { 0 };
        let by = match instruction.op_kind(instruction.op_count() - 1) {
            OpKind::Register => self.read(instruction, state, instruction.op_count() - 1)?.value.constant(),
            _ => Some(instruction.immediate(instruction.op_count() - 1)),
        };
        let value = self.read(instruction, state, from)?.value;
        let value = shift(instruction.mnemonic(), bytes, value, by);
        self.write(instruction, state, 0, Word::new(value))
    }

    /// What has only bits of one operand.
    fn keep_bits(&mut self, instruction: &Instruction, state: &mut State, operand: u32) -> Result<(), Reason> {
        let bytes = size(instruction, 0);
        let value = self.read(instruction, state, operand)?.value;
        let value = binary(M::And, bytes, value, Value::of_size(bytes), &mut self.conditions);
        self.write(instruction, state, 0, Word::new(value))
    }

    /// A shift to the left of one register, by a constant, into which the highest bits of another move.
    fn shift_in(&mut self, instruction: &Instruction, state: &mut State) -> Result<(), Reason> {
        let bytes = size(instruction, 0);
        let bits = 8 * bytes as u64;
        let by = instruction.immediate(2) & if bits == 64 { 63 } else { 31 };
        let (mut value, from) = (self.read(instruction, state, 0)?.value, self.read(instruction, state, 1)?.value);
        if by > 0 {
            let high = shift(M::Shl, bytes, value, Some(by));
            let low = shift(M::Shr, bytes, from, Some(bits.saturating_sub(by)));
            value = binary(M::Or, bytes, high, low, &mut self.conditions);
        }
        self.write(instruction, state, 0, Word::new(value))
    }

    fn multiply(&mut self, instruction: &Instruction, state: &mut State) -> Result<(), Reason> {
        let bytes = size(instruction, 0);
        let count = instruction.op_count();
        let a = self.read(instruction, state, count - 2)?.value;
        let b = self.read(instruction, state, count - 1)?.value;
        let value = binary(M::Imul, bytes, a, b, &mut self.conditions);
        self.write(instruction, state, 0, Word::new(value))
    }

    fn set(&mut self, instruction: &Instruction, state: &mut State, condition: Condition) -> Result<(), Reason> {
        let meaning = match (condition.flags, condition.code) {
            (Flags::Bool(index), ConditionCode::ne) => self.conditions.get(index).clone(),
            (Flags::Bool(index), ConditionCode::e) => {
                let Meaning { zero, nonzero } = self.conditions.get(index).clone();
                Meaning { zero: nonzero, nonzero: zero }
            }
            (Flags::Bool(_) | Flags::Unknown, _) | (_, ConditionCode::None) => Meaning::default(),
            _ => Meaning { zero: vec![condition.not()], nonzero: vec![condition] },
        };
        let index = self.conditions.intern(meaning);
        self.write(instruction, state, 0, Word::new(Value::Bool { index, clean: true }))
    }

    /// A conditional move: what it moves is known to be there only under its condition.
    fn choose(&mut self, instruction: &Instruction, state: &mut State, condition: Condition) -> Result<(), Reason> {
        let bytes = size(instruction, 0);
        let (kept, moved) = (self.read_whole(instruction, state, 0)?, self.read_whole(instruction, state, 1)?);
        let (kept, moved) = (condition.not().narrow_low(kept, bytes), condition.narrow_low(moved, bytes));
        let value = match kept {
            // The index of a jump table that is always too large: all of the table is data all the same.
            Value::Int { hi, .. } if condition.is_never_below() => Value::Int { lo: 0, hi },
            _ => kept.join(moved),
        };
        self.write(instruction, state, 0, Word::new(value))
    }

    /// An instruction of which only what it reads and writes is known.
    fn plain(&mut self, instruction: &Instruction, state: &mut State) -> Result<(), Reason> {
        let info = self.info.info(instruction);
        let (memory, registers) = (info.used_memory(), info.used_registers());
        let does = match memory {
            [] => None,
            [memory] if memory.memory_size().size() == instruction.memory_size().size() => {
                Some(if memory.access() == OpAccess::Read { MemoryEffect::Load } else { MemoryEffect::Update })
            }
            _ => return Err(Reason::Unknown),
        };
        let written: SmallRegisters = registers
            .iter()
            .filter(|used| !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None))
            .filter(|used| used.register().is_gpr())
            .map(|used| {
                let certain = matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite);
                (used.register(), certain && !matches!(instruction.mnemonic(), M::Bsf | M::Bsr))
            })
            .collect();
        if let Some(does) = does {
            self.access(instruction, state, does)?;
        }
        for (reg, certain) in written {
            let index = reg.full_register().number();
            if index == RSP {
                return Err(Reason::StackPointer);
            }
            // Storing 32 bits clears the others.
            let narrow = size(instruction, 0) == 4 && reg.size() >= 4;
            let old = state.regs[index].value;
            state.regs[index] = match (narrow, reg.size()) {
                (true, _) if certain || old.fits(4) => Word::new(Value::WORD),
                (false, 1 | 2) if old.fits(4) => Word::new(Value::WORD),
                _ => Word::ANY,
            };
        }
        Ok(())
    }
}

/// Registers that an instruction writes, and whether it does so always.
type SmallRegisters = Vec<(Register, bool)>;

/// Gives a register a value: all of it, also where an instruction of 32 bits names its lower half.
fn assign(state: &mut State, reg: Register, word: Word) -> Result<(), Reason> {
    let index = reg.full_register().number();
    let old = state.regs[index].value;
    let new = match reg.size() {
        8 => word,
        4 => Word { value: word.value.low(4), id: if word.value.fits(4) { word.id } else { 0 } },
        1 if !is_high(reg) => match word.value {
            Value::Bool { index, .. } => Word::new(Value::Bool { index, clean: old.fits(1) }),
            value if old.fits(1) => Word::new(value.low(1)),
            _ if old.fits(4) => Word::new(Value::WORD),
            _ => Word::ANY,
        },
        _ if old.fits(4) => Word::new(Value::WORD),
        _ => Word::ANY,
    };
    state.regs[index] = new;
    if index == RSP && state.stack().is_none() {
        return Err(Reason::StackPointer);
    }
    Ok(())
}

/// Instructions of which it is enough to know what they read and write.
fn is_plain(mnemonic: M) -> bool {
    matches!(
        mnemonic,
        M::Nop
            | M::Mfence
            | M::Neg
            | M::Not
            | M::Inc
            | M::Dec
            | M::Adc
            | M::Sbb
            | M::Mul
            | M::Imul
            | M::Mulx
            | M::Div
            | M::Idiv
            | M::Cwd
            | M::Cbw
            | M::Cwde
            | M::Rol
            | M::Ror
            | M::Rorx
            | M::Shld
            | M::Shrd
            | M::Bswap
            | M::Bt
            | M::Movbe
            | M::Bsf
            | M::Bsr
            | M::Lzcnt
            | M::Tzcnt
            | M::Popcnt
            | M::Bextr
            | M::Blsmsk
            | M::Xchg
            | M::Xadd
            | M::Cmpxchg
            | M::Movd
            | M::Movq
            | M::Movss
            | M::Movsd
            | M::Movaps
            | M::Movapd
            | M::Movups
            | M::Movupd
            | M::Movdqa
            | M::Movdqu
            | M::Pxor
            | M::Xorps
            | M::Xorpd
            | M::Vmovd
            | M::Vmovq
            | M::Vmovss
            | M::Vmovsd
            | M::Vmovaps
            | M::Vmovapd
            | M::Vmovups
            | M::Vmovupd
            | M::Vmovdqa
            | M::Vmovdqu
            | M::Vpxor
            | M::Vxorps
            | M::Vxorpd
    )
}
