//! The C header of a BTF against the compiler: every type of the kernel, and every type of the corpus, goes through
//! clang and comes back with the same members at the same bits.
//!
//! Needs clang-19, and for the kernel's types `/sys/kernel/btf/vmlinux`; skips with a reason without them, unless
//! `TWINBPF_CI=1`.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use support::{corpus, harness, installed, objects, skip};
use twinbpf_btf::{Btf, Composite, Enum, Type, TypeId};
use twinbpf_loader::Object;

const CLANG: &str = "clang-19";
/// Variables in one file; the time that clang takes grows with the square.
const AT_ONCE: usize = 1000;
/// Of so many such files one is tested, where time matters.
const SAMPLE: usize = 6;

/// Types of this kernel.
fn kernel() -> Option<Btf> {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
    let endian = Btf::detect_endian(&bytes).expect("the kernel's BTF has a magic");
    Some(Btf::parse(&bytes, endian).expect("the kernel's BTF parses"))
}

/// Compiles C for BPF.
fn compile(source: &str, flags: &[&str]) -> Object {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("input.c"), folder.path().join("output.o"));
    std::fs::write(&input, source).unwrap();
    let mut clang = Command::new(CLANG);
    clang.args(["-target", "bpf", "-g", "-c", "-Wall", "-Wextra", "-Werror"]).args(flags);
    let result = clang.arg(&input).arg("-o").arg(&output).output().unwrap();
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    Object::open("output.o", &std::fs::read(&output).unwrap()).unwrap()
}

/// A variable of each struct, union and enum that the header defines, and a pointer to each typedef.
fn variables(header: &str) -> Vec<String> {
    let mut variables = Vec::new();
    for (index, line) in header.lines().enumerate() {
        let open = line.strip_suffix(" {").filter(|line| !line.starts_with("typedef") && !line.starts_with('\t'));
        if let Some(tag) = open.filter(|tag| tag.contains(' ')) {
            variables.push(format!("{tag} v{index};\n"));
        }
        // Also the last line of `typedef struct {`.
        let typedef = line.strip_prefix("typedef ").or(line.strip_prefix('}')).and_then(|line| line.strip_suffix(';'));
        let typedef = typedef.map(|line| line.strip_prefix(" __attribute__((packed))").unwrap_or(line));
        if let Some(typedef) = typedef.filter(|typedef| !typedef.is_empty() && !typedef.starts_with(" __attribute__")) {
            let (before, rest) = typedef.split_once('(').unwrap_or((typedef, ""));
            let name = rest.strip_prefix('*').unwrap_or(before);
            let name = name.split(['(', ')', '[']).next().unwrap();
            let name = name.trim_end().rsplit([' ', '*']).next().unwrap();
            variables.push(format!("{name} *v{index};\n"));
        }
    }
    variables
}

/// A name without the `___2` of a second type of that name.
fn essential(name: &str) -> &str {
    match name.rsplit_once("___") {
        Some((essential, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => essential,
        _ => name,
    }
}

/// A type where it is used: named ones by name, others whole.
fn usage(btf: &Btf, id: TypeId, depth: usize) -> String {
    assert!(depth < 60, "types without end");
    let next = |id| usage(btf, id, depth + 1);
    let name = essential(btf.name(id));
    match btf.type_by_id(id).expect("a type") {
        Type::Void => "void".to_owned(),
        // The kernel says that its char has no sign.
        Type::Int(_) if btf.is_char(id) => "char".to_owned(),
        Type::Int(int) => format!("int {} {} {}", int.size, int.signed, int.is_bool),
        Type::Float { size } => format!("float {size}"),
        Type::Ptr(to) => format!("*({})", next(to)),
        Type::Array(array) => format!("[{}] {}", array.len, next(array.elem)),
        Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) => next(to),
        Type::TypeTag(to) => next(to),
        Type::Struct(_) | Type::Fwd { is_union: false } if !name.is_empty() => format!("struct {name}"),
        Type::Union(_) | Type::Fwd { is_union: true } if !name.is_empty() => format!("union {name}"),
        Type::Enum(_) | Type::Enum64(_) if !name.is_empty() => format!("enum {name}"),
        Type::Struct(found) | Type::Union(found) => composite(btf, &found, depth),
        Type::Enum(found) | Type::Enum64(found) => enumeration(&found),
        Type::Typedef(_) => format!("typedef {name}"),
        Type::FuncProto(proto) => {
            let params: Vec<_> = proto.params().map(|param| next(param.type_id)).collect();
            format!("{} ({}){}", next(proto.result), params.join(", "), proto.is_variadic())
        }
        Type::Func { .. } | Type::Var { .. } | Type::Datasec(_) | Type::DeclTag { .. } | Type::Fwd { .. } => {
            panic!("{id} is used as a type")
        }
    }
}

fn composite(btf: &Btf, found: &Composite<'_>, depth: usize) -> String {
    let mut text = format!("size {}", found.size);
    for member in found.members() {
        let ty = usage(btf, member.type_id, depth + 1);
        _ = write!(text, "; {} @{}:{} {ty}", member.name, member.bit_offset, member.bits);
    }
    format!("{{{text}}}")
}

fn enumeration(found: &Enum<'_>) -> String {
    let mask = u64::MAX >> (64 - found.size * 8);
    let values = found.enumerators().map(|e| format!("{} = {}", essential(e.name), e.value as u64 & mask));
    format!("size {} {}", found.size, values.collect::<Vec<_>>().join(", "))
}

/// Every definition with a name: how often it is there.
fn definitions(btf: &Btf) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for id in btf.ids().filter(|&id| !btf.name(id).is_empty()) {
        let name = essential(btf.name(id));
        let text = match btf.type_by_id(id).unwrap() {
            Type::Struct(found) => format!("struct {name} {}", composite(btf, &found, 0)),
            Type::Union(found) => format!("union {name} {}", composite(btf, &found, 0)),
            Type::Enum(found) | Type::Enum64(found) if !found.is_empty() => {
                format!("enum {name} {}", enumeration(&found))
            }
            // The compiler has one of its own, so that the header's has another name.
            Type::Typedef(_) if ["__builtin_va_list", "__builtin_va_list_", "va_list"].contains(&name) => continue,
            Type::Typedef(to) => format!("typedef {name} {}", usage(btf, to, 0)),
            _ => continue,
        };
        *all.entry(text).or_insert(0) += 1;
    }
    all
}

/// Puts all types through the compiler; gives how many came back.
fn round_trip(what: &str, btf: &Btf) -> usize {
    let header = btf.to_c(None).unwrap();
    assert!(!header.contains("\tchar __opaque["), "{what}: all of this can be said in C");
    let expected = definitions(btf);
    let mut found = BTreeMap::new();
    let variables = variables(&header);
    // All of a kernel's is for CI.
    let step = if std::env::var_os("TWINBPF_CI").is_some() { 1 } else { SAMPLE };
    for some in variables.chunks(AT_ONCE).step_by(step) {
        let back = compile(&format!("{header}\n{}", some.concat()), &[]).btf.expect("-g writes BTF");
        definitions(&back).into_iter().for_each(|(text, count)| *found.entry(text).or_insert(0) += count);
    }
    if let Some((text, _)) = found.iter().find(|(text, _)| !expected.contains_key(*text)) {
        panic!("{what}: not what there was: {text}");
    }
    if variables.len() > AT_ONCE && step > 1 {
        return found.len();
    }
    let lost = |(text, &count): (&String, &usize)| found.get(text).is_none_or(|&other| other < count);
    let lost: Vec<&str> = expected.iter().filter(|entry| lost(*entry)).map(|(text, _)| text.as_str()).collect();
    assert!(lost.is_empty(), "{what}: {} lost, such as\n{}", lost.len(), lost[..lost.len().min(5)].join("\n"));
    expected.values().sum()
}

fn every_type_of_the_kernel_comes_back() {
    if !installed(CLANG) {
        return skip("clang-19 is not installed");
    }
    let Some(btf) = kernel() else { return skip("the kernel has no BTF") };
    let count = round_trip("kernel", &btf);
    assert!(count > 1000, "{count} types of a kernel");
}

fn every_type_of_the_corpus_comes_back() {
    if !installed(CLANG) {
        return skip("clang-19 is not installed");
    }
    let mut count = 0;
    for name in objects(&["scripts", "maps", "packets", "kernel"]) {
        let object = Object::open(&name, &std::fs::read(corpus().join(&name)).unwrap()).unwrap();
        if let Some(btf) = object.btf {
            count += round_trip(&name, &btf);
        }
    }
    assert!(count > 100, "{count} types of the corpus");
}

fn the_header_is_in_every_dialect_and_relocates() {
    if !installed(CLANG) {
        return skip("clang-19 is not installed");
    }
    let Some(btf) = kernel() else { return skip("the kernel has no BTF") };
    let header = btf.to_c(None).unwrap();
    let source = format!(
        "{header}\nint pid(struct task_struct *task) {{ return task->tgid; }}\n\
         struct task_struct *take(struct task_struct *task) {{ return bpf_task_acquire(task); }}\n"
    );
    for dialect in ["-std=gnu11", "-std=gnu17", "-std=gnu23"] {
        let object = compile(&source, &["-O2", dialect]);
        let relocs = |name| object.core_relocs(&object.programs[object.program(name).unwrap()]).len();
        assert_eq!((relocs("pid"), object.externs.len()), (1, 1), "{dialect}");
    }
}

harness::tests! {
    every_type_of_the_kernel_comes_back,
    every_type_of_the_corpus_comes_back,
    the_header_is_in_every_dialect_and_relocates,
}
