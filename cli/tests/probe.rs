//! `twinbpf probe`: what it prints of a program that a compiler makes now.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{harness, installed, skip, twinbpf};

/// `work1` takes `n` and `p` in registers; `sq` is inlined.
const SOURCE: &str = "\
struct node { int v; struct node *next; unsigned flag : 3; char name[8]; };
static inline __attribute__((always_inline)) int sq(int n) { return n * n + 1; }
__attribute__((noinline)) int work1(int n, struct node *p) { return sq(n) + p->v; }
__attribute__((noinline)) long work2(long n, const char *s) { return n + s[0]; }
int main(int c, char **v)
{
	struct node n = { c, 0, 2, \"abc\" };
	return work1(c, &n) + work2(c, v[0]);
}
";

/// A program compiled from [`SOURCE`]; `None` without a compiler.
fn program(folder: &Path) -> Option<PathBuf> {
    if !installed("gcc") {
        skip("gcc is not installed");
        return None;
    }
    let (source, program) = (folder.join("tgt.c"), folder.join("tgt"));
    std::fs::write(&source, SOURCE).expect("a source file");
    let status = Command::new("gcc").args(["-O2", "-g", "-no-pie", "-o"]).arg(&program).arg(&source).status();
    assert!(status.expect("gcc runs").success());
    Some(program)
}

/// Exit status, standard output and standard error.
fn probe(program: &Path, args: &[&str]) -> (i32, String, String) {
    let output = twinbpf().args(["probe", "-x"]).arg(program).args(args).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

fn functions_of_the_kernel_have_arguments() {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return skip("this kernel has no types");
    }
    let probe = |args: &[&str]| {
        let output = twinbpf().args(["probe", "-k"]).args(args).output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
    };
    let (status, out, err) = probe(&["rd=vfs_read count file->f_inode->i_ino", "vfs_read%return $retval"]);
    assert_eq!((status, &*err), (0, ""), "{out}");
    assert!(out.starts_with("p:probe/rd vfs_read count=%dx:x64 i_ino=+"), "{out}");
    assert!(out.contains("\nr:probe/vfs_read__return vfs_read retval=%ax:s64\n"), "{out}");
    let (status, out, _) = probe(&["-F", "vfs_rea*"]);
    assert!(status == 0 && out.lines().any(|line| line == "vfs_read"), "{out}");
    let (_, out, _) = probe(&["-V", "vfs_read"]);
    assert!(out.contains("    count            size_t                   %dx:x64\n"), "{out}");
    let (status, out, _) = probe(&["--json", "vfs_read count nothing"]);
    assert!(
        status == 1 && out.contains(r#""refused":"no variable nothing is there; there are file, buf, count, pos""#),
        "{out}"
    );
    let (status, _, err) = probe(&["--module", "no_such_module", "f"]);
    assert!(status != 0 && err.contains("there are no types of module no_such_module"), "{err}");
    let (status, _, err) = probe(&["vfs_read:3"]);
    assert!(status != 0 && err.contains("a line of the kernel needs debug information"), "{err}");
}

fn points_are_definitions_of_events() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = program(folder.path()) else { return };
    let (status, out, err) =
        probe(&program, &["wk=work* n", "work1 p->v p->flag p->name:string", "work2%return $retval"]);
    assert_eq!((status, &*err), (0, ""), "{out}");
    let lines: Vec<&str> = out.lines().filter(|line| !line.starts_with(' ')).collect();
    let ends = [
        ("p:probe_tgt/wk ", " n=%di:s32"),
        ("p:probe_tgt/wk_1 ", " n=%di:s64"),
        ("p:probe_tgt/work1 ", " v=+0(%si):s32 flag=+16(%si):b3@0/32 name=+17(%si):string"),
        ("r:probe_tgt/work2__return ", " retval=%ax:s64"),
    ];
    assert_eq!(lines.len(), ends.len(), "{out}");
    for (line, (begin, end)) in lines.iter().zip(ends) {
        assert!(line.starts_with(begin) && line.ends_with(end), "{line}");
    }
    assert!(out.contains("tgt.c:4\n    n: long int in %di:s64: register\n"), "{out}");
}

fn a_stripped_file_has_addresses() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = program(folder.path()) else { return };
    let (_, out, _) = probe(&program, &["work1"]);
    let address = out.split_once(" at ").and_then(|(_, rest)| rest.split_once(',')).expect("an address").0;
    let stripped = folder.path().join("stripped");
    let status = Command::new("strip").arg("-o").arg(&stripped).arg(&program).status();
    assert!(status.expect("strip runs").success());
    let (status, out, err) = probe(&stripped, &[&format!("{address} %di:s32")]);
    assert_eq!((status, &*err), (0, ""), "{out}");
    let hex = address.strip_prefix("0x").expect("hexadecimal");
    let line = out.lines().next().expect("a line");
    assert!(line.starts_with(&format!("p:probe_stripped/abs_{hex} ")) && line.ends_with(" di=%di:s32"), "{line}");
}

/// perf's own words for the same definitions.
fn definitions_are_those_of_perf() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = program(folder.path()) else { return };
    if !installed("perf") {
        return skip("perf is not installed");
    }
    // Of `$retval` perf 6.1 says no type.
    for definition in ["work1 n p->v", "work2 n", "wk=work1 n", "s=work2 s=s:string"] {
        let output =
            Command::new("perf").args(["probe", "-x"]).arg(&program).args(["--definition", definition]).output();
        let perf = String::from_utf8(output.expect("perf runs").stdout).expect("UTF-8");
        let (_, ours, _) = probe(&program, &[definition]);
        assert_eq!(ours.lines().next(), perf.lines().next(), "{definition}");
    }
}

fn arguments_without_a_place_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = program(folder.path()) else { return };
    let (status, out, _) = probe(&program, &["work2 n zz"]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("    zz: none: no variable zz is there; there are n, s\n"), "{out}");
    let path = program.display();
    for (definition, words) in [
        ("wrk1 n", "no function wrk1: did you mean work1, work2?".to_owned()),
        ("nothing* n", "no function matches nothing*: list functions with -F".to_owned()),
        ("work1:90", "no code is on line 90 of work1: the nearest are 0".to_owned()),
        ("sq%return", "function sq is inlined wherever it is called: no instruction returns from it".to_owned()),
    ] {
        let (status, out, err) = probe(&program, &[definition]);
        assert_eq!((status, &*out), (125, ""), "{err}");
        assert_eq!(err, format!("twinbpf: {path}: '{definition}': {words}\n"));
    }
}

fn functions_and_variables_are_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = program(folder.path()) else { return };
    assert_eq!(probe(&program, &["-F", "work*"]), (0, "work1\nwork2\n".to_owned(), String::new()));
    let (status, out, _) = probe(&program, &["-V", "work1"]);
    let words: Vec<Vec<&str>> = out.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (status, &words[..2]),
        (0, &[vec!["n", "int", "%di:s32"], vec!["p", "struct", "node", "*", "%si:x64"]][..])
    );
}

fn json_has_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = program(folder.path()) else { return };
    let (status, out, _) = probe(&program, &["--json", "work2 n s:string zz"]);
    let point: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert_eq!(status, 1);
    assert_eq!((point["function"].as_str(), point["line"].as_u64()), (Some("work2"), Some(4)));
    let args = point["arguments"].as_array().expect("arguments");
    assert_eq!((args[0]["place"].as_str(), args[0]["class"].as_str()), (Some("%di:s64"), Some("register")));
    assert_eq!((args[1]["place"].as_str(), args[1]["string"].as_bool()), (Some("+0(%si):string"), Some(true)));
    assert_eq!(args[2]["refused"].as_str(), Some("no variable zz is there; there are n, s"));
}

harness::tests! {
    functions_of_the_kernel_have_arguments,
    points_are_definitions_of_events,
    a_stripped_file_has_addresses,
    definitions_are_those_of_perf,
    arguments_without_a_place_are_reported,
    functions_and_variables_are_listed,
    json_has_the_same,
}
