//! The exact words of errors and traps. Each case runs the command and compares standard error with a file in
//! `errors/`; `BLESS=1` rewrites the files.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{corpus, mask, modes, stderr, twinbpf};

/// Runs the command in `folder` and compares.
fn case(name: &str, folder: &Path, args: &[&str]) {
    let output = twinbpf().current_dir(folder).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let found = mask(&String::from_utf8_lossy(&output.stderr));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors").join(format!("{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, found).unwrap();
        return;
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} {args:?}: standard error differs from {}", path.display());
}

/// The same words on every engine, but for native code that accesses memory in one of the `other` modes: its words are
/// in a file of its own.
fn on_engines(name: &str, args: &[&str], other: &[&str]) {
    for mode in modes() {
        // What is compiled before has its own tests.
        if mode.kept {
            continue;
        }
        // One that counts instructions by itself.
        if mode.fuel && args.contains(&"--max-insns") {
            continue;
        }
        let own = mode.memory.filter(|memory| other.contains(memory)).map(|memory| format!("{name}-{memory}"));
        case(own.as_deref().unwrap_or(name), &corpus(), &[&args[..1], &mode.args, &args[1..]].concat());
    }
}

fn fault(name: &str) {
    on_engines(name, &["run", &format!("faults/{name}.bpf.o")], &[]);
}

/// A folder with one object made of the hello script.
struct Damaged {
    folder: tempfile::TempDir,
}

impl Damaged {
    fn new(damage: impl FnOnce(&mut Vec<u8>)) -> Damaged {
        let mut bytes = fs::read(corpus().join("scripts/hello.bpf.o")).unwrap();
        damage(&mut bytes);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("hello.bpf.o"), bytes).unwrap();
        Damaged { folder }
    }

    fn case(&self, name: &str) {
        case(name, self.folder.path(), &["run", "hello.bpf.o"]);
    }
}

/// File offset and size of a section, read from the section headers by hand.
fn section(bytes: &[u8], wanted: &str) -> (usize, usize) {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let header = |index: usize| u64_at(0x28) + index * u16_at(0x3a);
    let names = u64_at(header(u16_at(0x3e)) + 0x18);
    for at in (0..u16_at(0x3c)).map(header) {
        let name = names + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let end = name + bytes[name..].iter().position(|byte| *byte == 0).unwrap();
        if bytes[name..end] == *wanted.as_bytes() {
            return (u64_at(at + 0x18), u64_at(at + 0x20));
        }
    }
    panic!("no section {wanted}");
}

#[test]
fn unknown_symbol() {
    fault("unknown_symbol");
}

#[test]
fn wild_load() {
    on_engines("wild_load", &["run", "faults/wild_load.bpf.o"], &["sandbox", "trusted"]);
}

#[test]
fn wild_load_inside_the_sandbox() {
    on_engines("wild_inside", &["run", "faults/wild_inside.bpf.o"], &["trusted"]);
}

#[test]
fn wild_store() {
    on_engines("wild_store", &["run", "faults/wild_store.bpf.o"], &["sandbox", "trusted"]);
}

#[test]
fn null_pointer() {
    fault("null_load");
}

#[test]
fn one_byte_past_a_map_value() {
    // Native code knows pages only.
    for mode in modes().iter().filter(|mode| mode.memory.is_none()) {
        case("value_overflow", &corpus(), &[&["run"], &mode.args[..], &["faults/value_overflow.bpf.o"]].concat());
    }
}

#[test]
fn endless_recursion() {
    fault("endless_recursion");
}

#[test]
fn stack_bytes() {
    on_engines("deep_frames", &["run", "--stack-size", "65536", "faults/deep_frames.bpf.o"], &[]);
}

#[test]
fn limits_of_calls_have_options() {
    let run = |args: &[&str]| twinbpf().current_dir(corpus()).arg("run").args(args).output().unwrap();
    let output = run(&["--stack-size", "65536", "--stack-limit", "100000000", "faults/deep_frames.bpf.o"]);
    assert!(output.status.success(), "{output:?}");
    let text = stderr(&run(&["--max-depth", "10", "faults/endless_recursion.bpf.o"]));
    assert!(text.contains("the call of down is one too many, the limit is 10"), "{text}");
}

#[test]
fn instruction_limit() {
    on_engines("max_insns", &["run", "--max-insns", "100000", "faults/endless_loop.bpf.o"], &[]);
}

#[test]
fn call_of_an_unresolved_weak_symbol() {
    fault("weak_call");
}

#[test]
fn declarations_that_cannot_be_obeyed() {
    fault("bad_display");
}

#[test]
fn string_at_a_bad_pointer() {
    fault("bad_string");
}

#[test]
fn store_to_constants() {
    fault("read_only");
}

#[test]
fn time_limit() {
    // Where the loop is when the time is over differs from run to run.
    for mode in modes() {
        let args = [&["run"], &mode.args[..], &["--timeout", "50ms", "faults/endless_loop.bpf.o"]].concat();
        let output = twinbpf().current_dir(corpus()).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{mode:?}");
        assert!(
            text.starts_with("twinbpf: time limit reached: 50ms\n  at faults/endless_loop.bpf.o: program BEGIN, insn "),
            "{mode:?}: {text}"
        );
    }
}

#[test]
fn no_btf() {
    fault("no_btf");
}

#[test]
fn truncated_elf() {
    Damaged::new(|bytes| bytes.truncate(1000)).case("truncated");
    Damaged::new(|bytes| bytes.truncate(20)).case("truncated_header");
    Damaged::new(Vec::clear).case("empty");
}

#[test]
fn not_an_object() {
    Damaged::new(|bytes| bytes[..4].copy_from_slice(b"#!/b")).case("not_elf");
}

#[test]
fn elf_of_another_machine() {
    Damaged::new(|bytes| bytes[0x12..0x14].copy_from_slice(&62u16.to_le_bytes())).case("machine");
}

#[test]
fn corrupt_btf() {
    let damaged = Damaged::new(|bytes| {
        let (at, _) = section(bytes, ".BTF");
        // The type section claims more than there is.
        bytes[at + 12..at + 16].copy_from_slice(&u32::MAX.to_le_bytes());
    });
    damaged.case("btf");
}

#[test]
fn corrupt_relocations() {
    let reloc = |off: usize, value: u64| {
        Damaged::new(move |bytes| {
            let (at, _) = section(bytes, ".rel.text");
            bytes[at + off..at + off + 8].copy_from_slice(&value.to_le_bytes());
        })
    };
    reloc(0, 0x7777_7777).case("reloc_offset");
    reloc(8, 0xffff << 32 | 1).case("reloc_symbol");
}

#[test]
fn variables_that_cannot_be_set() {
    let set = |name: &str, set: &str| case(name, &corpus(), &["run", "--set", set, "scripts/globals.bpf.o"]);
    set("set_unknown", "no_such=1");
    set("set_range", "tiny=256");
    set("set_enum", "mode=SIDEWAYS");
    set("set_string", "greeting=a string that is much too long for the array it shall go into");
    set("set_syntax", "level");
}

#[test]
fn files_that_are_not_there() {
    case("no_file", &corpus(), &["run", "no_such.bpf.o"]);
    // Beyond the kernel's largest number of a process.
    case("no_process", &corpus(), &["enabled", "4194305"]);
    case("no_program", &corpus(), &["exec", "scripts/hello.bpf.o:nobody"]);
    case("several_programs", &corpus(), &["exec", "packets/xdp_vlan.bpf.o"]);
    case("no_library", &corpus(), &["run", "--lib", "libno-such.so.1", "scripts/hello.bpf.o"]);
    case("no_script", &corpus(), &["run", "packets/xdp_parse.bpf.o"]);
}

#[test]
fn pointers_need_trust() {
    // The library has the function, and the prototype has a pointer.
    let folder: PathBuf = corpus();
    case("pointer_prototype", &folder, &["run", "--lib", "libc.so.6", "faults/library_pointer.bpf.o"]);
    // Without one, the object's word does not make it safe.
    case("undeclared_prototype", &folder, &["run", "--lib", "libc.so.6", "faults/library_write.bpf.o"]);
    case("other_prototype", &folder, &["run", "--lib", "libc.so.6", "faults/library_labs.bpf.o"]);
    let bad = ["run", "--lib", "libc.so.6", "--extern", "long write(int,", "faults/library_write.bpf.o"];
    case("bad_declaration", &folder, &bad);
    let trusted = |name: &str, object: &str| case(name, &folder, &["run", "--trust", "--lib", "libc.so.6", object]);
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        trusted("c_fault", "faults/c_fault.bpf.o");
        trusted("c_compare", "faults/compare.bpf.o");
        case("trusted_load", &folder, &["run", "--trust", "faults/wild_load.bpf.o"]);
    }
}
