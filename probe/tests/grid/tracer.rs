//! Runs a program and reads values at addresses: breakpoints, registers and memory by ptrace.
#![expect(unsafe_code, reason = "ptrace, fork and waitpid have no safe form")]

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use twinbpf_probe::{Register, State};

/// A breakpoint that was hit: which address, with which registers, and the program's memory.
pub(crate) struct Hit<'t> {
    pub(crate) pid: i32,
    pub(crate) address: u64,
    pub(crate) registers: libc::user_regs_struct,
    pub(crate) memory: &'t File,
    pub(crate) bias: u64,
    /// Registers when the function was entered, by the address of its first instruction.
    pub(crate) entries: &'t HashMap<u64, libc::user_regs_struct>,
    pub(crate) entry: u64,
}

fn general(registers: &libc::user_regs_struct, register: Register) -> Option<u64> {
    let r = registers;
    let all =
        [r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15];
    all.get(usize::from(register.0)).copied()
}

impl State for Hit<'_> {
    fn register(&self, register: Register) -> Option<u64> {
        general(&self.registers, register)
    }

    fn at_entry(&self, register: Register) -> Option<u64> {
        general(self.entries.get(&self.entry)?, register)
    }

    fn memory(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.memory.read_exact_at(bytes, address).is_ok()
    }

    fn bias(&self) -> u64 {
        self.bias
    }
}

fn ptrace(request: libc::c_uint, pid: i32, address: u64, data: u64) -> i64 {
    // SAFETY: the requests below take numbers, or a pointer to registers that live in the caller.
    unsafe { libc::ptrace(request, pid, address, data) }
}

fn registers(pid: i32) -> libc::user_regs_struct {
    // SAFETY: plain numbers, for which zero is a value.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers as u64);
    registers
}

/// Waits for the next stop; the signal, or `None` at the end.
fn wait(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the status is written by the call.
    let got = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    (got == pid && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
}

/// A child that stops at its first instruction, and what it writes.
fn start(path: &Path) -> (i32, File) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let mut pipe = [0; 2];
    // SAFETY: an array for the two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // A log of any length must fit: nothing reads while the child is stopped.
    // SAFETY: a descriptor of ours.
    unsafe { libc::fcntl(pipe[1], libc::F_SETPIPE_SZ, 1 << 20) };
    // SAFETY: the child only makes system calls until it executes the program.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let arguments = [path.as_ptr(), std::ptr::null()];
        let environment = [c"LD_BIND_NOW=1".as_ptr(), std::ptr::null()];
        // SAFETY: as above; the arrays end with null.
        unsafe {
            libc::dup2(pipe[1], 1);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            libc::_exit(127);
        }
    }
    // SAFETY: the descriptors are ours and used nowhere else.
    let log = unsafe {
        libc::close(pipe[1]);
        File::from_raw_fd(pipe[0])
    };
    assert_eq!(wait(pid), Some(libc::SIGTRAP), "the program starts");
    (pid, log)
}

/// Where the file's addresses begin in the process.
fn bias(pid: i32, path: &Path, is_pie: bool) -> u64 {
    if !is_pie {
        return 0;
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|line| line.ends_with(path.to_str().unwrap())).expect("the program is mapped");
    u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

/// Runs a program to its end, stops at each address, and returns what it wrote. `sites` are addresses of the file with the
/// entry of the function around each.
pub(crate) fn run(path: &Path, is_pie: bool, sites: &[(u64, u64)], mut hit: impl FnMut(&Hit<'_>)) -> String {
    let (pid, mut log) = start(path);
    let bias = bias(pid, path, is_pie);
    let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).unwrap();
    let mut original = HashMap::new();
    let mut functions: HashMap<u64, Vec<u64>> = HashMap::new();
    for (address, entry) in sites {
        functions.entry(*address).or_default().push(*entry);
        for place in [address, entry] {
            let mut byte = [0];
            if !original.contains_key(place) && memory.read_exact_at(&mut byte, place + bias).is_ok() {
                original.insert(*place, byte[0]);
                memory.write_all_at(&[0xcc], place + bias).unwrap();
            }
        }
    }
    let mut entries = HashMap::new();
    let mut signal = 0;
    loop {
        ptrace(libc::PTRACE_CONT, pid, 0, signal as u64);
        let Some(stopped) = wait(pid) else { break };
        let mut state = registers(pid);
        let address = state.rip.wrapping_sub(bias + 1);
        let Some(byte) = original.get(&address).copied().filter(|_| stopped == libc::SIGTRAP) else {
            assert!(
                stopped != libc::SIGSEGV && stopped != libc::SIGILL,
                "the program faults at {:#x}",
                state.rip - bias
            );
            signal = stopped;
            continue;
        };
        signal = 0;
        state.rip -= 1;
        if sites.iter().any(|(_, entry)| *entry == address) {
            entries.insert(address, state);
        }
        for entry in functions.get(&address).into_iter().flatten() {
            hit(&Hit { pid, address, registers: state, memory: &memory, bias, entries: &entries, entry: *entry });
        }
        // One step over the instruction that was there.
        memory.write_all_at(&[byte], address + bias).unwrap();
        ptrace(libc::PTRACE_SETREGS, pid, 0, &raw const state as u64);
        ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0);
        if wait(pid).is_none() {
            break;
        }
        memory.write_all_at(&[0xcc], address + bias).unwrap();
    }
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    text
}
