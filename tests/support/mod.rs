//! What several integration tests need: the corpus with its cases, and tools that may be missing.
#![allow(dead_code, reason = "each test crate uses its own part")]

pub(crate) mod ftrace;
pub(crate) mod harness;
pub(crate) mod parallel;

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use harness::skip;

/// The `corpus` directory, beside or above the package under test.
pub(crate) fn corpus() -> PathBuf {
    let places = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("corpus"));
    places.into_iter().find(|folder| folder.join("cases.txt").exists()).expect("the corpus of this repository")
}

/// One block of `corpus/cases.txt`; its README explains the keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    /// Name of the case.
    pub(crate) name: String,
    /// Line of its header, for messages.
    pub(crate) line: usize,
    /// Arguments of the command.
    pub(crate) args: Vec<String>,
    /// Exit status.
    pub(crate) status: i32,
    /// Result of an `exec`.
    pub(crate) r0: Option<i128>,
    /// Packet after an `exec`, hex.
    pub(crate) packet: Option<String>,
    /// File with the standard output, relative to the corpus.
    pub(crate) stdout: Option<String>,
    /// Texts that standard output contains.
    pub(crate) out: Vec<String>,
    /// Texts that standard error contains.
    pub(crate) stderr: Vec<String>,
    /// What must be installed.
    pub(crate) needs: Option<String>,
    /// Native code in which only exact bounds would notice what it does: `sandbox`, `strict`, `trusted`.
    pub(crate) strays: Vec<String>,
}

/// Reads `corpus/cases.txt`. A mistake in it is a failure of the test.
pub(crate) fn cases() -> Vec<Case> {
    let path = corpus().join("cases.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            assert!(cases.iter().all(|case| case.name != name), "cases.txt:{number}: [{name}] again");
            cases.push(Case { name: name.to_owned(), line: number, ..Case::default() });
            continue;
        }
        let (key, value) = line.split_once(" = ").unwrap_or_else(|| panic!("cases.txt:{number}: no key = value"));
        let case = cases.last_mut().unwrap_or_else(|| panic!("cases.txt:{number}: before the first [name]"));
        set(case, key, value).unwrap_or_else(|error| panic!("cases.txt:{number}: {error}"));
    }
    assert!(!cases.is_empty(), "no cases");
    cases
}

fn set(case: &mut Case, key: &str, value: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<i128>().map_err(|error| format!("{text}: {error}"));
    match key {
        "args" => case.args = value.split_whitespace().map(str::to_owned).collect(),
        "status" => case.status = value.parse().map_err(|error| format!("{value}: {error}"))?,
        "r0" => case.r0 = Some(number(value)?),
        "packet" => case.packet = Some(value.to_owned()),
        "stdout" => case.stdout = Some(value.to_owned()),
        "out" => case.out.push(value.to_owned()),
        "stderr" => case.stderr.push(value.to_owned()),
        "needs" => case.needs = Some(value.to_owned()),
        "strays" => case.strays = value.split_whitespace().map(str::to_owned).collect(),
        _ => return Err(format!("unknown key {key}")),
    }
    Ok(())
}

/// Every object of these directories of the corpus, sorted, as paths relative to it.
pub(crate) fn objects(directories: &[&str]) -> Vec<String> {
    let mut objects = Vec::new();
    for directory in directories {
        let entries = std::fs::read_dir(corpus().join(directory)).expect("a corpus directory");
        for entry in entries {
            let name = entry.expect("an entry").file_name().into_string().expect("a name in UTF-8");
            if name.ends_with(".bpf.o") {
                objects.push(format!("{directory}/{name}"));
            }
        }
    }
    objects.sort();
    objects
}

/// All objects of the corpus but those whose maps exist only in the kernel.
pub(crate) fn objects_for_the_vm() -> Vec<String> {
    let kernel = ["probes/newer.bpf.o", "probes/rare.bpf.o", "scripts/profile.bpf.o"];
    let all = ["scripts", "maps", "kernel", "packets", "faults", "bench", "bench/v2", "outside", "embed", "probes"];
    objects(&all).into_iter().filter(|path| !kernel.contains(&path.as_str())).collect()
}

/// Whether `tool --version` runs.
pub(crate) fn installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A text in which addresses have their lower halves only: native code that masks pointers does not know the upper.
pub(crate) fn low_halves(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.chars().take_while(char::is_ascii_hexdigit).count();
        let address = part[digits.saturating_sub(8)..digits].trim_start_matches('0');
        out.extend(["0x", address, &part[digits..]]);
    }
    out
}

/// A C program of a test over libbpf, by the path of its source; or why there is none.
pub(crate) fn libbpf_program(source: &str) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let stem = source.file_stem().expect("a source has a name").to_string_lossy();
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libbpf-{stem}"));
    if !installed("gcc") {
        return Err("gcc is not installed".to_owned());
    }
    let mut gcc = Command::new("gcc");
    let header = gcc.args(["-E", "-include", "bpf/libbpf.h", "-x", "c", "/dev/null"]).output();
    if !header.is_ok_and(|output| output.status.success()) {
        return Err("libbpf-dev is not installed".to_owned());
    }
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-Wall", "-Wextra", "-Werror"]).arg(&source).arg("-o").arg(&binary).args(["-lbpf", "-ldl"]);
    let output = gcc.output().expect("gcc runs");
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    Ok(binary)
}

/// Every file with this ending below a folder.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false if entry.to_string_lossy().ends_with(ending) => found.push(entry),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// The objects of xdp-tools and libxdp1, if they are installed.
pub(crate) fn xdp_tools() -> Vec<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path().join("bpf"));
    let paths: Vec<PathBuf> = folders.flat_map(|folder| files(&folder, ".o")).collect();
    if paths.len() < 10 { Vec::new() } else { paths }
}

/// The little-endian objects that cilium's library is tested with, if they are installed.
pub(crate) fn cilium() -> Vec<PathBuf> {
    files(Path::new("/usr/share/gocode/src/github.com/cilium/ebpf"), "-el.elf")
}

/// The kernel's own programs, which `.ci/selftests` compiles into the folder `TWINBPF_SELFTESTS`.
pub(crate) fn selftests() -> Option<Vec<PathBuf>> {
    let folder = std::env::var_os("TWINBPF_SELFTESTS").map(PathBuf::from);
    if folder.is_none() {
        skip("TWINBPF_SELFTESTS names no folder; .ci/selftests makes one");
    }
    folder.map(|folder| files(&folder, ".bpf.o"))
}
