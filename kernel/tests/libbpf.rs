//! Whatever libbpf loads into this kernel, we load: objects that others wrote, program by program.
//!
//! Needs gcc, libbpf-dev and the right to call bpf(2); skips with a reason without them, unless `TWINBPF_CI=1`.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use support::{cilium, corpus, harness, libbpf_program, objects, selftests, skip, xdp_tools};
use twinbpf_kernel::load::{LoadOptions, Pinning, load};
use twinbpf_kernel::system::System;
use twinbpf_loader::Object;
use twinbpf_loader::kernel::KernelOptions;

/// The C program, or why there is none.
fn program() -> &'static Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let binary = libbpf_program("tests/libbpf/loads.c")?;
        let probe = theirs(&binary, &[corpus().join("kernel/filter.bpf.o")]);
        match probe.iter().any(|program| program.errno == 0) {
            true => Ok(binary),
            false => Err("libbpf loads nothing here".to_owned()),
        }
    })
}

/// What libbpf says of a program.
struct Theirs {
    path: PathBuf,
    section: String,
    name: String,
    errno: i32,
}

fn theirs(binary: &Path, paths: &[PathBuf]) -> Vec<Theirs> {
    let output = Command::new(binary).args(paths).output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    let (mut found, mut object) = (Vec::new(), PathBuf::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["object", path] => object = path.into(),
            ["prog", section, name, errno] => found.push(Theirs {
                path: object.clone(),
                section: section.into(),
                name: name.into(),
                errno: errno.parse().expect("a number"),
            }),
            _ => panic!("{line}"),
        }
    }
    found
}

/// Why we cannot load a program.
fn ours(theirs: &Theirs) -> Result<(), String> {
    let bytes = std::fs::read(&theirs.path).map_err(|error| error.to_string())?;
    let name = theirs.path.file_name().unwrap_or_default().to_string_lossy();
    let object = Object::open(&name, &bytes).map_err(|error| format!("{error:#}"))?;
    // libbpf forgets the question mark.
    let section = |spec: &twinbpf_loader::ProgramSpec| spec.section.trim_start_matches('?') == theirs.section;
    let is = |spec: &twinbpf_loader::ProgramSpec| *spec.name == *theirs.name && section(spec);
    let index = object.programs.iter().position(is).ok_or("there is no such program")?;
    let options = KernelOptions { programs: Some(vec![index]), ..KernelOptions::default() };
    let linked = object.link_kernel(System::get(), &options);
    if let Some(failure) = linked.failures.first() {
        return Err(format!("{:#}", failure.error));
    }
    let loaded = load(&object, &linked, &LoadOptions { pinning: Pinning::Ignore, ..LoadOptions::default() });
    loaded.failures.first().map_or(Ok(()), |failure| Err(format!("{failure:#}")))
}

/// How many programs both load, of these objects.
fn compare(paths: &[PathBuf]) -> usize {
    let binary = match program() {
        Ok(binary) => binary,
        Err(reason) => {
            skip(reason);
            return usize::MAX;
        }
    };
    let (mut both, mut wrong) = (0, Vec::new());
    let all = theirs(binary, paths);
    for program in all.iter().filter(|program| program.errno == 0) {
        match ours(program) {
            Ok(()) => both += 1,
            Err(why) => wrong.push(format!("{} {} {}: {why}", program.path.display(), program.section, program.name)),
        }
    }
    println!("{both} of {} programs load with both", all.len());
    assert!(wrong.is_empty(), "libbpf loads {} that we do not:\n{}", wrong.len(), wrong.join("\n"));
    both
}

fn the_corpus_loads_as_with_libbpf() {
    let paths: Vec<PathBuf> =
        objects(&["scripts", "maps", "kernel", "packets"]).iter().map(|path| corpus().join(path)).collect();
    assert!(compare(&paths) >= 30);
}

fn the_objects_of_xdp_tools_load_as_with_libbpf() {
    let paths = xdp_tools();
    if paths.is_empty() {
        return skip("xdp-tools and libxdp1 are not installed");
    }
    assert!(compare(&paths) >= 10);
}

fn the_objects_of_cilium_load_as_with_libbpf() {
    let paths = cilium();
    if paths.is_empty() {
        return skip("golang-github-cilium-ebpf-dev is not installed");
    }
    assert!(compare(&paths) >= 2);
}

fn the_selftests_of_the_kernel_load_as_with_libbpf() {
    if let Some(paths) = selftests() {
        assert!(compare(&paths) >= 150);
    }
}

harness::tests! {
    the_corpus_loads_as_with_libbpf,
    the_objects_of_xdp_tools_load_as_with_libbpf,
    the_objects_of_cilium_load_as_with_libbpf,
    the_selftests_of_the_kernel_load_as_with_libbpf,
}
