//! Debug information in other files: every form leads to the same places as the file that has all of it, and what does not
//! fit is refused with the reason.

#[path = "../../tests/support/harness.rs"]
mod harness;
#[path = "support/program.rs"]
mod program;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use program::{DEFINITIONS, program, run};
use support::{parse, read};
use twinbpf_probe::{Binary, Bytes, Store};

harness::tests! {
    compressed_sections,
    separate_by_link,
    separate_by_build_id,
    of_another_build,
    units_of_link_time_optimisation,
    type_units,
    other_machines,
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

/// The registers of other machines, by their own names.
fn other_machines() {
    for (compiler, [first, second]) in
        [("aarch64-linux-gnu-gcc", ["x0", "x1"]), ("riscv64-linux-gnu-gcc", ["a0", "a1"])]
    {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            let Some(folder) = program(compiler, &["-g", version]) else { return };
            let (lines, missing) = found(&folder.path().join("t"), &read);
            assert_eq!(missing, [""; 0]);
            let args = |line: &str| line.splitn(3, ' ').nth(2).unwrap().to_owned();
            let wanted =
                format!("n=%{second}:s32 y=+12(%{first}):s32 flags=+4(%{first}):b3@0/32 name=+0(+16(%{first})):string");
            assert_eq!(args(&lines[0]), wanted, "{compiler}");
            assert_eq!(args(&lines[1]), format!("n=%{second}:s32 a=+0(%{first}):s32"), "{compiler}");
            assert!(lines[2..].iter().all(|line| line.starts_with("inner 0x") && line.contains("x=")), "{lines:#?}");
        }
    }
}
