use super::*;
use crate::map::{ARENA_PAGE, Data, Errno, MapFlags, Pages};

fn arena_map(pages: u32, data: Option<Data>) -> Arc<dyn MapOps> {
    let spec = MapSpec { flags: MapFlags::MMAPABLE.bits(), data, ..MapSpec::new("pool", MapKind::Arena, 0, 0, pages) };
    make(&arena(), spec)
}

fn pages(map: &Arc<dyn MapOps>) -> &dyn Pages {
    map.pages().expect("an arena")
}

#[test]
fn pages_are_allocated_freed_and_zero() {
    let map = arena_map(70, None);
    let block = map.memory().unwrap();
    let page = |index: u32| block.addr() + u64::from(index * ARENA_PAGE);
    assert_eq!(block.len(), 70 * ARENA_PAGE);
    assert_eq!(pages(&map).alloc(0, 2), Some(page(0)));
    assert_eq!(pages(&map).alloc(0, 66), Some(page(2)));
    assert_eq!(pages(&map).alloc(0, 3), None);
    assert_eq!(pages(&map).alloc(0, 71), None);
    assert_eq!(map.len(), 68);
    block.write(ARENA_PAGE, &[7; 8]);
    // Any address inside the page will do, and what lies after the arena does not count.
    pages(&map).free(page(1) + 5, 1);
    assert_eq!(block.to_vec(ARENA_PAGE, 8), [0; 8]);
    block.write(ARENA_PAGE, &[7; 8]);
    // Only the lower half of an address counts.
    assert_eq!(pages(&map).alloc(u64::from(page(1) as u32), 1), Some(page(1)));
    assert_eq!(block.to_vec(ARENA_PAGE, 8), [0; 8]);
    assert_eq!(pages(&map).alloc(page(1), 1), None);
    assert_eq!(pages(&map).alloc(page(68) + 1, 1), None);
    assert_eq!(pages(&map).alloc(page(69), 2), None);
    pages(&map).free(page(69), u32::MAX);
    pages(&map).free(page(0) - 1, 1);
    assert_eq!(map.len(), 68);
}

#[test]
fn reserved_pages_are_not_allocated() {
    let map = arena_map(3, None);
    let first = map.memory().unwrap().addr();
    assert_eq!(pages(&map).reserve(first, 2), Ok(()));
    assert_eq!(pages(&map).reserve(first + u64::from(ARENA_PAGE), 1), Err(Errno::EBUSY));
    assert_eq!(pages(&map).reserve(first, 4), Err(Errno::EINVAL));
    assert_eq!(pages(&map).alloc(0, 1), Some(first + 2 * u64::from(ARENA_PAGE)));
    assert_eq!(pages(&map).alloc(0, 1), None);
}

#[test]
fn global_variables_are_there_from_the_start_and_their_pages_are_taken() {
    let data = Data { start: 2 * ARENA_PAGE, ..Data::new(vec![1, 2, 3], 5000) };
    let map = arena_map(4, Some(data.clone()));
    let block = map.memory().unwrap();
    assert_eq!(block.to_vec(2 * ARENA_PAGE, 4), [1, 2, 3, 0]);
    assert_eq!(pages(&map).alloc(0, 2), Some(block.addr()));
    assert_eq!(pages(&map).alloc(0, 1), None);
    let spec = MapSpec { flags: MapFlags::MMAPABLE.bits(), ..MapSpec::new("pool", MapKind::Arena, 0, 0, 3) };
    let error = create(MapSpec { data: Some(data), ..spec }, &arena(), 1).unwrap_err().to_string();
    assert!(error.contains("max_entries is 3, but must be enough for 5000 bytes of global variables"), "{error}");
}

#[test]
fn attributes_are_the_kernels() {
    let with = |flags: MapFlags, extra, entries| {
        let spec = MapSpec { flags: flags.bits(), extra, ..MapSpec::new("pool", MapKind::Arena, 0, 0, entries) };
        create(spec, &arena(), 1).map(|_| ()).map_err(|error| error.errno())
    };
    let mmap = MapFlags::MMAPABLE;
    assert_eq!(with(mmap | MapFlags::NO_USER_CONV, 1 << 44, 10), Ok(()));
    assert_eq!(with(MapFlags::empty(), 0, 10), Err(Errno::EINVAL));
    assert_eq!(with(mmap | MapFlags::NO_PREALLOC, 0, 10), Err(Errno::EINVAL));
    assert_eq!(with(mmap, 1, 10), Err(Errno::EINVAL));
    assert_eq!(with(mmap, 0, 0), Err(Errno::EINVAL));
    assert_eq!(with(mmap, 0, (1 << 20) + 1), Err(Errno::E2BIG));
    assert_eq!(with(mmap, 0xffff_f000, 2), Err(Errno::ERANGE));
    // More than this engine may use.
    assert_eq!(with(mmap, 0, 1 << 20), Err(Errno::ENOMEM));
    let keyed = MapSpec { flags: mmap.bits(), ..MapSpec::new("pool", MapKind::Arena, 4, 0, 1) };
    assert_eq!(create(keyed, &arena(), 1).unwrap_err().errno(), Errno::EINVAL);
}
