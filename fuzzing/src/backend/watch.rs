//! What a run does that says nothing of another engine, or should not be: it reads registers and stack before they are
//! written, or computes with addresses. A tracer of the machine, so it sees every instruction; what calls do with
//! registers is what they do anywhere (RFC 9669 section 2).

use std::sync::{Arc, Mutex, PoisonError};

use twinbpf_isa::{AluOp, CallKind, Cond, Insn, Operand, Reg, Size, Width};
use twinbpf_jit::effects::{Callees, Effects, Regs, effects};
use twinbpf_vm::image::{Image, Link};
use twinbpf_vm::interp::TraceStep;

use crate::generate::world::{CONTEXT_SIZE, VALUE};

/// Bytes of a frame.
const FRAME: usize = 512;
/// r1 to r5.
const ARGS: Regs = 0x3e;
/// `bpf_map_lookup_elem`, `bpf_map_update_elem`, `bpf_map_delete_elem`, and bytes of their keys and values.
const WITH_KEY: [i32; 3] = [1, 2, 3];
const UPDATE: i32 = 2;
const KEY: usize = 4;

/// What was seen, at the instruction with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// Something is computed of an address that depends on where memory lies: more than another address.
    Address(usize),
    /// Stack was read before it was written. Kernels allow it to those who may see memory anyway (`CAP_PERFMON`).
    Stack(usize),
    /// The context is accessed past its end. The verifier takes that of programs whose caller says how long it is
    /// (`BPF_PROG_TYPE_SYSCALL`); the kernel then refuses to run them with a shorter one.
    Context(usize),
    /// A register was read before it was written. No checker takes such a program.
    Register(usize),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Watch {
    frames: Vec<Frame>,
    last: Option<(Effects, bool, usize)>,
    /// Address of the context, once it is known.
    context: Option<u64>,
    found: Option<Doubt>,
}

/// What is written of a function's registers and frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    regs: Regs,
    stack: [u64; FRAME / 64],
    /// r10, once it is known.
    end: Option<u64>,
}

/// No callee reads or writes registers here: [`Watch::step`] handles calls.
struct NoRegisters;

impl Callees for NoRegisters {
    fn reads(&self, _: u32) -> Regs {
        0
    }

    fn params(&self, _: u32) -> usize {
        0
    }

    fn exit(&self) -> Regs {
        1
    }
}

impl Watch {
    /// A tracer that passes each step of an image to the watch.
    pub(super) fn tracer(watch: &Arc<Mutex<Watch>>, image: &Arc<Image>) -> twinbpf_vm::interp::Tracer {
        let (watch, image) = (Arc::clone(watch), Arc::clone(image));
        Box::new(move |step| {
            let at = image.entry(step.program) + step.pc;
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            watch.step(step, image.insns()[at], image.links()[at], image.arena().base() >> 32);
        })
    }

    /// A run begins, of a program with one argument.
    pub(super) fn begin(&mut self) {
        self.frames.clear();
        self.frames.push(Frame { regs: 1 << 1, stack: [0; _], end: None });
        (self.last, self.context, self.found) = (None, None, None);
    }

    /// The worst that was seen in the run.
    pub(super) fn found(&self) -> Option<Doubt> {
        self.found
    }

    fn step(&mut self, step: &TraceStep, insn: Insn, link: Link, arena: u64) {
        self.apply_last(step.depth);
        let Some(frame) = self.frames.last_mut() else { return };
        frame.end.get_or_insert(step.registers[10]);
        let context = *self.context.get_or_insert(step.registers[1]);
        let mut does = effects(insn, link, &NoRegisters);
        if insn == Insn::Exit && step.depth > 0 {
            // A function need not write r0, as long as its caller does not read it.
            does = Effects { uses: 0, defs: frame.regs & 1 };
        }
        let is_address = |reg: Reg| step.registers[reg.index()] >> 32 == arena;
        if computes(insn, &is_address) {
            self.doubt(Doubt::Address(step.pc));
        }
        let Some(frame) = self.frames.last_mut() else { return };
        if does.uses & !frame.regs != 0 {
            self.doubt(Doubt::Register(step.pc));
        }
        let address = |reg: Reg, off: i64| step.registers[reg.index()].wrapping_add_signed(off);
        if let Some((base, off, len, reads, writes)) = access(insn) {
            self.touch(address(base, off.into()), len, reads, writes, step.pc);
            if step.registers[base.index()] == context && i64::from(off) + len as i64 > CONTEXT_SIZE as i64 {
                self.doubt(Doubt::Context(step.pc));
            }
        }
        if let Insn::Call { kind: CallKind::Helper, imm, .. } = insn
            && WITH_KEY.contains(&imm)
        {
            self.touch(address(Reg::R2, 0), KEY, true, false, step.pc);
            if imm == UPDATE {
                self.touch(address(Reg::R3, 0), VALUE, true, false, step.pc);
            }
        }
        self.last = Some((does, matches!(insn, Insn::Call { .. } | Insn::Callx { .. }), step.depth));
    }

    /// Applies the effects of the previous instruction.
    fn apply_last(&mut self, depth: usize) {
        let Some((does, called, before)) = self.last else { return };
        if depth > before {
            let regs = self.frames.last().map_or(0, |frame| frame.regs) & ARGS;
            self.frames.push(Frame { regs, stack: [0; _], end: None });
            return;
        }
        self.frames.truncate(depth + 1);
        let Some(frame) = self.frames.last_mut() else { return };
        frame.regs = match (depth < before, called) {
            (true, _) => frame.regs & !ARGS & !1 | does.defs,
            (false, true) => frame.regs & !ARGS | 1,
            (false, false) => frame.regs | does.defs,
        };
    }

    /// An access, of which those bytes count that are in a frame.
    fn touch(&mut self, address: u64, len: usize, reads: bool, writes: bool, pc: usize) {
        let mut doubt = None;
        for frame in &mut self.frames {
            // Only the lower half of a pointer counts.
            let below = frame.end.map_or(0, |end| (end as u32).wrapping_sub(address as u32) as usize);
            if below == 0 || below > FRAME {
                continue;
            }
            for at in (FRAME - below..FRAME).take(len) {
                let (word, bit) = (&mut frame.stack[at / 64], 1 << (at % 64));
                if reads && *word & bit == 0 {
                    doubt = Some(Doubt::Stack(pc));
                }
                if writes {
                    *word |= bit;
                }
            }
        }
        doubt.into_iter().for_each(|doubt| self.doubt(doubt));
    }

    /// The worst is kept.
    fn doubt(&mut self, doubt: Doubt) {
        self.found = self.found.max(Some(doubt));
    }
}

/// Whether an instruction makes a number of an address: compares it with something other than 0, keeps it
/// in other memory than its frame, or does anything but add to it.
fn computes(insn: Insn, is_address: &dyn Fn(Reg) -> bool) -> bool {
    let operand = |src| match src {
        Operand::Reg(reg) => is_address(reg),
        Operand::Imm(_) => false,
    };
    match insn {
        Insn::Alu { width, op, dst, src } => {
            let moves = width == Width::W64 && matches!(op, AluOp::Mov | AluOp::Add | AluOp::Sub);
            !moves && (op.reads_dst() && is_address(dst) || operand(src))
        }
        Insn::Branch { src: Operand::Imm(0), cond: Cond::Eq | Cond::Ne, width: Width::W64, .. } => false,
        Insn::Branch { dst, src, .. } => is_address(dst) || operand(src),
        Insn::Endian { dst, .. } => is_address(dst),
        Insn::Store { base, src, .. } => base != Reg::FP && operand(src),
        Insn::StoreRelease { base, src, .. } | Insn::Atomic { base, src, .. } => base != Reg::FP && is_address(src),
        Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::Load { .. }
        | Insn::LoadAcquire { .. }
        | Insn::LoadPacket { .. }
        | Insn::Goto { .. }
        | Insn::Gotol { .. }
        | Insn::Gotox { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::AddrSpaceCast { .. }
        | Insn::Exit => false,
    }
}

/// Base, offset, bytes, and whether they are read and written.
fn access(insn: Insn) -> Option<(Reg, i16, usize, bool, bool)> {
    match insn {
        Insn::Load { size, base, off, .. } | Insn::LoadAcquire { size, base, off, .. } => {
            Some((base, off, size.bytes(), true, false))
        }
        Insn::Store { size, base, off, .. } | Insn::StoreRelease { size, base, off, .. } => {
            Some((base, off, size.bytes(), false, true))
        }
        Insn::Atomic { width, base, off, .. } => {
            let size = if width == Width::W32 { Size::W } else { Size::Dw };
            Some((base, off, size.bytes(), true, true))
        }
        Insn::Alu { .. }
        | Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::LoadPacket { .. }
        | Insn::Branch { .. }
        | Insn::Goto { .. }
        | Insn::Gotol { .. }
        | Insn::Gotox { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::AddrSpaceCast { .. }
        | Insn::Exit => None,
    }
}
