//! Kernel maps as maps of the machine: the same memory where that can be, copies where not.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use twinbpf_vm::map::{BPF_NOEXIST, Data, Errno, MapFlags, MapKind, MapOps, MapSpec};
use twinbpf_vm::mem::{Access, Arena, Bounds, View};

use super::allowed;
use twinbpf_kernel::share::KernelMap;
use twinbpf_kernel::{Map, MapCreate, cpu};

fn made(spec: &MapSpec) -> Option<Map> {
    let create = MapCreate {
        flags: spec.flags,
        ..MapCreate::new(&spec.name, spec.kind, spec.key_size, spec.value_size, spec.max_entries)
    };
    allowed(Map::create(&create))
}

fn shared(spec: &MapSpec) -> Option<(Map, Arc<KernelMap>, Arc<Arena>)> {
    let map = made(spec)?;
    let arena = Arena::new(1 << 24).unwrap();
    let shared = KernelMap::new(&map, spec, &arena).unwrap();
    Some((map, shared, arena))
}

pub(crate) fn variables_are_the_same_memory() {
    let spec = MapSpec {
        flags: MapFlags::MMAPABLE.bits(),
        data: Some(Data::new(vec![0; 5000], 5000)),
        ..MapSpec::new(".bss", MapKind::Array, 4, 5000, 1)
    };
    let Some((map, shared, arena)) = shared(&spec) else { return };
    let mut value = vec![0; 5000];
    value[4996..].copy_from_slice(&[1, 2, 3, 4]);
    map.update(&[0; 4], &value, 0).unwrap();
    let block = shared.memory().unwrap();
    assert_eq!(block.to_vec(4996, 4), [1, 2, 3, 4]);
    block.write(8, &[9; 8]);
    assert_eq!(map.lookup(&[0; 4]).unwrap().unwrap()[8..16], [9; 8]);
    assert_eq!(shared.lookup(&[0; 4], 0), Some(block.addr()));
    let used = arena.used();
    drop(shared);
    assert!(arena.used() < used);
    // What comes there next is not the map's.
    let other = KernelMap::new(&made(&spec).unwrap(), &spec, &arena).unwrap();
    assert_eq!(other.memory().unwrap().to_vec(0, 16), [0; 16]);
    other.memory().unwrap().write(0, &[7; 8]);
    assert_eq!(map.lookup(&[0; 4]).unwrap().unwrap()[..8], [0; 8]);
}

pub(crate) fn a_lookup_gives_a_copy_that_traps_when_it_is_written() {
    let spec = MapSpec::new("counts", MapKind::Hash, 4, 8, 100);
    let Some((map, shared, arena)) = shared(&spec) else { return };
    shared.update(&[1; 4], &[5; 8], BPF_NOEXIST, 0).unwrap();
    assert_eq!(shared.update(&[1; 4], &[5; 8], BPF_NOEXIST, 0), Err(Errno::EEXIST));
    let addr = shared.lookup(&[1; 4], 0).unwrap();
    let mut view = View::new(Arc::clone(&arena), 0, Bounds::Exact);
    view.refill(0, addr, 8, Access::Read).unwrap();
    let fault = view.refill(0, addr, 8, Access::Write).unwrap_err();
    assert!(format!("{fault:?}").contains("kernel map counts, which bpf_map_update_elem changes"), "{fault:?}");
    map.update(&[1; 4], &[6; 8], 0).unwrap();
    assert_eq!(shared.lookup(&[1; 4], 0), Some(addr), "a key keeps its place");
    assert_eq!(view.load::<8>(0, addr), Some([6; 8]));
    assert_ne!(shared.lookup(&[1; 4], 0), None);
    assert_eq!(shared.lookup(&[2; 4], 0), None);
    assert_eq!(shared.delete(&[1; 4]), Ok(()));
    assert_eq!(shared.delete(&[1; 4]), Err(Errno::ENOENT));
}

pub(crate) fn a_walk_sees_every_key() {
    let spec = MapSpec::new("many", MapKind::Hash, 4, 8, 3000);
    let Some((map, shared, _)) = shared(&spec) else { return };
    for key in 0..2500_u32 {
        map.update(&key.to_ne_bytes(), &u64::from(key).to_ne_bytes(), 0).unwrap();
    }
    let mut keys = shared.keys();
    keys.sort();
    keys.dedup();
    assert_eq!((keys.len(), shared.len()), (2500, 2500));
    let addresses: Vec<u64> = keys.iter().map(|key| shared.lookup(key, 0).unwrap()).collect();
    let distinct: std::collections::HashSet<u64> = addresses.iter().copied().collect();
    assert_eq!(distinct.len(), 2500);
}

pub(crate) fn each_cpu_has_its_value() {
    let spec = MapSpec::new("percpu", MapKind::PercpuArray, 4, 4, 1);
    let Some((map, shared, _)) = shared(&spec) else { return };
    let last = cpu::possible() as u32 - 1;
    shared.update(&[0; 4], &[7; 4], 0, last).unwrap();
    let all = map.lookup(&[0; 4]).unwrap().unwrap();
    assert_eq!(all[last as usize * 8..][..4], [7; 4]);
    let mut value = [0; 4];
    shared.lookup_copy(&[0; 4], last, &mut value).unwrap();
    assert_eq!((value, shared.cpus()), ([7; 4], last + 1));
    assert_eq!(shared.lookup_copy(&[0; 4], last + 1, &mut value), Err(Errno::ERANGE));
}

pub(crate) fn constants_are_there_and_stay() {
    let spec = MapSpec {
        flags: MapFlags::RDONLY_PROG.bits(),
        data: Some(Data::read_only(vec![3; 16], 16)),
        ..MapSpec::new(".rodata", MapKind::Array, 4, 16, 1)
    };
    let Some(map) = made(&spec) else { return };
    map.update(&[0; 4], &[3; 16], 0).unwrap();
    map.freeze().unwrap();
    let arena = Arena::new(1 << 24).unwrap();
    let shared = KernelMap::new(&map, &spec, &arena).unwrap();
    assert_eq!(shared.memory().unwrap().to_vec(0, 16), [3; 16]);
    assert_eq!(shared.update(&[0; 4], &[4; 16], 0, 0), Err(Errno::EPERM));
}

pub(crate) fn a_queue_and_a_ring() {
    let spec = MapSpec::new("queue", MapKind::Queue, 0, 8, 4);
    let Some((_, shared, _)) = shared(&spec) else { return };
    shared.push(&[1; 8], 0).unwrap();
    let mut value = [0; 8];
    shared.peek(&mut value).unwrap();
    assert_eq!(value, [1; 8]);
    shared.pop(&mut value).unwrap();
    assert_eq!(shared.pop(&mut value), Err(Errno::ENOENT));
    let spec = MapSpec::new("ring", MapKind::Ringbuf, 0, 0, 4096);
    let Some((ring, shared, _)) = self::shared(&spec) else { return };
    let insns = super::code(&format!(
        "*(u64 *)(r10 - 8) = 77\nr1 = map_fd({}) ll\nr2 = r10\nr2 += -8\nr3 = 8\nr4 = 0\ncall 130\nr0 = 0\nexit",
        ring.as_fd().as_raw_fd()
    ));
    let spec = twinbpf_kernel::ProgLoad {
        flags: 1 << 4,
        ..twinbpf_kernel::ProgLoad::new("out", twinbpf_kernel::ProgType::Syscall, &insns, "GPL")
    };
    let Some(prog) = allowed(twinbpf_kernel::Prog::load(&spec)) else { return };
    prog.test_run(&twinbpf_kernel::TestRun::default()).unwrap();
    let sent = shared.take_sent();
    assert_eq!((sent.len(), sent[0].bytes.as_slice()), (1, 77_u64.to_ne_bytes().as_slice()));
}
