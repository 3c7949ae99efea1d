//! Memory accesses of an instruction: their abstract addresses, and the check of their bounds.

use iced_x86::{Instruction, Register};

use crate::reject::Reason;
use crate::state::State;
use crate::table::{Access, Content, Field, Load, Write};
use crate::value::{Base, Value, Word};
use crate::walk::Walk;

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryEffect {
    Load,
    Store(Word),
    /// Loads and stores something unknown.
    Update,
}

impl From<Value> for Address {
    fn from(at: Value) -> Address {
        Address { at, step: 1 }
    }
}

fn unproved(bytes: usize, at: Value) -> Reason {
    Reason::Unproved { bytes, at: at.to_string() }
}

/// An address, and what it is a multiple of from its least value on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) at: Value,
    pub(crate) step: u32,
}

/// The address of the memory operand.
///
/// # Errors
/// It is not of 64 bits, or has a segment.
pub(crate) fn address(instruction: &Instruction, state: &State) -> Result<Address, Reason> {
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let displacement = Value::number(instruction.memory_displacement64());
    if base == Register::RIP {
        return Ok(Address { at: displacement, step: 1 });
    }
    let of = |reg: Register| match reg {
        Register::None => Ok(Value::number(0)),
        reg if reg.is_gpr64() => Ok(state.regs[reg.number()].value),
        _ => Err(Reason::Unknown),
    };
    let (base, scale) = (of(base)?, instruction.memory_index_scale());
    if index == Register::None {
        return Ok(base.plus(displacement).into());
    }
    let index = of(index)?.times(scale);
    // In an order in which no sum is lost that the whole is not.
    let (at, rest) = match index {
        Value::Pointer { .. } => (index.plus(displacement).plus(base), Value::Any),
        _ => match base.plus(displacement) {
            Value::Any => (base.plus(index).plus(displacement), Value::Any),
            base => (base.plus(index), base),
        },
    };
    let exact = match rest {
        Value::Pointer { lo, hi, .. } => lo == hi,
        rest => rest.constant().is_some(),
    };
    Ok(Address { at, step: if exact { scale } else { 1 } })
}

impl Walk<'_, '_> {
    /// Checks an access of the memory operand. Gives what is loaded.
    pub(crate) fn access(
        &mut self,
        instruction: &Instruction,
        state: &mut State,
        does: MemoryEffect,
    ) -> Result<Word, Reason> {
        let bytes = instruction.memory_size().size();
        if bytes == 0 {
            return Err(Reason::Unknown);
        }
        let at = address(instruction, state)?;
        self.access_at(at, bytes, state, does)
    }

    /// Checks an access of so many bytes.
    pub(crate) fn access_at(
        &mut self,
        Address { at, step }: Address,
        bytes: usize,
        state: &mut State,
        does: MemoryEffect,
    ) -> Result<Word, Reason> {
        let unknown = Word::new(Value::of_size(bytes));
        match at {
            Value::Pointer { base: Base::Arena, lo, hi } => {
                let layout = self.module.layout;
                let margin = layout.margin as i64;
                if lo < -margin || hi + bytes as i64 > layout.arena as i64 + margin {
                    let inside = format!("the arena and its margins of {margin:#x} bytes");
                    return Err(Reason::Outside { bytes, at: at.to_string(), inside });
                }
                self.statistics.arena += 1;
                Ok(unknown)
            }
            Value::Pointer { base: Base::Frame, lo, hi } => {
                let frame = i64::from(self.function.frame);
                if lo < -frame || hi + bytes as i64 > 0 {
                    let margin = self.module.layout.margin as i64;
                    if lo < hi && -margin <= lo && hi + bytes as i64 <= margin {
                        // An index of the program's; the frame is in the arena, so that this is too, or in its margins.
                        self.statistics.arena += 1;
                        return Ok(unknown);
                    }
                    let inside = format!("the BPF frame of {frame:#x} bytes");
                    return Err(Reason::Outside { bytes, at: at.to_string(), inside });
                }
                self.statistics.frame += 1;
                Ok(unknown)
            }
            Value::Pointer { base: Base::Stack, lo, hi } if lo == hi => self.stack(lo, bytes, state, does),
            Value::Pointer { base: Base::Context, lo, hi } if lo == hi => self.context(at, lo, bytes, does),
            Value::Pointer { base: Base::Region(index), lo, hi } => {
                self.region((at, index, step), (lo, hi), bytes, does)
            }
            Value::Int { lo, hi } => self.own_bytes(at, (lo, hi), bytes, does),
            at => Err(unproved(bytes, at)),
        }
    }

    fn stack(&mut self, off: i64, bytes: usize, state: &mut State, does: MemoryEffect) -> Result<Word, Reason> {
        let at = Value::at(Base::Stack, off);
        let (stack, end) = (state.stack().ok_or(Reason::StackPointer)?, off + bytes as i64);
        // The return address is at the stack pointer of the entry.
        if off < stack || end > 8 {
            let inside = format!("the native frame of {:#x} bytes", -stack);
            return Err(Reason::Outside { bytes, at: at.to_string(), inside });
        }
        self.touch(off, state)?;
        self.statistics.stack += 1;
        let before = state.slot(off, bytes);
        if does != MemoryEffect::Load && off < 8 && end > 0 {
            return Err(Reason::ReadOnly { at: "the return address".to_owned() });
        }
        match does {
            MemoryEffect::Load => {}
            MemoryEffect::Store(word) => state.store(off, bytes, word),
            MemoryEffect::Update => state.forget(off, end),
        }
        Ok(before)
    }

    /// Checks that an access does not jump over the guard.
    pub(crate) fn touch(&self, off: i64, state: &mut State) -> Result<(), Reason> {
        let gap = state.touched - off;
        if gap >= i64::from(self.module.layout.guard) {
            return Err(Reason::Guard { bytes: gap });
        }
        state.touched = state.touched.min(off);
        Ok(())
    }

    fn context(&mut self, at: Value, off: i64, bytes: usize, does: MemoryEffect) -> Result<Word, Reason> {
        let layout = self.module.layout;
        let inside = u64::try_from(off).ok().filter(|off| off + bytes as u64 <= u64::from(layout.context));
        let Some(off) = inside else {
            let inside = format!("the context of {:#x} bytes", layout.context);
            return Err(Reason::Outside { bytes, at: at.to_string(), inside });
        };
        self.statistics.context += 1;
        let read_only = || Reason::ReadOnly { at: at.to_string() };
        match does {
            MemoryEffect::Load => Ok(Word::new(match layout.field(off, bytes as u64) {
                Some(Access::Constant(Load::Arena)) => Value::at(Base::Arena, 0),
                Some(Access::Constant(Load::FrameLimit)) => Value::FrameLimit,
                Some(Access::Constant(Load::Region(index))) => Value::at(Base::Region(index), 0),
                Some(Access::Constant(Load::Number(number))) => Value::number(number),
                Some(Access::Write(_)) | None => Value::of_size(bytes),
            })),
            MemoryEffect::Store(word) => match layout.covering(off, bytes as u64) {
                Some(Field { access: Access::Write(Write::Any), .. }) => Ok(Word::ANY),
                _ => match layout.field(off, bytes as u64) {
                    Some(Access::Write(write)) => field(off, bytes, write, word.value).map(|()| Word::ANY),
                    Some(Access::Constant(_)) | None => Err(read_only()),
                },
            },
            MemoryEffect::Update => match layout.covering(off, bytes as u64) {
                Some(Field { access: Access::Write(Write::Any), .. }) => Ok(Word::new(Value::of_size(bytes))),
                _ => Err(read_only()),
            },
        }
    }

    fn region(
        &mut self,
        (at, index, step): (Value, u16, u32),
        (lo, hi): (i64, i64),
        bytes: usize,
        does: MemoryEffect,
    ) -> Result<Word, Reason> {
        let region = self.module.layout.regions.get(usize::from(index)).ok_or_else(|| unproved(bytes, at))?;
        let end = u64::try_from(hi).ok().and_then(|hi| hi.checked_add(bytes as u64));
        if lo < 0 || end.is_none_or(|end| end > region.len()) {
            let inside = format!("table {index} of {:#x} bytes", region.len());
            return Err(Reason::Outside { bytes, at: at.to_string(), inside });
        }
        if does != MemoryEffect::Load {
            return Err(Reason::ReadOnly { at: at.to_string() });
        }
        self.statistics.tables += 1;
        let value = match &region.content {
            Content::Known(words) if lo == hi && lo % 8 == 0 && bytes == 8 => Value::number(words[lo as usize / 8]),
            Content::Functions(_) if lo % 8 == 0 && (lo == hi || step == 8) && bytes == 8 => Value::Function,
            Content::Known(_) | Content::Functions(_) | Content::Bytes(_) => Value::of_size(bytes),
        };
        Ok(Word::new(value))
    }

    /// Constants and jump tables in the function itself, and words that the layout names.
    fn own_bytes(&mut self, at: Value, (lo, hi): (u64, u64), bytes: usize, does: MemoryEffect) -> Result<Word, Reason> {
        let last = hi.saturating_add(bytes as u64 - 1);
        let words = &self.module.layout.words;
        if does == MemoryEffect::Load && words.iter().any(|words| words.contains(&lo) && words.contains(&last)) {
            self.statistics.tables += 1;
            return Ok(Word::new(Value::of_size(bytes)));
        }
        let range = self.code.offset(lo).zip(hi.checked_add(bytes as u64 - 1).and_then(|last| self.code.offset(last)));
        let Some((first, last)) = range.filter(|(first, last)| first <= last) else { return Err(unproved(bytes, at)) };
        if does != MemoryEffect::Load {
            return Err(Reason::ReadOnly { at: at.to_string() });
        }
        self.statistics.constants += 1;
        self.code.data(first..last + 1);
        let number = self.code.read(first, bytes).filter(|_| lo == hi);
        Ok(Word::new(number.map_or(Value::of_size(bytes), Value::number)))
    }
}

/// Checks what is stored into a field.
fn field(offset: u64, bytes: usize, write: Write, value: Value) -> Result<(), Reason> {
    let (good, wanted) = match write {
        Write::Any => (true, "anything"),
        Write::Below(limit) => {
            (value.low(bytes).range().is_some_and(|(_, hi)| hi < limit), "a number that the VM knows")
        }
        Write::NativeFrame => (matches!(value, Value::Pointer { base: Base::Stack, .. }), "in the native frame"),
        Write::Frame => (value == Value::at(Base::Frame, 0), "the function's r10"),
    };
    if good { Ok(()) } else { Err(Reason::Field { offset, value: value.to_string(), wanted }) }
}

/// Whether an instruction has a prefix that makes it something else.
pub(crate) fn has_odd_prefix(instruction: &Instruction) -> bool {
    instruction.segment_prefix() != Register::None
        || instruction.has_rep_prefix()
        || instruction.has_repne_prefix()
        || instruction.has_xacquire_prefix()
        || instruction.has_xrelease_prefix()
}
