//! Where a function is patched: a pad that a compiler left, or its first whole instructions, which move. Inside a
//! function likewise: a nop of five bytes, or whole instructions.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Encoder, FlowControl, IcedError, Instruction,
    InstructionBlock, Mnemonic, OpKind,
};

use super::stubs::MOVED_BYTES;
use super::sys;
use crate::modules::{Function, Module};
use crate::{Preparation, Refusal};

/// Bytes of the jump to a stub.
pub(super) const JUMP: usize = 5;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// One instruction of five bytes that does nothing.
pub(super) const NOP5: [u8; JUMP] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
/// An entry of XRay's: a jump over nine bytes.
const SLED: [u8; 2] = [0xeb, 0x09];
/// Longest instruction, and so most bytes that a jump can displace.
pub(super) const MOST: usize = JUMP + 15;
/// What a hook moves or writes ends before so many bytes after the function's address.
pub(super) const EXTENT: usize = ENDBR64.len() + MOST;

/// The first instructions of a function: the bytes that the jump displaces, and where it continues.
#[derive(Clone, Debug)]
pub(super) struct Prologue {
    /// Where the jump is written.
    pub(super) address: u64,
    /// The bytes at `address` in the file.
    pub(super) original: [u8; JUMP],
    pub(super) preparation: Preparation,
    /// Offsets within the jump at which a displaced instruction begins, but the first.
    pub(super) boundaries: Vec<u8>,
    /// Where the function goes on, after what is displaced.
    pub(super) after: u64,
    /// What the file has from the function's start to there.
    code: Vec<u8>,
    /// What is displaced and must run elsewhere.
    displaced: Vec<Instruction>,
}

/// Instructions at their new address.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) bytes: Vec<u8>,
    /// Of each instruction, where it begins there.
    pub(super) offsets: Vec<u32>,
}

/// The prologue of a function, as its file has it and memory has, too.
pub(super) fn find(function: &Function) -> Result<Prologue, Refusal> {
    let bytes = function.module.text(function.address, EXTENT);
    let is_entry = function.offset() == 0;
    check_boundary(function)?;
    let skip = if is_entry && bytes.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    let (address, code) = (function.address + skip as u64, &bytes[skip..]);
    // Branches may lead to one of several nops inside a function.
    let usable = |pad: &Prologue| is_entry || pad.preparation == Preparation::Nop;
    let mut prologue = match pad(address, code, &function.module).filter(usable) {
        Some(prologue) => prologue,
        None => moved(function, address, code).or_else(|why| match function.breakpoint {
            true => alone(function, address, code).ok_or(why),
            false => Err(why),
        })?,
    };
    let length = (prologue.after - function.address) as usize;
    prologue.code = bytes.get(..length).ok_or(Refusal::TooShort)?.to_vec();
    let mut in_memory = vec![0; prologue.code.len()];
    match sys::read(function.address, &mut in_memory) {
        false => Err(Refusal::Unreadable),
        true if in_memory != prologue.code => Err(Refusal::Changed),
        true => Ok(prologue),
    }
}

/// Whether an instruction of the function begins there.
pub(super) fn check_boundary(function: &Function) -> Result<(), Refusal> {
    if function.offset() == 0 {
        return Ok(());
    }
    let code = function.module.text(function.start, function.size.min(function.offset()) as usize);
    let mut decoder = Decoder::with_ip(64, code, function.start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
    }
    let is_boundary =
        !instruction.is_invalid() && decoder.ip() == function.address && function.address < function.end();
    if is_boundary { Ok(()) } else { Err(Refusal::NoInstruction) }
}

fn original(code: &[u8]) -> Option<[u8; JUMP]> {
    code.get(..JUMP)?.try_into().ok()
}

/// A pad at `address`: nops, a sled of XRay's, or the call that `-mfentry` makes.
fn pad(address: u64, code: &[u8], module: &Module) -> Option<Prologue> {
    let made = |preparation, bytes, boundaries| {
        let after = address + bytes;
        Some(Prologue {
            address,
            original: original(code)?,
            preparation,
            boundaries,
            after,
            code: Vec::new(),
            displaced: Vec::new(),
        })
    };
    if code.starts_with(&SLED) && module.has_sled(address) {
        return made(Preparation::Sled, 11, Vec::new());
    }
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let first = decoder.decode();
    // Through the global offset table in position-independent code.
    if [Code::Call_rel32_64, Code::Call_rm64].contains(&first.code()) && module.has_mcount(address) {
        return made(Preparation::Fentry, first.len() as u64, Vec::new());
    }
    let (mut instruction, mut bytes, mut boundaries) = (first, 0, Vec::new());
    while instruction.mnemonic() == Mnemonic::Nop {
        bytes += instruction.len();
        if bytes >= JUMP {
            let preparation = if boundaries.is_empty() { Preparation::Nop } else { Preparation::Nops };
            return made(preparation, bytes as u64, boundaries);
        }
        boundaries.push(bytes as u8);
        instruction = decoder.decode();
    }
    None
}

/// The first instructions of a function that has no pad.
fn moved(function: &Function, address: u64, code: &[u8]) -> Result<Prologue, Refusal> {
    if function.size == 0 {
        return Err(Refusal::Unsized);
    }
    let prologue = displace(address, code, function.end())?;
    if let Some(target) = function.module.branch_into(address + 1..address + JUMP as u64) {
        return Err(Refusal::BranchInside { offset: target - function.start });
    }
    // The kernel's kprobes refuse to move such code likewise (arch/x86/kernel/kprobes/opt.c, `can_optimize`).
    let may_jump_inside = || function.module.code().jumps_by_table(function.start..function.end());
    match function.offset() > 0 && !prologue.boundaries.is_empty() && may_jump_inside() {
        true => Err(Refusal::JumpTable),
        false => Ok(prologue),
    }
}

/// The first instruction alone, in whose place a breakpoint can be.
fn alone(function: &Function, address: u64, code: &[u8]) -> Option<Prologue> {
    let first = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    let moves = match first.flow_control() {
        FlowControl::Call => first.op0_kind() == OpKind::NearBranch64,
        FlowControl::IndirectCall | FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception => {
            false
        }
        _ => !first.is_invalid(),
    };
    if !moves || function.size > 0 && first.next_ip() > function.end() {
        return None;
    }
    let mut original = [0; JUMP];
    original.iter_mut().zip(code).for_each(|(byte, there)| *byte = *there);
    Some(Prologue {
        address,
        original,
        preparation: Preparation::Breakpoint,
        boundaries: Vec::new(),
        after: first.next_ip(),
        code: Vec::new(),
        displaced: vec![first],
    })
}

/// Whole instructions from `address` on that a jump displaces, of a function that ends at `end`.
fn displace(address: u64, code: &[u8], end: u64) -> Result<Prologue, Refusal> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let (mut displaced, mut boundaries) = (Vec::new(), Vec::new());
    while decoder.position() < JUMP {
        if decoder.position() > 0 {
            boundaries.push(decoder.position() as u8);
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(Refusal::Undecodable);
        }
        displaced.push(instruction);
        if instruction.next_ip() > end {
            return Err(Refusal::TooShort);
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            // The last that is displaced: it returns to what is not.
            FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => {}
            FlowControl::Call | FlowControl::IndirectCall => return Err(Refusal::Call),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => {
                if decoder.position() < JUMP {
                    // Nothing of the function is after it.
                    return Err(Refusal::TooShort);
                }
            }
            // Where it traps is part of what it does.
            _ => return Err(Refusal::Undecodable),
        }
    }
    let after = address + decoder.position() as u64;
    let original = original(code).ok_or(Refusal::TooShort)?;
    Ok(Prologue { address, original, preparation: Preparation::Moved, boundaries, after, code: Vec::new(), displaced })
}

impl Prologue {
    /// How many of the bytes at `address` are its own: those that the jump overwrites, or the one instruction.
    pub(super) fn own_bytes(&self) -> usize {
        match self.preparation {
            Preparation::Breakpoint => JUMP.min((self.after - self.address) as usize),
            _ => JUMP,
        }
    }

    /// Whether the function is still the one that this is of: its file has the same there. Another may have been loaded to the
    /// same address since.
    pub(super) fn is_of(&self, function: &Function) -> bool {
        let bytes = (self.after - function.address) as usize;
        function.module.text(function.address, bytes) == self.code
    }

    /// What is displaced, to run at `address` and then go on in the function. Empty for pads.
    pub(super) fn move_to(&self, address: u64) -> Result<Moved, Refusal> {
        let Some(last) = self.displaced.last() else { return Ok(Moved::default()) };
        let mut all = self.displaced.clone();
        let ends =
            [FlowControl::UnconditionalBranch, FlowControl::IndirectBranch, FlowControl::Return, FlowControl::Call];
        if !ends.contains(&last.flow_control()) {
            let back = Instruction::with_branch(Code::Jmp_rel32_64, self.after).map_err(|_| Refusal::Undecodable)?;
            all.push(back);
        }
        let mut moved = Moved::default();
        for instruction in &all {
            moved.offsets.push(moved.bytes.len() as u32);
            let at = address + moved.bytes.len() as u64;
            let bytes = match instruction.flow_control() {
                FlowControl::Call => encode_call(instruction, at),
                _ => encode(instruction, at),
            };
            moved.bytes.extend(bytes.map_err(|error| Refusal::Unmovable { why: error.to_string() })?);
        }
        if moved.bytes.len() > MOVED_BYTES {
            return Err(Refusal::Unmovable { why: "they are too long at another address".to_owned() });
        }
        Ok(moved)
    }
}

/// A call at another address that returns to where the original does, so that unwinders know the frame.
fn encode_call(call: &Instruction, address: u64) -> Result<Vec<u8>, IcedError> {
    // push [rip + 5], jmp, the return address. A target beyond 2 GiB is an error of the encoder of one instruction.
    let jump = Instruction::with_branch(Code::Jmp_rel32_64, call.near_branch64())?;
    let mut bytes = vec![0xff, 0x35, 5, 0, 0, 0];
    bytes.extend(encode_alone(&jump, address + 6)?);
    bytes.extend_from_slice(&call.next_ip().to_le_bytes());
    Ok(bytes)
}

/// An instruction at another address, with the targets that it has. Branches become longer where they must.
///
/// One at a time: the encoder of blocks takes the address of an instruction in its block, such as that of the function,
/// for one that moves.
fn encode(instruction: &Instruction, address: u64) -> Result<Vec<u8>, IcedError> {
    if instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64 {
        let block = InstructionBlock::new(std::slice::from_ref(instruction), address);
        return Ok(BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)?.code_buffer);
    }
    encode_alone(instruction, address)
}

fn encode_alone(instruction: &Instruction, address: u64) -> Result<Vec<u8>, IcedError> {
    let mut encoder = Encoder::new(64);
    encoder.encode(instruction, address)?;
    Ok(encoder.take_buffer())
}

#[cfg(test)]
mod tests;
