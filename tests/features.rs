//! Features of the crate: what each build depends on, and what it answers where something is left out.

use std::collections::BTreeSet;
use std::process::Command;

use twinbpf::{Config, Engine, EngineKind, Linker, Object};

/// Packages, ours included, that a host without native code compiles at most.
const MOST_WITHOUT_JIT: usize = 26;

/// Names of the packages that a host with these features compiles.
fn packages(features: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["tree", "--offline", "--locked", "--package=twinbpf"]);
    let output = cargo.args(["--edges=normal,build", "--prefix=none"]).args(features).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn a_build_without_jit_has_few_packages_and_no_compiler() {
    let small = packages(&["--no-default-features"]);
    assert!(small.len() <= MOST_WITHOUT_JIT, "{} packages: {small:#?}", small.len());
    let compiles =
        |name: &&String| ["cranelift", "iced", "twinbpf-jit", "twinbpf-verify"].iter().any(|x| name.starts_with(x));
    assert_eq!(small.iter().find(compiles), None);
    assert!(!small.iter().any(|name| name.starts_with("libloading")), "no C functions without the feature dl");

    let dl = packages(&["--no-default-features", "--features=dl"]);
    assert!(dl.iter().any(|name| name.starts_with("libloading")));
    assert_eq!(dl.iter().find(compiles), None);

    assert!(packages(&[]).iter().any(|name| compiles(&name)), "the default has a compiler");
}

/// An engine of this kind for an object with one program.
fn run(kind: EngineKind) -> Result<u64, twinbpf::Error> {
    let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
    let mut linker = Linker::<()>::new(&Engine::new(Config::new().engine(kind))?);
    linker.func("report", |_: u64| ());
    let pre = linker.instantiate_pre(&object)?;
    let mut instance = pre.instance(())?;
    let numbers = instance.context(&7_u64.to_le_bytes())?;
    let entry = pre.program("double_all").expect("the object has it");
    Ok(instance.call(entry, &[numbers.addr(), 1]).unwrap_or_else(|trap| panic!("{trap:#}")))
}

#[test]
fn available_features_run() {
    for kind in [EngineKind::Auto, EngineKind::Interp, EngineKind::Jit].into_iter().filter(|kind| kind.is_available()) {
        assert_eq!(run(kind).unwrap_or_else(|error| panic!("{error:#}")), 1, "{kind:?}");
    }
    assert!(EngineKind::Auto.is_available() && EngineKind::Interp.is_available());
}

#[test]
#[cfg(not(feature = "jit"))]
fn native_code_needs_the_feature_and_the_error_names_it() {
    assert!(!EngineKind::Jit.is_available());
    let error = run(EngineKind::Jit).expect_err("there is no compiler");
    assert_eq!(error.kind(), twinbpf::ErrorKind::Compile);
    assert_eq!(
        error.to_string(),
        "double.bpf.o: cannot be compiled: this build of twinbpf has no compiler: build it with the feature `jit`, or use \
         EngineKind::Auto or EngineKind::Interp"
    );
}
