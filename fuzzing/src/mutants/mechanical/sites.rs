//! What is changed in a function, and how.

use iced_x86::{ConditionCode, ConstantOffsets, FlowControl, Instruction, Mnemonic as M, OpKind, Register};
use twinbpf_vm::mem::MARGIN;

use super::Kind;
use super::event::Event;
use super::facts::{Base, Fact, Guard, State, What};
use super::listing::{Listing, is_high, is_memory, size};

/// The name of a change.
pub(super) const TAKEN_IN: &str = "limit taken in";

/// The name of another.
pub(super) const ANOTHER: &str = "another register compared";

/// Which half of an instruction's result differs after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Differs {
    Nothing,
    High,
    All,
}

/// An instruction after a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed {
    pub(super) at: usize,
    pub(super) instruction: Instruction,
    /// How far its displacement was moved.
    pub(super) moved: i64,
    pub(super) differs: Differs,
}

impl Changed {
    /// Records in the state after it that its result differs. False if it does not.
    pub(super) fn mark(&self, state: &mut State) -> bool {
        let reg = self.instruction.op0_register();
        if self.instruction.op0_kind() != OpKind::Register || !reg.is_gpr() {
            return false;
        }
        let fact = &mut state.regs[reg.full_register().number()];
        match self.differs {
            Differs::Nothing => return false,
            // Nothing was cut off.
            Differs::High if fact.what.range().is_some_and(|(_, hi)| hi <= super::facts::U32) => return false,
            Differs::High => fact.high = true,
            Differs::All => (fact.low, fact.high) = (true, true),
        }
        true
    }
}

/// A change of one place.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) what: &'static str,
    pub(super) at: usize,
    pub(super) moved: i64,
    pub(super) differs: Differs,
    /// New bytes, by offset.
    bytes: Vec<(usize, u8)>,
    /// A byte to be inserted at `at` after that.
    insert: Option<u8>,
}

impl Change {
    /// Whether all other instructions stay where they are.
    pub(super) fn stays(&self) -> bool {
        self.insert.is_none()
    }

    /// The function as it is then. Nothing if it cannot be made so.
    pub(super) fn apply(&self, listing: &Listing<'_>) -> Option<Vec<u8>> {
        let mut code = match self.insert {
            Some(byte) => listing.inserted(self.at, byte)?,
            None => listing.code.to_vec(),
        };
        let by = usize::from(self.insert.is_some());
        for (off, byte) in &self.bytes {
            code[off + by] = *byte;
        }
        Some(code)
    }
}

/// All changes of a function, by site. `events` are those of the function as it is.
pub(super) fn changes(listing: &Listing<'_>, events: &[Event], frame: u32) -> Vec<Vec<Change>> {
    let mut all = Vec::new();
    let mut known = vec![None; listing.code.len()];
    let mut compares = vec![false; listing.code.len()];
    for event in events {
        if let Event::Guard { at, .. } = event {
            compares[*at] = true;
        }
        if let Event::Access { at, address: Fact { what: What::At { base, .. }, .. }, .. } = event {
            known[*at] = Some(*base);
        }
    }
    for &(at, ref instruction, ref constants) in listing.all() {
        all.extend(mask(listing, at, instruction));
        if !compares[at] {
            all.push(displacements(listing, (at, instruction, constants), known[at], frame));
        }
    }
    for event in events {
        if let Event::Guard { at, guard, .. } = event {
            let kind = if *guard == Guard::Slot { Kind::Bound } else { Kind::Guard };
            all.push(guards(listing, kind, *at));
        }
    }
    for (jump, ..) in listing.tables() {
        let compare = listing.before(jump).take(16).find(|(_, before, _)| before.mnemonic() == M::Cmp);
        all.push(compare.map_or_else(Vec::new, |(at, ..)| guards(listing, Kind::Bound, *at)));
    }
    all.retain(|site| !site.is_empty());
    all
}

/// Offset of the opcode.
fn opcode(listing: &Listing<'_>, at: usize) -> usize {
    at + usize::from(listing.code[at] & 0xf0 == 0x40)
}

/// A 32-bit operation, as one of 64 bits.
fn mask(listing: &Listing<'_>, at: usize, instruction: &Instruction) -> Option<Vec<Change>> {
    let narrow = matches!(
        instruction.mnemonic(),
        M::Mov | M::Movzx | M::Add | M::Sub | M::And | M::Or | M::Xor | M::Shl | M::Shr | M::Lea | M::Imul
    );
    let op = opcode(listing, at);
    let byte = listing.code[op];
    // An immediate of a move would become longer, and there are no prefixes but REX.
    let moves = matches!(byte, 0xb8..=0xbf | 0x66 | 0xf0 | 0xf2 | 0xf3);
    let reg = instruction.op0_register();
    if !narrow || moves || instruction.op0_kind() != OpKind::Register || !reg.is_gpr() || size(instruction, 0) != 4 {
        return None;
    }
    let cleared = instruction.mnemonic() == M::Xor && instruction.op_register(1) == reg;
    if cleared || instruction.op_count() > 1 && is_high(instruction.op_register(1)) {
        return None;
    }
    let extends = instruction.mnemonic() == M::Movzx;
    let mut bytes = Vec::new();
    if extends {
        bytes.push((op + 1, listing.code[op + 1] | 0x08));
    }
    let insert = if op > at {
        bytes.push((at, listing.code[at] | 0x08));
        None
    } else {
        Some(0x48)
    };
    let differs = if extends || instruction.mnemonic() == M::Shr { Differs::All } else { Differs::High };
    let what = if extends { "sign-extended instead" } else { "64 bits" };
    Some(vec![Change { kind: Kind::Mask, what, at, moved: 0, differs, bytes, insert }])
}

/// The displacement of a memory operand.
fn displacements(
    listing: &Listing<'_>,
    (at, instruction, constants): (usize, &Instruction, &ConstantOffsets),
    base: Option<Base>,
    frame: u32,
) -> Vec<Change> {
    let (field, width) = (constants.displacement_offset(), constants.displacement_size());
    let margin = MARGIN as i64;
    let mut moves = match width {
        1 => vec![("displacement ±64", 64), ("displacement ±64", -64)],
        4 => vec![
            ("displacement ± margin", margin),
            ("displacement ± margin", -margin),
            ("displacement ± 2^30", 1 << 30),
            ("displacement ± 2^30", -(1 << 30)),
        ],
        _ => return Vec::new(),
    };
    match base {
        Some(Base::Frame) if instruction.memory_index() == Register::None => {
            let frame = i64::from(frame);
            moves.extend([("out of the BPF frame", frame), ("out of the BPF frame", -frame)]);
        }
        Some(Base::Context) => moves.extend([("next field", 8), ("next field", -8)]),
        Some(Base::Stack) => moves.extend([("next slot", 8), ("next slot", -8)]),
        Some(Base::Frame | Base::Arena | Base::Table(_)) | None => {}
    }
    let old = instruction.memory_displacement64() as i64;
    let old = match instruction.memory_base() {
        Register::RIP => old.wrapping_sub((listing.start + at as u64) as i64 + instruction.len() as i64),
        _ => old,
    };
    let unknown = instruction.mnemonic() == M::Lea || !matches!(base, Some(Base::Arena | Base::Frame));
    let differs = if unknown { Differs::All } else { Differs::Nothing };
    let all = moves.into_iter().filter_map(|(what, by)| {
        let new = old + by;
        let fits = if width == 1 { i8::try_from(new).is_ok() } else { i32::try_from(new).is_ok() };
        let bytes = (0..width).map(|index| (at + field + index, new.to_le_bytes()[index])).collect();
        fits.then_some(Change { kind: Kind::Displacement, what, at, moved: by, differs, bytes, insert: None })
    });
    all.collect()
}

/// A compare, and the instructions that use its flags.
fn guards(listing: &Listing<'_>, kind: Kind, at: usize) -> Vec<Change> {
    let change =
        |what, at: usize, bytes| Change { kind, what, at, moved: 0, differs: Differs::Nothing, bytes, insert: None };
    let Some((_, instruction, constants)) = listing.get(at) else { return Vec::new() };
    let mut all = Vec::new();
    let plus = |field: usize, width: usize, by: i64| {
        let mut number = [0; 8];
        number[..width].copy_from_slice(&listing.code[field..][..width]);
        let number = i64::from_le_bytes(number).wrapping_add(by).to_le_bytes();
        (0..width).map(|index| (field + index, number[index])).collect::<Vec<_>>()
    };
    if constants.immediate_size() > 0 {
        all.push(change("bound + 1", at, plus(at + constants.immediate_offset(), constants.immediate_size(), 1)));
    } else if instruction.mnemonic() == M::Cmp {
        if let (true, width @ 1..) =
            (is_memory(instruction, 0) || is_memory(instruction, 1), constants.displacement_size())
        {
            for by in [8, -8] {
                let bytes = plus(at + constants.displacement_offset(), width, by);
                all.push(change("compared with the next field", at, bytes));
            }
        }
        let modrm = opcode(listing, at) + 1;
        all.push(change(ANOTHER, at, vec![(modrm, listing.code[modrm] ^ 0x08)]));
        all.extend(immediate_of(listing, at, instruction).map(|(off, constants)| {
            let field = off + constants.immediate_offset();
            change("bound + 1", off, plus(field, constants.immediate_size(), 1))
        }));
    }
    for &(off, ref user, _) in listing.after(at) {
        let code = user.condition_code();
        if code != ConditionCode::None {
            let at_code = match (user.flow_control(), listing.code[off]) {
                (FlowControl::ConditionalBranch, 0x70..=0x7f) => off,
                _ => opcode(listing, off) + 1,
            };
            all.push(change("condition inverted", off, vec![(at_code, listing.code[at_code] ^ 1)]));
            let nops = (off..off + user.len()).map(|off| (off, 0x90)).collect();
            all.push(change("branch removed", off, nops));
            if matches!(code, ConditionCode::ae | ConditionCode::b) {
                all.push(change(TAKEN_IN, off, vec![(at_code, listing.code[at_code] ^ 4)]));
            }
        }
        if user.rflags_modified() != 0 || user.flow_control() != FlowControl::Next && code == ConditionCode::None {
            break;
        }
    }
    all
}

/// Where the register that an instruction compares with gets its immediate.
fn immediate_of<'l>(
    listing: &'l Listing<'_>,
    at: usize,
    compare: &Instruction,
) -> Option<(usize, &'l ConstantOffsets)> {
    let reg = compare.op_register(1).full_register();
    let mut before = listing.before(at).take(16);
    let found =
        before.find(|(_, by, _)| by.op0_kind() == OpKind::Register && by.op0_register().full_register() == reg)?;
    let &(off, ref by, ref constants) = found;
    (reg != Register::None && by.mnemonic() == M::Mov && constants.immediate_size() > 0).then_some((off, constants))
}
