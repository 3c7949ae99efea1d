use twinbpf_isa::program::{Binding, Program};
use twinbpf_isa::{CallKind, Endian, Insn, Reg, asm};
use twinbpf_vm::map::Pointer;

use super::{LinkOptions, Linked, MAX_INSNS, Origin};
use crate::Object;
use crate::testing::{
    ABS64, ALLOC, GLOBAL, LOCAL, OBJECT, PROGBITS, R64_32, R64_64, SECTION, WRITE, Writer, corpus_objects, open_corpus,
};

fn code(text: &str) -> Vec<Insn> {
    asm::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn call(imm: i32) -> Insn {
    Insn::Call { kind: CallKind::Local, off: 0, imm }
}

fn load(imm: i32) -> [Insn; 2] {
    [Insn::LoadImm { dst: Reg::R1, kind: 0, imm }, Insn::LoadImmHi { imm: 0 }]
}

fn link(object: &Object) -> Linked {
    object.link(&LinkOptions::default()).expect("links")
}

fn functions(program: &Program) -> Vec<(&str, usize)> {
    program.functions.iter().map(|function| (&*function.name, function.start)).collect()
}

/// `main` calls d and a; a calls b and c; b calls c; `unused` has no caller; d's address is taken in c.
fn family() -> Writer {
    let mut elf = Writer::new(Endian::Little);
    let main = elf.code("xdp", &[&[call(-1), call(-1)][..], &code("exit")].concat());
    // a: 0..3, b: 3..5, c: 5..8, unused: 8..9, d: 9..10
    let text =
        [&[call(2), call(3)][..], &code("exit"), &[call(1)], &code("exit"), &load(72), &code("exit\nexit\nexit")];
    let text = elf.code(".text", &text.concat());
    elf.function("main", GLOBAL, main, 0..3);
    let whole = elf.symbol("", (SECTION, LOCAL), (text, 0, 0));
    let a = elf.function("a", GLOBAL, text, 0..3);
    elf.function("b", LOCAL, text, 3..5);
    elf.function("c", LOCAL, text, 5..8);
    elf.function("unused", LOCAL, text, 8..9);
    elf.function("d", LOCAL, text, 9..10);
    elf.rel(main, &[(0, R64_32, a), (8, R64_32, a)]);
    elf.rel(text, &[(40, R64_64, whole)]);
    elf
}

#[test]
fn functions_follow_depth_first_in_the_order_of_call_sites() {
    let linked = link(&family().open());
    assert_eq!(linked.failures, []);
    let [main] = &linked.programs[..] else { panic!("one entry") };
    assert_eq!(functions(main), [("main", 0), ("a", 3), ("b", 6), ("c", 8), ("d", 11)]);
    let calls = main.insns.iter().enumerate().filter_map(|(pc, insn)| match insn {
        Insn::Call { kind: CallKind::Local, imm, .. } => Some((pc, pc as i32 + 1 + imm)),
        _ => None,
    });
    assert_eq!(calls.collect::<Vec<_>>(), [(0, 3), (1, 3), (3, 6), (4, 8), (6, 8)]);
    assert_eq!(main.bindings.clone().into_iter().collect::<Vec<_>>(), [(8, Binding::Function(11))]);
    assert_eq!(main.insns[8], Insn::LoadImm { dst: Reg::R1, kind: 4, imm: 0 });
    assert_eq!(main.stack_size, 512);
}

#[test]
fn any_function_can_be_named() {
    let object = family().open();
    let options = LinkOptions { stack_size: Some(4096), entries: vec!["unused".into()], ..LinkOptions::default() };
    let linked = object.link(&options).expect("links");
    let unused = linked.program("unused").expect("linked");
    assert_eq!(linked.infos[unused].origin, Origin::Named);
    assert_eq!(linked.programs[unused].insns, [Insn::Exit]);
    assert_eq!(linked.programs[unused].stack_size, 4096);
    let options = LinkOptions { entries: vec!["nothing".into()], ..LinkOptions::default() };
    let error = object.link(&options).expect_err("no such function").to_string();
    assert_eq!(error, "x.o: there is no function 'nothing'");
}

#[test]
fn final_forms_of_references() {
    let mut elf = Writer::new(Endian::Little);
    let insns = [&load(3)[..], &load(0), &[call(-1)], &code("call 5\nexit")].concat();
    let text = elf.code("xdp", &insns);
    elf.function("prog", GLOBAL, text, 0..7);
    let data = elf.section(".rodata", PROGBITS, ALLOC, &[0; 8]);
    let value = elf.symbol("value", (OBJECT, GLOBAL), (data, 4, 4));
    let host = elf.undefined("host", GLOBAL);
    elf.rel(text, &[(0, R64_64, value), (16, R64_64, host), (32, R64_32, host)]);
    let linked = link(&elf.open());
    let program = &linked.programs[0];
    let expected = [
        &[Insn::LoadImm { dst: Reg::R1, kind: 2, imm: 0 }, Insn::LoadImmHi { imm: 0 }][..],
        &load(0),
        &[Insn::Call { kind: CallKind::Extern, off: 0, imm: 0 }],
        &code("call 5\nexit"),
    ];
    assert_eq!(program.insns, expected.concat());
    let expected = [(0, Binding::MapValue { map: 0, off: 7 }), (2, Binding::Extern(0)), (4, Binding::Extern(0))];
    assert_eq!(program.bindings.clone().into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn recursion_and_long_chains_of_calls() {
    let length = 100_000;
    let mut elf = Writer::new(Endian::Little);
    // Each function calls the next, the last one the first.
    let mut insns: Vec<_> = (1..length).flat_map(|_| [call(1), Insn::Exit]).collect();
    insns.extend([call(-2 * length as i32 + 1), Insn::Exit]);
    let text = elf.code(".text", &insns);
    for index in 0..length {
        let (name, bind) = if index == 0 { ("BEGIN", GLOBAL) } else { ("f", LOCAL) };
        elf.function(name, bind, text, 2 * index..2 * index + 2);
    }
    let linked = link(&elf.open());
    assert_eq!(linked.failures, []);
    assert_eq!(linked.programs[0].functions.len() as u64, length);
    let last = Insn::Call { kind: CallKind::Local, off: 0, imm: -2 * length as i32 + 1 };
    assert_eq!(linked.programs[0].insns[2 * length as usize - 2], last);
}

#[test]
fn programs_have_a_longest_length_together_and_alone() {
    let mut elf = Writer::new(Endian::Little);
    let half = MAX_INSNS as u64 / 2 + 1;
    let main = elf.code("xdp", &vec![call(-1); half as usize]);
    elf.function("main", GLOBAL, main, 0..half);
    let text = elf.code(".text", &vec![Insn::Exit; half as usize]);
    let begin = elf.function("BEGIN", GLOBAL, text, 0..half);
    elf.rel(main, &[(0, R64_32, begin)]);
    for index in 0..5 {
        elf.function(&format!("again{index}"), GLOBAL, text, 0..half);
    }
    let mut object = elf.open();
    for spec in &mut object.programs {
        spec.role = crate::Role::Entry;
    }
    let linked = link(&object);
    let lengths: usize = linked.programs.iter().map(|program| program.insns.len()).sum();
    assert_eq!((linked.programs.len(), lengths), (2, 2 * half as usize));
    let errors: Vec<_> = linked.failures.iter().map(|failure| failure.error.to_string()).collect();
    assert!(errors.contains(
        &"x.o: main (section xdp): the program and what it calls have more than 1000000 instructions".into()
    ));
    assert!(errors.iter().any(|error| error.ends_with("have more than 2000000 instructions together")), "{errors:?}");
}

#[test]
fn tables_of_functions_lead_to_programs() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code(".text", &code("exit\nr0 = 1\nexit\nexit"));
    let begin = elf.function("BEGIN", GLOBAL, text, 0..1);
    let pointed = elf.function("pointed", LOCAL, text, 1..3);
    elf.function("unused", LOCAL, text, 3..4);
    let data = elf.section(".data", PROGBITS, ALLOC | WRITE, &[0; 24]);
    elf.rel(data, &[(0, ABS64, pointed), (8, ABS64, begin), (16, ABS64, pointed)]);
    let linked = link(&elf.open());
    let names: Vec<_> = linked.programs.iter().map(|program| &*program.name).collect();
    assert_eq!(names, ["BEGIN", "pointed"]);
    assert_eq!(linked.infos[1].origin, Origin::Pointed);
    let data = linked.maps[0].data.as_ref().expect("data");
    let to = |program| Pointer::Function { program, pc: 0 };
    assert_eq!(data.pointers, [(0, to(1)), (8, to(0)), (16, to(1))]);
}

#[test]
fn lines_follow_their_functions() {
    let object = open_corpus("scripts/tables.bpf.o");
    let linked = link(&object);
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus/scripts/tables.bpf.c"));
    let source: Vec<String> = source.expect("its source").lines().map(|line| line.trim().into()).collect();
    let mut checked = 0;
    for program in &linked.programs {
        for line in &program.lines {
            assert!(program.insns.get(line.pc).is_some() && line.file.ends_with("tables.bpf.c"), "{line:?}");
            assert_eq!(source[line.line as usize - 1], &*line.text, "{line:?}");
            checked += 1;
        }
        assert!(program.lines.is_sorted_by(|a, b| a.pc < b.pc));
    }
    assert!(checked > 20);
    let add = &linked.programs[linked.program("add").expect("in a table")];
    assert_eq!(&*add.line_at(1).expect("a line").text, "return a + b;");
}

#[test]
fn errors_name_the_function_and_the_c_line() {
    let mut object = open_corpus("scripts/recursion.bpf.o");
    let callee =
        object.programs.iter().position(|spec| &*spec.name != "BEGIN" && &*spec.name != "END" && spec.refs.len() > 1);
    let callee = callee.expect("a function that calls");
    let pc = *object.programs[callee].refs.keys().next().expect("a call");
    let raw = &mut object.programs[callee].insns[pc];
    *raw = Insn::Exit.encode();
    let linked = link(&object);
    let name = object.programs[callee].name.clone();
    let error = &linked.failures.first().expect("a program that fails").error;
    let report = error.report();
    assert_eq!((report.function.as_ref(), report.insn), (Some(&name), Some(pc)));
    let line = report.line.as_ref().expect("a C line");
    let text = format!(
        "recursion.bpf.o: {} (section .text): function {name}, instruction {pc}: the instruction has a reference and is \
         no call or 64-bit load that could hold it ({}:{}: {})",
        report.program.as_ref().expect("a program"),
        line.file,
        line.line,
        line.text
    );
    assert_eq!(error.to_string(), text);
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

fn mutate(random: &mut Random, objects: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = objects[random.below(objects.len())].1.clone();
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => {
            let other = &objects[random.below(objects.len())].1;
            let (to, from) = (random.below(bytes.len()), random.below(other.len()));
            let length = random.below(256).min(bytes.len() - to).min(other.len() - from);
            bytes[to..to + length].copy_from_slice(&other[from..from + length]);
        }
        2 => {
            // Headers, symbols and relocations are the last fifth of what clang writes.
            for _ in 0..4 {
                let at = bytes.len() - 1 - random.below(bytes.len() / 5);
                bytes[at] = random.below(256) as u8;
            }
        }
        _ => {
            for _ in 0..=random.below(12) {
                let at = random.below(bytes.len());
                bytes[at] = [0, 0xff, bytes[at] ^ 1 << random.below(8), random.below(256) as u8][random.below(4)];
            }
        }
    }
    bytes
}

#[test]
fn damaged_objects_end_in_an_error_or_in_programs() {
    let objects = corpus_objects();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut opened, mut programs, mut failures) = (0, 0, 0);
    for _ in 0..2000 {
        let bytes = mutate(&mut random, &objects);
        let Ok(mut object) = Object::open("x.o", &bytes) else { continue };
        opened += 1;
        let linked = link(&object);
        programs += linked.programs.len();
        failures += linked.failures.len();
        for failure in &linked.failures {
            assert!(format!("{}{:#}", failure.error, failure.error).len() < 20_000);
        }
        let names: Vec<_> = object.variables.iter().take(2).map(|var| format!("{}[1]", var.name)).collect();
        for name in names {
            _ = object.set_variable(&name, "1");
        }
    }
    assert!(opened > 500 && programs > 500 && failures > 10, "{opened} {programs} {failures}");
}
