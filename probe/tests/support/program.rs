//! A program of two source files, for tests of debug information in all its forms.

use std::path::Path;
use std::process::Command;

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
/// Definitions that lead to points of it.
pub(crate) const DEFINITIONS: [&str; 3] = ["first n r->in.y r->flags r->name:string", "second n r->a", "inner i->x k"];

/// Runs a tool in a folder; `None`, and the test skipped, where it is not installed.
pub(crate) fn run(folder: &Path, tool: &str, args: &[&str]) -> Option<()> {
    match Command::new(tool).args(args).current_dir(folder).output() {
        Ok(done) => {
            assert!(done.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
            Some(())
        }
        Err(error) => {
            crate::harness::skip(&format!("{tool}: {error}"));
            None
        }
    }
}

/// A folder with the program `t`, compiled with these options.
pub(crate) fn program(compiler: &str, options: &[&str]) -> Option<tempfile::TempDir> {
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
