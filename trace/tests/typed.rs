//! Maps of the kernel as typed maps of an embedder.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use support::{harness, skip};
use twinbpf::{BPF_ANY, BPF_NOEXIST, Config, Engine, Errno, Linker, Map, MapKind, MapOps, MapSpec, Object, PerCpuMap};
use twinbpf_kernel::share::KernelMap;
use twinbpf_kernel::{Map as InKernel, MapCreate};

harness::tests! { a_map_of_the_kernel_has_types, a_map_of_the_kernel_has_a_value_for_each_cpu }

/// A map of the kernel, and the same one in the engine's arena.
fn shared(engine: &Engine, spec: &MapSpec) -> Option<(InKernel, Arc<dyn MapOps>)> {
    let create = MapCreate {
        flags: spec.flags,
        ..MapCreate::new(&spec.name, spec.kind, spec.key_size, spec.value_size, spec.max_entries)
    };
    match InKernel::create(&create) {
        Ok(map) => {
            let shared = KernelMap::new(&map, spec, engine.arena()).expect("room in the arena");
            Some((map, shared))
        }
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

fn a_map_of_the_kernel_has_types() {
    let object = Object::open("score.bpf.o", include_bytes!("../../corpus/embed/score.bpf.o")).expect("an object");
    let spec = &object.maps[object.map("by_status").expect("it has this map")];
    let engine = Engine::new(Config::new()).expect("an engine");
    let Some((kernel, ops)) = shared(&engine, spec) else { return };
    let by_status: Map<u32, u64> = Map::new(Arc::clone(&ops)).expect("these are its types");
    by_status.insert(&404, &7, BPF_NOEXIST).unwrap();
    assert_eq!(by_status.insert(&404, &8, BPF_NOEXIST), Err(Errno::EEXIST));
    assert_eq!(kernel.lookup(&404u32.to_ne_bytes()).unwrap(), Some(7u64.to_ne_bytes().to_vec()));
    kernel.update(&200u32.to_ne_bytes(), &1u64.to_ne_bytes(), 0).unwrap();
    let mut all: Vec<(u32, u64)> = by_status.iter().collect();
    all.sort_unstable();
    assert_eq!(all, [(200, 1), (404, 7)]);
    assert_eq!((by_status.remove(&404), by_status.get(&404)), (Ok(true), Ok(None)));
    let error = Map::<u32, i64>::new(Arc::clone(&ops)).expect_err("BTF of the object says unsigned");
    assert_eq!(error.kind(), twinbpf::ErrorKind::Type, "{error}");
    // A program of the machine gets it for the map of its object.
    let mut linker = Linker::<()>::new(&engine);
    linker.func("price", |_: twinbpf::CStr| 1u64).func("note", |_: twinbpf::CStr, _: twinbpf::VarArgs| {});
    linker.map("by_status", ops);
    let pre = linker.instantiate_pre(&object).expect("it links");
    pre.map::<u32, u64>("by_status").expect("the same types").insert(&500, &3, BPF_ANY).unwrap();
    assert_eq!(kernel.lookup(&500u32.to_ne_bytes()).unwrap(), Some(3u64.to_ne_bytes().to_vec()));
}

fn a_map_of_the_kernel_has_a_value_for_each_cpu() {
    let engine = Engine::new(Config::new()).expect("an engine");
    let spec = MapSpec::new("percpu", MapKind::PercpuArray, 4, 8, 2);
    let Some((_, ops)) = shared(&engine, &spec) else { return };
    let map: PerCpuMap<u32, u64> = PerCpuMap::new(ops).expect("sizes fit");
    let values: Vec<u64> = (0..u64::from(map.cpus())).map(|cpu| cpu * 10).collect();
    map.insert(&1, &values, BPF_ANY).unwrap();
    assert_eq!(map.get(&1), Ok(Some(values)));
    let last = map.cpu(map.cpus() - 1).expect("the last");
    assert_eq!(last.get(&1), Ok(Some(u64::from(map.cpus() - 1) * 10)));
}
