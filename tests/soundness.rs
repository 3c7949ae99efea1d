//! Safe Rust cannot make native code touch the host's memory: what could is `unsafe`, private, or checked when it is
//! used. Programs of `tests/soundness/fail` must not compile, for just the reasons that they list; what is checked is tried
//! here.
#![forbid(unsafe_code)]

use std::mem::swap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use twinbpf::{Config, Engine, EngineKind, Entry, ErrorKind, Instance, InstancePre, Linker, Object, Packet, TrapCode};
use twinbpf_jit::{Code, JitError, Memory, Options};
use twinbpf_vm::map::{Errno, MapOps, MapSpec, SlotWords};
use twinbpf_vm::mem::{Arena, Bounds, RegionKind, RegionSpec, View};

const ENGINES: &[EngineKind] = match EngineKind::Jit.is_available() {
    true => &[EngineKind::Interp, EngineKind::Jit],
    false => &[EngineKind::Interp],
};

/// A crate by name, and the library that it is in.
type Crate = (&'static str, PathBuf);

/// Crates that twinbpf exports types of, each with a function that compiles if its library is the one that twinbpf uses.
const BENEATH: [(&str, &str); 3] = [
    ("twinbpf_isa", "pub fn same(it: twinbpf::Object) -> twinbpf_isa::Endian { it.endian }"),
    ("twinbpf_vm", "pub fn same(it: twinbpf::TrapCode) -> twinbpf_vm::trap::TrapCode { it }"),
    ("twinbpf_jit", "pub fn same(it: twinbpf::PassSet) -> twinbpf_jit::PassSet { it }"),
];

/// What rustc prints about a program that depends on these crates; whether it compiles.
fn compiled(file: &Path, crates: &[Crate]) -> (bool, String) {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    // Not /dev/null: for root, rustc would put a file there.
    rustc.args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "-o"]);
    rustc.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("soundness.rmeta")).arg(file);
    for (name, path) in crates {
        rustc.arg("-L").arg(format!("dependency={}", path.parent().expect("a folder").display()));
        rustc.arg("--extern").arg(format!("{name}={}", path.display()));
    }
    let output = rustc.output().expect("rustc runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The newest library of twinbpf in a folder that has native code, and those that it was built with: builds with other
/// features are there, too.
fn crates(folder: &Path) -> Vec<Crate> {
    let beneath = |(name, witness): (&'static str, &str), twinbpf: &Crate| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.rs"));
        std::fs::write(&file, witness).expect("a program");
        let fits = |path: &PathBuf| compiled(&file, &[twinbpf.clone(), (name, path.clone())]).0;
        libraries(folder, name).into_iter().find(fits).map(|path| (name, path))
    };
    let mut all = libraries(folder, "twinbpf").into_iter().filter_map(|path| {
        let twinbpf = ("twinbpf", path);
        let others: Option<Vec<Crate>> = BENEATH.into_iter().map(|one| beneath(one, &twinbpf)).collect();
        Some([vec![twinbpf], others?].concat())
    });
    all.next().expect("a twinbpf, and what it was built with")
}

/// The errors of a program, sorted.
fn errors(file: &Path, crates: &[Crate]) -> Vec<String> {
    let (_, text) = compiled(file, crates);
    let mut errors: Vec<String> = text.lines().filter(|line| line.starts_with("error[")).map(str::to_owned).collect();
    errors.sort();
    errors
}

/// Libraries of this name that cargo has built beside this test, the newest first.
fn libraries(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("what cargo has built").map(|entry| entry.expect("an entry").path());
    let of_name = |path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    };
    let mut found: Vec<PathBuf> = entries.filter(of_name).collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.metadata().and_then(|data| data.modified()).ok()));
    found
}

#[test]
fn unsound_uses_do_not_compile() {
    let program = std::env::current_exe().expect("this test");
    let crates = crates(program.parent().expect("a folder"));
    let mut files = 0;
    for file in std::fs::read_dir("tests/soundness/fail").expect("programs").map(|entry| entry.expect("one").path()) {
        let text = std::fs::read_to_string(&file).expect("a program");
        let wanted: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//~ ")).collect();
        assert!(!wanted.is_empty(), "{} lists no errors", file.display());
        assert_eq!(errors(&file, &crates), wanted, "{}", file.display());
        files += 1;
    }
    assert_eq!(files, 5);
}

fn object(name: &str) -> Object {
    let bytes = std::fs::read(format!("corpus/embed/{name}.bpf.o")).expect("an object of the corpus");
    Object::open(name, &bytes).expect("an object")
}

fn engine(kind: EngineKind) -> Engine {
    Engine::new(Config::new().engine(kind).memory_limit(1 << 24)).expect("address space")
}

fn pre(engine: &Engine, name: &str) -> InstancePre<u64> {
    let mut linker = Linker::new(engine);
    linker.func("report", |_: u64| ()).func("give_up", || ());
    linker.instantiate_pre(&object(name)).unwrap_or_else(|error| panic!("{error:#}"))
}

fn instance(kind: EngineKind, name: &str) -> Instance<u64> {
    pre(&engine(kind), name).instance(0).expect("room for a stack")
}

fn entry(instance: &Instance<u64>, name: &str) -> Entry {
    instance.pre().program(name).expect("the object has it")
}

#[test]
fn an_entry_of_another_object_runs_nothing() {
    for kind in ENGINES {
        let mut own = instance(*kind, "endure");
        let fine = entry(&own, "fine");
        // Others have the same index, or one that this image lacks; and one is of the same object, made again.
        let others = [instance(*kind, "double"), instance(*kind, "endure")];
        let foreign = [entry(&others[0], "double_all"), entry(&others[1], "fine")];
        for other in foreign {
            for _ in 0..3 {
                assert_eq!(own.call(other, &[0, 0]).unwrap_err().code(), TrapCode::BadCall);
                assert_eq!(own.call(fine, &[]).unwrap_or_else(|trap| panic!("{trap:#}")), 1);
            }
            assert_ne!(other, fine);
        }
        drop(others);
        let again = instance(*kind, "endure");
        assert!(!foreign.contains(&entry(&again, "fine")), "nor is one that comes later taken for one that is gone");
        if *kind == EngineKind::Jit {
            assert!(own.pre().listing(foreign[0]).is_err_and(|error| error.kind() == ErrorKind::NotFound));
        }
    }
}

#[test]
fn swapped_machines_run_their_own_programs_only() {
    for kind in ENGINES {
        let (mut one, mut two) = (instance(*kind, "endure"), instance(*kind, "double"));
        let (fine, double) = (entry(&one, "fine"), entry(&two, "double_all"));
        for _ in 0..3 {
            assert_eq!(one.call(fine, &[]).unwrap(), 1);
        }
        swap(one.machine(), two.machine());
        assert_eq!(one.call(fine, &[]).unwrap_err().code(), TrapCode::BadCall);
        for _ in 0..3 {
            assert_eq!(two.call(fine, &[]).unwrap(), 1);
            assert_eq!(one.call(double, &[0, 0]).unwrap(), 0);
        }
    }
}

#[test]
fn a_machine_with_the_runtime_of_another_engine_reaches_its_own_memory_only() {
    for kind in ENGINES {
        let (mut one, mut two) = (instance(*kind, "double"), instance(*kind, "double"));
        let double = entry(&one, "double_all");
        let (mine, theirs) = (one.context(&7_u64.to_le_bytes()).unwrap(), two.context(&9_u64.to_le_bytes()).unwrap());
        assert_eq!(one.call(double, &[mine.addr(), 1]).unwrap(), 1);
        swap(one.machine().runtime_mut(), two.machine().runtime_mut());
        for addr in [mine.addr(), theirs.addr()] {
            // Native code does not call the runtime; the interpreter says what is wrong.
            let result = one.call(double, &[addr, 1]);
            if *kind == EngineKind::Interp {
                assert_eq!(result.unwrap_err().code(), TrapCode::BadCall);
            }
        }
        assert_eq!(theirs.to_vec(0, 8), 9_u64.to_le_bytes());
    }
}

#[test]
fn a_view_or_packet_of_another_engine_leads_nowhere() {
    for kind in ENGINES {
        let mut one = instance(*kind, "double");
        let double = entry(&one, "double_all");
        let other = Arena::new(1 << 24).unwrap();
        let block = other.alloc(RegionSpec::new("theirs", RegionKind::Host, 8)).unwrap();
        let packet = Packet::xdp(&other, 0, &[0; 64]).unwrap();
        let context = packet.context_addr();
        one.machine().runtime_mut().packet = Some(packet);
        let _ = one.call(double, &[context, 1]);
        one.machine().runtime_mut().view = View::new(Arc::clone(&other), 0, Bounds::Arena);
        let _ = one.call(double, &[block.addr(), 1]);
        assert_eq!(block.to_vec(0, 8), [0; 8]);
        assert_eq!(one.take_packet().expect("given above").bytes(), [0; 64]);
    }
}

/// A map whose values are wherever it says, and that has as many elements as it likes.
#[derive(Debug)]
struct Wild {
    spec: MapSpec,
    /// Where every value is; at the map itself without.
    at: Option<u64>,
    /// Slots that a walk finds.
    slots: Option<u32>,
}

impl Wild {
    fn addr(&self) -> u64 {
        self.at.unwrap_or(&raw const self.spec as u64)
    }
}

impl MapOps for Wild {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, _: &[u8], _: u32) -> Option<u64> {
        Some(self.addr())
    }

    fn lookup_copy(&self, _: &[u8], _: u32, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }

    fn update(&self, _: &[u8], _: &[u8], _: u64, _: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn delete(&self, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn next_key(&self, _: Option<&[u8]>, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }

    fn slots(&self) -> Option<u32> {
        self.slots
    }

    fn element(&self, slot: u32, _: u32, key: &mut [u8]) -> Option<u64> {
        key.fill(slot as u8);
        Some(self.addr())
    }

    fn additions(&self) -> Option<u32> {
        self.slots
    }

    fn len(&self) -> u32 {
        u32::MAX
    }

    // It cannot make words of its own.
    fn slot_words(&self) -> Option<SlotWords> {
        None
    }

    fn program(&self, _: u32) -> Option<u32> {
        Some(u32::MAX)
    }
}

/// A map in place of one of an object.
fn wild<T: Send + 'static>(pre: &InstancePre<T>, name: &str, at: Option<u64>) -> Wild {
    Wild { spec: pre.map_ops(name).expect("the object has it").spec().clone(), at, slots: None }
}

#[test]
fn a_walk_over_a_map_of_the_embedder_leads_programs_nowhere_else() {
    let script =
        Object::open("foreach", &std::fs::read("corpus/scripts/foreach.bpf.o").expect("an object of the corpus"));
    let script = script.expect("an object");
    for kind in ENGINES {
        let own = |map: Option<Arc<dyn MapOps>>| {
            let mut linker = Linker::<()>::new(&engine(*kind));
            if let Some(map) = map {
                linker.map("numbers", map);
            }
            linker.instantiate_pre(&script).unwrap_or_else(|error| panic!("{error:#}"))
        };
        let theirs = own(None);
        let numbers = theirs.map_ops("numbers").expect("the object has it").memory().expect("an array");
        // The map itself, an element of another engine, and what no program has: the first page, the end of memory, the last
        // bytes of an arena.
        let places = [None, Some(numbers.addr()), Some(0), Some(u64::MAX), Some(numbers.addr() | 0xffff_fffe)];
        for (at, slots) in
            places.into_iter().flat_map(|at| [None, Some(0), Some(3), Some(1 << 16)].map(|slots| (at, slots)))
        {
            let wild = Arc::new(Wild { slots, ..wild(&theirs, "numbers", at) });
            let before = format!("{wild:?}");
            let pre = own(Some(Arc::clone(&wild) as Arc<dyn MapOps>));
            let mut instance = pre.instance_with_output((), Box::new(std::io::sink())).expect("room for a stack");
            let begin = pre.program("BEGIN").expect("the object has it");
            for _ in 0..2 {
                // Without elements nothing is visited; native code may hit something in its own arena.
                let result = instance.call(begin, &[]).map_err(|trap| trap.code());
                if slots.is_none_or(|slots| slots == 0) {
                    assert_eq!(result, Ok(0), "{kind:?}, {before}");
                } else if *kind == EngineKind::Interp {
                    assert_eq!(result, Err(TrapCode::OutOfBounds), "{kind:?}, {before}");
                }
            }
            assert_eq!(format!("{wild:?}"), before);
            assert_eq!(numbers.to_vec(0, 24), [0; 24], "{kind:?}, {before}");
        }
    }
}

#[test]
fn maps_of_another_engine_and_of_the_embedder_lead_programs_nowhere_else() {
    for kind in ENGINES {
        let theirs = pre(&engine(*kind), "threads");
        let locked = Arc::clone(theirs.map_ops("locked").expect("the object has it"));
        let wild: Arc<dyn MapOps> = Arc::new(wild(&theirs, "counts", None));
        let (before, whole) = (format!("{wild:?}"), |map: &dyn MapOps| map.memory().expect("an array").to_vec(0, 24));
        let given = |name: &str, map: &Arc<dyn MapOps>| {
            let mut linker = Linker::new(&engine(*kind));
            linker.map(name, Arc::clone(map));
            linker.instantiate_pre(&object("threads"))
        };
        assert!(given("locked", &locked).is_err());
        let pre = given("counts", &wild).unwrap();
        let mut instance = pre.instance(()).unwrap();
        let work = pre.program("work").expect("the object has it");
        // It traps, or hits something in its own arena.
        let _ = instance.call(work, &[0, 0, 10]);
        assert_eq!(format!("{wild:?}"), before);
        assert_eq!(whole(&*locked), [0; 24]);
    }
}

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn native_code_of_another_image_is_refused() {
    let (mut one, mut two) = (instance(EngineKind::Interp, "endure"), instance(EngineKind::Interp, "endure"));
    let compile = |instance: &mut Instance<u64>| {
        let code = Code::new(Arc::clone(instance.machine().image()), Options::default()).expect("this machine");
        code.compile_all().expect("compiled");
        Arc::new(code)
    };
    let (mine, theirs) = (compile(&mut one), compile(&mut two));
    let refused = one.machine().set_native(Some(theirs)).unwrap_err();
    assert!(refused.to_string().contains("another image"), "{refused}");
    one.machine().set_native(Some(mine)).expect("its own");
    let fine = entry(&one, "fine");
    assert_eq!(one.call(fine, &[]).unwrap(), 1);
}

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn a_sandbox_has_no_code_with_raw_pointers() {
    let mut instance = instance(EngineKind::Interp, "endure");
    let options = Options { memory: Memory::Trusted, ..Options::default() };
    let refused = Code::new(Arc::clone(instance.machine().image()), options);
    assert!(matches!(refused, Err(JitError::Untrusted)), "{refused:?}");
}

#[test]
fn only_a_trusted_arena_has_a_view_of_all_memory() {
    let arena = Arena::new(1 << 20).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| View::trusted(Arc::clone(&arena), 0))).is_err());
    let outside = [0_u8; 8];
    let addr = outside.as_ptr() as u64;
    for bounds in [Bounds::Exact, Bounds::Arena] {
        let view = View::new(Arc::clone(&arena), 0, bounds);
        assert!(view.read(addr, &mut [0; 8]).is_err());
        assert!(view.write(addr, &[1; 8]).is_err() && view.fill(addr, 8, 1).is_err());
        assert!(view.atomic_at::<std::sync::atomic::AtomicU64>(addr).is_err());
    }
    assert_eq!(outside, [0; 8]);
}
