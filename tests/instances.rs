//! One program for functions whose argument is in different registers, in userspace and without root: a variant for each
//! place, with instructions at its start that fetch the argument. The kernel crate does the same with probes.

mod support;

use support::{corpus, harness};
use twinbpf::{Config, Engine, EngineKind, Linker, Object};
use twinbpf_isa::asm;
use twinbpf_isa::program::Program;
use twinbpf_loader::NoInstance;

/// Where `struct pt_regs` of x86-64 has the arguments that matter, and by what they grow from call to call.
const PLACES: [(i16, u64); 4] = [(112, 1), (104, 3), (88, 5), (64, 7)];
/// Bytes of `struct pt_regs`.
const REGISTERS: usize = 168;

fn with_prologue(program: &Program, offset: i16, place: usize) -> Program {
    let prologue = asm::parse(&format!("r2 = *(u64 *)(r1 + {offset})\nr3 = {place}")).unwrap();
    let mut variant = program.clone();
    let moved = variant.splice(0, 0, &prologue).unwrap();
    assert_eq!((moved.inserted, variant.lines.len(), variant.functions[0].start), (2, program.lines.len(), 0));
    variant
}

fn object() -> Object {
    let path = corpus().join("probes/instances.bpf.o");
    Object::open("instances.bpf.o", &std::fs::read(path).unwrap()).unwrap()
}

fn each_place_has_its_exact_sum_and_count() {
    let object = object();
    for kind in [EngineKind::Interp, EngineKind::Jit].into_iter().filter(|kind| kind.is_available()) {
        let engine = match Engine::new(Config::new().engine(kind)) {
            Ok(engine) => engine,
            Err(error) => return support::skip(&error.to_string()),
        };
        let linker = Linker::<()>::new(&engine);
        let (pre, instances) = linker
            .instances(&object, "add", |add| {
                let variants = PLACES.iter().enumerate();
                variants.map(|(place, (offset, _))| Some(with_prologue(add, *offset, place))).collect::<Vec<_>>()
            })
            .unwrap();
        let mut instance = pre.instance(()).unwrap();
        for n in 0..100 {
            let mut registers = [0xee; REGISTERS];
            for (offset, factor) in PLACES {
                registers[offset as usize..][..8].copy_from_slice(&(n * factor).to_le_bytes());
            }
            for (_, entry) in instances.iter() {
                let context = instance.context(&registers).unwrap();
                assert_eq!(instance.call(*entry, &[context.addr()]).unwrap(), 0);
            }
        }
        let totals = pre.map::<u32, [u64; 2]>("totals").expect("the object's map");
        for (place, (_, factor)) in PLACES.iter().enumerate() {
            let [count, sum] = totals.get(&(place as u32)).unwrap().expect("an array has it");
            assert_eq!((count, sum), (100, 4950 * factor), "{kind:?}: count and sum at {place}");
        }
    }
}

fn omitted_instances_keep_their_numbers() {
    let engine = Engine::new(Config::new().engine(EngineKind::Interp)).unwrap();
    let linker = Linker::<()>::new(&engine);
    let (pre, instances) = linker
        .instances(&object(), "add", |add| {
            let empty = Program { insns: Vec::new(), ..add.clone() };
            [None, Some(with_prologue(add, 112, 0)), Some(empty)]
        })
        .unwrap();
    assert_eq!(instances.len(), 3);
    assert_eq!(instances.get(0).unwrap_err(), NoInstance::Skipped(0));
    assert_eq!(instances.get(1).ok().copied(), pre.program("add#1"));
    assert_eq!(instances.get(2).unwrap_err(), NoInstance::Skipped(2));
    assert_eq!(instances.get(3).unwrap_err(), NoInstance::Beyond { number: 3, count: 3 });
}

fn a_variant_that_is_wrong_is_named() {
    let engine = Engine::new(Config::new().engine(EngineKind::Interp)).unwrap();
    let linker = Linker::<()>::new(&engine);
    let wrong = |add: &Program| {
        let mut variant = add.clone();
        variant.splice(0, 0, &asm::parse("goto +1000").unwrap()).unwrap();
        [Some(with_prologue(add, 112, 0)), Some(variant)]
    };
    let error = linker.instances(&object(), "add", wrong).map(drop).unwrap_err().to_string();
    assert!(error.contains("program add#1") && error.contains("goto +1000"), "{error}");
    let error = linker.instances(&object(), "sub", wrong).map(drop).unwrap_err().to_string();
    assert!(error.contains("sub"), "{error}");
}

harness::tests! {
    each_place_has_its_exact_sum_and_count,
    omitted_instances_keep_their_numbers,
    a_variant_that_is_wrong_is_named,
}
