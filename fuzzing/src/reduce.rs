//! Findings made small: instructions that are not needed become jumps to the next one and then go, inputs become 0.

use twinbpf_isa::{AluOp, Insn, Operand, Raw, Reg, splice, text_at};

use crate::finding::Finding;
use crate::generate::Case;

const NOTHING: Insn = Insn::Goto { off: 0 };

/// The smallest case found on which the same engine is still alone.
pub(crate) fn reduce(finding: &Finding, judge: &mut dyn FnMut(&Case) -> Option<Finding>) -> Finding {
    let mut small = finding.clone();
    let mut attempt = |small: &mut Finding, case: Case| {
        let again = judge(&case)
            .filter(|again| again.suspects == small.suspects && again.failed.is_some() == small.failed.is_some());
        again.is_some_and(|again| {
            *small = again;
            true
        })
    };
    tails(&mut small, &mut attempt);
    instructions(&mut small, &mut attempt);
    // What was read when their turn came may not be read any more.
    if small.case.main.iter().any(is_stack_store) && !is_frame_read(&small.case) {
        instructions(&mut small, &mut attempt);
    }
    remove_nothing(&mut small, &mut attempt);
    inputs(&mut small, &mut attempt);
    small.insn = first_insn(&small, &mut attempt);
    small
}

type Attempt<'a> = dyn FnMut(&mut Finding, Case) -> bool + 'a;

fn tails(small: &mut Finding, attempt: &mut Attempt<'_>) {
    let case = Case { tails: Vec::new(), ..small.case.clone() };
    if !small.case.tails.is_empty() && !attempt(small, case) {
        for index in 0..small.case.tails.len() {
            let mut case = small.case.clone();
            case.tails[index] = vec![Insn::Exit];
            attempt(small, case);
        }
    }
}

/// Whether an instruction may become nothing. A store to the stack may not where something reads the stack: what an unwritten
/// word holds is undefined.
fn can_go(case: &Case, pc: usize) -> bool {
    let insn = &case.main[pc];
    let goes = !matches!(insn, Insn::Exit | Insn::LoadImmHi { .. }) && *insn != NOTHING;
    goes && !(is_stack_store(insn) && is_frame_read(case))
}

fn is_stack_store(insn: &Insn) -> bool {
    matches!(insn, Insn::Store { base: Reg::FP, .. })
}

/// Whether a program uses the frame pointer for anything but stores.
fn is_frame_read(case: &Case) -> bool {
    let frame = Reg::FP.index() as u8;
    case.tails.iter().chain([&case.main]).flatten().any(|insn| {
        let regs = insn.encode().regs;
        regs >> 4 == frame || regs & 15 == frame && !is_stack_store(insn)
    })
}

/// Takes out ever smaller pieces.
fn instructions(small: &mut Finding, attempt: &mut Attempt<'_>) {
    let mut size = small.case.main.len().next_power_of_two() / 2;
    while size > 0 {
        let mut at = 0;
        while at < small.case.main.len() {
            let end = (at + size).min(small.case.main.len());
            let mut case = small.case.clone();
            let mut changed = false;
            for pc in at..end {
                if can_go(&small.case, pc) {
                    if let Some(Insn::LoadImmHi { .. }) = case.main.get(pc + 1) {
                        case.main[pc + 1] = NOTHING;
                    }
                    case.main[pc] = NOTHING;
                    changed = true;
                }
            }
            if changed {
                attempt(small, case);
            }
            at = end;
        }
        size /= 2;
    }
}

/// Takes out what has become nothing. Where something jumps to it, what comes next takes its place, if it is no jump.
fn remove_nothing(small: &mut Finding, attempt: &mut Attempt<'_>) {
    let mut raws: Vec<Raw> = small.case.main.iter().map(|insn| insn.encode()).collect();
    let nothing = NOTHING.encode();
    let plain = |raw: Raw| Insn::decode(raw).is_ok_and(|insn| is_plain(&insn));
    let mut at = 0;
    while at < raws.len() {
        let next = raws.get(at + 1).copied();
        let gone = raws[at] == nothing
            && (splice(&mut raws, at, 1, &[]).is_ok()
                || next.is_some_and(|next| plain(next) && splice(&mut raws, at, 2, &[next]).is_ok()));
        at += usize::from(!gone);
    }
    let insns: Result<Vec<Insn>, _> = raws.into_iter().map(Insn::decode).collect();
    if let Ok(main) = insns {
        let case = Case { main, ..small.case.clone() };
        attempt(small, case);
    }
}

/// Whether an instruction is one slot that means the same wherever it stands.
fn is_plain(insn: &Insn) -> bool {
    let raw = insn.encode();
    let jumps = matches!(raw.opcode & 7, 5 | 6) && *insn != Insn::Exit;
    !jumps && !matches!(insn, Insn::LoadImm { .. } | Insn::LoadImmHi { .. })
}

fn inputs(small: &mut Finding, attempt: &mut Attempt<'_>) {
    let mut whole = small.case.clone();
    (whole.inputs[0].memory, whole.inputs[0].context) = ([0; _], [0; _]);
    attempt(small, whole);
    for reg in 0..10 {
        for value in [0, 1, 1 << 32, u64::from(small.case.inputs[0].regs[reg] as u32)] {
            let mut case = small.case.clone();
            if case.inputs[0].regs[reg] > value {
                case.inputs[0].regs[reg] = value;
                if attempt(small, case) {
                    break;
                }
            }
        }
    }
    for word in 0..small.case.inputs[0].memory.len() / 8 {
        let mut case = small.case.clone();
        let bytes = &mut case.inputs[0].memory[word * 8..word * 8 + 8];
        if bytes.iter().any(|byte| *byte != 0) {
            bytes.fill(0);
            attempt(small, case);
        }
    }
}

/// The first instruction by which engines differ: the one without which they agree, of those that compute.
fn first_insn(small: &Finding, attempt: &mut Attempt<'_>) -> Option<String> {
    let main = &small.case.main;
    let constant = |insn| matches!(insn, Insn::Alu { op: AluOp::Mov, src: Operand::Imm(_), .. });
    let moves = |insn| matches!(insn, Insn::LoadImm { .. } | Insn::Load { .. } | Insn::Store { .. });
    let computes = |pc: &usize| can_go(&small.case, *pc) && !constant(main[*pc]) && !moves(main[*pc]);
    let order = (0..main.len()).filter(computes).chain((0..main.len()).filter(|pc| can_go(&small.case, *pc)));
    for pc in order {
        let mut case = small.case.clone();
        case.main[pc] = NOTHING;
        if let Some(Insn::LoadImmHi { .. }) = case.main.get(pc + 1) {
            case.main[pc + 1] = NOTHING;
        }
        if !attempt(&mut small.clone(), case) {
            return Some(text_at(main, pc));
        }
    }
    None
}
