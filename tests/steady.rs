//! Programs come and go, and the process stays as large as it is. `TWINBPF_CYCLES=100000` for more of it.

#![cfg(target_os = "linux")]

use twinbpf::{Config, Engine, EngineKind, Linker, Object};

/// Bytes of this process in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

fn cycles() -> u64 {
    std::env::var("TWINBPF_CYCLES").ok().and_then(|cycles| cycles.parse().ok()).unwrap_or(2000)
}

/// Makes programs of an object, calls one and forgets them.
fn cycle(engine: &Engine, object: &Object) {
    let pre = Linker::new(engine).instantiate_programs(object, &["work"]).unwrap_or_else(|error| panic!("{error:#}"));
    let mut instance = pre.instance(()).expect("room for a stack");
    let entry = pre.program("work").expect("the object has it");
    assert_eq!(instance.call(entry, &[0, 0, 10]).unwrap_or_else(|trap| panic!("{trap:#}")), 0);
}

/// Most that may come on top while cycles run: less than half a page each.
fn check(what: &str, cycles: u64, mut cycle: impl FnMut()) {
    (0..cycles / 5 + 50).for_each(|_| cycle());
    let before = resident();
    (0..cycles).for_each(|_| cycle());
    let more = resident().saturating_sub(before);
    let allowed = 2 << 20;
    assert!(more < allowed, "{what}: {more} bytes more after {cycles} cycles");
}

#[test]
fn loading_and_unloading_leaks_nothing() {
    let object = Object::open("threads.bpf.o", include_bytes!("../corpus/embed/threads.bpf.o")).expect("an object");
    let kinds: &[EngineKind] = match EngineKind::Jit.is_available() {
        true => &[EngineKind::Interp, EngineKind::Jit, EngineKind::Auto],
        false => &[EngineKind::Interp],
    };
    for kind in kinds {
        let config = Config::new().engine(*kind);
        let engine = Engine::new(config.clone()).expect("address space");
        check(&format!("{kind:?}, one engine"), cycles(), || cycle(&engine, &object));
        check(&format!("{kind:?}, an engine each"), cycles() / 10, || {
            cycle(&Engine::new(config.clone()).expect("address space"), &object);
        });
    }
}
