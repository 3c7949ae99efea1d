//! A workload's bytecode as a function of an XDP program.

use std::collections::BTreeSet;

use twinbpf_isa::{AluOp, CallKind, Endian, Insn, Operand, Reg, Size, Width, encode_all};

use super::RESULT;

/// Where the block is.
#[derive(Clone, Copy, Debug)]
pub(super) enum BlockLocation {
    /// In the value of the array map with this descriptor.
    Value(i32),
    /// In the arena with this descriptor, at this address.
    Arena(i32, u64),
}

/// `lddw` kinds of `linux/bpf.h`.
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
/// `imm` of the cast from the arena's addresses to those the kernel can use.
const TO_KERNEL: i32 = 1;
/// `XDP_PASS`.
const PASS: i32 = 2;

/// The program that calls the workload and keeps its result, then the workload itself. `len` takes the place of loads from
/// the start of the block; `guarded` puts a `may_goto` at each loop header.
pub(super) fn wrap(workload: &[Insn], place: BlockLocation, len: Option<i32>, guarded: bool) -> Vec<u8> {
    let workload = len.map_or_else(|| workload.to_vec(), |len| with_constant(workload, len));
    let body = if guarded { with_guards(&workload) } else { workload };
    let address = block_address(place);
    let result = Insn::Store { size: Size::Dw, base: Reg::R1, off: RESULT as i16, src: Operand::Reg(Reg::R0) };
    let tail = [result, constant(Reg::R0, PASS), Insn::Exit];
    let over = (address.len() + tail.len()) as i32;
    let call = Insn::Call { kind: CallKind::Local, off: 0, imm: over };
    encode_all(&[&address[..], &[call], &address, &tail, &body].concat(), Endian::Little)
}

fn constant(dst: Reg, imm: i32) -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Imm(imm) }
}

/// Loads r1 with the address of the block.
fn block_address(place: BlockLocation) -> Vec<Insn> {
    let load = |kind, imm, high| [Insn::LoadImm { dst: Reg::R1, kind, imm }, Insn::LoadImmHi { imm: high }];
    match place {
        BlockLocation::Value(fd) => load(PSEUDO_MAP_VALUE, fd, 0).to_vec(),
        BlockLocation::Arena(fd, at) => {
            // Naming the map is what makes this a program with an arena.
            let cast = Insn::AddrSpaceCast { dst: Reg::R1, src: Reg::R1, imm: TO_KERNEL };
            [&load(PSEUDO_MAP_FD, fd, 0)[..], &load(0, at as i32, (at >> 32) as i32), &[cast]].concat()
        }
    }
}

/// The pc that an instruction may jump to.
fn target(pc: usize, insn: &Insn) -> Option<usize> {
    let off = match *insn {
        Insn::Branch { off, .. } | Insn::Goto { off } | Insn::MayGoto { off } => i32::from(off),
        Insn::Gotol { off } => off,
        _ => return None,
    };
    (pc + 1).checked_add_signed(off as isize)
}

/// Replaces loads of the first word of the block, in the straight code at the start, by the number that is there.
fn with_constant(workload: &[Insn], len: i32) -> Vec<Insn> {
    let joined: BTreeSet<usize> = workload.iter().enumerate().filter_map(|(pc, insn)| target(pc, insn)).collect();
    let end = joined.first().copied().unwrap_or(workload.len());
    // Registers that hold the address of the block.
    let mut holders = BTreeSet::from([Reg::R1]);
    let mut insns = workload.to_vec();
    for insn in &mut insns[..end] {
        match *insn {
            Insn::Load { size: Size::Dw | Size::W, signed: false, dst, base, off: 0 } if holders.contains(&base) => {
                *insn = constant(dst, len);
                holders.remove(&dst);
            }
            Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Reg(src) } if holders.contains(&src) => {
                holders.insert(dst);
            }
            Insn::Alu { dst, .. } | Insn::Load { dst, .. } | Insn::LoadImm { dst, .. } | Insn::Endian { dst, .. } => {
                holders.remove(&dst);
            }
            _ => {}
        }
    }
    insns
}

/// Puts a `may_goto` before each target of a jump back; where its budget ends, so does the function, with 0.
fn with_guards(workload: &[Insn]) -> Vec<Insn> {
    let jumps = workload.iter().enumerate().filter_map(|(pc, insn)| Some((pc, target(pc, insn)?)));
    let headers: BTreeSet<usize> = jumps.filter(|&(pc, to)| to <= pc).map(|(_, to)| to).collect();
    let moved = |pc: usize| pc + headers.range(..pc).count();
    let end = moved(workload.len());
    let mut insns = Vec::with_capacity(end + 2);
    for (pc, insn) in workload.iter().enumerate() {
        if headers.contains(&pc) {
            insns.push(Insn::MayGoto { off: (end - insns.len() - 1) as i16 });
        }
        let here = insns.len() + 1;
        insns.push(match target(pc, insn) {
            Some(to) => with_offset(*insn, moved(to) as i32 - here as i32),
            None => *insn,
        });
    }
    insns.extend([constant(Reg::R0, 0), Insn::Exit]);
    insns
}

fn with_offset(insn: Insn, to: i32) -> Insn {
    match insn {
        Insn::Branch { width, cond, dst, src, .. } => Insn::Branch { width, cond, dst, src, off: to as i16 },
        Insn::Goto { .. } => Insn::Goto { off: to as i16 },
        Insn::Gotol { .. } => Insn::Gotol { off: to },
        Insn::MayGoto { .. } => Insn::MayGoto { off: to as i16 },
        other => other,
    }
}
