//! Where uprobes may go: instructions, found from symbols and from `.eh_frame`.
#![expect(unsafe_code, reason = "the probed function needs a name in the symbol table")]

use std::path::{Path, PathBuf};

use super::{RETURN_0, allowed, load};
use twinbpf_kernel::link::{Functions, Return, UprobeSite};
use twinbpf_kernel::user::{Binary, Boundary};
use twinbpf_kernel::{AttachType, Options, Prog, ProgLoad, ProgType, Target};

/// Has a loop and calls, so that its instructions are of many lengths.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn twinbpf_test_probed(count: u64) -> u64 {
    (0..count).map(|number| std::hint::black_box(number).wrapping_mul(0x1234_5678_9abc)).sum()
}

fn own() -> (PathBuf, u64) {
    assert_eq!(std::hint::black_box(twinbpf_test_probed as extern "C" fn(u64) -> u64)(2), 0x1234_5678_9abc);
    let path = std::env::current_exe().unwrap();
    let offset = Binary::read(&path).unwrap().function("twinbpf_test_probed").unwrap();
    (path, offset)
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// The file without some sections: their sizes are 0.
fn without(path: &Path, sections: &[&str]) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    let (table, size) = (number(&bytes, 0x28, 8), number(&bytes, 0x3a, 2));
    let (count, names) = (number(&bytes, 0x3c, 2), number(&bytes, 0x3e, 2));
    let names = number(&bytes, table + names * size + 0x18, 8);
    for header in (0..count).map(|index| table + index * size) {
        let name = &bytes[names + number(&bytes, header, 4)..];
        let name = std::str::from_utf8(name.split(|byte| *byte == 0).next().unwrap()).unwrap();
        if sections.contains(&name) {
            bytes[header + 0x20..header + 0x28].fill(0);
        }
    }
    bytes
}

/// An offset inside of the first instruction of several bytes, and where that begins.
fn inside(binary: &Binary, function: u64) -> (u64, u64) {
    let found = (function + 1..function + 64).find_map(|offset| match binary.boundary(offset) {
        Boundary::Inside { insn, .. } => Some((offset, insn.start)),
        Boundary::Function | Boundary::Instruction | Boundary::Unknown(_) => None,
    });
    found.expect("an instruction of several bytes")
}

pub(crate) fn instructions_are_found_from_symbols_and_from_frames() {
    let (path, function) = own();
    let whole = Binary::read(&path).unwrap();
    let stripped = Binary::parse(without(&path, &[".symtab"])).unwrap();
    assert!(stripped.function("twinbpf_test_probed").is_err());
    let (offset, start) = inside(&whole, function);
    for binary in [&whole, &stripped] {
        assert_eq!(binary.boundary(function), Boundary::Function);
        assert!(matches!(&binary.boundary(offset), Boundary::Inside { insn, function: first }
            if insn.start == start && *first == function));
        assert!(matches!(binary.boundary(start), Boundary::Function | Boundary::Instruction));
    }
    for offset in function..function + 64 {
        assert_eq!(whole.boundary(offset), stripped.boundary(offset), "{offset:#x}");
    }
    let bare = Binary::parse(without(&path, &[".symtab", ".eh_frame"])).unwrap();
    assert!(matches!(bare.boundary(function), Boundary::Unknown(why) if why.contains("no entry of .eh_frame")));
    assert!(matches!(whole.boundary(0), Boundary::Unknown("no code of the file is there")));
    assert!(matches!(whole.boundary(u64::MAX), Boundary::Unknown(_)));
}

/// The results of both kinds of attachments for a place.
fn refusals(path: &Path, offset: u64, ret: bool, unproven_places: bool) -> Option<[Result<(), String>; 2]> {
    let single = allowed(load(ProgType::Kprobe, RETURN_0))?;
    let insns = super::code(RETURN_0);
    let mut many = ProgLoad::new("test", ProgType::Kprobe, &insns, "GPL");
    many.target.attach = AttachType::TraceUprobeMulti as u32;
    let site = UprobeSite { offset, ..UprobeSite::default() };
    let (path, functions) = (path.to_owned(), Functions::Sites(vec![site]));
    let options = Options { pid: Some(std::process::id()), unproven_places, ..Options::default() };
    let says = |target: Target, prog: &Prog| match target.open(prog, &options) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    let one = says(Target::Uprobe { path: path.clone(), site, ret }, &single);
    let ret = if ret { Return::Yes } else { Return::No };
    let multi = match Prog::load(&many) {
        Ok(prog) => says(Target::UprobeMulti { path, functions, ret }, &prog),
        Err(_) => one.clone(),
    };
    Some([one, multi])
}

pub(crate) fn a_uprobe_inside_an_instruction_is_refused() {
    let (path, function) = own();
    let (offset, start) = inside(&Binary::read(&path).unwrap(), function);
    for unproven in [false, true] {
        let Some(said) = refusals(&path, offset, false, unproven) else { return };
        for said in said {
            let text = said.expect_err("it is no instruction");
            let expected = format!("offset {offset:#x} is inside the instruction at {start:#x} to ");
            assert!(text.contains(&expected), "{text}");
        }
    }
    for offset in [function, start] {
        for said in refusals(&path, offset, false, false).expect("as above") {
            assert_eq!(said, Ok(()), "{offset:#x}");
        }
    }
}

pub(crate) fn a_place_that_nothing_proves_needs_an_option() {
    let (path, function) = own();
    let file = std::env::temp_dir().join(format!("twinbpf-bare-{}", std::process::id()));
    std::fs::write(&file, without(&path, &[".symtab", ".eh_frame"])).unwrap();
    let (refused, taken) = (refusals(&file, function, false, false), refusals(&file, function, false, true));
    std::fs::remove_file(&file).unwrap();
    let (Some(refused), Some(taken)) = (refused, taken) else { return };
    for said in refused {
        let text = said.expect_err("nothing says what is there");
        assert!(text.contains("no entry of .eh_frame covers it; --unsafe attaches all the same"), "{text}");
    }
    assert_eq!(taken, [Ok(()), Ok(())]);
}

pub(crate) fn a_return_probe_goes_to_the_start_of_a_function() {
    let (path, function) = own();
    let binary = Binary::read(&path).unwrap();
    let later = (function + 1..function + 64).find(|offset| binary.boundary(*offset) == Boundary::Instruction);
    let Some(said) = refusals(&path, later.expect("an instruction"), true, false) else { return };
    for said in said {
        let text = said.expect_err("what lies on the stack there is no return address");
        assert!(text.contains("a return address is known at the start of a function only"), "{text}");
    }
    assert_eq!(refusals(&path, function, true, false), Some([Ok(()), Ok(())]));
}
