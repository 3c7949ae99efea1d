#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]
use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

fn region(size: u32) -> RegionSpec {
    RegionSpec::new("thing", RegionKind::Map, size)
}

fn view(arena: &std::sync::Arc<Arena>) -> View {
    View::new(arena.clone(), arena.new_owner(), Bounds::Exact)
}

/// As the interpreter does it: try, refill, try again.
fn load8(view: &mut View, addr: u64) -> Result<u64, Fault> {
    if let Some(bytes) = view.load::<8>(1, addr) {
        return Ok(u64::from_le_bytes(bytes));
    }
    view.refill(1, addr, 8, Access::Read)?;
    Ok(u64::from_le_bytes(view.load::<8>(1, addr).expect("refilled")))
}

#[test]
fn exact_bounds_on_both_sides() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(12)).unwrap();
    block.write(0, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    let mut view = view(&arena);
    assert_eq!(load8(&mut view, block.addr()), Ok(0x2_0000_0001));
    assert_eq!(load8(&mut view, block.addr() + 4), Ok(0x3_0000_0002));
    let over = load8(&mut view, block.addr() + 5).unwrap_err();
    assert_eq!(over.reason, FaultReason::Overflow { region: "thing".into(), size: 12, off: 5 });
    assert!(over.to_string().ends_with("1 byte past the end of thing (12 bytes, access at offset 5)"), "{over}");
    assert!(load8(&mut view, block.addr() - 1).is_err());
    assert!(load8(&mut view, block.addr().wrapping_sub(8)).is_err());
}

#[test]
fn only_the_low_half_of_a_pointer_counts() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(8)).unwrap();
    block.write(0, &7u64.to_le_bytes());
    let mut view = view(&arena);
    assert_eq!(load8(&mut view, u64::from(block.addr() as u32)), Ok(7));
    assert_eq!(load8(&mut view, block.addr()), Ok(7));
    let foreign = load8(&mut view, block.addr() ^ 1 << 40).unwrap_err();
    assert!(matches!(foreign.reason, FaultReason::Foreign(Some(Near { size: 8, .. }))), "{foreign}");
    assert_eq!(load8(&mut view, 8).unwrap_err().reason, FaultReason::Null);
}

#[test]
fn small_elements_never_hit_a_wide_access() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(RegionSpec { stride: 16, count: 4, ..region(3) }).unwrap();
    let mut view = view(&arena);
    let addr = block.element(2);
    view.refill(1, addr, 1, Access::Read).unwrap();
    assert!(view.load::<1>(1, addr + 2).is_some());
    assert!(view.load::<1>(1, addr + 3).is_none());
    assert!(view.load::<2>(1, addr + 2).is_none());
    assert!(view.load::<4>(1, addr).is_none());
    assert!(view.load::<8>(1, addr.wrapping_sub(2)).is_none());
    assert!(view.refill(1, addr + 3, 1, Access::Read).is_err());
    assert_eq!(block.index_of(addr), Some(2));
    assert_eq!(block.index_of(addr + 1), None);
}

#[test]
fn read_only_regions_load_and_do_not_store() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(RegionSpec { writable: false, ..region(8) }).unwrap();
    block.write(0, b"constant");
    let mut view = view(&arena);
    assert_eq!(load8(&mut view, block.addr()), Ok(u64::from_le_bytes(*b"constant")));
    let fault = view.refill(1, block.addr(), 8, Access::Write).unwrap_err();
    assert_eq!(fault.reason, FaultReason::ReadOnly("thing".into()));
    assert!(view.store(1, block.addr(), [0; 8]).is_none());
}

#[test]
fn owners_do_not_see_each_other() {
    let arena = Arena::new(1 << 20).unwrap();
    let (mut one, mut two) = (view(&arena), view(&arena));
    let block = arena.alloc(RegionSpec { owner: one.owner(), ..region(8) }).unwrap();
    assert!(load8(&mut one, block.addr()).is_ok());
    assert!(load8(&mut two, block.addr()).is_err());
}

#[test]
fn pages_come_back_zeroed_and_the_limit_holds() {
    let arena = Arena::new(8192).unwrap();
    let block = arena.alloc(region(5000)).unwrap();
    block.fill(0, 5000, 0xff);
    let error = arena.alloc(region(1)).unwrap_err();
    assert_eq!(error.to_string(), "thing: 1 bytes requested, but 0 of the memory limit of 8192 bytes are left");
    let addr = block.addr();
    drop(block);
    assert_eq!(arena.used(), 0);
    let block = arena.alloc(region(5000)).unwrap();
    assert_eq!(block.addr(), addr);
    assert_eq!(block.to_vec(0, 5000), vec![0; 5000]);
}

#[test]
fn a_freed_region_is_forgotten_after_sync() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(8)).unwrap();
    let addr = block.addr();
    let mut view = view(&arena);
    load8(&mut view, addr).unwrap();
    drop(block);
    view.sync();
    assert!(load8(&mut view, addr).is_err());
}

#[test]
fn strings_end_at_nul_limit_or_fault() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(8)).unwrap();
    block.write(0, b"abc\0defg");
    let view = view(&arena);
    assert_eq!(&view.c_str(block.addr(), 100).unwrap()[..], b"abc");
    assert_eq!(&view.c_str(block.addr(), 2).unwrap()[..], b"ab");
    assert_eq!(&view.c_str(block.addr() + 4, 4).unwrap()[..], b"defg");
    assert!(matches!(view.c_str(block.addr() + 4, 5).unwrap_err().reason, FaultReason::Overflow { .. }));
    assert!(view.c_str(0, 5).is_err());
}

#[test]
fn atomics_need_alignment() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(8)).unwrap();
    let mut view = view(&arena);
    view.refill(3, block.addr(), 4, Access::Write).unwrap();
    view.atomic::<AtomicU32>(3, block.addr() + 4).unwrap().fetch_add(5, Ordering::SeqCst);
    assert!(view.atomic::<AtomicU32>(3, block.addr() + 2).is_none());
    assert_eq!(block.to_vec(4, 4), [5, 0, 0, 0]);
    assert_eq!(block.atomic::<AtomicU32>(4).load(Ordering::SeqCst), 5);
}

#[test]
fn the_page_grained_view_masks() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(8)).unwrap();
    let mut view = View::new(arena.clone(), 1, Bounds::Arena);
    assert_eq!(load8(&mut view, block.addr() + 8), Ok(0));
    assert_eq!(load8(&mut view, block.addr() ^ 1 << 40), Ok(0));
    assert!(load8(&mut view, block.addr() + 4090).is_err());
    assert!(load8(&mut view, 8).is_err());
}

#[test]
fn a_length_that_wraps_around_is_refused() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(16)).unwrap();
    for bounds in [Bounds::Exact, Bounds::Arena] {
        let view = View::new(arena.clone(), 1, bounds);
        for len in [u64::MAX, u64::MAX - 7, 1 << 32, 1 << 63] {
            let fault = view.check(block.addr() + 8, len, Access::Write).unwrap_err();
            assert!(fault.to_string().contains(&format!("{len}-byte store")), "{fault}");
            assert!(view.fill(block.addr() + 8, len, 1).is_err());
            assert!(view.copy(block.addr(), block.addr() + 8, len).is_err());
            assert!(view.bytes(block.addr() + 8, len).is_err());
        }
    }
    assert_eq!(block.to_vec(0, 16), [0; 16]);
}

#[test]
fn freed_neighbours_become_one_space() {
    let arena = Arena::new(1 << 32).unwrap();
    // Repetitions with growing sizes would fill the address space many times over if the pieces stayed apart.
    for round in 1..200u32 {
        let blocks: Vec<Block> = (0..16).map(|_| arena.alloc(region(round * 50_000)).unwrap()).collect();
        drop(blocks);
    }
    let whole = arena.alloc(region(3 << 30)).map(|_| ());
    assert!(whole.is_err(), "the last MiB is not there");
    arena.alloc(region((3 << 30) - 2 * MARGIN as u32)).unwrap();
}

#[derive(Debug)]
struct Wrong(u32, u32);

impl Elements for Wrong {
    fn element(&self, _: u32) -> Option<(u32, u32)> {
        Some((self.0, self.1))
    }
}

#[test]
fn elements_outside_their_region_make_no_window() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(64)).unwrap();
    for (start, size) in [(0, 65), (9, 8), (0, u32::MAX), (8, u32::MAX - 7)] {
        block.set_elements(std::sync::Arc::new(Wrong(start, size)));
        let view = view(&arena);
        let refused = std::panic::AssertUnwindSafe(|| view.check(block.addr() + 8, 8, Access::Read));
        assert!(std::panic::catch_unwind(refused).is_err(), "{start}+{size}");
    }
}

/// Whether the kernel can store a byte at an address of ours: what a program without checks could do.
fn can_store(addr: u64) -> bool {
    use std::os::fd::AsRawFd;
    let zero = std::fs::File::open("/dev/zero").unwrap();
    // SAFETY: the kernel checks the address; the byte lies in an arena, where no Rust object is.
    unsafe { libc::read(zero.as_raw_fd(), addr as *mut libc::c_void, 1) == 1 }
}

#[test]
fn only_the_host_writes_to_read_only_pages() {
    let arena = Arena::new(1 << 24).unwrap();
    let spec = RegionSpec { writable: false, ..region(5000) };
    let (writable, block) = (arena.alloc(region(8)).unwrap(), arena.alloc(spec.clone()).unwrap());
    block.write(4090, &[7; 20]);
    assert!(can_store(writable.addr()));
    for off in [0, 4999, 8191] {
        assert!(!can_store(block.addr() + off));
    }
    assert!(!can_store(block.addr() + 8192) && !can_store(arena.base()), "never allocated");
    let mut view = view(&arena);
    assert_eq!(load8(&mut view, block.addr() + 4096), Ok(0x0707_0707_0707_0707));
    assert_eq!(block.to_vec(4088, 4), [0, 0, 7, 7]);
    block.atomic::<AtomicU32>(4096).store(5, Ordering::Relaxed);
    view.refill(1, block.addr() + 4096, 4, Access::Read).unwrap();
    assert_eq!(view.load_acquire::<AtomicU32>(1, block.addr() + 4096), Some(5));
    assert!(view.write(block.addr(), &[1]).is_err() && view.fill(block.addr(), 1, 1).is_err());
    let addr = block.addr();
    drop(block);
    let again = arena.alloc(spec).unwrap();
    assert_eq!(again.addr(), addr);
    assert_eq!(again.to_vec(0, 5000), vec![0; 5000], "pages come back empty");
}

#[test]
fn handles_are_dense_and_come_back() {
    let table = HandleTable::new("functions", 32, 16).unwrap();
    let one = table.reserve(4).unwrap();
    let two = table.reserve(12).unwrap();
    assert!(table.reserve(1).is_err());
    assert_eq!(one.addr(3) - one.addr(0), 96);
    assert_eq!(one.index(two.addr(0)), None);
    assert_eq!(two.index(two.addr(5)), Some(5));
    assert_eq!(two.index(two.addr(5) + 1), None);
    drop(one);
    drop(two);
    assert_eq!(table.reserve(16).unwrap().len(), 16);
}

#[test]
fn regions_hit_before_are_found_again_with_the_same_bounds() {
    let arena = Arena::new(1 << 20).unwrap();
    let grid = |count| RegionSpec { stride: 16, count, ..region(8) };
    let blocks: Vec<Block> = (2..8).map(|count| arena.alloc(grid(count)).unwrap()).collect();
    let constants = arena.alloc(RegionSpec { writable: false, ..grid(2) }).unwrap();
    let mut view = view(&arena);
    for round in 0..3 {
        for block in &blocks {
            for index in 0..block.region().spec.count {
                block.write(index * 16, &u64::from(index + round).to_le_bytes());
                assert_eq!(load8(&mut view, block.element(index)), Ok(u64::from(index + round)));
                assert!(view.refill(1, block.element(index) + 1, 8, Access::Read).is_err());
                assert!(view.refill(1, block.element(index) + 8, 1, Access::Write).is_err());
            }
        }
        assert!(load8(&mut view, constants.element(round % 2)).is_ok());
        assert!(view.refill(1, constants.element(0), 8, Access::Write).is_err());
    }
    let gone = blocks[5].element(1);
    assert!(load8(&mut view, gone).is_ok());
    drop(blocks);
    assert!(view.refill(2, gone, 8, Access::Read).is_err(), "a region that is gone is not remembered");
}

#[test]
fn idle_views_keep_no_long_tables() {
    let arena = Arena::new(1 << 26).unwrap();
    let mut idle = Vec::new();
    for _ in 0..1000 {
        let block = arena.alloc(region(8)).unwrap();
        let mut view = view(&arena);
        load8(&mut view, block.addr()).unwrap();
        idle.push((block, view));
    }
    let kept: std::collections::BTreeSet<_> =
        idle.iter().filter_map(|(_, view)| view.kept()).map(|regions| regions.as_ptr()).collect();
    assert!(kept.len() <= 300, "{} tables of regions are kept", kept.len());
    for (block, view) in &mut idle {
        assert_eq!(load8(view, block.addr()), Ok(0));
        assert!(view.refill(2, block.addr() + 8, 1, Access::Read).is_err());
    }
}

#[test]
fn copies_in_pieces_are_copies() {
    let arena = Arena::new(1 << 20).unwrap();
    let block = arena.alloc(region(64)).unwrap();
    let bytes: Vec<u8> = (1..=64).collect();
    for start in 0..17 {
        for len in 0..40 {
            block.fill(0, 64, 0);
            block.store(start, &bytes[..len]);
            let mut expected = vec![0; 64];
            expected[start as usize..][..len].copy_from_slice(&bytes[..len]);
            assert_eq!(block.to_vec(0, 64), expected, "{len} at {start}");
            let mut copy = vec![0xff; len];
            block.load(start, &mut copy);
            assert_eq!(copy, bytes[..len], "{len} at {start}");
            assert!(block.equals(start, &copy));
            for changed in 0..len {
                copy[changed] ^= 0x80;
                assert!(!block.equals(start, &copy), "byte {changed} of {len} at {start}");
                copy[changed] ^= 0x80;
            }
        }
    }
}
