//! What the programs watch. Between the two lines that name the thread it does exactly what is said here.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::process::ExitCode;

/// System calls of the thread while it has the name: `close` of the file that gave it, 100 `read`, 100 `lseek`, 20 `kill`,
/// `getppid`, `openat` and `write` for the next name.
pub(crate) const CALLS: &str = "224";

/// See the module documentation.
pub(crate) fn run() -> ExitCode {
    let (mut zeros, mut file) = (File::open("/dev/zero").unwrap(), File::create("/tmp/sought").unwrap());
    let (mut buffer, own) = ([0; 100], std::process::id() as i32);
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    let kill = |signal| unsafe { libc::kill(own, signal) };
    let name = |name: &str| fs::write("/proc/self/comm", name).unwrap();
    name("workload");
    for count in 1..=100_usize {
        zeros.read_exact(&mut buffer[..count]).unwrap();
        file.seek(SeekFrom::Start(count as u64)).unwrap();
    }
    let forbidden = [0, libc::SIGCONT].map(|signal| {
        let errors = (0..10).map(|_| if kill(signal) == 0 { 0 } else { errno() });
        errors.sum::<i32>()
    });
    let parent = std::os::unix::process::parent_id();
    name("over");
    for number in 1..=100 {
        twinbpf_vm_work(number);
    }
    for number in -2..=2 {
        step(number, i64::from(number) * i64::from(number) * 10_000_000_000);
    }
    println!("workload {own} {parent} {} {}", forbidden[0], forbidden[1]);
    ExitCode::SUCCESS
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A static probe, as `sys/sdt.h` makes it: an instruction that does nothing, and a note that says where it is and where
/// its arguments lie.
#[inline(never)]
fn step(number: i32, square: i64) {
    // SAFETY: the one instruction does nothing; what follows is no part of the code.
    unsafe {
        std::arch::asm!(
            "990: nop",
            ".pushsection .note.stapsdt, \"\", \"note\"",
            ".balign 4",
            ".4byte 992f - 991f, 994f - 993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte 990b, 0, 0",
            ".asciz \"twin\"",
            ".asciz \"step\"",
            ".asciz \"-4@{number:e} -8@{square}\"",
            "994: .balign 4",
            ".popsection",
            number = in(reg) number,
            square = in(reg) square,
            options(att_syntax, nostack, preserves_flags),
        );
    }
}

/// A function to probe.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn twinbpf_vm_work(number: u64) {
    std::hint::black_box(number);
}
