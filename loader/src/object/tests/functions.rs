//! What symbols say of functions.

use super::*;

#[test]
fn functions_of_old_llvm_have_no_type() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("socket", &code("r0 = 1\nexit\nr0 = 2\nexit\nexit"));
    elf.symbol("first", (NOTYPE, GLOBAL), (text, 0, 0));
    elf.symbol("LBB0_1", (NOTYPE, LOCAL), (text, 8, 0));
    elf.symbol("second", (NOTYPE, GLOBAL), (text, 16, 0));
    elf.symbol("hidden", (NOTYPE, LOCAL), (text, 32, 0));
    let object = elf.open();
    let found: Vec<_> = object.programs.iter().map(|spec| (&*spec.name, spec.start, spec.insns.len())).collect();
    assert_eq!(found, [("first", 0, 2), ("second", 2, 2), ("hidden", 4, 1)]);
}

#[test]
fn static_functions_outside_text_are_entries_only_if_nothing_calls_them() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &[&[call(1)][..], &code("exit\nexit\nexit")].concat());
    elf.function("prog", GLOBAL, text, 0..2);
    elf.function("called", LOCAL, text, 2..3);
    elf.function("lonely", LOCAL, text, 3..4);
    let object = elf.open();
    let roles: Vec<_> = object.programs.iter().map(|spec| spec.role).collect();
    assert_eq!(roles, [Role::Entry, Role::Function, Role::Entry]);
    assert!(notes(&object).contains(&"section xdp: accepted: 'called' is static".into()));
}

#[test]
fn odd_function_symbols_fail_alone() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &code("exit\nexit"));
    elf.function("good", GLOBAL, text, 0..1);
    elf.symbol("crooked", (FUNC, GLOBAL), (text, 9, 7));
    elf.symbol("endless", (FUNC, GLOBAL), (text, 8, u64::MAX));
    let linked = elf.open().link(&LinkOptions::default()).expect("links");
    assert_eq!(linked.programs.len(), 1);
    let errors: Vec<_> = linked.failures.iter().map(|failure| failure.error.to_string()).collect();
    let endless =
        "x.o: endless (section xdp): the function covers bytes 8 to 18446744073709551615 of a section of 16 bytes";
    assert_eq!(
        errors,
        [endless, "x.o: crooked (section xdp): the function covers bytes 9 to 16 of a section of 16 bytes"]
    );
}

#[test]
fn functions_that_clang_left_empty_are_errors() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code(".text", &code("exit"));
    elf.symbol("BEGIN", (FUNC, GLOBAL), (text, 0, 0));
    elf.function("END", GLOBAL, text, 0..1);
    let other = elf.code("tc", &code("exit"));
    elf.function("first", GLOBAL, other, 0..1);
    elf.symbol("last", (FUNC, GLOBAL), (other, 8, 0));
    let nothing = elf.code("xdp", &[]);
    elf.symbol("alone", (FUNC, GLOBAL), (nothing, 0, 0));
    let linked = elf.open().link(&LinkOptions::default()).expect("links");
    assert_eq!(linked.programs.iter().map(|program| &*program.name).collect::<Vec<_>>(), ["END", "first"]);
    let errors: Vec<_> = linked.failures.iter().map(|failure| failure.error.to_string()).collect();
    let words = "clang left the function empty, as every path through it is undefined; \
        look for a null pointer, a loop without end, or a missing return";
    let sections = ["BEGIN (section .text)", "last (section tc)", "alone (section xdp)"];
    assert_eq!(errors, sections.map(|name| format!("x.o: {name}: {words}")));
}

#[test]
fn functions_without_size_reach_to_the_next() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &code("r0 = 1\nexit\nr0 = 2\nexit"));
    elf.symbol("first", (FUNC, GLOBAL), (text, 0, 0));
    elf.symbol("alias", (FUNC, GLOBAL), (text, 0, 0));
    elf.symbol("second", (FUNC, GLOBAL), (text, 16, 0));
    let object = elf.open();
    assert_eq!(object.programs.iter().map(|spec| spec.insns.len()).collect::<Vec<_>>(), [2, 2, 2]);
}

#[test]
fn overlapping_functions_share_a_limit() {
    let mut elf = Writer::new(Endian::Little);
    let text = elf.code("xdp", &vec![Insn::Exit; 1000]);
    for index in 0..100 {
        elf.function(&format!("f{index}"), GLOBAL, text, 0..1000);
    }
    let object = elf.open();
    let kept: usize = object.programs.iter().map(|spec| spec.insns.len()).sum();
    assert_eq!(kept, 5_000);
    assert!(matches!(object.programs[99].fault, Some(Cause::TooLarge { .. })));
}
