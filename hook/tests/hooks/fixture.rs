//! Libraries of functions to hook, compiled in each way.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::Library;
use tempfile::TempDir;
use twinbpf_hook::{Function, Module};

/// Ends other threads of a test when this one panics: a scope waits for them.
pub(crate) struct StopOnPanic<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs `body` while so many other threads do `work` again and again, each after `prepare`.
pub(crate) fn while_threads(count: usize, prepare: fn(), work: impl Fn() + Sync, body: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                prepare();
                while !done.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        let _stop = StopOnPanic(&done);
        body();
        done.store(true, Ordering::Relaxed);
    });
}

/// Ways to compile, with the compiler and its options.
pub(crate) const KINDS: &[(&str, &str, &[&str])] = &[
    ("gcc-moved", "gcc", &[]),
    ("gcc-wide", "gcc", &["-fpatchable-function-entry=5", "-DWIDE"]),
    ("gcc-nops", "gcc", &["-fpatchable-function-entry=5", "-fcf-protection=none"]),
    ("gcc-endbr", "gcc", &["-fpatchable-function-entry=5", "-fcf-protection=full"]),
    ("gcc-fentry", "gcc", &["-pg", "-mfentry", "-mrecord-mcount"]),
    ("clang-moved", "clang-19", &[]),
    ("clang-nop", "clang-19", &["-fpatchable-function-entry=5"]),
    ("clang-xray", "clang-19", &["-fxray-instrument", "-fxray-instruction-threshold=1", "-nostdlib"]),
];

/// A library that is loaded, with its functions.
pub(crate) struct Fixture {
    pub(crate) library: Library,
    pub(crate) module: Arc<Module>,
    _folder: TempDir,
}

impl Fixture {
    /// One of [`KINDS`], as a library of its own.
    pub(crate) fn new(kind: &str) -> Fixture {
        let (_, compiler, options) = KINDS.iter().find(|(name, ..)| *name == kind).expect("a kind");
        Fixture::compile("functions.c", compiler, options)
    }

    pub(crate) fn compile(source: &str, compiler: &str, options: &[&str]) -> Fixture {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("libhooked.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hooks").join(source);
        let made = Command::new(compiler)
            .args(["-O2", "-g", "-shared", "-fPIC", "-w", "-pthread"])
            .args(options)
            .arg("-o")
            .args([&path, &source])
            .output()
            .expect("the compiler runs");
        assert!(made.status.success(), "{compiler} {options:?}: {}", String::from_utf8_lossy(&made.stderr));
        // SAFETY: its initialisers do nothing.
        let library = unsafe { Library::new(&path) }.expect("it loads");
        let module = Module::find(path.to_str().expect("UTF-8")).expect("it is loaded");
        Fixture { library, module, _folder: folder }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.module.functions(name).is_empty()
    }

    pub(crate) fn function(&self, name: &str) -> Function {
        let mut found = self.module.functions(name);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found.remove(0)
    }

    /// The address of a function of type `F`.
    pub(crate) fn get<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller says what it is; the library stays while the fixture does.
        *unsafe { self.library.get::<F>(name.as_bytes()) }.expect("it is exported")
    }
}
