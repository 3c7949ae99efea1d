//! Mistakes in machine code, of the same length as what is right.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::{Mistake, emitted};

pub(super) const ALL: &[Mistake] = &[
    emitted("register_not_restored", "a register that was kept in a slot is not loaded back", |code, _| {
        last(code, is_restore, |bytes, _| bytes.fill(NOP))
    }),
    emitted("other_slot_restored", "a register is loaded back from the slot above its own", |code, _| {
        last(code, is_restore, |bytes, it| shift_slot(bytes, it, 8))
    }),
    emitted("frame_too_small", "the frame has no room for what is spilled", |code, _| {
        each(code, is_frame, |bytes, it| set_last(bytes, it, it.immediate(1) as i32 - 64))
    }),
    emitted("spill_above_frame", "a slot is counted from the wrong end of the frame", |code, _| {
        let size = find(code, is_frame).first().map_or(0, |(_, it)| it.immediate(1) as i32);
        let spills = |it: &Instruction| is_slot(it) && it.op0_kind() == OpKind::Memory;
        size > 0 && each(code, spills, |bytes, it| shift_slot(bytes, it, size))
    }),
    emitted("reload_below_frame", "a slot is reloaded from below the stack pointer", |code, _| {
        let reloads = |it: &Instruction| is_slot(it) && it.op1_kind() == OpKind::Memory && !is_restore(it);
        each(code, reloads, |bytes, it| shift_slot(bytes, it, -0x48))
    }),
    emitted("displacement_truncated", "a displacement is encoded in too few bits", |code, _| {
        let far = |it: &Instruction| it.memory_base() == Register::RSP && it.memory_displ_size() >= 4;
        each(code, far, |bytes, it| {
            let disp = it.memory_displacement32() as i32;
            shift_slot(bytes, it, i32::from(disp as i8) - disp);
        })
    }),
    emitted("base_register", "the prefix that says which base register it is is left out", |code, _| prefix(code, 1)),
    emitted("index_register", "the prefix that says which index register it is is left out", |code, _| prefix(code, 2)),
    emitted("stored_register", "a move to a register goes to another one", |code, _| {
        let moves = |it: &Instruction| it.code() == Code::Mov_rm64_r64 && it.op0_kind() == OpKind::Register;
        each(code, moves, |bytes, _| bytes[bytes.len() - 1] ^= 2)
    }),
    emitted("move_left_out", "a move of 32 bits to the same register is taken to do nothing", |code, _| {
        each(code, |it| is_mask(it) && it.op0_register() == it.op1_register(), |bytes, _| bytes.fill(NOP))
    }),
    emitted("move_of_64_bits", "a move of 32 bits is encoded as one of 64", |code, _| {
        let moves = |it: &Instruction| is_mask(it) && it.len() == 3;
        each(code, moves, |bytes, _| bytes[0] |= 8)
    }),
    emitted("table_entry", "an entry of a jump table leads out of the function", |code, _| {
        tables(code, |code, table| code[table + 2] ^= 0x40)
    }),
    emitted("table_address", "the address of a jump table is not relocated", |code, _| {
        let all = find(code, |it| it.mnemonic() == Mnemonic::Lea && it.memory_base() == Register::RIP);
        all.iter().for_each(|(at, it)| code[at + it.len() - 2] ^= 0x10);
        !all.is_empty()
    }),
    emitted("jump_too_far", "a jump leads out of the function", |code, _| {
        each(code, |it| it.code() == Code::Jmp_rel32_64, |bytes, _| bytes[3] ^= 0x40)
    }),
    emitted("branch_too_far", "a branch leads out of the function", |code, _| {
        each(code, |it| it.is_jcc_near() && it.len() == 6, |bytes, _| bytes[4] ^= 0x40)
    }),
    emitted("call_relocation", "a call leads past the start of its callee", |_, relocs| {
        relocs.iter_mut().for_each(|reloc| reloc.addend += 4);
        !relocs.is_empty()
    }),
    emitted("frame_pointer", "the frame pointer of the caller is not saved", |code, _| {
        first(
            code,
            |it| it.mnemonic() == Mnemonic::Push && it.op0_register() == Register::RBP,
            |bytes, _| bytes[0] = 0x50,
        )
    }),
    emitted("any_bit", "one bit of the code is another", |code, _| {
        // Which one follows from the code, so that it is the same each time.
        let sum = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let chosen = (code.iter().fold(0xcbf2_9ce4_8422_2325, sum) >> 20) as usize % (8 * code.len());
        code[chosen / 8] ^= 1 << (chosen % 8);
        true
    }),
];

const NOP: u8 = 0x90;

type Found = (usize, Instruction);

/// Instructions of some code, with their offsets. What comes after the first undecodable byte is left out.
fn find(code: &[u8], wanted: impl Fn(&Instruction) -> bool) -> Vec<Found> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut all = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        let it = decoder.decode();
        if !it.is_invalid() && wanted(&it) {
            all.push((at, it));
        }
    }
    all
}

fn change(code: &mut [u8], all: &[Found], change: impl Fn(&mut [u8], &Instruction)) -> bool {
    all.iter().for_each(|(at, it)| change(&mut code[*at..at + it.len()], it));
    !all.is_empty()
}

fn each(code: &mut [u8], wanted: impl Fn(&Instruction) -> bool, new: impl Fn(&mut [u8], &Instruction)) -> bool {
    let all = find(code, wanted);
    change(code, &all, new)
}

fn first(code: &mut [u8], wanted: impl Fn(&Instruction) -> bool, new: impl Fn(&mut [u8], &Instruction)) -> bool {
    let all = find(code, wanted);
    change(code, &all[..all.len().min(1)], new)
}

fn last(code: &mut [u8], wanted: impl Fn(&Instruction) -> bool, new: impl Fn(&mut [u8], &Instruction)) -> bool {
    let all = find(code, wanted);
    change(code, &all[all.len().saturating_sub(1)..], new)
}

/// Bytes of the immediate of an instruction of two operands.
fn immediate(it: &Instruction) -> usize {
    match it.op1_kind() {
        OpKind::Immediate32 | OpKind::Immediate32to64 => 4,
        OpKind::Immediate16 => 2,
        OpKind::Immediate8 | OpKind::Immediate8to32 | OpKind::Immediate8to64 => 1,
        _ => 0,
    }
}

/// Whether it loads or stores a slot of the frame.
fn is_slot(it: &Instruction) -> bool {
    it.mnemonic() == Mnemonic::Mov && it.memory_base() == Register::RSP && it.memory_index() == Register::None
}

fn is_saved(reg: Register) -> bool {
    matches!(reg, Register::RBX | Register::R12 | Register::R13 | Register::R14 | Register::R15)
}

/// Whether it may restore a register.
fn is_restore(it: &Instruction) -> bool {
    is_slot(it) && is_saved(it.op0_register()) && it.op1_kind() == OpKind::Memory
}

/// Whether it makes or leaves the frame.
fn is_frame(it: &Instruction) -> bool {
    matches!(it.mnemonic(), Mnemonic::Sub | Mnemonic::Add)
        && it.op0_register() == Register::RSP
        && it.op1_kind() != OpKind::Register
        && it.immediate(1) >= 0x30
}

/// Whether it may mask a pointer.
fn is_mask(it: &Instruction) -> bool {
    matches!(it.code(), Code::Mov_r32_rm32 | Code::Mov_rm32_r32)
        && it.op0_kind() == OpKind::Register
        && it.op1_kind() == OpKind::Register
}

/// Gives an instruction another immediate, which is its last bytes.
fn set_last(bytes: &mut [u8], it: &Instruction, value: i32) {
    let size = immediate(it);
    let at = bytes.len() - size;
    bytes[at..].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Adds to the displacement of an instruction, which is its last bytes if it has one.
fn shift_slot(bytes: &mut [u8], it: &Instruction, by: i32) {
    let disp = (it.memory_displacement32() as i32 + by).to_le_bytes();
    let end = bytes.len() - immediate(it);
    match it.memory_displ_size() {
        1 => bytes[end - 1] = disp[0],
        4 | 8 => bytes[end - 4..end].copy_from_slice(&disp),
        _ => {}
    }
}

/// Clears a bit of the prefix of accesses that do not use the stack.
fn prefix(code: &mut [u8], bit: u8) -> bool {
    let accesses = |it: &Instruction| {
        let regs = [it.memory_base(), it.memory_index()];
        let has = regs.iter().any(|reg| reg.is_gpr64());
        has && !regs.iter().any(|reg| matches!(reg, Register::RSP | Register::RBP)) && it.mnemonic() != Mnemonic::Lea
    };
    let mut changed = false;
    for (at, it) in find(code, accesses) {
        let prefix = (at..at + it.len()).find(|at| code[*at] & 0xf0 == 0x40).filter(|found| *found < at + 3);
        if let Some(prefix) = prefix.filter(|prefix| code[*prefix] & bit != 0) {
            code[prefix] &= !bit;
            changed = true;
        }
    }
    changed
}

/// Changes what is after an indirect jump, which is its table.
fn tables(code: &mut [u8], change: impl Fn(&mut [u8], usize)) -> bool {
    let all = find(code, |it| it.code() == Code::Jmp_rm64 && it.op0_kind() == OpKind::Register);
    let all: Vec<usize> = all.iter().map(|(at, it)| at + it.len()).filter(|at| at + 4 <= code.len()).collect();
    all.iter().for_each(|at| change(code, *at));
    !all.is_empty()
}
