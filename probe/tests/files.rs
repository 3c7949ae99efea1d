//! Debug information in other files: every form leads to the same places as the file that has all of it, and what does not
//! fit is refused with the reason.

#[path = "../../tests/support/harness.rs"]
mod harness;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{parse, read};
use twinbpf_probe::{Binary, Bytes, Store};

harness::tests! {
    compressed_sections,
    separate_by_link,
    separate_by_build_id,
    of_another_build,
    units_of_link_time_optimisation,
    type_units,
    mutated,
}

const SOURCES: [(&str, &str); 2] = [
    (
        "a.c",
        r#"
#include "t.h"
__attribute__((noinline)) int first(struct rec *r, int n) { sink(n); return r->in.y + r->flags + n; }
int main(int argc, char **argv) { struct rec r = { argc, 2, { 3, 4 }, "name" }; return first(&r, argc) + second(&r, argc); }
"#,
    ),
    (
        "b.c",
        r#"
#include "t.h"
static inline __attribute__((always_inline)) int inner(struct in *i, long k) { sink(k); return i->x * i->y; }
__attribute__((noinline)) int second(struct rec *r, int n) { struct in i = { n, n + 1 }; return inner(&i, r->a) + inner(&r->in, 3); }
void sink(long v) { __asm__ volatile("" : : "r"(v) : "memory"); }
"#,
    ),
];
const HEADER: &str =
    "struct in { int x, y; }; struct rec { int a; unsigned flags : 3; struct in in; const char *name; };
void sink(long v); int second(struct rec *r, int n);";
const DEFINITIONS: [&str; 3] = ["first n r->in.y r->flags r->name:string", "second n r->a", "inner i->x k"];

/// Runs a tool in a folder; `None`, and the test skipped, where it is not installed.
fn run(folder: &Path, tool: &str, args: &[&str]) -> Option<()> {
    match Command::new(tool).args(args).current_dir(folder).output() {
        Ok(done) => {
            assert!(done.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
            Some(())
        }
        Err(error) => {
            harness::skip(&format!("{tool}: {error}"));
            None
        }
    }
}

/// A folder with the program `t`, compiled with these options.
fn program(compiler: &str, options: &[&str]) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.h"), HEADER).unwrap();
    for (name, text) in SOURCES {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    // In two steps, so that .dwo files have the names of their objects.
    for (name, _) in SOURCES {
        run(folder.path(), compiler, &[&["-O2", "-c", name], options].concat())?;
    }
    run(folder.path(), compiler, &[&["-O2", "-Wl,--build-id", "-o", "t", "a.o", "b.o"], options].concat())?;
    Some(folder)
}

/// What the definitions lead to, and what is missing.
fn found(program: &Path, files: &(dyn Fn(&Path) -> Option<Bytes> + Sync)) -> (Vec<String>, Vec<String>) {
    let bytes = std::fs::read(program).unwrap();
    let store = Store::new();
    let binary = Binary::open(&store, program, &bytes, &files, 2).unwrap();
    let mut lines = Vec::new();
    for text in DEFINITIONS {
        match binary.probe(&parse(text).unwrap()) {
            Ok(points) => lines.extend(points.iter().map(|point| {
                let value = |(name, value): &(String, Result<twinbpf_probe::Value, twinbpf_probe::Refusal>)| match value
                {
                    Ok(value) => format!("{name}={}", value.text(binary.machine(), 0)),
                    Err(refusal) => format!("{name}: {refusal}"),
                };
                let args = point.args.iter().map(value).collect::<Vec<_>>().join(" ");
                format!("{} {:#x} {args}", point.function, point.address)
            })),
            Err(error) => lines.push(format!("{text}: {error}")),
        }
    }
    (lines, binary.missing().iter().map(ToString::to_string).collect())
}

fn places(folder: &Path) -> Vec<String> {
    let (lines, missing) = found(&folder.join("t"), &read);
    assert_eq!(missing, [""; 0]);
    assert!(lines.iter().all(|line| line.contains("n=%") || line.contains("x=")), "{lines:#?}");
    assert_eq!(lines.len(), 4, "{lines:#?}");
    lines
}

/// The same as without the options, whatever the addresses are.
fn same_as_plain(compiler: &str, options: &[&str], then: impl Fn(&Path) -> Option<()>) {
    let Some(plain) = program(compiler, &["-g"]) else { return };
    let Some(other) = program(compiler, options) else { return };
    if then(other.path()).is_none() {
        return;
    }
    assert_eq!(places(other.path()), places(plain.path()));
}

fn compressed_sections() {
    same_as_plain("gcc", &["-g", "-gz=zlib"], |_| Some(()));
}

fn units_of_link_time_optimisation() {
    let Some(folder) = program("gcc", &["-g", "-flto"]) else { return };
    let (lines, _) = found(&folder.path().join("t"), &read);
    assert!(lines.iter().any(|line| line.starts_with("first 0x") && line.contains("n=%")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("damaged")), "{lines:#?}");
}

fn separate_by_link() {
    same_as_plain("gcc", &["-g"], |folder| {
        run(folder, "objcopy", &["--only-keep-debug", "t", "t.debug"])?;
        run(folder, "strip", &["-g", "t"])?;
        run(folder, "objcopy", &["--add-gnu-debuglink=t.debug", "t"])
    });
}

/// The path of a file's debug information below the global folder, by its build id.
fn by_build_id(folder: &Path) -> Option<PathBuf> {
    let output = Command::new("readelf").args(["-n", "t"]).current_dir(folder).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let id = text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ").map(str::to_owned))?;
    let (first, rest) = id.split_at(2);
    Some(Path::new("/usr/lib/debug/.build-id").join(first).join(format!("{rest}.debug")))
}

fn separate_by_build_id() {
    let Some(folder) = program("gcc", &["-g"]) else { return };
    let whole = places(folder.path());
    let Some(named) = by_build_id(folder.path()) else { return harness::skip("readelf: not installed") };
    std::fs::copy(folder.path().join("t"), folder.path().join("kept")).unwrap();
    if run(folder.path(), "strip", &["t"]).is_none() {
        return;
    }
    let kept = folder.path().join("kept");
    let files = |path: &Path| if path == named { read(&kept) } else { None };
    assert_eq!(found(&folder.path().join("t"), &files).0, whole);
}

fn of_another_build() {
    let Some(folder) = program("gcc", &["-g"]) else { return };
    let Some(other) = program("gcc", &["-g", "-O1"]) else { return };
    let Some(named) = by_build_id(folder.path()) else { return harness::skip("readelf: not installed") };
    if run(folder.path(), "strip", &["-g", "t"]).is_none() {
        return;
    }
    let wrong = other.path().join("t");
    let files = |path: &Path| if path == named { read(&wrong) } else { None };
    let (lines, _) = found(&folder.path().join("t"), &files);
    let words = "n: it needs debug information: the file has none; /usr/lib/debug/.build-id/";
    assert!(lines[0].contains(words) && lines[0].contains(" is of another build: its build id is "), "{lines:#?}");
}

fn type_units() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        same_as_plain("gcc", &["-g", version, "-fdebug-types-section"], |_| Some(()));
    }
}

/// Damaged debug information: an error or a result, soon. `TWINBPF_MUTATE` says how many files.
fn mutated() {
    let count = std::env::var("TWINBPF_MUTATE").ok().and_then(|count| count.parse().ok()).unwrap_or(300u64);
    for (seed, options) in [(1, &["-g", "-gdwarf-5"]), (2, &["-g", "-gdwarf-4"])] {
        let Some(folder) = program("gcc", options) else { return };
        let original = std::fs::read(folder.path().join("t")).unwrap();
        let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed);
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % end as u64).unwrap()
        };
        for _ in 0..count / 2 {
            let mut bytes = original.clone();
            for _ in 0..=below(12) {
                // Most of a small file is not code: half of the damage is in its second half, where debug sections are.
                let at = if below(2) == 0 { bytes.len() / 2 + below(bytes.len() / 2) } else { below(bytes.len()) };
                bytes[at] = match below(4) {
                    0 => 0xff,
                    1 => 0,
                    2 => bytes[at].wrapping_add(1),
                    _ => bytes[at] ^ (1 << below(8)),
                };
            }
            let begun = std::time::Instant::now();
            survive(&bytes);
            assert!(begun.elapsed().as_secs() < 20, "a damaged file takes {:?}", begun.elapsed());
        }
    }
}

/// Everything that is public, on these bytes.
fn survive(bytes: &[u8]) {
    let store = Store::new();
    let Ok(binary) = Binary::open(&store, Path::new("t"), bytes, &|_| None, 1) else { return };
    for text in DEFINITIONS.iter().chain(&["*:1 n", "second+4 n", "*%return $retval", "a.c:4 r->in.x", "* n r->a i->y"])
    {
        let Ok(definition) = parse(text) else { continue };
        let _ = (binary.probe(&definition), binary.available(&definition));
    }
    let _ = (binary.functions("*"), binary.missing());
}
