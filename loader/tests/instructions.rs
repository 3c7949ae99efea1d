//! What we would give a kernel, beside what stock libbpf gives it: the same instructions byte for byte, the same
//! function and line records, the same attach target.
//!
//! The C program `libbpf/insns.c` has Debian's libbpf load each object and prints what it passes to `BPF_PROG_LOAD`;
//! no kernel sees these programs, so that types of programs and maps that this one does not know take part too.
//!
//! Needs gcc, libbpf-dev, a kernel with BTF and the right to call bpf(2); skips with a reason without them, unless
//! `TWINBPF_CI=1`.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use support::{cilium, corpus, harness, libbpf_program, objects, selftests, skip, xdp_tools};
use twinbpf_btf::{Btf, Endian};
use twinbpf_isa::Insn;
use twinbpf_isa::program::Binding;
use twinbpf_loader::kernel::{
    AttachBtf, KernelData, KernelLinked, KernelOptions, KernelProgram, Module, kernel_version,
};
use twinbpf_loader::section::SectionKind;
use twinbpf_loader::{LinkOptions, Object};

/// The C program, or why there is none.
fn program() -> &'static Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err("this kernel has no BTF".to_owned());
        }
        let binary = libbpf_program("tests/libbpf/insns.c")?;
        let probe = corpus().join("kernel/filter.bpf.o");
        let output = Command::new(&binary).arg(probe).output().expect("the program runs");
        match String::from_utf8_lossy(&output.stdout).contains("\nprog\t") {
            true => Ok(binary),
            false => Err(format!("libbpf loads nothing here: {}", String::from_utf8_lossy(&output.stdout).trim())),
        }
    })
}

/// This kernel.
fn kernel() -> &'static KernelData {
    static KERNEL: OnceLock<KernelData> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let read = |path: &str| fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let text = |path: &str| String::from_utf8_lossy(&read(path)).trim().to_owned();
        let btf = Btf::parse(&read("/sys/kernel/btf/vmlinux"), Endian::Little).expect("the kernel's BTF");
        let release = text("/proc/sys/kernel/osrelease");
        let kallsyms = text("/proc/kallsyms");
        KernelData {
            btf: Some(Arc::new(btf)),
            modules: Vec::new(),
            config: config(&release),
            version: version(&release),
            bpf_cookie: true,
            syscall_wrapper: kallsyms.contains(" __x64_sys_bpf\n") || kallsyms.contains(" __arm64_sys_bpf\n"),
            kallsyms: Some(kallsyms),
        }
    })
}

/// libbpf's rule: Debian hides the third number in the text of `uname -v`.
fn version(release: &str) -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/version").expect("the kernel's version");
    let debian = text.split_once("Debian ").map_or(release, |(_, version)| version);
    kernel_version(debian).expect("numbers in the kernel's release")
}

fn config(release: &str) -> Option<String> {
    if let Ok(text) = fs::read_to_string(format!("/boot/config-{release}")) {
        return Some(text);
    }
    let output = Command::new("zcat").arg("/proc/config.gz").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What libbpf does with a program.
#[derive(Debug)]
struct Theirs {
    section: String,
    name: String,
    result: Result<Load, String>,
}

/// A `BPF_PROG_LOAD`.
#[derive(Debug, PartialEq, Eq)]
struct Load {
    insns: String,
    attach_type: u32,
    attach_btf_id: u32,
    func_info: String,
    line_info: String,
}

/// What libbpf does with an object.
#[derive(Debug, Default)]
struct Peer {
    programs: Vec<Theirs>,
    /// The types that it loads, in hex.
    btf: Option<String>,
}

/// What libbpf does with every program of some objects.
fn libbpf(binary: &Path, paths: &[PathBuf], types: Option<&Path>) -> BTreeMap<PathBuf, Peer> {
    let mut command = Command::new(binary);
    if let Some(types) = types {
        command.arg("-t").arg(types);
    }
    let output = command.args(paths).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut found: BTreeMap<PathBuf, Peer> = BTreeMap::new();
    let mut peer = None;
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let theirs = match fields[..] {
            ["object", path] => {
                peer = Some(found.entry(path.into()).or_default());
                continue;
            }
            ["btf", types] => {
                peer.as_mut().expect("an object before its types").btf = Some(types.into());
                continue;
            }
            ["fail", section, name, why] => {
                Theirs { section: section.into(), name: name.into(), result: Err(why.into()) }
            }
            ["prog", section, name, _, attach_type, attach_btf_id, insns, func_info, line_info] => {
                let load = Load {
                    insns: insns.into(),
                    attach_type: attach_type.parse().expect("a number"),
                    attach_btf_id: attach_btf_id.parse().expect("a number"),
                    func_info: func_info.into(),
                    line_info: line_info.into(),
                };
                Theirs { section: section.into(), name: name.into(), result: Ok(load) }
            }
            _ => panic!("{line}"),
        };
        peer.as_mut().expect("an object before its programs").programs.push(theirs);
    }
    found
}

fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
    bytes.into_iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Our program in the form of theirs.
fn ours(program: &KernelProgram) -> Load {
    let insns = program.insns.iter().flat_map(|insn| insn.to_bytes(Endian::Little));
    let funcs = program.func_info.iter().flat_map(|record| [record.insn_off, record.type_id.0]);
    let lines = program
        .line_info
        .iter()
        .flat_map(|record| [record.insn_off, record.file_off, record.text_off, record.line << 10 | record.column]);
    let attach_btf_id = match program.target.as_ref().map(|target| &target.btf) {
        Some(AttachBtf::Kernel(id) | AttachBtf::Module { id, .. }) => id.0,
        Some(AttachBtf::Program) | None => 0,
    };
    let attach_type = match (&program.attach.kind, program.member) {
        (_, Some(member)) => member,
        (SectionKind::Known { row, loose: false, .. }, None) => row.attach.map_or(0, |attach| attach as u32),
        _ => 0,
    };
    Load {
        insns: hex(insns),
        attach_type,
        attach_btf_id,
        func_info: hex(funcs.flat_map(u32::to_le_bytes)),
        line_info: hex(lines.flat_map(u32::to_le_bytes)),
    }
}

fn link(object: &Object, theirs: &[Theirs], core: &[Module]) -> KernelLinked {
    let wanted = |(index, spec): (usize, &twinbpf_loader::ProgramSpec)| {
        let is = |theirs: &Theirs| theirs.name == *spec.name && theirs.section == *spec.section;
        theirs.iter().any(is).then_some(index)
    };
    let programs = Some(object.programs.iter().enumerate().filter_map(wanted).collect());
    object.link_kernel(kernel(), &KernelOptions { programs, core: core.to_vec(), ..KernelOptions::default() })
}

/// How one program differs, if it does.
fn difference(linked: &KernelLinked, object: &Object, theirs: &Theirs) -> Option<String> {
    let is = |name: &str, section: &str| name == theirs.name && section == theirs.section;
    let mine = linked.programs.iter().find(|program| is(&program.name, &program.section));
    let failure = linked.failures.iter().find(|failure| {
        let spec = &object.programs[failure.spec];
        is(&spec.name, &spec.section)
    });
    match (&theirs.result, mine, failure) {
        (Ok(load), Some(mine), _) => {
            let mut mine = ours(mine);
            mine.insns = as_old_libbpf(&mine.insns, &load.insns);
            if mine.insns != load.insns {
                return Some(first_difference(&mine.insns, &load.insns));
            }
            let parts = [
                (mine.attach_type == load.attach_type, "expected_attach_type"),
                (mine.attach_btf_id == load.attach_btf_id, "attach_btf_id"),
                (mine.func_info == load.func_info, "func_info"),
                (mine.line_info == load.line_info, "line_info"),
            ];
            parts.iter().find(|(same, _)| !same).map(|(_, what)| (*what).to_owned())
        }
        (Ok(_), None, Some(failure)) => Some(format!("only we fail: {:#}", failure.error)),
        (Ok(_), None, None) => Some("we have no such program".to_owned()),
        (Err(_), _, Some(_)) => None,
        (Err(why), Some(_), None) => {
            let kind = theirs.section.split('/').next().unwrap_or("");
            Some(format!("only libbpf fails ({kind}): {why}"))
        }
        (Err(why), None, None) => Some(format!("libbpf fails: {why}; we have no such program")),
    }
}

/// A weak function of the kernel that is not there is a call that carries its number, as libbpf 1.2 made it. Before, it
/// was a call of function 0.
fn as_old_libbpf(ours: &str, theirs: &str) -> String {
    let pairs = ours.as_bytes().chunks(16).zip(theirs.as_bytes().chunks(16).chain(std::iter::repeat(&b""[..])));
    let form = |(ours, theirs): (&[u8], &[u8])| {
        let (ours, theirs) = (String::from_utf8_lossy(ours), String::from_utf8_lossy(theirs));
        let imm = ours.get(8..16).and_then(|imm| u32::from_str_radix(imm, 16).ok()).map_or(0, u32::swap_bytes);
        let absent = ours.starts_with("85000000") && (2_002_000_000..2_002_065_536).contains(&imm);
        if absent && theirs == "8520000000000000" { theirs.into_owned() } else { ours.into_owned() }
    };
    pairs.map(form).collect()
}

fn first_difference(ours: &str, theirs: &str) -> String {
    let slot = |text: &str, at: usize| text.get(at * 16..at * 16 + 16).unwrap_or("end").to_owned();
    let count = ours.len().max(theirs.len()) / 16;
    let at = (0..count).find(|at| slot(ours, *at) != slot(theirs, *at)).unwrap_or(0);
    format!("instruction {at}: ours {}, libbpf's {}", slot(ours, at), slot(theirs, at))
}

/// The types of an object, as a target for CO-RE.
fn types_of(path: &Path) -> Module {
    let object = Object::open("types", &fs::read(path).expect("the types")).expect("an object");
    Module { name: "types".into(), btf: object.btf.expect("types") }
}

/// Compares every program of some objects; `known` are the differences that there are reasons for, by object and
/// program, each beginning as it must.
fn compare(paths: &[PathBuf], known: &[(&str, &str, &str)]) -> usize {
    compare_with(paths, None, known)
}

/// The same, where CO-RE finds the types of a file in place of the kernel's.
fn compare_with(paths: &[PathBuf], types: Option<&Path>, known: &[(&str, &str, &str)]) -> usize {
    let binary = match program() {
        Ok(binary) => binary,
        Err(reason) => {
            skip(reason);
            return usize::MAX;
        }
    };
    let core: Vec<Module> = types.map(types_of).into_iter().collect();
    let mut same = 0;
    let mut unexpected = Vec::new();
    let mut used = vec![false; known.len()];
    for (path, Peer { programs: theirs, btf }) in libbpf(binary, paths, types) {
        let file = path.file_name().expect("a file").to_string_lossy().into_owned();
        let object = match Object::open(&file, &fs::read(&path).expect("the object")) {
            Ok(object) => object,
            Err(error) => {
                unexpected.push(format!("{file}: {error}"));
                continue;
            }
        };
        let linked = link(&object, &theirs, &core);
        if btf.is_some_and(|btf| Some(btf) != object.kernel_btf().map(hex)) {
            unexpected.push(format!("{file}: other types (BTF)"));
        }
        for program in &theirs {
            let Some(what) = difference(&linked, &object, program) else {
                same += usize::from(program.result.is_ok());
                continue;
            };
            let is = |(of, name, begins): &(&str, &str, &str)| {
                (*of == "*" || file == *of) && (*name == "*" || program.name == *name) && what.starts_with(begins)
            };
            match known.iter().position(is) {
                Some(index) => used[index] = true,
                None => unexpected.push(format!("{file} {} {}: {what}", program.section, program.name)),
            }
        }
    }
    println!("{same} programs are the same");
    assert!(unexpected.is_empty(), "{} differences:\n{}", unexpected.len(), unexpected.join("\n"));
    let unused: Vec<_> = known.iter().zip(used).filter(|(_, used)| !used).map(|(known, _)| known).collect();
    assert!(unused.is_empty(), "no such difference any more: {unused:?}");
    same
}

/// Objects that libbpf does not open.
const NOT_FOR_LIBBPF: [(&str, &str, &str); 5] = [
    // This libbpf is older than arenas.
    ("arena.bpf.o", "", "libbpf fails: libbpf: prog 'globals': bad map relo against 'answer'"),
    ("bigendian.bpf.o", "", "libbpf fails: libbpf: elf: endianness mismatch"),
    ("legacy.bpf.o", "", "libbpf fails: libbpf: elf: legacy map definitions"),
    ("names.bpf.o", "", "libbpf fails: libbpf: failed to find BTF for extern"),
    ("pointers.bpf.o", "", "libbpf fails: libbpf: failed to find BTF for extern"),
];

fn the_corpus_links_as_with_libbpf() {
    let paths: Vec<PathBuf> =
        objects(&["scripts", "maps", "kernel", "packets"]).iter().map(|path| corpus().join(path)).collect();
    assert!(compare(&paths, &NOT_FOR_LIBBPF) >= 37);
}

fn the_objects_of_xdp_tools_link_as_with_libbpf() {
    let paths = xdp_tools();
    if paths.is_empty() {
        return skip("xdp-tools and libxdp1 are not installed");
    }
    assert!(compare(&paths, &[]) >= 10);
}

fn the_objects_of_cilium_link_as_with_libbpf() {
    let paths = cilium();
    if paths.is_empty() {
        return skip("golang-github-cilium-ebpf-dev is not installed");
    }
    let legacy = "libbpf fails: libbpf: elf: legacy map definitions";
    let fixed = "libbpf fails: libbpf: sec 'static': program 'static_fn' is static";
    let known = [
        // It needs the program to be replaced before it loads.
        ("freplace-el.elf", "replacement", "only libbpf fails (freplace): "),
        ("fwd_decl-el.elf", "", "libbpf fails: libbpf: failed to find BTF for extern 'fwd'"),
        ("invalid_map-el.elf", "", legacy),
        ("invalid_map_static-el.elf", "", legacy),
        ("iproute2_map_compat-el.elf", "", legacy),
        ("loader-clang-7-el.elf", "", legacy),
        ("subprog_reloc-el.elf", "", legacy),
        ("loader-clang-9-el.elf", "", fixed),
        ("loader-clang-14-el.elf", "", fixed),
        ("loader-el.elf", "", fixed),
    ];
    assert!(compare(&paths, &known) >= 10);
}

/// The machine in a kernel's world has the same CO-RE values, and a weak symbol where the kernel's program has an
/// invalid instruction.
fn the_machine_gets_the_same_values() {
    let paths = cilium();
    if paths.is_empty() || !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return skip("golang-github-cilium-ebpf-dev or the kernel's BTF is missing");
    }
    let (mut values, mut missing) = (0, 0);
    for path in paths {
        let Ok(object) = Object::open("x", &fs::read(&path).expect("the object")) else { continue };
        let world = Arc::new(kernel().clone());
        let options = LinkOptions { kernel: Some(world), ..LinkOptions::default() };
        let machine = object.link(&options).expect("links");
        for mine in object.link_kernel(kernel(), &KernelOptions::default()).programs {
            let Some(theirs) = machine.program(&mine.name).map(|index| &machine.programs[index]) else { continue };
            for applied in &mine.core {
                if applied.new.is_some() {
                    let insn = Insn::decode(mine.insns[applied.pc]).expect("an instruction");
                    assert_eq!(theirs.insns[applied.pc], insn, "{} {}", path.display(), mine.name);
                    values += 1;
                    continue;
                }
                let Some(Binding::Extern(index)) = theirs.bindings.get(&applied.pc) else { panic!("{}", mine.name) };
                assert!(machine.externs[*index].weak && machine.externs[*index].name.starts_with('<'));
                missing += 1;
            }
        }
    }
    assert!(values >= 10 && missing >= 1, "{values} values, {missing} missing");
}

fn the_selftests_of_the_kernel_link_as_with_libbpf() {
    let Some(paths) = selftests() else { return };
    let known = [
        // It wants to know the program to be replaced; we leave that to who attaches it.
        ("*", "*", "only libbpf fails (freplace): "),
        // One symbol that is not there fails the whole object, ours only the programs that use it.
        ("map_kptr.bpf.o", "*", "only libbpf fails (tc): libbpf: extern (func ksym)"),
        ("cgroup_hierarchical_stats.bpf.o", "*", "only libbpf fails (fentry): libbpf: extern (func ksym)"),
        // Objects that have to be linked with others first.
        ("*", "", "libbpf fails: libbpf: failed to find BTF for extern"),
        ("*", "", "libbpf fails: libbpf: unrecognized extern section '.maps'"),
        // Bad on purpose, which is the error of the map, not of the object, for us.
        ("test_pinning_invalid.bpf.o", "", "libbpf fails: libbpf: map 'nopinmap3': invalid pinning value"),
        ("test_sk_assign.bpf.o", "", "libbpf fails: libbpf: elf: legacy map definitions"),
        // A function of .text that is loaded alone gets no records.
        ("btf_dump_test_case_namespacing.bpf.o", "f", "func_info"),
    ];
    assert!(compare(&paths, &known) >= 150);
}

/// Every test of CO-RE against each of the sets of types that the kernel's tests have for it, those included with
/// which it must fail.
fn the_core_tests_of_the_kernel_link_as_with_libbpf() {
    let Some(paths) = selftests() else { return };
    let mut pairs = 0;
    for test in &paths {
        let name = test.file_name().expect("a file").to_string_lossy().into_owned();
        let Some(name) = name.strip_prefix("test_core_reloc_").and_then(|name| name.strip_suffix(".bpf.o")) else {
            continue;
        };
        let prefix = format!("btf__core_reloc_{name}");
        for types in &paths {
            let file = types.file_name().expect("a file").to_string_lossy().into_owned();
            let rest = file.strip_prefix(&prefix);
            if rest.is_some_and(|rest| rest.starts_with("___") || rest == ".bpf.o") {
                println!("{name} with {file}");
                compare_with(std::slice::from_ref(test), Some(types), &[]);
                pairs += 1;
            }
        }
    }
    assert!(pairs >= 40, "only {pairs}");
}

harness::tests! {
    the_corpus_links_as_with_libbpf,
    the_objects_of_xdp_tools_link_as_with_libbpf,
    the_objects_of_cilium_link_as_with_libbpf,
    the_machine_gets_the_same_values,
    the_selftests_of_the_kernel_link_as_with_libbpf,
    the_core_tests_of_the_kernel_link_as_with_libbpf,
}
