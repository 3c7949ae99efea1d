//! Instances that share per-CPU maps are different CPUs.

use std::sync::Arc;
use std::thread;

use twinbpf::{Config, Engine, EngineKind, ErrorKind, InstancePre, Linker, Object};

const TIMES: u32 = 300_000;

fn pre(engine: EngineKind, cpus: u32, bytes: &[u8]) -> InstancePre<()> {
    let object = Object::open("object.bpf.o", bytes).expect("an object");
    let engine = Engine::new(Config::new().engine(engine).cpus(cpus)).expect("an engine");
    Linker::new(&engine).instantiate_pre(&object).expect("it links")
}

fn percpu(engine: EngineKind, cpus: u32) -> InstancePre<()> {
    pre(engine, cpus, include_bytes!("../corpus/embed/percpu.bpf.o"))
}

/// The counts of all CPUs.
fn counts(pre: &InstancePre<()>, cpus: u32) -> Vec<u64> {
    let map = pre.per_cpu_map::<u32, u64>("counts").expect("the object has it");
    assert_eq!(map.cpus(), cpus);
    map.get(&0).expect("an array").expect("an element")
}

#[test]
fn threads_count_without_loss() {
    for engine in [EngineKind::Interp, EngineKind::Auto] {
        let pre = percpu(engine, 4);
        thread::scope(|scope| {
            for _ in 0..4 {
                let mut instance = pre.instance(()).expect("a CPU is free");
                let entry = pre.program("work").expect("the object has it");
                scope.spawn(move || instance.call(entry, &[TIMES.into()]).expect("no trap"));
            }
        });
        assert_eq!(counts(&pre, 4), [u64::from(TIMES); 4], "{engine:?}");
    }
}

#[test]
fn the_number_is_free_again_with_the_instance() {
    let pre = percpu(EngineKind::Interp, 2);
    let entry = pre.program("work").expect("the object has it");
    let (mut first, mut second) = (pre.instance(()).expect("CPU 0"), pre.instance(()).expect("CPU 1"));
    assert_eq!((first.call(entry, &[1]).unwrap(), second.call(entry, &[1]).unwrap()), (0, 1));
    let error = pre.instance(()).expect_err("no third CPU");
    assert_eq!(error.kind(), ErrorKind::Cpu);
    let words = error.to_string();
    assert!(
        words.contains("all 2 CPU numbers") && words.contains("'counts'") && words.contains("Config::cpus"),
        "{words}"
    );
    drop(first);
    assert_eq!(pre.instance(()).expect("CPU 0 is free").call(entry, &[1]).unwrap(), 0);
}

#[test]
fn an_instance_can_be_a_certain_cpu() {
    let pre = percpu(EngineKind::Interp, 4);
    let entry = pre.program("work").expect("the object has it");
    let mut third = pre.instance_on(3, ()).expect("CPU 3 is free");
    assert_eq!(third.call(entry, &[5]).unwrap(), 3);
    for (cpu, words) in [(3, "CPU number 3 is taken"), (4, "there is no CPU number 4: the engine has 4 CPUs")] {
        let error = pre.instance_on(cpu, ()).expect_err("it is not free");
        assert_eq!(error.kind(), ErrorKind::Cpu);
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(counts(&pre, 4), [0, 0, 0, 5]);
}

#[test]
fn without_per_cpu_maps_numbers_are_shared() {
    let pre = pre(EngineKind::Interp, 1, include_bytes!("../corpus/embed/double.bpf.o"));
    let instances: Vec<_> = (0..8).map(|_| pre.instance(()).expect("numbers are shared")).collect();
    assert_eq!(instances.len(), 8);
    assert!(pre.instance_on(0, ()).is_ok());
}

#[test]
fn a_map_of_two_objects_is_one_for_their_instances() {
    let object = Object::open("percpu.bpf.o", include_bytes!("../corpus/embed/percpu.bpf.o")).expect("an object");
    let engine = Engine::new(Config::new().cpus(2)).expect("an engine");
    let first = Linker::<()>::new(&engine).instantiate_pre(&object).expect("it links");
    let mut linker = Linker::<()>::new(&engine);
    linker.map("counts", Arc::clone(first.map_ops("counts").expect("the object has it")));
    let second = linker.instantiate_pre(&object).expect("it links");
    let apart = Linker::<()>::new(&engine).instantiate_pre(&object).expect("it links");
    let _zero = first.instance(()).expect("CPU 0");
    let mut one = second.instance(()).expect("CPU 1");
    assert_eq!(one.call(second.program("work").expect("it has it"), &[1]).unwrap(), 1);
    assert!(second.instance(()).is_err());
    let mut other = apart.instance(()).expect("CPU 0 of its own map");
    assert_eq!(other.call(apart.program("work").expect("it has it"), &[1]).unwrap(), 0);
}

/// What would mean something else than it says is refused.
#[test]
fn options_have_values_that_they_can_have() {
    for (config, why) in [
        (Config::new().cpus(0), "Config::cpus is 0, but must be at least 1"),
        (Config::new().max_depth(262_145), "Config::max_depth is 262145, but must be at most 262,144"),
    ] {
        let error = Engine::new(config).expect_err("the engine would do something else");
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Config, why));
    }
    Engine::new(Config::new().cpus(1).max_depth(262_144)).expect("the most that there is");
}
