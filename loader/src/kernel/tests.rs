//! Kernels described by hand: configuration, symbols, modules, maps that are not there.

use std::collections::BTreeSet;
use std::sync::Arc;

use twinbpf_btf::{Btf, FuncInfo, Linkage, Type, TypeId};
use twinbpf_isa::program::{Binding, ExternKind};
use twinbpf_isa::{Endian, Insn, Raw, Reg, asm};

use super::{Fixup, KernelData, KernelLinked, KernelOptions, Module, Reach, kernel_version};
use crate::btf_support::build::{BOOL, Build, SIGNED};
use crate::error::Cause;
use crate::testing::{ALLOC, GLOBAL, LOCAL, PROGBITS, R64_32, R64_64, SECTION, WEAK, Writer};
use crate::{LinkOptions, Object};

const EXTERN: u32 = 2;

fn load(dst: Reg) -> [Insn; 2] {
    [Insn::LoadImm { dst, kind: 0, imm: 0 }, Insn::LoadImmHi { imm: 0 }]
}

fn code(text: &str) -> Vec<Insn> {
    asm::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A program that loads each of some externs: (name, binding, is a function).
fn object(types: Build, externs: &[(&str, u8, bool)]) -> Object {
    let mut elf = Writer::new(Endian::Little);
    let call = Insn::Call { kind: twinbpf_isa::CallKind::Local, off: 0, imm: -1 };
    let mut insns = Vec::new();
    let mut places = Vec::new();
    for (_, _, is_function) in externs {
        places.push(insns.len() as u64 * 8);
        match is_function {
            true => insns.push(call),
            false => insns.extend(load(Reg::R1)),
        }
    }
    insns.extend(code("r0 = 0\nexit"));
    let section = elf.code("kprobe/x", &insns);
    elf.function("main", GLOBAL, section, 0..insns.len() as u64);
    let mut relocs = Vec::new();
    for ((name, bind, is_function), place) in externs.iter().zip(places) {
        let symbol = elf.undefined(name, *bind);
        relocs.push((place, if *is_function { R64_32 } else { R64_64 }, symbol));
    }
    elf.rel(section, &relocs);
    elf.section(".BTF", PROGBITS, 0, &types.bytes());
    elf.open()
}

fn config_types() -> Build {
    let mut types = Build::new(Endian::Little);
    let (int, flag) = (types.int("int", 4, SIGNED), types.int("_Bool", 1, BOOL));
    let (letter, long) = (types.int("char", 1, SIGNED), types.int("unsigned long", 8, 0));
    let text = types.array(letter, 6);
    let tristate = types.enumeration("libbpf_tristate", 4, false, &[("TRI_NO", 0), ("TRI_YES", 1), ("TRI_MODULE", 2)]);
    let names = [
        ("LINUX_KERNEL_VERSION", int),
        ("CONFIG_BOOL", flag),
        ("CONFIG_TRI", tristate),
        ("CONFIG_TEXT", text),
        ("CONFIG_NUMBER", long),
        ("CONFIG_ABSENT", int),
        ("CONFIG_WRONG", flag),
    ];
    let entries: Vec<_> = names.iter().map(|(name, id)| (types.var(name, *id, EXTERN), 0, 0)).collect();
    types.datasec(".kconfig", &entries);
    types
}

fn kernel(config: &str) -> KernelData {
    KernelData {
        config: Some(config.into()),
        version: kernel_version("6.1.300-x").expect("a version"),
        ..Default::default()
    }
}

fn link(object: &Object, kernel: &KernelData) -> KernelLinked {
    object.link_kernel(kernel, &KernelOptions::default())
}

const CONFIG: &str = "# CONFIG_NONE is not set\nCONFIG_BOOL=y\nCONFIG_TRI=m\nCONFIG_TEXT=\"too long\"\nCONFIG_NUMBER=0x10\nCONFIG_BOOL=n\nCONFIG_WRONG=7\n";

#[test]
fn configuration_values_lie_by_alignment_size_and_name() {
    let names = ["CONFIG_BOOL", "CONFIG_TRI", "CONFIG_TEXT", "CONFIG_NUMBER", "LINUX_KERNEL_VERSION"];
    let mut externs: Vec<_> = names.iter().map(|name| (*name, GLOBAL, false)).collect();
    externs.push(("CONFIG_ABSENT", WEAK, false));
    let object = object(config_types(), &externs);
    let linked = link(&object, &kernel(CONFIG));
    assert!(linked.failures.is_empty(), "{:#}", linked.failures[0].error);
    let map = &linked.maps[0].spec;
    let bytes = &map.data.as_ref().expect("contents").bytes;
    // NUMBER (8), then ABSENT, TRI, VERSION (4 each), BOOL (1), TEXT (6).
    let mut expected = vec![0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 255, 1, 6, 0, 1];
    expected.extend(b"too l\0");
    assert_eq!((&*map.name, bytes, map.value_size), (".kconfig", &expected, 27));
    let [main] = &linked.programs[..] else { panic!("one program") };
    let offsets: Vec<i32> = main.fixups.keys().map(|pc| main.insns[pc + 1].imm).collect();
    assert_eq!(offsets, [20, 12, 21, 0, 16, 8]);
    assert!(main.fixups.values().all(|fixup| *fixup == Fixup::MapValue(0)));
    assert!(main.fixups.keys().all(|pc| main.insns[*pc].src() == 2));
}

#[test]
fn a_value_of_the_wrong_type_or_without_weak_fails_its_readers() {
    for (name, says) in [("CONFIG_WRONG", "is a number, its type is not"), ("CONFIG_ABSENT", "does not set it")] {
        let linked = link(&object(config_types(), &[(name, GLOBAL, false)]), &kernel(CONFIG));
        let [failure] = &linked.failures[..] else { panic!("{name}") };
        assert!(failure.error.to_string().contains(says), "{}", failure.error);
        assert!(matches!(failure.error.cause(), Cause::Kconfig { .. }));
    }
}

#[test]
fn lines_of_the_caller_go_before_the_kernels_and_the_machine_reads_both() {
    let object = object(config_types(), &[("CONFIG_BOOL", GLOBAL, false), ("CONFIG_NUMBER", GLOBAL, false)]);
    let options = KernelOptions { config: Some("CONFIG_NUMBER=1\n".into()), ..Default::default() };
    let linked = object.link_kernel(&kernel(CONFIG), &options);
    let bytes = &linked.maps[0].spec.data.as_ref().expect("contents").bytes;
    assert_eq!(bytes[..], [1, 0, 0, 0, 0, 0, 0, 0, 1]);

    let options = LinkOptions { kernel: Some(Arc::new(kernel(CONFIG))), ..Default::default() };
    let linked = object.link(&options).expect("links");
    let bindings: Vec<Binding> = linked.programs[0].bindings.values().copied().collect();
    assert_eq!(bindings, [Binding::MapValue { map: 0, off: 8 }, Binding::MapValue { map: 0, off: 0 }]);
    assert!(linked.maps[0].data.as_ref().is_some_and(|data| data.read_only));
    // Without a kernel they stay symbols.
    let linked = object.link(&LinkOptions::default()).expect("links");
    assert!(linked.maps.is_empty() && linked.programs[0].bindings.values().all(|of| matches!(of, Binding::Extern(_))));
}

/// Declares functions and variables of the kernel in `.ksyms`: a function takes an `int`, a variable is one.
fn ksyms(functions: &[&str], variables: &[&str], untyped: &[&str]) -> Build {
    let mut types = Build::new(Endian::Little);
    let int = types.int("int", 4, SIGNED);
    let proto = types.proto(int, &[("", int)]);
    let mut entries = Vec::new();
    entries.extend(functions.iter().map(|name| (types.func(name, proto, EXTERN as usize), 0, 0)));
    entries.extend(variables.iter().map(|name| (types.var(name, int, EXTERN), 0, 0)));
    entries.extend(untyped.iter().map(|name| (types.var(name, 0, EXTERN), 0, 0)));
    types.datasec(".ksyms", &entries);
    types
}

/// `in_kernel` and `counter` in the kernel, `in_module` and `of_module` in a module, with another type each `other`.
fn kernel_with_module() -> KernelData {
    let mut types = Build::new(Endian::Little);
    let int = types.int("int", 4, SIGNED);
    let proto = types.proto(int, &[("x", int)]);
    types.func("in_kernel", proto, 0);
    types.var("counter", int, 1);
    let none = types.proto(0, &[]);
    types.func("other", none, 0);
    let base = Arc::new(types.btf());
    let mut module = types.split();
    module.func("in_module", proto, 0);
    module.var("of_module", int, 1);
    let btf = Arc::new(module.btf_on(&base, &types));
    let empty = Arc::new(types.split().btf_on(&base, &types));
    let modules = vec![Module { name: "empty".into(), btf: empty }, Module { name: "mod".into(), btf }];
    let kallsyms = Some("ffffffff81000000 T start\nffffffff81000010 t twice\nffffffff81000020 t twice [m]\n".into());
    KernelData { btf: Some(base), modules, kallsyms, ..Default::default() }
}

#[test]
fn functions_and_variables_of_the_kernel_and_its_modules_are_found() {
    let types = ksyms(&["in_kernel___flavour", "in_module", "nowhere", "other"], &["counter", "of_module"], &["start"]);
    let object = object(
        types,
        &[
            ("in_kernel___flavour", GLOBAL, true),
            ("in_module", GLOBAL, true),
            ("nowhere", WEAK, true),
            ("other", WEAK, true),
            ("counter", GLOBAL, false),
            ("of_module", GLOBAL, false),
            ("start", GLOBAL, false),
        ],
    );
    let linked = link(&object, &kernel_with_module());
    assert!(linked.failures.is_empty(), "{:#}", linked.failures[0].error);
    let main = &linked.programs[0];
    let insn = |pc: usize| (main.insns[pc].src(), main.insns[pc].off, main.insns[pc].imm);
    assert_eq!(insn(0), (2, 0, 3));
    assert_eq!(insn(1), (2, 1, 7));
    // libbpf's list: counter, in_kernel___flavour, in_module, nowhere, of_module, other, start.
    assert_eq!((insn(2), insn(3)), ((0, 0, 2_002_000_003), (0, 0, 2_002_000_005)));
    assert_eq!((insn(4), insn(5)), ((3, 0, 4), (0, 0, 0)));
    assert_eq!((insn(6), insn(7)), ((3, 0, 8), (0, 0, 2)));
    assert_eq!((insn(8).2 as u32, insn(9).2 as u32), (0x8100_0000, 0xffff_ffff));
    assert_eq!(main.fixups.pairs(), [(6, Fixup::ModuleTypes("mod".into()))]);
    assert_eq!(linked.fd_array, ["mod".into()] as [Arc<str>; 1]);
    let why: Vec<String> = main.poisons.iter().map(|poison| poison.error.cause().to_string()).collect();
    assert!(why[0].contains("no function of the kernel or its modules has this name"), "{why:?}");
    assert!(why[1].contains("another prototype, void other()"), "{why:?}");
    assert!(main.poisons.iter().all(|poison| poison.reach == Reach::Certain) && main.refusal().is_some());
}

trait Pairs {
    fn pairs(&self) -> Vec<(usize, Fixup)>;
}

impl Pairs for std::collections::BTreeMap<usize, Fixup> {
    fn pairs(&self) -> Vec<(usize, Fixup)> {
        self.iter().map(|(pc, fixup)| (*pc, fixup.clone())).collect()
    }
}

#[test]
fn strong_symbols_must_be_there_and_of_one_meaning() {
    let cases = [
        (("nowhere", true), "no function of the kernel or its modules has this name"),
        (("other", true), "another prototype"),
        (("gone", false), "it is not among the kernel's symbols"),
        (("twice", false), "several symbols of this name"),
    ];
    for ((name, is_function), says) in cases {
        let types = if is_function { ksyms(&[name], &[], &[]) } else { ksyms(&[], &[], &[name]) };
        let linked = link(&object(types, &[(name, GLOBAL, is_function)]), &kernel_with_module());
        let [failure] = &linked.failures[..] else { panic!("{name}") };
        assert!(failure.error.to_string().contains(says), "{}", failure.error);
    }
    let linked = link(&object(ksyms(&["in_kernel"], &[], &[]), &[("in_kernel", GLOBAL, true)]), &KernelData::default());
    assert!(linked.failures[0].error.to_string().contains("has no types (BTF)"), "{}", linked.failures[0].error);
}

/// A program with a `.rodata` of `flag` that uses `.bss` under a condition on it.
fn guarded(flag: u8) -> Object {
    let mut elf = Writer::new(Endian::Little);
    let rodata = elf.section(".rodata", PROGBITS, ALLOC, &[flag]);
    let bss = elf.bss(".bss", 8);
    let mut insns = load(Reg::R1).to_vec();
    insns.extend(code("r1 = *(u8 *)(r1 + 0)\nif r1 == 0 goto +2"));
    insns.extend(load(Reg::R2));
    insns.extend(code("r0 = 0\nexit"));
    let section = elf.code("kprobe/x", &insns);
    elf.function("main", GLOBAL, section, 0..insns.len() as u64);
    let (from, to) = (elf.symbol("", (SECTION, LOCAL), (rodata, 0, 0)), elf.symbol("", (SECTION, LOCAL), (bss, 0, 0)));
    elf.rel(section, &[(0, R64_64, from), (32, R64_64, to)]);
    elf.open()
}

#[test]
fn maps_that_are_absent_make_instructions_invalid_where_they_are_reached() {
    for (flag, reach) in [(0, Reach::Never), (1, Reach::Certain)] {
        let object = guarded(flag);
        let absent = BTreeSet::from([object.map(".bss").expect("a map")]);
        let linked = object.link_kernel(&KernelData::default(), &KernelOptions { absent, ..Default::default() });
        let main = &linked.programs[0];
        let poison = Raw { opcode: 0x85, imm: 2_001_000_001, ..Raw::default() };
        assert_eq!(main.insns[4..6], [poison; 2]);
        let [found] = &main.poisons[..] else { panic!("one instruction") };
        assert_eq!((found.pc, found.reach, main.refusal().is_some()), (4, reach, reach == Reach::Certain));
        assert!(found.error.to_string().contains("map '.bss' is used, and will not be created"), "{}", found.error);
        assert_eq!(main.fixups.pairs(), [(0, Fixup::MapValue(0))]);
    }
}

#[test]
fn symbols_that_are_not_of_the_kernel_fail_their_program() {
    let linked = link(&object(ksyms(&[], &[], &[]), &[("puts", GLOBAL, true)]), &kernel_with_module());
    assert!(
        linked.failures[0].error.to_string().contains("not defined here, and declared neither __ksym nor __kconfig")
    );
}

#[test]
fn types_for_the_kernel_have_places_and_no_undefined_symbols() {
    let types = ksyms(&["in_kernel"], &["counter"], &[]);
    let object = object(types, &[("in_kernel", GLOBAL, true), ("counter", GLOBAL, false)]);
    assert_eq!(object.externs[0].kind, ExternKind::Function);
    let bytes = object.kernel_btf().expect("types");
    let btf = twinbpf_btf::Btf::parse(&bytes, Endian::Little).expect("well-formed");
    let section = btf.datasec(".ksyms").expect("a section");
    let places: Vec<_> = section.vars().map(|var| (var.name, var.offset, var.size, var.type_id)).collect();
    assert_eq!(places, [("dummy_ksym", 0, 4, TypeId(1)), ("counter", 4, 4, TypeId(1))]);
    assert_eq!(section.size, 8);
}

/// `sub` returns 1, and 2 where a call leads to its third instruction.
fn calls_the_middle(imm: i32, symbol: bool) -> Object {
    let mut elf = Writer::new(Endian::Little);
    let call = Insn::Call { kind: twinbpf_isa::CallKind::Local, off: 0, imm };
    let body = code("exit\nr0 = 1\nexit\nr0 = 2\ncall pc+0\nexit");
    let text = elf.code("xdp", &[&[call][..], &body].concat());
    elf.function("prog", GLOBAL, text, 0..2);
    let sub = elf.function("sub", GLOBAL, text, 2..7);
    if symbol {
        elf.rel(text, &[(0, R64_32, sub)]);
    }
    elf.open()
}

#[test]
fn in_the_vm_a_function_begins_where_a_call_leads() {
    // By the instruction alone, which counts from itself, and by a relocation, which counts from the symbol.
    for (imm, symbol) in [(3, false), (1, true)] {
        let object = calls_the_middle(imm, symbol);
        let linked = object.link(&LinkOptions::default()).expect("links");
        assert_eq!(linked.failures, []);
        let prog = &linked.programs[linked.program("prog").expect("there")];
        let functions: Vec<_> = prog.functions.iter().map(|function| (&*function.name, function.start)).collect();
        assert_eq!(functions, [("prog", 0), ("sub+2", 2), ("sub+4", 5)], "{symbol}");
        let text: Vec<String> = prog.insns.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["call pc+1", "exit", "r0 = 2", "call pc+1", "exit", "exit"], "{symbol}");
    }
    let whole = calls_the_middle(-1, true).link(&LinkOptions::default()).expect("links");
    let names: Vec<_> = whole.programs[0].functions.iter().map(|function| &*function.name).collect();
    assert_eq!(names, ["prog", "sub", "sub+4"]);
}

#[test]
fn for_a_kernel_a_call_into_the_middle_of_a_symbol_is_an_error() {
    for (imm, symbol) in [(3, false), (1, true)] {
        let object = calls_the_middle(imm, symbol);
        let programs = Some(vec![object.program("prog").expect("there")]);
        let linked = object.link_kernel(&kernel(""), &KernelOptions { programs, ..Default::default() });
        let [failure] = &linked.failures[..] else { panic!("{symbol}: {:?}", linked.programs) };
        let expected = "x.o: prog (section xdp): instruction 0: calls instruction 2 of 'sub', which starts no function: only \
                        the VM runs such a call; call the symbol itself, or give the place a function symbol of its own";
        assert_eq!(failure.error.to_string(), expected);
    }
}

#[test]
fn functions_inside_functions_take_no_more_memory_than_the_file_allows() {
    let mut elf = Writer::new(Endian::Little);
    let call = |imm| Insn::Call { kind: twinbpf_isa::CallKind::Local, off: 0, imm };
    // Each call leads to the instruction after it.
    let insns: Vec<Insn> = (0..20_000).map(|_| call(0)).chain(code("exit")).collect();
    let text = elf.code("xdp", &insns);
    elf.function("prog", GLOBAL, text, 0..insns.len() as u64);
    let object = elf.open();
    let all: usize = object.programs.iter().map(|spec| spec.insns.len()).sum();
    assert!(all <= 5 * insns.len() + 200, "{all}");
    let linked = object.link(&LinkOptions::default()).expect("links");
    assert!(linked.failures[0].error.to_string().contains("the functions that begin inside others"));
}

#[test]
fn a_kernel_of_the_other_byte_order_gets_nothing_of_an_object() {
    let mut elf = Writer::new(Endian::Big);
    let text = elf.code("xdp", &[&load(Reg::R1)[..], &code("r0 = *(u32 *)(r1 + 0)\nexit")].concat());
    elf.function("prog", GLOBAL, text, 0..4);
    let data = elf.section(".data", PROGBITS, ALLOC, &[0, 0, 0, 7]);
    let count = elf.symbol("count", (crate::testing::OBJECT, GLOBAL), (data, 0, 4));
    elf.rel(text, &[(0, R64_64, count)]);
    let object = elf.open();
    assert_eq!(object.link(&LinkOptions::default()).expect("links").failures, []);
    let linked = link(&object, &kernel(""));
    assert!(linked.programs.is_empty() && linked.maps.is_empty());
    let expected = "x.o: prog (section xdp): the object is big-endian, the kernel is little-endian; compile with \
                    `-target bpfel` (or bpfeb) as the kernel is; the VM runs objects of both byte orders";
    assert_eq!(linked.failures[0].error.to_string(), expected);
}

/// `thrower` of section `tc` with a tag, and two functions in `.text`.
fn thrower(tag: &str, handler: u8, linkage: usize) -> KernelLinked {
    let mut types = Build::new(Endian::Little);
    let int = types.int("int", 4, SIGNED);
    let proto = types.proto(int, &[("cookie", int)]);
    let func = types.func("thrower", proto, linkage);
    types.add(tag, 17, 0, false, func, &[u32::MAX]);
    let mut elf = Writer::new(Endian::Little);
    let tc = elf.code("tc", &code("r0 = 1\nexit"));
    elf.function("thrower", GLOBAL, tc, 0..2);
    let text = elf.code(".text", &code("r0 = 7\nexit\nr0 = r1\nexit"));
    elf.function("other", GLOBAL, text, 0..2);
    elf.function("handler", handler, text, 2..4);
    elf.section(".BTF", PROGBITS, 0, &types.bytes());
    link(&elf.open(), &kernel(""))
}

#[test]
fn the_function_that_handles_exceptions_is_part_of_the_program() {
    let linked = thrower("exception_callback:handler", GLOBAL, 1);
    assert!(linked.failures.is_empty(), "{:#}", linked.failures[0].error);
    let functions: Vec<_> = linked.programs[0].functions.iter().map(|(start, name)| (*start, &**name)).collect();
    assert_eq!(functions, [(0, "thrower"), (2, "handler")]);
    let expected: Vec<Raw> = code("r0 = 1\nexit\nr0 = r1\nexit").iter().map(|insn| insn.encode()).collect();
    assert_eq!(linked.programs[0].insns, expected);
    assert_eq!(thrower("exception_callback", GLOBAL, 1).programs[0].functions.len(), 1);
}

#[test]
fn tags_of_exceptions_that_name_nothing_are_libbpfs_errors() {
    for (tag, handler, linkage, says) in [
        ("exception_callback:nobody", GLOBAL, 1, "cannot find exception callback 'nobody'"),
        ("exception_callback:", GLOBAL, 1, "exception_callback:<value> decl tag contains empty value"),
        ("exception_callback:handler", LOCAL, 1, "exception callback handler must be a global non-hidden function"),
        (
            "exception_callback:handler",
            GLOBAL,
            0,
            "exception_callback:<value> decl tag not applied to the main program",
        ),
    ] {
        let linked = thrower(tag, handler, linkage);
        assert_eq!(linked.failures[0].error.to_string(), format!("x.o: thrower (section tc): {says}"));
    }
}

#[test]
fn tagged_arguments_get_the_type_that_old_kernels_take_for_the_context() {
    let mut types = Build::new(Endian::Little);
    let int = types.int("int", 4, SIGNED);
    let void = types.ptr(0);
    let md = types.structure("xdp_md", 0, &[]);
    let (md, int_ptr) = (types.ptr(md), types.ptr(int));
    let mut func = |name: &str, arg, linkage, tagged: bool| {
        let proto = types.proto(int, &[("number", int), ("ctx", arg)]);
        let func = types.func(name, proto, linkage);
        if tagged {
            types.add("arg:ctx", 17, 0, false, func, &[1]);
        }
        func
    };
    let funcs = [
        func("main", void, 1, false),
        func("any", void, 1, true),
        func("named", md, 1, true),
        func("local", void, 0, true),
        func("number", int_ptr, 1, true),
    ];
    let btf = types.bytes();
    let mut elf = Writer::new(Endian::Little);
    let xdp = elf.code("xdp", &code("r0 = 1\nexit"));
    elf.function("main", GLOBAL, xdp, 0..2);
    elf.section(".BTF", PROGBITS, 0, &btf);
    let object = elf.open();
    let mut linked = link(&object, &kernel(""));
    let infos = funcs.iter().map(|func| FuncInfo { insn_off: 0, type_id: TypeId(*func) });
    linked.programs[0].func_info = infos.collect();
    let found = object.context_types(&linked).expect("types");
    let program = &linked.programs[0];
    let copies = funcs.map(|func| found.func(program, TypeId(func)));
    let [main, any, named, local, number] = funcs.map(TypeId);
    assert_eq!([copies[0], copies[2], copies[3], copies[4]], [main, named, local, number]);
    let edited = Btf::parse(&found.btf, Endian::Little).expect("what was written is read");
    assert!(copies[1] > any && edited.name(copies[1]) == "any");
    let Some(Type::Func { proto, linkage: Linkage::Global }) = edited.type_by_id(copies[1]) else {
        panic!("a function")
    };
    let Some(Type::FuncProto(proto)) = edited.type_by_id(proto) else { panic!("a prototype") };
    let params: Vec<_> = proto.params().map(|param| (param.name, edited.type_name(param.type_id))).collect();
    assert_eq!(params, [("number", "int".to_owned()), ("ctx", "struct xdp_md *".to_owned())]);
    let is_tag = |id: &TypeId| match edited.type_by_id(*id) {
        Some(Type::DeclTag { target, component: 1 }) => target == copies[1] && edited.name(*id) == "arg:ctx",
        _ => false,
    };
    assert_eq!(edited.ids().filter(is_tag).count(), 1);
    let mismatches: Vec<_> = found.mismatches.iter().map(String::as_str).collect();
    assert_eq!(mismatches, ["prog 'main': subprog 'number' arg#1 is expected to be of `struct xdp_md *` type"]);
    // What was there keeps its number and its bytes.
    let own = object.kernel_btf().expect("types");
    assert_eq!(edited.type_name(TypeId(funcs[1])), "any");
    assert_eq!(own[24..][..20], found.btf[24..][..20]);
}

#[test]
fn failing_helpers_are_counted_by_program_and_map() {
    let mut elf = Writer::new(Endian::Little);
    // A jump across the second call, one to the instruction after the first, and a helper that loses nothing.
    let insns =
        code("r1 = 0 ll\ncall 131\nif r0 == 0 goto end\nif r0 == 5 goto end\ncall 2\nend:\ncall 5\nr0 = 0\nexit");
    let section = elf.code("xdp", &insns);
    elf.function("main", GLOBAL, section, 0..insns.len() as u64);
    let object = elf.open();
    let mut linked = link(&object, &KernelData::default());
    let before = linked.programs[0].insns.clone();
    let counters = linked.count_dropped().unwrap().expect("two helpers");
    assert_eq!((counters.map, linked.maps.len()), (0, 1));
    let names: Vec<_> = counters.counters.iter().map(|counter| (&*counter.program, counter.helper.name)).collect();
    // From the end of the program.
    assert_eq!(names, [("main", "bpf_map_update_elem"), ("main", "bpf_ringbuf_reserve")]);
    let program = &linked.programs[0];
    // A result that is no null goes across the program's own check, too.
    let text = "r1 = 0 ll\ncall 131\nif r0 != 0 goto on\nr1 = map_value(0) ll\nr2 = 1\nlock *(u64 *)(r1 + 0) += r2\n\
        if r0 == 0 goto end\non:\nif r0 == 5 goto end\ncall 2\n\
        if r0 == -7 goto add\nif r0 == -12 goto add\nif r0 != -16 goto end\n\
        add:\nr1 = map_value(0) ll\nr2 = 1\nlock *(u64 *)(r1 + 0) += r2\nend:\ncall 5\nr0 = 0\nexit";
    let mut wanted: Vec<Raw> = code(text).into_iter().map(Insn::encode).collect();
    // The second word of the counters.
    wanted[5].imm = 8;
    assert_eq!(program.insns, wanted);
    let fixups: Vec<_> = program.fixups.iter().map(|(pc, fixup)| (*pc, fixup.clone())).collect();
    assert_eq!(fixups, [(4, Fixup::MapValue(0)), (14, Fixup::MapValue(0))]);
    // An object without such calls stays as it is.
    linked.programs[0].insns.clone_from(&before);
    linked.programs[0].insns.retain(|raw| raw.opcode != 0x85);
    assert_eq!(linked.count_dropped(), Ok(None));
    assert_eq!(linked.maps.len(), 1);
}
