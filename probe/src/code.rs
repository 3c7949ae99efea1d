//! Machine code: where instructions begin, and what a prologue has stored.

use std::collections::HashSet;

use iced_x86::Register as X86;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
};

use crate::elf::Elf;
use crate::error::Error;
use crate::expr::{Binary, Expr};
use crate::machine::{Machine, Register};
use crate::site::Site;

/// Most bytes of the code that jumps to a function of another file.
const MOST_OF_STUB: u64 = 16;
/// Most bytes of a function that are decoded.
const MOST_CODE: u64 = 1 << 20;

fn decoder<'c>(elf: &Elf<'c>, begin: u64, end: u64) -> Option<Decoder<'c>> {
    let size = usize::try_from(end.checked_sub(begin)?.min(MOST_CODE)).ok()?;
    let code = elf.code(begin)?;
    Some(Decoder::with_ip(64, &code[..size.min(code.len())], begin, DecoderOptions::NONE))
}

/// Checks that an instruction of a function begins at an offset.
pub(crate) fn check_offset(elf: &Elf<'_>, function: &str, entry: u64, size: u64, offset: u64) -> Result<(), Error> {
    if offset >= size {
        return Err(Error::BeyondFunction { function: function.to_owned(), offset, size });
    }
    let inside = |start| Error::InsideInstruction { function: function.to_owned(), offset, start };
    match elf.machine {
        Machine::X86_64 => {
            let Some(decoder) = decoder(elf, entry, entry + size) else { return Ok(()) };
            let mut at = 0;
            for instruction in decoder {
                let next = instruction.next_ip() - entry;
                if offset < next {
                    break;
                }
                at = next;
            }
            if at == offset { Ok(()) } else { Err(inside(at)) }
        }
        Machine::Aarch64 if offset.is_multiple_of(4) => Ok(()),
        Machine::Aarch64 => Err(inside(offset - offset % 4)),
        Machine::Riscv64 => {
            let code = elf.code(entry).unwrap_or_default();
            let mut at = 0u64;
            while at < offset {
                let first = usize::try_from(at).ok().and_then(|at| code.get(at)).copied().unwrap_or(3);
                let next = at + if first & 3 == 3 { 4 } else { 2 };
                if next > offset {
                    return Err(inside(at));
                }
                at = next;
            }
            Ok(())
        }
    }
}

/// Whether some branch of the function leads to an address: then it is passed more than once a call.
pub(crate) fn is_branch_target(site: &Site<'_, '_>, address: u64) -> bool {
    if site.machine() != Machine::X86_64 {
        return false;
    }
    let Some(decoder) = decoder(site.binary.elf(), site.entry, site.end) else { return false };
    decoder.into_iter().any(|instruction| {
        let near = matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
        near && instruction.flow_control() != FlowControl::Call && instruction.near_branch_target() == address
    })
}

/// Stack and frame pointer while a prologue runs, relative to the CFA.
struct Frame {
    sp: Option<i64>,
    bp: Option<i64>,
}

impl Frame {
    fn of(&self, register: X86) -> Option<i64> {
        match register {
            X86::RSP => self.sp,
            X86::RBP => self.bp,
            _ => None,
        }
    }

    /// What an instruction does to the two registers.
    fn step(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
        let imm = || instruction.try_immediate(1).unwrap_or(0).cast_signed();
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        let is_copy = instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
        let is_immediate = instruction.op0_kind() == OpKind::Register
            && matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Call => {
                let by = if instruction.mnemonic() == Mnemonic::Call { 0 } else { 8 };
                self.sp = self.sp.map(|sp| sp - by);
            }
            Mnemonic::Mov if is_copy && to == X86::RBP => self.bp = self.of(from),
            Mnemonic::Mov if is_copy && to == X86::RSP => self.sp = self.of(from),
            Mnemonic::Sub if is_immediate && to == X86::RSP => self.sp = self.sp.map(|sp| sp.wrapping_sub(imm())),
            Mnemonic::Add if is_immediate && to == X86::RSP => self.sp = self.sp.map(|sp| sp.wrapping_add(imm())),
            _ => {
                let info = factory.info(instruction);
                for used in info.used_registers() {
                    let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
                    match used.register().full_register() {
                        X86::RSP if writes => self.sp = None,
                        X86::RBP if writes => self.bp = None,
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Bytes that an instruction writes in the frame, relative to the CFA.
fn written(frame: &Frame, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Vec<(i64, i64)> {
    let info = factory.info(instruction);
    let writes =
        info.used_memory().iter().filter(|used| matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite));
    let place = |used: &iced_x86::UsedMemory| {
        if used.index() != X86::None {
            return None;
        }
        let begin = frame.of(used.base())?.wrapping_add(used.displacement().cast_signed());
        Some((begin, i64::try_from(used.memory_size().size()).ok()?))
    };
    writes.filter_map(place).collect()
}

/// Stack and frame pointer at an address, as far as the call frame information has them.
fn frame_at(site: &Site<'_, '_>, pc: u64) -> Frame {
    match site.cfa_register(pc) {
        Some((Register(6), offset)) => Frame { sp: None, bp: Some(-offset) },
        Some((Register(7), offset)) => Frame { sp: Some(-offset), bp: None },
        _ => Frame { sp: None, bp: None },
    }
}

/// Whether some instruction of the function reads memory from an offset of the CFA on, or takes such an address.
pub(crate) fn reads_arguments(site: &Site<'_, '_>, offset: i64) -> bool {
    if site.machine() != Machine::X86_64 {
        return true;
    }
    let mut factory = InstructionInfoFactory::new();
    let ranges = site.binary.ranges(site.function).unwrap_or_default();
    let code = ranges.iter().filter_map(|(begin, end)| decoder(site.binary.elf(), *begin, *end));
    code.flatten().any(|instruction| {
        if !matches!(instruction.memory_base(), X86::RSP | X86::RBP) {
            return false;
        }
        let frame = frame_at(site, instruction.ip());
        let Some(base) = frame.of(instruction.memory_base()) else { return true };
        let at = base.wrapping_add(instruction.memory_displacement64().cast_signed());
        let takes = instruction.mnemonic() == Mnemonic::Lea;
        let info = factory.info(&instruction);
        let reads =
            info.used_memory().iter().any(|used| !matches!(used.access(), OpAccess::Write | OpAccess::NoMemAccess));
        // An array begins before what is read of it: what is near counts.
        at >= offset && (reads || takes)
    })
}

/// Where the straight code begins that leads to an address of the function: what runs there also runs all that is between.
fn straight_from(site: &Site<'_, '_>, address: u64) -> u64 {
    let Some(decoder) = decoder(site.binary.elf(), site.entry, site.end) else { return address };
    let all: Vec<Instruction> = decoder.into_iter().collect();
    let jumps = |instruction: &Instruction| match instruction.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => Some(instruction.near_branch_target()),
        _ => None,
    };
    let is_known = |instruction: &Instruction| {
        instruction.code() != Code::INVALID && instruction.flow_control() != FlowControl::IndirectBranch
    };
    if !all.iter().all(is_known) {
        return address;
    }
    let targets: HashSet<u64> = all.iter().filter_map(jumps).collect();
    let mut from = site.entry;
    for instruction in all.iter().take_while(|instruction| instruction.ip() <= address) {
        if targets.contains(&instruction.ip()) {
            from = instruction.ip();
        }
        let goes_on = matches!(instruction.flow_control(), FlowControl::Next | FlowControl::Call);
        if !goes_on && instruction.next_ip() <= address {
            from = instruction.next_ip();
        }
    }
    from.min(address)
}

/// Bytes of the frame that the next call writes, if it is one of `memcpy` or `memset`: those from the address in the first
/// register, relative to the CFA, as many as the third has.
#[derive(Default)]
struct Fill {
    to: Option<i64>,
    size: Option<i64>,
}

impl Fill {
    /// Follows an instruction; the bytes that it fills, if it is the call.
    fn step(&mut self, site: &Site<'_, '_>, frame: &Frame, instruction: &Instruction) -> Option<(i64, i64)> {
        if instruction.flow_control() == FlowControl::Call {
            let Fill { to, size } = std::mem::take(self);
            let is_fill =
                matches!(callee(site, instruction.near_branch_target()), Some("memcpy" | "memset" | "memmove"));
            return to.zip(size).filter(|(_, size)| is_fill && *size > 0);
        }
        let written = (instruction.op0_kind() == OpKind::Register).then(|| instruction.op0_register().full_register());
        match written {
            Some(X86::RDI) => {
                let is_address = instruction.mnemonic() == Mnemonic::Lea && instruction.memory_index() == X86::None;
                let base = frame.of(instruction.memory_base()).filter(|_| is_address);
                self.to = base.map(|base| base.wrapping_add(instruction.memory_displacement64().cast_signed()));
            }
            Some(X86::RDX) => {
                let imm = instruction.try_immediate(1).ok().filter(|_| instruction.mnemonic() == Mnemonic::Mov);
                self.size = imm.and_then(|imm| i64::try_from(imm).ok());
            }
            _ => {}
        }
        None
    }
}

/// The function that a call of an address leads to, in this file or another.
fn callee<'a>(site: &Site<'_, 'a>, target: u64) -> Option<&'a str> {
    let elf = site.binary.elf();
    let stub = decoder(elf, target, target.checked_add(MOST_OF_STUB)?)?;
    let jump = stub.into_iter().take(2).find(|instruction| instruction.mnemonic() != Mnemonic::Endbr64)?;
    match jump.flow_control() {
        FlowControl::IndirectBranch if jump.is_ip_rel_memory_operand() => elf.imported(jump.ip_rel_memory_address()),
        _ => site.binary.symbols_at(target).next().map(|symbol| symbol.name),
    }
}

/// Whether the straight code to the site writes all these bytes of the frame, which are relative to the CFA. LLVM stores a
/// copy's parameters before the copy as well, and gives each variable a slot of its own where it does not optimise.
fn is_stored(site: &Site<'_, '_>, wanted: (i64, i64)) -> bool {
    let begin = site.copy.map_or(site.entry, |(begin, _)| straight_from(site, begin));
    let Some(mut decoder) = decoder(site.binary.elf(), begin, site.pc) else { return false };
    let mut factory = InstructionInfoFactory::new();
    let mut frame = if begin == site.entry { Frame { sp: Some(-8), bp: None } } else { frame_at(site, begin) };
    let mut done: Vec<(i64, i64)> = Vec::new();
    let (mut instruction, mut fill) = (Instruction::default(), Fill::default());
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.code() == Code::INVALID {
            return false;
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
            // What comes after may not run, or not after all that came before.
            _ => return false,
        }
        // Pushed is what the caller had in a register.
        if instruction.mnemonic() != Mnemonic::Push && instruction.mnemonic() != Mnemonic::Call {
            done.extend(written(&frame, &instruction, &mut factory));
        }
        done.extend(fill.step(site, &frame, &instruction));
        frame.step(&instruction, &mut factory);
    }
    let (begin, size) = wanted;
    (begin..begin.saturating_add(size))
        .all(|byte| done.iter().any(|(from, size)| *from <= byte && byte < from.saturating_add(*size)))
}

/// Whether all of the function's own frame that an expression reads at the site was stored since the entry.
pub(crate) fn is_sure(site: &Site<'_, '_>, expr: &Expr) -> bool {
    if site.machine() != Machine::X86_64 {
        return true;
    }
    !expr.any(&|part| match part {
        Expr::Load { address, size } => {
            own_slot(site, address, i64::from(*size)).is_some_and(|slot| !is_stored(site, slot))
        }
        _ => false,
    })
}

/// The bytes at an address, relative to the CFA, if they are in the function's own frame.
fn own_slot(site: &Site<'_, '_>, address: &Expr, size: i64) -> Option<(i64, i64)> {
    let (register, offset) = match address {
        Expr::Register(register) => (*register, 0),
        Expr::Binary(Binary::Add, base, by) => match (&**base, &**by) {
            (Expr::Register(register), Expr::Constant(by)) => (*register, by.cast_signed()),
            _ => return None,
        },
        _ => return None,
    };
    if register != site.machine().stack_pointer() && register != Register(6) {
        return None;
    }
    match site.cfa_register(site.pc) {
        Some((found, from)) if found == register => Some((offset.wrapping_sub(from), size)).filter(|slot| slot.0 < 0),
        // Some slot, but not known which: bytes that nothing stores.
        _ => Some((i64::MIN / 2, size)),
    }
}
