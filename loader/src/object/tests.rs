use twinbpf_isa::program::{Binding, ExternKind, ValType};
use twinbpf_isa::{CallKind, Endian, Insn, Reg, asm, encode_all};
use twinbpf_vm::map::{MapKind, Slot};

use super::{NoteKind, Object, Reference, Role};
use crate::section::{ProgType, Script, SectionKind};
use crate::testing::{
    ABS64, ALLOC, FUNC, GLOBAL, LOCAL, NOTYPE, OBJECT, PROGBITS, R64_32, R64_64, SECTION, WEAK, WRITE, Writer,
    corpus_objects, open_corpus,
};
use crate::{Cause, LinkOptions, Origin};

mod functions;

fn code(text: &str) -> Vec<Insn> {
    asm::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn call(imm: i32) -> Insn {
    Insn::Call { kind: CallKind::Local, off: 0, imm }
}

fn load(imm: i32) -> [Insn; 2] {
    [Insn::LoadImm { dst: Reg::R1, kind: 0, imm }, Insn::LoadImmHi { imm: 0 }]
}

fn notes(object: &Object) -> Vec<String> {
    object.report.iter().map(ToString::to_string).collect()
}

#[test]
fn the_whole_corpus_opens_and_links() {
    let objects = corpus_objects();
    assert!(objects.len() > 25);
    for (path, bytes) in objects {
        let object = Object::open(&path, &bytes).unwrap_or_else(|error| panic!("{error:#}"));
        let linked = object.link(&LinkOptions::default()).unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(linked.failures, [], "{path}");
        assert_eq!(linked.programs.len(), linked.infos.len());
        let entries = object.programs.iter().filter(|spec| spec.role == Role::Entry).count();
        assert_eq!(linked.infos.iter().filter(|info| info.origin == Origin::Entry).count(), entries, "{path}");
    }
}

/// A slot of a prog array makes an entry of a function, which hides no other.
#[test]
fn a_function_in_a_slot_leaves_the_others_on_offer() {
    let mut object = open_corpus("embed/double.bpf.o");
    let all: Vec<String> = object.exported().map(str::to_owned).collect();
    assert_eq!(all, ["double_all"]);
    object.programs[0].role = Role::Entry;
    assert_eq!(object.exported().collect::<Vec<_>>(), all);
    assert_eq!(open_corpus("packets/xdp_tail.bpf.o").exported().count(), 0);
}

#[test]
fn script_functions_of_text_are_entries() {
    let object = open_corpus("scripts/hello.bpf.o");
    let begin = &object.programs[object.program("BEGIN").expect("a BEGIN")];
    assert_eq!((begin.role, &begin.attach.kind), (Role::Entry, &SectionKind::Script(Script::Begin)));
    assert_eq!(object.license.as_deref(), Some("GPL"));
    let printf = object.externs.iter().find(|found| found.name.contains("printf")).expect("printf");
    let signature = printf.signature.as_ref().expect("its prototype");
    assert_eq!((printf.kind.clone(), signature.variadic), (ExternKind::Function, true));
    assert_eq!(signature.params, [ValType::Pointer]);
}

#[test]
fn both_byte_orders_give_the_same_functions() {
    for endian in [Endian::Little, Endian::Big] {
        let mut elf = Writer::new(endian);
        let text = elf.code("xdp", &[&load(0)[..], &[call(-1)], &code("r0 = *(u32 *)(r1 + 4)\nexit")].concat());
        let data = elf.section(".data", PROGBITS, ALLOC | WRITE, &[1, 2, 3, 4, 5, 6, 7, 8]);
        elf.function("prog", GLOBAL, text, 0..5);
        let value = elf.symbol("value", (OBJECT, GLOBAL), (data, 4, 4));
        let host = elf.undefined("host", GLOBAL);
        elf.rel(text, &[(0, R64_64, value), (16, R64_32, host)]);
        elf.section("version", PROGBITS, ALLOC, &[0, 0, 0, 0]);
        let object = elf.open();
        let spec = &object.programs[0];
        assert_eq!(spec.insns[3], code("r0 = *(u32 *)(r1 + 4)")[0].encode());
        assert_eq!(spec.refs[&0], Ok(Reference::MapValue { map: 0, off: 4 }));
        assert_eq!(spec.refs[&2], Ok(Reference::Extern(0)));
        assert_eq!(object.version, Some(0));
        assert_eq!(notes(&object).iter().any(|note| note.contains("big-endian")), endian == Endian::Big);
    }
}

#[test]
fn explicit_addends_count_bytes() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &[&load(99)[..], &[call(99)], &code("exit\nr0 = 1\nexit")].concat());
    let data = elf.section(".rodata.str1.1", PROGBITS, ALLOC, b"one\0two\0");
    let section = elf.symbol("", (SECTION, LOCAL), (data, 0, 0));
    elf.function("prog", GLOBAL, text, 0..4);
    let other = elf.function("other", LOCAL, text, 4..6);
    elf.rela(text, &[(0, R64_64, section, 4), (16, R64_32, other, 0), (24, 0, 0, 0)]);
    let object = elf.open();
    assert_eq!(object.programs[0].refs[&0], Ok(Reference::MapValue { map: 0, off: 4 }));
    assert_eq!(object.programs[0].refs[&2], Ok(Reference::Call(1)));
    assert!(notes(&object).contains(&"section xdp: accepted: relocations with addends in '.rela1'".into()));
    assert_eq!(object.map(".rodata.str1.1"), Some(0));
    assert!(object.maps[0].data.as_ref().is_some_and(|data| data.read_only));
}

/// Opens one `lddw` or call with one relocation, and gives the error of its program.
fn fault(build: impl Fn(&mut Writer, u16) -> Vec<(u64, u32, u64)>, insns: &[Insn]) -> String {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &[insns, &code("exit")].concat());
    elf.function("prog", GLOBAL, text, 0..insns.len() as u64 + 1);
    let relocs = build(&mut elf, text);
    elf.rel(text, &relocs);
    let linked = elf.open().link(&LinkOptions::default()).expect("links");
    assert_eq!(linked.programs, []);
    linked.failures[0].error.to_string()
}

#[test]
fn corrupt_relocations_name_section_symbol_and_offset() {
    let at = |offset, symbol| move |_: &mut Writer, _: u16| vec![(offset, R64_64, symbol)];
    let start = "x.o: prog (section xdp): instruction 0: relocation at offset";
    assert_eq!(
        fault(at(4, 1), &load(0)),
        format!("{start} 0x4 of section 'xdp' against symbol 'prog': the offset is not that of an instruction")
    );
    let expected = format!("{start} 0x0 of section 'xdp' against a symbol without name: there is no symbol 77");
    assert_eq!(fault(at(0, 77), &load(0)), expected);
    let expected = format!(
        "{start} 0x0 of section 'xdp' against symbol 'prog': opcode 0xb7 is neither a call nor a 64-bit load of an \
         immediate"
    );
    assert_eq!(fault(at(0, 1), &code("r0 = 1")), expected);
    let expected = format!(
        "{start} 0x0 of section 'xdp' against symbol 'prog': byte 8 of section 'xdp' is not the start of a function"
    );
    assert_eq!(fault(at(0, 1), &load(8)), expected);
    let found = fault(at(1 << 40, 1), &load(0));
    let expected = "x.o: prog (section xdp): relocation at offset 0x10000000000 of section 'xdp' against symbol 'prog': \
                    the offset is not that of an instruction inside it";
    assert_eq!(found, expected);
    let common = |elf: &mut Writer, _: u16| vec![(0, R64_64, elf.symbol("zero", (OBJECT, GLOBAL), (0xfff2, 4, 4)))];
    let found = fault(common, &load(0));
    assert!(found.contains("against symbol 'zero': the symbol has no place in a section"), "{found}");
    assert!(found.ends_with("; initialise the variable, or compile with -fno-common"), "{found}");
}

#[test]
fn addresses_outside_their_section_are_refused() {
    let data = |elf: &mut Writer, _: u16| {
        let data = elf.section(".data.x", PROGBITS, ALLOC | WRITE, &[0; 16]);
        vec![(0, R64_64, elf.symbol("", (SECTION, LOCAL), (data, 0, 0)))]
    };
    assert!(
        fault(data, &load(17))
            .contains("against symbol '.data.x': offset 17 lies outside section '.data.x' of 16 bytes")
    );
    assert!(fault(data, &load(-1)).contains("lies outside section '.data.x'"));
    let custom = |elf: &mut Writer, _: u16| {
        let data = elf.section("mine", PROGBITS, ALLOC | WRITE, &[0; 16]);
        vec![(0, R64_64, elf.symbol("x", (OBJECT, GLOBAL), (data, 0, 4)))]
    };
    let found = fault(custom, &load(0));
    assert!(found.contains("section 'mine' holds neither functions, maps nor data; put data into .data"), "{found}");
    let call_data = |elf: &mut Writer, _: u16| {
        let data = elf.section(".data", PROGBITS, ALLOC | WRITE, &[0; 16]);
        vec![(0, R64_32, elf.symbol("x", (OBJECT, GLOBAL), (data, 0, 4)))]
    };
    assert!(fault(call_data, &[call(-1)]).contains("a call to something that is not a function"));
    assert!(
        fault(|_, _| Vec::new(), &[call(7)]).contains("calls instruction 8 of section 'xdp', where no function is")
    );
}

#[test]
fn an_unknown_instruction_fails_its_program_only() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &code("r0 = 1\nexit\nr0 = 2\nexit"));
    elf.parts[0].data[16] = 0xff;
    elf.function("good", GLOBAL, text, 0..2);
    elf.function("bad", GLOBAL, text, 2..4);
    let object = elf.open();
    let linked = object.link(&LinkOptions::default()).expect("links");
    assert_eq!(&*linked.programs[0].name, "good");
    let expected = "x.o: bad (section xdp): instruction 0: unknown opcode 0xff (bytes ff 00 00 00 02 00 00 00)";
    assert_eq!(linked.failures[0].error.to_string(), expected);
    let story = "unknown opcode 0xff (bytes ff 00 00 00 02 00 00 00)\n  object:  x.o\n  section: xdp\n  program: bad, \
                 instruction 0";
    assert_eq!(format!("{:#}", linked.failures[0].error), story);
}

#[test]
fn unknown_sections_are_kept() {
    let mut elf = Writer::new(Endian::Little);
    let odd = elf.code("wibble", &code("exit"));
    elf.function("odd", GLOBAL, odd, 0..1);
    let old = elf.code("classifier/first", &code("exit"));
    elf.function("old", GLOBAL, old, 0..1);
    elf.section("mine", PROGBITS, ALLOC | WRITE, &[0; 16]);
    elf.section("config", PROGBITS, ALLOC, b"a=b\0c");
    elf.code("nameless", &code("exit"));
    let object = elf.open();
    assert_eq!(object.programs[0].attach.prog_type(), None);
    assert_eq!(object.programs[1].attach.prog_type(), Some(ProgType::SchedCls));
    assert_eq!(object.config.as_deref(), Some(&b"a=b\0c"[..]));
    assert_eq!(object.license, None);
    let expected = [
        "section wibble: accepted: the name gives no program type",
        "section classifier/first: accepted: the name is read as 'classifier', of which it is a variant",
        "section nameless: skipped: it holds code but no function symbol",
        "section mine: skipped: data outside .data, .rodata and .bss, which programs cannot refer to",
    ];
    assert_eq!(notes(&object), expected);
    assert_eq!(object.link(&LinkOptions::default()).expect("links").programs.len(), 2);
}

#[test]
fn zeroed_data_is_as_large_as_a_map_may_be_and_takes_no_memory() {
    let mut elf = Writer::new(Endian::Little);
    elf.bss(".bss", u32::MAX.into());
    elf.bss(".bss.more", 1 << 30);
    let object = elf.open();
    assert_eq!((object.maps[0].value_size, object.maps[1].value_size), (u32::MAX, 1 << 30));
    assert!(object.maps.iter().all(|map| map.data.as_ref().is_some_and(|data| data.bytes.capacity() == 0)));
    elf.parts[1].size = 1 << 32;
    let error = Object::open("x.o", &elf.bytes()).expect_err("more than a map has").to_string();
    assert!(error.starts_with("x.o: section '.bss.more' takes 4294967296 bytes, the limit is 4294967295"), "{error}");
}

#[test]
fn maps_need_btf_when_they_are_used() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &[&load(0)[..], &code("exit\nexit")].concat());
    elf.function("uses", GLOBAL, text, 0..3);
    elf.function("plain", GLOBAL, text, 3..4);
    let maps = elf.section(".maps", PROGBITS, ALLOC | WRITE, &[0; 32]);
    let map = elf.symbol("counts", (OBJECT, GLOBAL), (maps, 0, 32));
    elf.rel(text, &[(0, R64_64, map)]);
    let error = |elf: &Writer| {
        let linked = elf.open().link(&LinkOptions::default()).expect("links");
        assert_eq!(&*linked.programs[0].name, "plain");
        linked.failures[0].error.to_string()
    };
    let expected = "x.o: uses (section xdp): instruction 0: map 'counts' needs BTF and the object has none; compile \
                    with -g, and strip only with `llvm-strip -g`";
    assert_eq!(error(&elf), expected);
    elf.section(".BTF", PROGBITS, 0, &[0; 40]);
    let expected = "x.o: uses (section xdp): instruction 0: corrupt BTF: BTF magic is 0x0000, not 0xeb9f; compile \
                    again with -g";
    assert_eq!(error(&elf), expected);
    let object = elf.open();
    assert!(object.btf_error.is_some());
    assert!(notes(&object).contains(&"section .BTF: skipped: BTF magic is 0x0000, not 0xeb9f".into()));
}

#[test]
fn legacy_maps_of_libbpf_and_iproute2() {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut elf = Writer::new(Endian::Little);
    let plain = elf.section("maps", PROGBITS, ALLOC | WRITE, &words(&[2, 4, 8, 10, 0, 1, 4, 4, 5, 1, 99, 4, 4, 1, 0]));
    elf.symbol("array", (OBJECT, GLOBAL), (plain, 0, 20));
    elf.symbol("lru", (OBJECT, GLOBAL), (plain, 20, 20));
    let bad = elf.symbol("bad", (OBJECT, GLOBAL), (plain, 40, 20));
    let text = elf.code("xdp", &[&load(0)[..], &code("exit")].concat());
    elf.function("prog", GLOBAL, text, 0..3);
    elf.rel(text, &[(0, R64_64, bad)]);
    let object = elf.open();
    let found: Vec<_> = object.maps.iter().map(|map| (&*map.name, map.kind, map.max_entries, map.flags)).collect();
    assert_eq!(found, [("array", MapKind::Array, 10, 0), ("lru", MapKind::Hash, 5, 1)]);
    let linked = object.link(&LinkOptions::default()).expect("links");
    let expected = "x.o: prog (section xdp): instruction 0: map 'bad': there is no map type 99";
    assert_eq!(linked.failures[0].error.to_string(), expected);

    let mut elf = Writer::new(Endian::Little);
    let inner = [2, 4, 8, 1, 0, 7, 0, 0, 2];
    let outer = [12, 4, 4, 4, 0, 0, 2, 7, u32::MAX];
    let progs = [3, 4, 4, 4, 0, 9, 0, 0, u32::MAX];
    let maps = elf.section("maps", PROGBITS, ALLOC | WRITE, &words(&[inner, outer, progs].concat()));
    for (index, name) in ["inner", "outer", "progs"].into_iter().enumerate() {
        elf.symbol(name, (OBJECT, GLOBAL), (maps, index as u64 * 36, 36));
    }
    let tail = elf.code("9/3", &code("exit"));
    elf.function("tail", GLOBAL, tail, 0..1);
    let object = elf.open();
    assert_eq!(object.maps[1].slots, [(2, Slot::Map(0))]);
    assert_eq!(object.maps[1].inner.as_deref(), Some(&object.maps[0]));
    assert!(object.maps[1].pinned && !object.maps[0].pinned);
    assert_eq!(object.maps[2].slots, [(3, Slot::Program("tail".into()))]);
}

#[test]
fn maps_and_slots_from_definitions() {
    let object = open_corpus("maps/nested.bpf.o");
    let map = |name: &str| object.map(name).unwrap_or_else(|| panic!("no {name}"));
    let (red, blue) = (map("red"), map("blue"));
    assert_eq!(object.maps[map("by_index")].slots, [(1, Slot::Map(red)), (3, Slot::Map(blue))]);
    assert_eq!(object.maps[map("by_number")].slots, [(0, Slot::Map(blue)), (2, Slot::Map(red))]);
    let tail = open_corpus("packets/xdp_tail.bpf.o");
    let jump = tail.map("jump").expect("the prog array");
    let expected = [
        (1, Slot::Program("again".into())),
        (6, Slot::Program("tcp_program".into())),
        (17, Slot::Program("udp_program".into())),
    ];
    assert_eq!(tail.maps[jump].slots, expected);
}

#[test]
fn pointers_in_data() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code(".text", &code("exit\nr0 = 1\nexit"));
    let target = elf.function("target", LOCAL, text, 1..3);
    let mut bytes = [0; 48];
    bytes[8] = 3;
    let data = elf.section(".data", PROGBITS, ALLOC | WRITE, &bytes);
    let itself = elf.symbol("", (SECTION, LOCAL), (data, 0, 0));
    let host = elf.undefined("host", WEAK);
    elf.rel(data, &[(0, ABS64, target), (8, ABS64, itself), (16, ABS64, host)]);
    let object = elf.open();
    let found: Vec<_> = object.pointers.iter().map(|pointer| (pointer.off, pointer.target.clone())).collect();
    let expected = [
        (0, Ok(Reference::Address(0))),
        (8, Ok(Reference::MapValue { map: 0, off: 3 })),
        (16, Ok(Reference::Extern(0))),
    ];
    assert_eq!(found, expected);
    assert!(object.externs[0].weak);
}

#[test]
fn bare_instructions_are_an_object() {
    let text = "r1 = 3\ncall twice\nexit\ntwice: r0 = r1\nr0 += r1\nexit";
    let bytes = encode_all(&code(text), Endian::Little);
    let object = Object::from_code("stdin", &bytes, Endian::Little).expect("opens");
    let names: Vec<&str> = object.programs.iter().map(|spec| &*spec.name).collect();
    assert_eq!(names, ["main", "function_3"]);
    let options = LinkOptions { entries: vec!["main".to_owned()], ..LinkOptions::default() };
    let linked = object.link(&options).expect("links");
    assert_eq!((linked.failures.len(), linked.programs[0].insns.len()), (0, 6));
    // Calls that lead nowhere, and bytes that are no instructions, fail the program and not the object.
    for bad in [&encode_all(&[call(9), Insn::Exit], Endian::Little)[..], &[0xff; 8], &[1, 2, 3]] {
        let object = Object::from_code("stdin", bad, Endian::Little).expect("opens");
        let linked = object.link(&options);
        assert!(linked.is_err() || !linked.expect("checked").failures.is_empty() || object.programs.is_empty());
    }
}

#[test]
fn a_broken_pointer_fails_the_programs_that_use_its_data() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &[&load(0)[..], &code("exit\nexit")].concat());
    elf.function("uses", GLOBAL, text, 0..3);
    elf.function("plain", GLOBAL, text, 3..4);
    let data = elf.section(".data", PROGBITS, ALLOC | WRITE, &[0; 16]);
    let table = elf.symbol("table", (OBJECT, GLOBAL), (data, 0, 16));
    elf.rel(text, &[(0, R64_64, table)]);
    elf.rel(data, &[(12, ABS64, table)]);
    let linked = elf.open().link(&LinkOptions::default()).expect("links");
    assert_eq!(linked.programs.len(), 1);
    let expected = "x.o: uses (section xdp): instruction 0: relocation at offset 0xc of section '.data' against symbol \
                    'table': the offset is not that of 8 bytes of data";
    assert_eq!(linked.failures[0].error.to_string(), expected);
}

#[test]
fn variables_are_set_by_their_type() {
    let mut object = open_corpus("scripts/tables.bpf.o");
    object.set_variable("apples", "40").expect("an int");
    object.set_variable("primes[2]", "0x65").expect("an element");
    let value = |object: &Object, name: &str, off: usize| {
        let var = object.variables.iter().find(|var| &*var.name == name).expect("a variable");
        object.maps[var.map].data.as_ref().expect("data").bytes[var.off as usize + off]
    };
    assert_eq!((value(&object, "apples", 0), value(&object, "primes", 8)), (40, 0x65));
    let error =
        |object: &mut Object, name: &str, text: &str| object.set_variable(name, text).expect_err("wrong").to_string();
    let found = error(&mut object, "bananas", "1");
    assert!(found.starts_with("tables.bpf.o: variable 'bananas': there is none; the object has apples, "), "{found}");
    let found = error(&mut object, "apples", "4294967296");
    assert!(found.starts_with("tables.bpf.o: variable 'apples': 4294967296 does not fit int"), "{found}");
    assert!(error(&mut object, "primes[6]", "1").contains("index 6 is past the end"));
}

#[test]
fn notes_say_what_is_kept_for_the_kernel() {
    let object = open_corpus("kernel/modern.bpf.o");
    assert!(object.report.iter().all(|note| note.kind != NoteKind::Skipped), "{:?}", object.report);
    let legacy = open_corpus("scripts/legacy.bpf.o");
    assert!(notes(&legacy).iter().any(|note| note.starts_with("section maps: accepted: map definitions without BTF")));
}

#[test]
fn types_lines_and_relocations_of_a_function_stay_reachable() {
    let object = open_corpus("kernel/modern.bpf.o");
    let btf = object.btf.as_ref().expect("BTF");
    let mut relocs = 0;
    for spec in &object.programs {
        let id = object.func_type(spec).expect("a FUNC");
        assert_eq!(btf.name(id), &*spec.name);
        assert_eq!(btf.signature(id), spec.signature);
        let lines = object.line_infos(spec);
        assert_eq!(lines.first().map(|line| line.insn_off as usize / 8), Some(spec.start));
        relocs += object.core_relocs(spec).len();
    }
    let noted = object.report.iter().any(|note| note.kind == NoteKind::Kept && note.text.contains("CO-RE"));
    assert_eq!(relocs > 0, noted);
}

/// `corpus/kernel/arena.bpf.o` with an arena of so many pages.
fn with_arena(pages: u32) -> Object {
    let mut object = open_corpus("kernel/arena.bpf.o");
    object.maps[0].max_entries = pages;
    object
}

#[test]
fn global_variables_of_an_arena_lie_at_its_end() {
    let object = open_corpus("kernel/arena.bpf.o");
    assert_eq!(object.maps.len(), 1);
    let answer = object.variables.iter().find(|var| &*var.name == "answer").expect("a variable");
    for pages in [16, 1] {
        let start = (pages - 1) * 4096;
        let mut object = with_arena(pages);
        object.set_variable("answer", "43").expect("an int");
        let linked = object.link(&LinkOptions::default()).expect("links");
        assert_eq!(linked.failures, []);
        let data = linked.maps[0].data.as_ref().expect("its variables");
        assert_eq!((data.start, data.size, data.bytes[answer.off as usize]), (start, 16, 43));
        let program = &linked.programs[linked.program("globals").expect("there")];
        assert_eq!(program.bindings[&0], Binding::MapValue { map: 0, off: start + answer.off });
    }
}

#[test]
fn an_arena_too_small_for_its_variables_fails_what_names_them() {
    let linked = with_arena(0).link(&LinkOptions::default()).expect("links");
    assert_eq!(linked.failures.len(), 2);
    let expected = "arena.bpf.o: globals (section syscall): instruction 0: sec '.addr_space.1': declared ARENA map size (0) is \
                    too small to hold global __arena variables of size 16";
    assert!(linked.failures[0].error.to_string().starts_with(expected), "{}", linked.failures[0].error);
    // `pages` names the arena alone.
    assert!(linked.program("pages").is_some());
}

#[test]
fn variables_of_an_arena_without_an_arena_are_libbpfs_error() {
    let arena = |elf: &mut Writer, _: u16| {
        let data = elf.section(".addr_space.1", PROGBITS, ALLOC | WRITE, &[0; 16]);
        vec![(0, R64_64, elf.symbol("answer", (OBJECT, GLOBAL), (data, 0, 4)))]
    };
    let expected = "x.o: prog (section xdp): instruction 0: sec '.addr_space.1': to use global __arena variables the ARENA map \
                    should be explicitly declared in SEC(\".maps\")";
    assert_eq!(fault(arena, &load(0)), expected);
}
