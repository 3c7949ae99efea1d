//! Which forms of which instructions there are, by the decoder, and which of them the corpus runs.

use std::collections::{BTreeMap, BTreeSet};

use twinbpf_isa::{CallKind, Insn, Operand, Raw, Size, Width};

use crate::build::{Prologue, build};
use crate::case::{Case, Expect};

/// An instruction without its operands: table row, width, and whether the second operand is an immediate.
pub(crate) fn form(insn: Insn) -> String {
    let bits = |width: Width| width.bits();
    let bytes = |size: Size| size.bytes();
    let second = |src| match src {
        Operand::Reg(_) => "x",
        Operand::Imm(_) => "k",
    };
    match insn {
        Insn::Alu { width, op, src, .. } => format!("alu{} {} {}", bits(width), op.row().mnemonic, second(src)),
        Insn::Branch { width, cond, src, .. } => {
            format!("jmp{} {} {}", bits(width), cond.row().mnemonic, second(src))
        }
        Insn::Atomic { width, op, .. } => format!("atomic{} {}", bits(width), op.row().mnemonic),
        Insn::Endian { order, bits, .. } => format!("{}{bits}", order.name()),
        Insn::LoadImm { kind, .. } => format!("lddw {kind}"),
        Insn::LoadImmHi { .. } => "lddw, second half".to_owned(),
        Insn::Load { size, signed, .. } => format!("load{}{}", bytes(size), if signed { " signed" } else { "" }),
        Insn::Store { size, src, .. } => format!("store{} {}", bytes(size), second(src)),
        Insn::LoadAcquire { size, .. } => format!("load_acquire{}", bytes(size)),
        Insn::StoreRelease { size, .. } => format!("store_release{}", bytes(size)),
        Insn::LoadPacket { size, src, .. } => {
            format!("packet{} {}", bytes(size), if src.is_some() { "ind" } else { "abs" })
        }
        Insn::Goto { .. } => "goto".to_owned(),
        Insn::Gotol { .. } => "gotol".to_owned(),
        Insn::Gotox { .. } => "gotox".to_owned(),
        Insn::MayGoto { .. } => "may_goto".to_owned(),
        Insn::Call { kind: CallKind::Helper, .. } => "call helper".to_owned(),
        Insn::Call { kind: CallKind::Local, .. } => "call local".to_owned(),
        Insn::Call { kind: CallKind::Extern, .. } => "call extern".to_owned(),
        Insn::Callx { .. } => "callx".to_owned(),
        Insn::AddrSpaceCast { .. } => "addr_space_cast".to_owned(),
        Insn::Exit => "exit".to_owned(),
    }
}

/// Every form that decodes. One field at a time selects it: source register, offset or immediate.
fn existing() -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    for opcode in 0..=u8::MAX {
        let mut probe = |src: u8, off, imm| {
            forms.extend(Insn::decode(Raw { opcode, regs: src << 4, off, imm }).map(form));
        };
        (0..16).for_each(|src| probe(src, 0, 0));
        [1, 8, 16, 32].into_iter().for_each(|off| probe(0, off, 0));
        (0..0x120).for_each(|imm| probe(0, 0, imm));
    }
    forms
}

/// Forms that a file of instructions cannot run: they name objects (maps, kernel variables) or a packet, and the
/// corpus of compiled programs runs them.
const ELSEWHERE: [&str; 5] = ["lddw 1", "lddw 2", "lddw 3", "lddw 5", "lddw 6"];

/// Each form is run, and those that compute are run with several values.
pub(crate) fn check(cases: &[Case]) {
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases {
        for run in case.runs.iter().filter(|run| !matches!(run.expect, Expect::Reject(_))) {
            let built =
                build(case, run, Prologue::Constants).unwrap_or_else(|error| panic!("{}: {error}", case.name(run)));
            let insns = &built.program.insns;
            let functions = built.program.functions.get(1).map_or(insns.len(), |function| function.start);
            let written = insns[built.body].iter().chain(&insns[functions..]);
            let forms: BTreeSet<String> = written.copied().map(form).collect();
            forms.into_iter().for_each(|form| *runs.entry(form).or_default() += 1);
        }
    }
    let existing = existing();
    let wanted = |form: &str| match form {
        _ if ELSEWHERE.contains(&form) => 0,
        _ if form.starts_with("alu") || form.starts_with("jmp") || form.starts_with("atomic") => 8,
        _ => 1,
    };
    let missing: Vec<String> = existing
        .iter()
        .map(|form| (form, runs.get(form).copied().unwrap_or(0)))
        .filter(|(form, runs)| *runs < wanted(form))
        .map(|(form, runs)| format!("{form}: {runs} of {}", wanted(form)))
        .collect();
    assert!(existing.len() > 150, "{}", existing.len());
    assert!(missing.is_empty(), "not covered by corpus/insn:\n{}", missing.join("\n"));
}

/// Every case that `classes.txt` names exists, and every line names one.
pub(crate) fn check_classes(cases: &[Case], text: &str) {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut classes = 0;
    for line in lines {
        let mut parts = line.split(" | ");
        let class = parts.next().unwrap_or_default();
        let named: Vec<&str> = parts.collect();
        assert!(!named.is_empty(), "no case for: {class}");
        for name in named {
            let (file, title) = name.split_once(' ').unwrap_or_else(|| panic!("{class}: `{name}` is no case"));
            let file = format!("{file}.case");
            let found = cases.iter().any(|case| case.file == file && case.title.starts_with(title));
            assert!(found, "{class}: there is no case `{title}` in {file}");
        }
        classes += 1;
    }
    assert!(classes >= 40, "{classes}");
}
