//! A static probe in this very program, written as `sys/sdt.h` writes them.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::os::fd::AsRawFd;
use std::path::Path;

use twinbpf_loader::kernel::KernelOptions;

use super::load::{corpus, load_object, may_load, open};
use twinbpf_kernel::load::LoadOptions;
use twinbpf_kernel::user::Binary;
use twinbpf_kernel::{Options, Target};

std::arch::global_asm!(
    r#"
    .text
    .globl twinbpf_usdt_fire
    .type twinbpf_usdt_fire, @function
twinbpf_usdt_fire:
990: nop
    ret
    .size twinbpf_usdt_fire, . - twinbpf_usdt_fire
    .pushsection .note.stapsdt, "", "note"
    .balign 4
    .4byte 992f - 991f, 994f - 993f, 3
991: .asciz "stapsdt"
992: .balign 4
993: .8byte 990b
    .8byte _.stapsdt.base
    .8byte twinbpf_usdt_semaphore
    .asciz "twinbpf"
    .asciz "fired"
    .asciz "8@%rdi -4@%esi 8@$-9 -2@8(%rdx)"
994: .balign 4
    .popsection
    .pushsection .stapsdt.base, "aG", "progbits", .stapsdt.base, comdat
    .weak _.stapsdt.base
    .hidden _.stapsdt.base
_.stapsdt.base: .space 1
    .size _.stapsdt.base, 1
    .popsection
    .pushsection .probes, "aw", "progbits"
    .globl twinbpf_usdt_semaphore
twinbpf_usdt_semaphore: .2byte 0
    .popsection
    "#
);

unsafe extern "C" {
    fn twinbpf_usdt_fire(first: u64, second: i32, third: *const i16);
    static twinbpf_usdt_semaphore: std::sync::atomic::AtomicU16;
}

fn users() -> u16 {
    // SAFETY: two aligned bytes that only the kernel and this function touch.
    unsafe { &twinbpf_usdt_semaphore }.load(std::sync::atomic::Ordering::Relaxed)
}

fn fire() {
    let memory = [0_i16, 0, 0, 0, -5];
    // SAFETY: it does nothing; a probe reads what the third argument points to.
    unsafe { twinbpf_usdt_fire(77, -3, memory.as_ptr()) };
}

/// In how many places of this process the kernel puts the breakpoint, and counts a user: each private mapping of the
/// file's page that cannot be written (`valid_vma` of kernel/events/uprobes.c), executable or not. Segments of a file
/// that share a page, as lld makes them, map it twice.
fn breakpoints(path: &Path, offset: u64) -> u16 {
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let lines = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
    let found = lines.filter(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let from = number(words[2]);
        !words[1].contains('w') && (from..from + number(end) - number(start)).contains(&offset)
    });
    found.count() as u16
}

/// One more mapping of the page around an offset of a file.
struct Again(*mut libc::c_void);

impl Again {
    fn new(file: &std::fs::File, offset: u64) -> Again {
        let offset = (offset & !0xfff) as libc::off_t;
        // SAFETY: a new mapping, which is not accessed.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), offset)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        Again(memory)
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, to which there is no reference.
        unsafe { libc::munmap(self.0, 4096) };
    }
}

pub(crate) fn arguments_arrive_and_users_are_counted() {
    if !may_load() {
        return;
    }
    let path = std::env::current_exe().unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let probes = Binary::read(&path).unwrap().probes();
    let mine = probes.iter().find(|sdt| sdt.provider == "twinbpf" && sdt.name == "fired").expect("the note is read");
    assert!(mine.semaphore != 0 && mine.arguments.starts_with("8@%rdi"), "{mine:?}");
    let object = open(&corpus().join("probes/usdt.bpf.o"));
    let loaded = load_object(&object, &KernelOptions::default(), &LoadOptions::default());
    assert!(loaded.failures.is_empty(), "{:#}", loaded.failures[0]);
    let program = loaded.program("fired").unwrap();
    let target = Target::Usdt { path: path.clone(), provider: "twinbpf".to_owned(), name: "fired".to_owned() };
    let options = Options { cookie: 0x1234, pid: Some(std::process::id()), ..Options::default() };
    assert_eq!(users(), 0);
    fire();
    let link = loaded.open(program, &target, &options).unwrap_or_else(|error| panic!("{error:#}")).enable().unwrap();
    assert_eq!(users(), breakpoints(&path, mine.offset));
    (0..3).for_each(|_| fire());
    drop(link);
    assert_eq!(users(), 0);
    fire();
    let again = Again::new(&file, mine.offset);
    let link = loaded.open(program, &target, &options).unwrap_or_else(|error| panic!("{error:#}")).enable().unwrap();
    assert_eq!(users(), breakpoints(&path, mine.offset));
    assert!(users() >= 2, "the page is mapped twice now");
    drop(link);
    assert_eq!(users(), 0);
    drop(again);
    let seen = loaded.map(".bss").unwrap().lookup(&[0; 4]).unwrap().unwrap();
    let words: Vec<i64> = seen.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [3, 0x1234, 4, 77, -3, -9, -5]);
    let other = Target::Usdt { path, provider: "twinbpf".to_owned(), name: "other".to_owned() };
    let error = loaded.open(program, &other, &options).unwrap_err().to_string();
    assert!(error.contains("provider twinbpf has fired"), "{error}");
}
