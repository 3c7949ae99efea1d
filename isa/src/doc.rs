//! The instruction set as a page, from the tables. A test compares it with `docs/isa.md`.

use std::fmt::Write as _;

use super::text::LDDW_NAMES;
use super::{
    AluOp, AtomicOp, ByteOrder, CallKind, Cond, Field, Group, Groups, Insn, Operand, Raw, Reg, Shape, Size, Width,
};

const R1: Reg = Reg::R1;

/// The text of `docs/isa.md`, in Markdown.
pub fn markdown() -> String {
    let mut out = String::from(INTRO);
    groups(&mut out);
    alu(&mut out);
    branches(&mut out);
    atomics(&mut out);
    others(&mut out);
    lddw(&mut out);
    out.push_str(NOTATION);
    out
}

const INTRO: &str = "\
# Instruction set

Generated from the tables in `isa/src` (`BLESS=1 cargo test -p twinbpf-isa` rewrites it). All of RFC 9669 and the
kernel's extensions. Opcodes are hexadecimal; a field that an instruction does not name is reserved and must be zero.
";

const NOTATION: &str = "
## Text

The notation is that of the kernel's verifier and of llvm-objdump, and what the disassembler writes the assembler reads
back. `w1` is the lower half of `r1`; an operation on it clears the upper half. The assembler also takes labels
(`loop:`, `goto loop`, `call function`), hexadecimal numbers, comments (`;`, `//`, `#`), a pc before an instruction
and llvm-objdump's `<symbol>` after a jump. `addr_space_cast` goes from address space 1 (an arena) to 0 or back; any other pair is
rejected.

## Two readings

| | `rfc` (default) | `kernel` |
|---|---|---|
| immediate shift count out of range | masked to the width | rejected |
| division or modulo by an immediate zero | 0, or the dividend | rejected |
| a function whose last instruction is a call | accepted, traps if the call returns | rejected |
";

fn heading(out: &mut String, title: &str, columns: &[&str]) {
    let _ = writeln!(out, "\n## {title}\n");
    row(out, columns.iter().map(|column| (*column).to_owned()));
    let _ = writeln!(out, "|{}", "---|".repeat(columns.len()));
}

fn row(out: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<String> = cells.into_iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn code(text: impl std::fmt::Display) -> String {
    format!("`{text}`")
}

/// The opcode of an instruction, if it has an encoding.
fn opcode(insn: Insn) -> String {
    let raw = insn.encode();
    if Insn::decode(raw) == Ok(insn) { format!("{:02x}", raw.opcode) } else { String::new() }
}

fn groups(out: &mut String) {
    heading(out, "Conformance groups", &["group", "default", "contents"]);
    for &group in Group::ALL {
        let on = if Groups::default().contains(group) { "on" } else { "off" };
        row(out, [code(group.name()), on.to_owned(), group.doc().trim().to_owned()]);
    }
}

fn alu(out: &mut String) {
    let columns = ["name", "text", "64 K", "64 X", "32 K", "32 X", "off", "group", "meaning"];
    heading(out, "Arithmetic", &columns);
    for op in AluOp::TABLE {
        let form = |width, src| Insn::Alu { width, op: op.op, dst: R1, src };
        let k = Operand::Imm(if op.shape == Shape::Unary { 0 } else { 1 });
        let x = Operand::Reg(Reg::R2);
        let text = form(Width::W64, if op.shape == Shape::Unary { k } else { x });
        row(
            out,
            [
                code(op.mnemonic),
                code(text),
                opcode(form(Width::W64, k)),
                opcode(form(Width::W64, x)),
                opcode(form(Width::W32, k)),
                opcode(form(Width::W32, x)),
                code(op.ext),
                text.group().name().to_owned(),
                code(op.doc),
            ],
        );
    }
}

fn branches(out: &mut String) {
    heading(out, "Conditional jumps", &["name", "text", "64 K", "64 X", "32 K", "32 X", "taken if"]);
    for cond in Cond::TABLE {
        let form = |width, src| Insn::Branch { width, cond: cond.op, dst: R1, src, off: 5 };
        let (k, x) = (Operand::Imm(1), Operand::Reg(Reg::R2));
        let opcodes = [(Width::W64, k), (Width::W64, x), (Width::W32, k), (Width::W32, x)];
        let opcodes = opcodes.map(|(width, src)| opcode(form(width, src)));
        row(out, [vec![code(cond.mnemonic), code(form(Width::W64, x))], opcodes.into(), vec![code(cond.doc)]].concat());
    }
}

fn atomics(out: &mut String) {
    heading(out, "Atomic read-modify-write", &["name", "text", "64-bit", "32-bit", "imm", "meaning"]);
    for op in AtomicOp::TABLE {
        let form = |width| Insn::Atomic { width, op: op.op, base: R1, off: 0, src: Reg::R2 };
        let wide = form(Width::W64);
        let cells = [code(op.mnemonic), code(wide), opcode(wide), opcode(form(Width::W32))];
        row(out, [&cells[..], &[format!("{:#04x}", op.code), code(op.doc)]].concat());
    }
}

/// The fields that an instruction uses: those that may hold something else in the same opcode.
fn fields(insn: Insn) -> String {
    let raw = insn.encode();
    let other = |field| match field {
        Field::Dst => Raw { regs: raw.regs ^ 0x02, ..raw },
        Field::Src => Raw { regs: raw.regs ^ 0x20, ..raw },
        Field::Off => Raw { off: raw.off ^ 0x40, ..raw },
        Field::Imm => Raw { imm: raw.imm ^ 0x30, ..raw },
    };
    // The source of a call selects its kind and is no operand.
    let selects = |field| field == Field::Src && matches!(insn, Insn::Call { .. });
    let used = Field::ALL.into_iter().filter(|&field| !selects(field) && Insn::decode(other(field)).is_ok());
    used.map(Field::name).collect::<Vec<_>>().join(" ")
}

/// Every instruction that is in no table, in each of its forms, and what it does.
fn forms() -> Vec<(Insn, &'static str)> {
    let (dst, base, src, off) = (Reg::R1, Reg::R2, Reg::R3, 8);
    let mut forms = Vec::new();
    for order in ByteOrder::ALL {
        forms.push((Insn::Endian { order, bits: 16, dst }, order.doc()));
    }
    forms.push((Insn::LoadImm { dst, kind: 0, imm: 1 }, "first half of `lddw`: the lower 32 bits"));
    forms.push((Insn::LoadImmHi { imm: 1 }, "second half of `lddw`: the upper 32 bits"));
    for size in Size::ALL {
        forms.push((Insn::Load { size, signed: false, dst, base, off }, "load, zero-extended"));
    }
    for size in [Size::B, Size::H, Size::W] {
        forms.push((Insn::Load { size, signed: true, dst, base, off }, "load, sign-extended to 64 bits"));
    }
    for size in Size::ALL {
        forms.push((Insn::Store { size, base, off, src: Operand::Reg(src) }, "store of the low bytes of a register"));
        forms.push((Insn::Store { size, base, off, src: Operand::Imm(1) }, "store of an immediate, sign-extended"));
    }
    for size in Size::ALL {
        forms.push((Insn::LoadAcquire { size, dst, base, off }, "atomic load, zero-extended, acquire order"));
        forms.push((Insn::StoreRelease { size, base, off, src }, "atomic store, release order"));
    }
    for size in [Size::B, Size::H, Size::W] {
        let doc = "packet data at `imm`, big-endian to host; r6 holds the context; past the end returns 0";
        forms.push((Insn::LoadPacket { size, src: None, imm: 1 }, doc));
        forms.push((Insn::LoadPacket { size, src: Some(src), imm: 1 }, "the same at `src + imm`"));
    }
    forms.extend([
        (Insn::Goto { off: 5 }, "jump by `off`"),
        (Insn::Gotol { off: 5 }, "jump by `imm`"),
        (Insn::Gotox { dst }, "jump to the instruction whose address is in `dst`"),
        (Insn::MayGoto { off: 5 }, "jump by `off` once the loop budget is used up, else go on"),
        (Insn::Call { kind: CallKind::Helper, off: 0, imm: 1 }, "call the helper with this number; r1 to r5 are lost"),
        (Insn::Call { kind: CallKind::Local, off: 0, imm: 1 }, "call a function of the program; r6 to r9 are kept"),
        (Insn::Call { kind: CallKind::Extern, off: 0, imm: 1 }, "call a function outside the object"),
        (Insn::Callx { dst }, "call the function whose address is in `dst`"),
        (Insn::AddrSpaceCast { dst, src, imm: 1 }, "convert a pointer between address spaces"),
        (Insn::Exit, "return r0"),
    ]);
    forms
}

fn others(out: &mut String) {
    heading(out, "Everything else", &["text", "opcode", "src or imm", "fields", "group", "meaning"]);
    for (insn, doc) in forms() {
        let raw = insn.encode();
        let selector = match insn {
            Insn::Call { .. } => format!("src {}", raw.src()),
            Insn::LoadAcquire { .. } | Insn::StoreRelease { .. } => format!("imm {:x}", raw.imm),
            Insn::AddrSpaceCast { .. } => format!("off {}", raw.off),
            Insn::Alu { .. }
            | Insn::Endian { .. }
            | Insn::LoadImm { .. }
            | Insn::LoadImmHi { .. }
            | Insn::Load { .. }
            | Insn::Store { .. }
            | Insn::Atomic { .. }
            | Insn::LoadPacket { .. }
            | Insn::Branch { .. }
            | Insn::Goto { .. }
            | Insn::Gotol { .. }
            | Insn::Gotox { .. }
            | Insn::MayGoto { .. }
            | Insn::Callx { .. }
            | Insn::Exit => String::new(),
        };
        row(
            out,
            [
                code(insn),
                format!("{:02x}", raw.opcode),
                selector,
                fields(insn),
                insn.conformance().to_owned(),
                doc.to_owned(),
            ],
        );
    }
}

fn lddw(out: &mut String) {
    heading(out, "Kinds of `lddw`", &["src", "text", "the 64 bits"]);
    let docs = [
        "a number",
        "a map",
        "an address in the value of a map: map, byte offset",
        "a kernel variable, by BTF id",
        "the address of a function of the program, relative to the next instruction",
        "a map, by index",
        "an address in the value of a map: map index, byte offset",
    ];
    for (kind, (name, doc)) in LDDW_NAMES.into_iter().zip(docs).enumerate() {
        let text = if name.is_empty() { "r1 = 0x1234 ll".to_owned() } else { format!("r1 = {name}(1, 2) ll") };
        row(out, [kind.to_string(), code(text), doc.to_owned()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/isa.md");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, markdown()).expect(path);
        }
        let page = std::fs::read_to_string(path).expect(path);
        assert!(page == markdown(), "docs/isa.md is out of date: run with BLESS=1 and look at the difference");
    }

    /// Together the tables and the forms name every opcode that decodes.
    #[test]
    fn every_opcode_is_on_the_page() {
        let page = markdown();
        let named = |opcode: u8| page.contains(&format!("| {opcode:02x} |"));
        let decodes = |opcode: u8| {
            let imms = [0, 16, 0xf1, 0x100];
            imms.iter().any(|&imm| Insn::decode(Raw { opcode, regs: 0, off: 0, imm }).is_ok())
        };
        for opcode in 0..=u8::MAX {
            assert_eq!(named(opcode), decodes(opcode), "{opcode:02x}");
        }
    }
}
