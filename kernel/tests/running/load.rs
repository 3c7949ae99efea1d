//! Objects of the corpus: what libbpf loads, loads; what is attached counts; what fails says why.

use std::path::{Path, PathBuf};

use twinbpf_loader::Object;
use twinbpf_loader::kernel::KernelOptions;

use super::{allowed, load as load_text, page_size, skip};
use twinbpf_kernel::load::{LoadOptions, Loaded, Why, load};
use twinbpf_kernel::system::System;
use twinbpf_kernel::{MapKind, Options, ProgType, TestRun, probe};

pub(super) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
}

pub(super) fn may_load() -> bool {
    allowed(load_text(ProgType::Xdp, super::RETURN_0)).is_some()
}

pub(super) fn open(path: &Path) -> Object {
    let name = path.file_name().unwrap().to_str().unwrap();
    Object::open(name, &std::fs::read(path).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(super) fn load_object(object: &Object, link: &KernelOptions, options: &LoadOptions<'_>) -> Loaded {
    let linked = object.link_kernel(System::get(), link);
    for failure in &linked.failures {
        eprintln!("{:#}", failure.error);
    }
    assert!(linked.failures.is_empty(), "{}", object.name);
    load(object, &linked, options)
}

/// Every object of these folders, sorted.
fn objects(folders: &[&str]) -> Vec<PathBuf> {
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(corpus().join(folder)).unwrap());
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_str().unwrap().ends_with(".bpf.o"));
    paths.sort();
    paths
}

pub(crate) fn kernel_programs_of_the_corpus_load_and_attach() {
    if !may_load() {
        return;
    }
    let (mut programs, mut attached) = (0, 0);
    for path in objects(&["kernel", "packets", "maps", "scripts"]) {
        if path.ends_with("bigendian.bpf.o") {
            continue;
        }
        let object = open(&path);
        let loaded = load_object(&object, &KernelOptions::default(), &LoadOptions::default());
        for failure in &loaded.failures {
            eprintln!("{failure:#}");
        }
        assert!(loaded.failures.is_empty(), "{}", path.display());
        for program in loaded.programs.iter().flatten() {
            programs += 1;
            let Some(target) = loaded.target(program).unwrap() else { continue };
            let pending = match loaded.open(program, &target, &Options::default()) {
                Ok(pending) => pending,
                Err(error) if error.to_string().contains("no kprobes") => continue,
                Err(error) => panic!("{error:#}"),
            };
            pending.enable().unwrap_or_else(|error| panic!("{error:#}"));
            attached += 1;
        }
    }
    assert!(programs > 30 && attached >= 2, "{programs} programs, {attached} attached");
}

pub(crate) fn global_variables_of_an_arena_are_there_when_programs_run() {
    if !may_load() {
        return;
    }
    if !probe::map_kind(MapKind::Arena).unwrap() {
        return skip("this kernel has no arenas");
    }
    let object = open(&corpus().join("kernel/arena.bpf.o"));
    let loaded = load_object(&object, &KernelOptions::default(), &LoadOptions::default());
    assert!(loaded.failures.is_empty(), "{:#}", loaded.failures[0]);
    let run = |name: &str| loaded.program(name).expect("it loads").prog.test_run(&TestRun::default()).unwrap().r0;
    // Twice, as the first run gives back what it takes.
    for _ in 0..2 {
        assert_eq!((run("globals"), run("list"), run("pages")), (42, 4950 + 42, 1));
    }
    // The host sees the same memory.
    let end = probe::has(probe::Feature::EveryOffset);
    let mut answer = [0; 4];
    loaded.arenas[0].read(if end { 15 * page_size() } else { 0 }, &mut answer);
    assert_eq!(u32::from_le_bytes(answer), 42);
}

/// Congestion control algorithms that TCP can use.
fn congestion_controls() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

pub(crate) fn a_table_of_functions_is_registered_until_its_link_is_dropped() {
    if !may_load() {
        return;
    }
    let object = open(&corpus().join("kernel/congestion.bpf.o"));
    let loaded = load_object(&object, &KernelOptions::default(), &LoadOptions::default());
    if !probe::map_kind(MapKind::StructOps).unwrap() {
        return skip("this kernel has no struct_ops");
    }
    assert!(loaded.failures.is_empty(), "{:#}", loaded.failures[0]);
    let [table] = loaded.struct_ops.as_slice() else { panic!("{:?}", loaded.struct_ops) };
    let link = loaded.register(table).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(congestion_controls().contains("twinbpf_steady"));
    drop(link);
    assert!(!congestion_controls().contains("twinbpf_steady"));
}

pub(crate) fn system_calls_of_a_thread_are_counted() {
    if !may_load() {
        return;
    }
    let object = open(&corpus().join("kernel/syscalls.bpf.o"));
    let loaded = load_object(&object, &KernelOptions::default(), &LoadOptions::default());
    let program = loaded.program("count").expect("it loads");
    let target = loaded.target(program).unwrap().expect("the section says where");
    let link = loaded.open(program, &target, &Options::default()).unwrap().enable().unwrap();
    let worker = std::thread::Builder::new().name("counted".to_owned());
    let calls = || (0..1000).for_each(|_| assert_ne!(std::os::unix::process::parent_id(), 0));
    worker.spawn(calls).unwrap().join().unwrap();
    drop(link);
    let entries = loaded.map("counts").unwrap().entries().unwrap();
    let mine = entries.iter().find(|(key, _)| key.starts_with(b"counted\0")).expect("it was seen");
    let count = u64::from_ne_bytes(mine.1.as_slice().try_into().unwrap());
    assert!((1000..1100).contains(&count), "{count}");
}

pub(crate) fn a_map_that_is_not_there_fails_the_programs_that_need_it() {
    if !may_load() {
        return;
    }
    let mut object = open(&corpus().join("kernel/syscalls.bpf.o"));
    let counts = object.map("counts").unwrap();
    object.maps[counts].key_size = 0;
    let loaded = load_object(&object, &KernelOptions::default(), &LoadOptions::default());
    let texts: Vec<String> = loaded.failures.iter().map(ToString::to_string).collect();
    assert!(texts[0].starts_with("syscalls.bpf.o: map counts: MAP_CREATE of map counts (hash): "), "{texts:?}");
    assert!(texts[1].contains("program count (raw_tracepoint/sys_enter): it needs map counts: "), "{texts:?}");
    assert!(matches!(&loaded.failures[1].why, Why::Map { map, .. } if &**map == "counts"));
}

pub(crate) fn a_map_that_is_left_out_is_named_in_the_log() {
    if !may_load() {
        return;
    }
    let object = open(&corpus().join("kernel/syscalls.bpf.o"));
    let absent: std::collections::BTreeSet<usize> = object.map("counts").into_iter().collect();
    let link = KernelOptions { absent: absent.clone(), ..KernelOptions::default() };
    let loaded = load_object(&object, &link, &LoadOptions { absent, ..LoadOptions::default() });
    assert!(loaded.map("counts").is_none());
    let [failure] = loaded.failures.as_slice() else { panic!("{:?}", loaded.failures) };
    let text = format!("{failure:#}");
    assert!(text.contains("counts"), "{text}");
}

pub(crate) fn a_refusal_shows_the_last_instructions_and_the_c_line() {
    if !may_load() {
        return;
    }
    let mut object = open(&corpus().join("kernel/syscalls.bpf.o"));
    object.license = None;
    let counts = object.map("counts").unwrap();
    // The key that the program gives is now longer than what it has on its stack.
    object.maps[counts].key_size = 64;
    let loaded = load_object(&object, &KernelOptions::default(), &LoadOptions::default());
    let failure = &loaded.failures[0];
    let (_, line, text) = failure.line.as_ref().expect("there is a C line");
    assert!(*line > 20 && text.contains("bpf_map_lookup_elem"), "{failure:#}");
    assert!(failure.to_string().contains("PROG_LOAD of program count (raw_tracepoint)"), "{failure}");
    assert!(failure.view.contains("call bpf_map_lookup_elem") && failure.log().len() >= failure.view.len() / 2);
}

pub(crate) fn pinned_maps_are_shared_or_say_how_they_differ() {
    if !may_load() {
        return;
    }
    let pins = PathBuf::from(format!("/sys/fs/bpf/twinbpf-load-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir(&pins) {
        return skip(&format!("{}: {error}", pins.display()));
    }
    let options = LoadOptions { pins: pins.clone(), ..LoadOptions::default() };
    let mut object = open(&corpus().join("kernel/syscalls.bpf.o"));
    let counts = object.map("counts").unwrap();
    object.maps[counts].pinned = true;
    let first = load_object(&object, &KernelOptions::default(), &options);
    let second = load_object(&object, &KernelOptions::default(), &options);
    object.maps[counts].max_entries = 7;
    let third = load_object(&object, &KernelOptions::default(), &options);
    std::fs::remove_dir_all(&pins).unwrap();
    let id = |loaded: &Loaded| loaded.map("counts").map(|map| map.info().id);
    assert_eq!(id(&first), id(&second));
    assert_eq!(id(&third), None);
    let text = third.failures[0].to_string();
    assert!(text.contains("max_entries is 1024, the object says 7"), "{text}");
}
