#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]
use super::*;
use twinbpf_isa::{Size, Width};

mod calls;
mod chain;
mod child;
mod masks;
mod runtimes;

/// A page of memory that can be executed, with code at its start.
struct Page {
    at: u64,
    _range: CodeRange,
}

impl Page {
    fn new(code: &[u8]) -> Page {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping; it is filled before it is executed, and belongs to this value.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(code.as_ptr(), at.cast(), code.len());
            assert_eq!(libc::mprotect(at, 4096, libc::PROT_READ | libc::PROT_EXEC), 0);
            at as u64
        };
        Page { at, _range: code_range(at, 4096) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and no longer executed.
        unsafe { libc::munmap(self.at as *mut libc::c_void, 4096) };
    }
}

unsafe fn no_callback(_: *mut (), _: u64, _: &[u64; 5]) -> Result<u64, Trap> {
    panic!("nothing calls back")
}

/// What stands for the machine.
struct Rig {
    in_c: u32,
    interrupt: u8,
}

impl Rig {
    fn new() -> Box<Rig> {
        Box::new(Rig { in_c: 0, interrupt: 0 })
    }

    fn owner(&mut self) -> Owner {
        Owner {
            in_c: &raw mut self.in_c,
            interrupt: &raw const self.interrupt,
            data: std::ptr::null_mut(),
            call: no_callback,
        }
    }

    fn enter(&mut self, page: &Page, args: [u64; 4], stack: Option<&NativeStack>) -> Result<u64, Abort> {
        let owner = self.owner();
        let cx = &raw mut *self;
        // SAFETY: test code follows the convention, and its page is a registered range.
        let result = unsafe {
            match stack {
                Some(stack) => enter(&EntryGate::new(owner, stack), page.at, cx.cast(), 0x1000, &args),
                None => enter_again(&owner, page.at, cx.cast(), 0x1000, &args),
            }
        };
        result.map_err(|abort| *abort)
    }

    fn fault(&mut self, page: &Page, args: [u64; 4]) -> Fault {
        match self.enter(page, args, None) {
            Err(Abort::Fault(fault)) => fault,
            other => panic!("a fault, not {other:?}"),
        }
    }
}

/// `push rbp; mov rbp, rsp`, a body, `pop rbp; ret`.
fn function(body: &[u8]) -> Page {
    let mut code = vec![0x55, 0x48, 0x89, 0xe5];
    code.extend(body);
    code.extend([0x5d, 0xc3]);
    Page::new(&code)
}

#[test]
fn raw_accesses_reach_what_is_there() {
    let mut cell = 0x1122_3344_5566_7788u64;
    let addr = &raw mut cell as u64;
    // SAFETY: the cell is ours.
    unsafe {
        assert_eq!(load(addr, Size::B), Ok(0x88));
        assert_eq!(load(addr, Size::H), Ok(0x7788));
        assert_eq!(load(addr + 1, Size::W), Ok(0x4455_6677));
        assert_eq!(load(addr, Size::Dw), Ok(0x1122_3344_5566_7788));
        store(addr, Size::B, 0xff01).unwrap();
        store(addr + 2, Size::H, 0xf0203).unwrap();
        assert_eq!(load(addr, Size::Dw), Ok(0x1122_3344_0203_7701));
        store(addr, Size::W, u64::MAX).unwrap();
        assert_eq!(load(addr, Size::Dw), Ok(0x1122_3344_ffff_ffff));
        store(addr, Size::Dw, 5).unwrap();
        assert_eq!(compare_exchange(addr, Width::W64, 5, 6), Ok(5));
        assert_eq!(compare_exchange(addr, Width::W64, 5, 7), Ok(6));
        assert_eq!(compare_exchange(addr, Width::W32, 6, u64::MAX), Ok(6));
        assert_eq!(load(addr, Size::Dw), Ok(0xffff_ffff));
    }
    assert_eq!(cell, 0xffff_ffff);
}

#[test]
fn raw_accesses_to_nothing_are_refused() {
    let text = "SIGSEGV at address 0x10";
    for round in 0..1000 {
        let addr = if round % 2 == 0 { 0x10 } else { 0xdead_dead_dead_de00 };
        // SAFETY: nothing is there.
        unsafe {
            for size in [Size::B, Size::H, Size::W, Size::Dw] {
                let fault = load(addr, size).unwrap_err();
                assert_eq!((fault.signal, fault.address), (Signal::Segv, Some(addr)));
                assert!(store(addr, size, 1).is_err());
            }
            assert!(compare_exchange(addr, Width::W32, 0, 1).is_err());
            assert!(compare_exchange(addr, Width::W64, 0, 1).is_err());
        }
    }
    // SAFETY: as above.
    assert_eq!(unsafe { load(0x10, Size::B) }.unwrap_err().to_string(), text);
}

#[test]
fn a_store_to_read_only_memory_is_refused() {
    let page = Page::new(&[1]);
    // SAFETY: the page is ours, and cannot be written.
    unsafe {
        assert_eq!(load(page.at, Size::W), Ok(1));
        assert!(store(page.at, Size::B, 0).is_err());
        assert_eq!(load(page.at, Size::W), Ok(1));
    }
}

#[test]
fn an_access_past_the_end_of_a_file_is_a_bus_error() {
    let file = tempfile();
    // SAFETY: a mapping of an empty file; nothing of it can be accessed.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let fault = load(at as u64 + 8, Size::B).unwrap_err();
        assert_eq!((fault.signal, fault.address), (Signal::Bus, Some(at as u64 + 8)));
        libc::munmap(at, 4096);
        libc::close(file);
    }
}

fn tempfile() -> i32 {
    // SAFETY: the name ends in a NUL.
    let file = unsafe { libc::memfd_create(c"empty".as_ptr(), 0) };
    assert!(file >= 0);
    file
}

/// Of pages that these tests fill, or of addresses where nothing runs.
fn code_range(start: u64, len: u64) -> CodeRange {
    // SAFETY: the page holds what these tests call as generated code; at the other addresses there is nothing.
    unsafe { CodeRange::new(start, len) }
}

#[test]
fn ranges_come_and_go() {
    let base = 0x7fff_0000_0000;
    let ranges: Vec<_> = (0..200).map(|index| code_range(base + index * 100, 50)).collect();
    assert!(range::is_code(base) && range::is_code(base + 199 * 100 + 49));
    assert!(!range::is_code(base + 50) && !range::is_code(base - 1));
    drop(ranges);
    assert!(!range::is_code(base) && !range::is_code(base + 199 * 100));
}

#[test]
fn every_piece_of_the_registry_is_seen_while_others_change() {
    let mine = code_range(0x7ffe_0000_0000, 64);
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            for _ in 0..2000 {
                let ranges: Vec<_> = (0..70).map(|index| code_range(0x7ffd_0000_0000 + index * 64, 64)).collect();
                drop(ranges);
            }
        });
        while !changer.is_finished() {
            assert!(range::is_code(0x7ffe_0000_0000) && !range::is_code(0x7ffe_0000_0040));
        }
    });
    drop(mine);
}
