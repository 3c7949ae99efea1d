//! Rules of the repository that a compiler does not check: dependencies between crates, lengths, documentation, words.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/words.rs"]
mod words;

use std::fs;
use std::path::PathBuf;

/// Crate folder -> crates of this workspace it may depend on (outside tests and benches).
const EDGES: &[(&str, &[&str])] = &[
    ("isa", &[]),
    ("btf", &["twinbpf-isa"]),
    ("vm", &["twinbpf-isa"]),
    ("jit", &["twinbpf-isa", "twinbpf-vm"]),
    ("loader", &["twinbpf-isa", "twinbpf-btf", "twinbpf-vm"]),
    ("verify", &[]),
    (
        ".",
        &[
            "twinbpf-isa",
            "twinbpf-btf",
            "twinbpf-vm",
            "twinbpf-loader",
            "twinbpf-jit",
            "twinbpf-verify",
            "twinbpf-hook",
        ],
    ),
    ("kernel", &["twinbpf-isa", "twinbpf-btf", "twinbpf-vm", "twinbpf-loader"]),
    ("probe", &["twinbpf-btf"]),
    ("hook", &[]),
    (
        "trace",
        &["twinbpf", "twinbpf-btf", "twinbpf-kernel", "twinbpf-loader", "twinbpf-probe", "twinbpf-isa", "twinbpf-vm"],
    ),
    ("carry", &[]),
    ("perf", &["twinbpf", "twinbpf-btf", "twinbpf-kernel", "twinbpf-loader", "twinbpf-trace", "twinbpf-vm"]),
    (
        "fuzzing",
        &["twinbpf", "twinbpf-isa", "twinbpf-vm", "twinbpf-jit", "twinbpf-loader", "twinbpf-kernel", "twinbpf-verify"],
    ),
    (
        "cli",
        &[
            "twinbpf",
            "twinbpf-carry",
            "twinbpf-perf",
            "twinbpf-trace",
            "twinbpf-fuzzing",
            "twinbpf-kernel",
            "twinbpf-loader",
            "twinbpf-probe",
            "twinbpf-btf",
            "twinbpf-isa",
            "twinbpf-vm",
        ],
    ),
    ("benches", &["twinbpf", "twinbpf-isa", "twinbpf-vm", "twinbpf-jit", "twinbpf-loader", "twinbpf-kernel"]),
];

/// Modules of the machine: each may use the ones before it.
const VM_ORDER: &[&str] = &["trap", "recover", "mem", "map", "host", "helper", "image", "interp"];

const MAX_FILE: usize = 500;
const MAX_FUNCTION: usize = 70;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the repository with its path relative to the root.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let relative = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((relative, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(found.len() > 20, "the walk found the sources");
    found
}

fn report(what: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{what}:\n  {}", findings.join("\n  "));
}

#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    let manifest = |folder: &str| fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    // Unsafe code is denied but where a module or function expects it and says why.
    assert!(manifest(".").contains("\nunsafe_code = \"deny\"\n"));
    let silent = EDGES.iter().filter(|(folder, _)| !manifest(folder).contains("\n[lints]\nworkspace = true\n"));
    report("crates without the lints of the workspace", silent.map(|(folder, _)| (*folder).to_owned()).collect());
}

#[test]
fn safe_parts_forbid_unsafe_code() {
    let must = ["isa/src/lib.rs", "btf/src/lib.rs", "loader/src/lib.rs", "probe/src/lib.rs"];
    let modules = ["vm/src/interp", "vm/src/image"].map(|module| {
        let folder = root().join(format!("{module}/mod.rs"));
        if folder.exists() { format!("{module}/mod.rs") } else { format!("{module}.rs") }
    });
    let forbids = |path: &str| fs::read_to_string(root().join(path)).unwrap().contains("#![forbid(unsafe_code)]");
    let all = must.iter().map(|path| path.to_string()).chain(modules);
    report("must say #![forbid(unsafe_code)]", all.filter(|path| !forbids(path)).collect());
}

#[test]
fn crates_depend_downwards() {
    let mut findings = Vec::new();
    for (folder, allowed) in EDGES {
        let Ok(manifest) = fs::read_to_string(root().join(folder).join("Cargo.toml")) else { continue };
        let section = manifest.split("\n[dependencies]").nth(1).unwrap_or("");
        let section = section.split("\n[").next().unwrap();
        for line in section.lines().filter(|line| line.starts_with("twinbpf")) {
            let name = line.split(['.', ' ', '=']).next().unwrap();
            if !allowed.contains(&name) {
                findings.push(format!("{folder}/Cargo.toml: {name} is not among {allowed:?}"));
            }
        }
    }
    report("dependencies between crates that docs/ARCHITECTURE.md does not allow", findings);
}

#[test]
fn modules_of_the_machine_use_earlier_ones_only() {
    let mut findings = Vec::new();
    for (path, text) in sources() {
        let Some(rest) = path.strip_prefix("vm/src/") else { continue };
        let module = rest.split(['/', '.']).next().unwrap();
        let Some(rank) = VM_ORDER.iter().position(|name| *name == module) else { continue };
        if path.ends_with("tests.rs") || path.contains("/tests/") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for (at, line) in code.lines().enumerate() {
            for later in &VM_ORDER[rank + 1..] {
                if line.split("//").next().unwrap().contains(&format!("crate::{later}")) {
                    findings.push(format!("{path}:{}: {module} uses {later}", at + 1));
                }
            }
        }
    }
    report("modules of vm out of order", findings);
}

#[test]
fn files_and_functions_stay_short() {
    let mut findings = Vec::new();
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > MAX_FILE {
            findings.push(format!("{path}: {} lines", lines.len()));
        }
        findings.extend(long_functions(&lines).map(|(at, len)| format!("{path}:{}: function of {len} lines", at + 1)));
    }
    report("longer than allowed", findings);
}

/// Functions over the limit: rustfmt puts a function's closing brace under the `fn` that opened it. One that
/// says `// exhaustive match` in its first three lines may be longer.
fn long_functions<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let starts = lines.iter().enumerate().filter(|(_, line)| {
        let code = line.trim_start();
        let head = code.trim_start_matches("pub ").trim_start_matches("pub(super) ").trim_start_matches("pub(crate) ");
        head.trim_start_matches("const ").trim_start_matches("unsafe ").starts_with("fn ") && !code.ends_with(';')
    });
    starts.filter_map(|(at, line)| {
        let indent = line.len() - line.trim_start().len();
        let close = format!("{}}}", " ".repeat(indent));
        let len = lines[at..].iter().position(|line| line.trim_end() == close)? + 1;
        let marked = lines[at..at + len.min(3)].iter().any(|line| line.contains("// exhaustive match"));
        (len > MAX_FUNCTION && !marked && !line.trim_end().ends_with('}')).then_some((at, len))
    })
}

#[test]
fn no_leftovers() {
    let marks = ["todo!(", "unimplemented!(", concat!("FIX", "ME"), concat!("XX", "X")];
    let mut findings = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path != "tests/tidy.rs") {
        for (at, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                findings.push(format!("{path}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    report("left open", findings);
}

/// The pages for readers, each with its path relative to the root.
fn pages() -> Vec<(String, String)> {
    let docs =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = docs.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let others = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "corpus/README.md", "fuzz/README.md"];
    let paths = pages.chain(others.map(str::to_owned));
    let pages: Vec<_> = paths.map(|path| (path.clone(), fs::read_to_string(root().join(path)).unwrap())).collect();
    assert!(pages.len() > 5, "the walk found the pages");
    pages
}

#[test]
fn every_dependency_says_why() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let silent = section.lines().filter(|line| line.contains('=') && !line.starts_with("twinbpf"));
    let silent = silent.filter(|line| !line.contains(" # ")).map(str::to_owned).collect();
    report("dependencies without a reason in Cargo.toml", silent);
}

#[test]
fn architecture_fits_on_a_few_pages() {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    assert!(text.lines().count() <= 200, "docs/ARCHITECTURE.md has at most 200 lines");
}

/// A file whose manifest says `harness = false` has no `#[test]`: rustc would drop the function without a word.
#[test]
fn tests_of_an_own_harness_are_listed() {
    let mut findings = Vec::new();
    let mut count = 0;
    for (folder, _) in EDGES {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        for target in manifest.split("\n[[test]]\n").skip(1) {
            let target = target.split("\n[").next().unwrap();
            let value = |key: &str| {
                target
                    .lines()
                    .find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(" = ")?.trim_matches('"').to_owned()))
            };
            if value("harness").is_none_or(|harness| harness != "false") {
                continue;
            }
            count += 1;
            let name = value("name").unwrap();
            let main = value("path").unwrap_or(format!("tests/{name}"));
            let start = root().join(folder).join(main).with_extension("");
            let start = match start.parent() {
                Some(parent) if start.ends_with("main") || start.ends_with("host") => parent.to_owned(),
                _ => start,
            };
            for (path, text) in sources() {
                let path = root().join(path);
                let is_part = path.starts_with(&start) || path.with_extension("") == start;
                if is_part && text.lines().any(|line| line.trim() == "#[test]") {
                    findings.push(path.display().to_string());
                }
            }
        }
    }
    report("list these tests in `harness::tests!`", findings);
    assert!(count > 15, "{count} test binaries were found");
}

#[test]
fn no_files_import_each_other() {
    let crates: Vec<&str> = EDGES.iter().map(|(folder, _)| *folder).collect();
    report("circles of files that import each other", circles::circles(&sources(), &crates));
}

/// FNV-1a, 64 bits.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn workloads_from_outside_are_divided_by_their_names() {
    let text = fs::read_to_string(root().join("benches/sets.toml")).unwrap();
    let names = |array: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| *line != format!("{array} = [")).skip(1);
        lines.take_while(|line| *line != "]").map(|line| line.trim_matches([' ', '"', ',']).to_owned()).collect()
    };
    let (selection, report, sealed) = (names("selection"), names("report"), names("sealed"));
    assert!(selection.len() > 10 && selection.len() + report.len() > 36, "{selection:?} {report:?}");
    let wrong = |names: &[String], selects: bool| -> Vec<String> {
        names.iter().filter(|name| fnv1a(name).is_multiple_of(3) != selects).cloned().collect()
    };
    self::report("in the wrong set of benches/sets.toml", [wrong(&selection, true), wrong(&report, false)].concat());
    assert_eq!(sealed.len(), 10, "{sealed:?}");
    let twice = sealed.iter().filter(|name| selection.contains(name) || report.contains(name));
    self::report("sealed and in another set of benches/sets.toml", twice.cloned().collect());
    // What chooses must not see what only reports.
    for word in ["reported", "sealed"] {
        let users = sources().into_iter().filter(|(path, text)| path.starts_with("benches/") && text.contains(word));
        let mut users: Vec<String> = users.map(|(path, _)| path).collect();
        users.sort();
        assert_eq!(users, ["benches/benches/outside.rs", "benches/src/sets.rs"], "only these see what is {word}");
    }
}
