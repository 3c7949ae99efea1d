use twinbpf_isa::{Endian, Insn, asm};

use crate::testing::{FUNC, GLOBAL, Writer, corpus};
use crate::{Cause, Object};

fn small() -> Writer {
    let mut elf = Writer::new(Endian::Little);
    let code: Vec<Insn> = asm::parse("r0 = 7\nexit").expect("two instructions");
    let text = elf.code("xdp", &code);
    elf.function("prog", GLOBAL, text, 0..2);
    elf
}

fn error(bytes: &[u8]) -> String {
    Object::open("x.o", bytes).expect_err("no object").to_string()
}

#[test]
fn other_files_are_named() {
    assert_eq!(
        error(b"#!/bin/sh\n"),
        "x.o: not an ELF object: it starts with 23 21 2f 62; compile with `clang -O2 -g -target bpf -c`"
    );
    assert_eq!(
        error(b""),
        "x.o: not an ELF object: it starts with nothing, it is empty; compile with `clang -O2 -g -target bpf -c`"
    );
    let mut elf = small();
    elf.machine = 62;
    let expected = "x.o: this is an x86-64 object, not BPF; compile with `clang -O2 -g -target bpf -c`";
    assert_eq!(error(&elf.bytes()), expected);
    elf.machine = 0;
    assert_eq!(Object::open("x.o", &elf.bytes()).expect("EM_NONE is BPF of old LLVM").programs.len(), 1);
    elf.kind = 2;
    let expected = "x.o: this is an executable, not a relocatable object; pass what `clang -c` makes, without linking";
    assert_eq!(error(&elf.bytes()), expected);
    let mut bytes = small().bytes();
    bytes[4] = 1;
    assert!(error(&bytes).contains("ELF class 1, a BPF object has class 2 (64-bit)"));
    bytes[4] = 2;
    bytes[5] = 3;
    assert!(error(&bytes).contains("byte order 3 in the ELF header"));
}

#[test]
fn truncated_files_say_what_is_missing() {
    let bytes = small().bytes();
    assert_eq!(
        error(&bytes[..40]),
        "x.o: truncated: the ELF header ends at byte 64, the file has 40; compile the object again"
    );
    let expected = format!(
        "x.o: truncated: the section header table ends at byte {}, the file has 100; compile the object again",
        bytes.len()
    );
    assert_eq!(error(&bytes[..100]), expected);
    let object = corpus("scripts/tables.bpf.o");
    for length in (0..object.len()).step_by(7) {
        let found = Object::open("x.o", &object[..length]).expect_err("cut objects are no objects");
        assert!(matches!(found.cause(), Cause::Truncated { .. } | Cause::NotElf { .. }), "{length}: {found}");
    }
}

#[test]
fn a_section_outside_the_file_is_named() {
    let mut elf = small();
    elf.parts[0].size = 1 << 40;
    assert!(error(&elf.bytes()).starts_with("x.o: truncated: section 'xdp' ends at byte 1099511627840"));
    elf.parts[0].size = u64::MAX;
    assert!(error(&elf.bytes()).contains("section 'xdp'"));
}

#[test]
fn stripped_objects_say_so() {
    let mut elf = small();
    elf.parts.clear();
    elf.code("xdp", &[Insn::Exit]);
    let mut bytes = elf.bytes();
    // The symbol table becomes a note.
    let table = bytes.len() - 3 * 64;
    assert_eq!(bytes[table + 4], 2);
    bytes[table + 4] = 7;
    let expected =
        "x.o: no symbol table: the object was stripped; keep the symbols; `llvm-strip -g` removes only debug data";
    assert_eq!(error(&bytes), expected);
}

#[test]
fn names_are_bounded() {
    let mut elf = small();
    elf.symbol(&"n".repeat(512), (FUNC, GLOBAL), (1, 0, 16));
    assert!(Object::open("x.o", &elf.bytes()).is_ok());
    elf.symbol(&"n".repeat(513), (FUNC, GLOBAL), (1, 0, 16));
    assert!(error(&elf.bytes()).contains("malformed ELF: the name of symbol 3 has no end within 512 bytes"));
}

#[test]
fn hundreds_of_bytes_of_names_for_each_symbol_are_refused() {
    // 20,000 symbols whose names are all suffixes of 500 bytes: 10 MB of names from 500 kB of file.
    let mut elf = small();
    elf.symbol(&"n".repeat(500), (FUNC, GLOBAL), (1, 0, 16));
    for _ in 0..20_000 {
        elf.symbol("", (FUNC, GLOBAL), (1, 0, 16));
    }
    let mut bytes = elf.bytes();
    let name = 6_u32;
    let table = bytes.windows(4).position(|window| window == name.to_le_bytes()).expect("the symbol's name");
    for symbol in 0..20_001 {
        bytes[table + 24 * symbol..][..4].copy_from_slice(&name.to_le_bytes());
    }
    assert!(error(&bytes).contains("overlap in the string table"), "{}", error(&bytes));
}
