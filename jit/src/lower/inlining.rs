//! Inlining: the choice of calls in whose place the callee's instructions are lowered.
//!
//! Callees are small leaf functions that only branch forward and do without a frame. They find all registers where the caller has
//! them, as in the interpreter, so that nothing is copied. What a call is to those who watch stays: it needs room for a frame, each
//! instruction counts, and traps name the callee's instruction and the call ([`Positions`]).
//!
//! With a budget, the header before the call pays in advance for the callee's likely path, and checks the budget for its longest one; other
//! paths pay the difference. So an inlined call checks nothing, and ends no block.
//!
//! Lowering itself is in [`inlined`](super::inlined).

use std::cmp::Reverse;
use std::collections::HashMap;

use twinbpf_isa::{Insn, Operand, Reg};
use twinbpf_vm::image::{Image, Link};

use super::Input;
use super::effects::{self, Callees, Regs};
use super::flow::{Flow, InlinedCall};
use super::stack_slots::uses_frame;
use crate::limits::Room;
use crate::options::OptLevel;
use crate::positions::Positions;

/// Instructions of a callee, at most. A call costs about as much as a dozen: above twice that inlining saves less than a third.
const MAX_INSNS: u32 = 24;
/// Instructions that a function gets by inlining: as many as it has, between these. Calls in loops come first, then short callees; one
/// for which there is no room left stays a call.
const GROWTH: (u32, u32) = (2 * MAX_INSNS, 1024);

/// Mutants of inlining.
pub(crate) const CALLEE_REGISTERS: &str = "inlined_callees_keep_r6_to_r9";
pub(crate) const UNPAID: &str = "inlined_callees_cost_nothing";

/// What of a function is inlined. Reused from function to function.
#[derive(Debug, Default)]
pub(crate) struct Inlining {
    pub(super) callees: Vec<InlinedFunction>,
    pub(super) calls: Vec<InlinedCall>,
    pub(super) positions: Positions,
}

/// A callee.
#[derive(Debug)]
pub(super) struct InlinedFunction {
    pub(super) flow: Flow,
    /// Registers that it writes.
    pub(super) defs: Regs,
}

/// A call that can be inlined; what is to come first is less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    depth: Reverse<i32>,
    len: u32,
    pc: u32,
    function: u32,
}

/// A leaf has no callees, and returns r0.
struct Leaf;

impl Callees for Leaf {
    fn reads(&self, _: u32) -> Regs {
        unreachable!("it calls nothing")
    }

    fn params(&self, _: u32) -> usize {
        unreachable!("it calls nothing")
    }

    fn exit(&self) -> Regs {
        effects::bit(Reg::R0)
    }
}

impl Inlining {
    /// Chooses calls of a function.
    pub(super) fn choose(&mut self, input: Input<'_>, function: u32) {
        self.callees.clear();
        self.calls.clear();
        self.positions.clear();
        let image = input.image;
        // Code for other processes has no table of positions.
        let usable = input.options.opt == OptLevel::Speed && !input.baseline() && input.values.is_none();
        if !usable || image.frame_sizes().same().is_none() {
            return;
        }
        let mut candidates = candidates(image, function);
        if candidates.is_empty() {
            return;
        }
        candidates.sort_unstable();
        let function = &image.functions()[function as usize];
        let insns = &image.insns()[function.start as usize..function.end as usize];
        let (mut room, mut left) = (Room::of(insns, input.options), (insns.len() as u32).clamp(GROWTH.0, GROWTH.1));
        let mut known: HashMap<u32, usize> = HashMap::new();
        for Candidate { len, pc, function, .. } in candidates {
            let callee = *known.entry(function).or_insert_with(|| {
                self.callees.push(InlinedFunction::new(input, function));
                self.callees.len() - 1
            });
            let flow = &self.callees[callee].flow;
            if len > left || !room.take(len.into(), flow.len().into()) {
                continue;
            }
            left -= len;
            let (most, ahead) = match input.options.fuel && input.mutant != UNPAID {
                true => (flow.most(flow.entry()), flow.ahead(flow.entry())),
                false => (0, 0),
            };
            self.calls.push(InlinedCall { pc, callee, most, ahead });
        }
        self.calls.sort_unstable_by_key(|call| call.pc);
        for call in &self.calls {
            let flow = &self.callees[call.callee].flow;
            self.positions.push(call.pc, &(flow.start()..flow.end()));
        }
    }
}

impl InlinedFunction {
    fn new(input: Input<'_>, function: u32) -> InlinedFunction {
        let image = input.image;
        let mut flow = Flow::default();
        let built = flow.build_plain(image, function, input.options.fuel);
        assert!(built, "without computed jumps no function is entangled");
        flow.thread(image);
        flow.liveness(image, &Leaf);
        if input.options.fuel {
            flow.distances(image);
        }
        let insns = &image.insns()[flow.start() as usize..flow.end() as usize];
        let defs = insns.iter().fold(0, |defs, insn| defs | effects::defs(*insn));
        InlinedFunction { flow, defs }
    }
}

/// The calls of a function that can be inlined.
fn candidates(image: &Image, function: u32) -> Vec<Candidate> {
    let function = &image.functions()[function as usize];
    let mut known: HashMap<u32, bool> = HashMap::new();
    let mut candidates = Vec::new();
    // A call at the end must not return.
    for pc in function.start..function.end - 1 {
        let Link::Function(callee) = image.links()[pc as usize] else { continue };
        if matches!(image.insns()[pc as usize], Insn::Call { .. })
            && *known.entry(callee).or_insert_with(|| is_small_leaf(image, callee))
        {
            let called = &image.functions()[callee as usize];
            let len = called.end - called.start;
            candidates.push(Candidate { depth: Reverse(0), len, pc, function: callee });
        }
    }
    if !candidates.is_empty() {
        find_loops(&image.insns()[function.start as usize..function.end as usize], function.start, &mut candidates);
    }
    candidates
}

/// Finds how many loops are around each call, by the order of instructions.
fn find_loops(insns: &[Insn], start: u32, candidates: &mut [Candidate]) {
    let mut changes = vec![0; insns.len() + 1];
    for (pc, insn) in insns.iter().enumerate() {
        if let Some(target) = jump(*insn, start + pc as u32)
            && target <= start + pc as u32
        {
            changes[(target - start) as usize] += 1;
            changes[pc + 1] -= 1;
        }
    }
    let (mut depth, mut at) = (0, 0);
    for candidate in candidates {
        while at <= (candidate.pc - start) as usize {
            depth += changes[at];
            at += 1;
        }
        candidate.depth = Reverse(depth);
    }
}

/// The flat pc that a jump at a flat pc leads to.
fn jump(insn: Insn, pc: u32) -> Option<u32> {
    effects::successors(insn, Link::None, pc).target()
}

/// Whether a function is short, calls nothing, does not loop, and makes no use of its frame.
fn is_small_leaf(image: &Image, function: u32) -> bool {
    let function = &image.functions()[function as usize];
    function.end - function.start <= MAX_INSNS
        && (function.start..function.end).all(|pc| is_simple(image.insns()[pc as usize], pc))
}

/// Whether the instruction at a flat pc may be part of an inlined function.
fn is_simple(insn: Insn, pc: u32) -> bool {
    match insn {
        Insn::Branch { dst, src, .. } if dst == Reg::FP || src == Operand::Reg(Reg::FP) => false,
        Insn::Branch { .. } | Insn::Goto { .. } | Insn::Gotol { .. } => {
            jump(insn, pc).is_some_and(|target| target > pc)
        }
        Insn::Alu { .. }
        | Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::Load { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadAcquire { .. }
        | Insn::StoreRelease { .. }
        | Insn::AddrSpaceCast { .. } => !uses_frame(insn),
        Insn::Exit => true,
        Insn::LoadPacket { .. }
        | Insn::Gotox { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. } => false,
    }
}
