//! Random first instructions do at another address what they do at their own.
//!
//! A function is made of instructions of all forms that the place of code could matter to: relative to rip, branches short
//! and long, calls, its own address. It runs as it is, and once more from its moved instructions, with the same registers and
//! memory; both leave the same. `TWINBPF_HOOK_MOVES` is how many functions are tried.
#![expect(unsafe_code, reason = "runs generated code")]

use std::arch::global_asm;
use std::ops::Range;

use super::super::sys;
use super::{JUMP, displace};
use crate::Refusal;

/// Bytes of code, of its moved instructions, and of data, one after another.
const CODE: u64 = 0x1000;
const DATA: u64 = 0x1000;

/// Registers in the order of their numbers, then flags; rsp stays as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    registers: [u64; 16],
    flags: u64,
}

global_asm!(
    ".pushsection .text.twinbpf_hook_test,\"ax\",@progbits",
    "twinbpf_hook_test_run:",
    "push rbx; push rbp; push r12; push r13; push r14; push r15; push rsi",
    "mov [rip + 7f], rsp",
    "mov [rip + 8f], rdi",
    "mov rax, [rsi]; mov rcx, [rsi + 8]; mov rdx, [rsi + 16]; mov rbx, [rsi + 24]; mov rbp, [rsi + 40]",
    "mov rdi, [rsi + 56]; mov r8, [rsi + 64]; mov r9, [rsi + 72]; mov r10, [rsi + 80]; mov r11, [rsi + 88]",
    "mov r12, [rsi + 96]; mov r13, [rsi + 104]; mov r14, [rsi + 112]; mov r15, [rsi + 120]",
    "push qword ptr [rsi + 128]; popfq",
    "mov rsi, [rsi + 48]",
    "call [rip + 8f]",
    "mov rsp, [rip + 7f]",
    "pushfq",
    "push rsi",
    "mov rsi, [rsp + 16]",
    "mov [rsi], rax; mov [rsi + 8], rcx; mov [rsi + 16], rdx; mov [rsi + 24], rbx; mov [rsi + 40], rbp",
    "mov [rsi + 56], rdi; mov [rsi + 64], r8; mov [rsi + 72], r9; mov [rsi + 80], r10; mov [rsi + 88], r11",
    "mov [rsi + 96], r12; mov [rsi + 104], r13; mov [rsi + 112], r14; mov [rsi + 120], r15",
    "pop [rsi + 48]; pop [rsi + 128]",
    "add rsp, 8; pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
    "cld",
    "ret",
    ".popsection",
    ".pushsection .data.twinbpf_hook_test,\"aw\",@progbits",
    ".balign 8",
    "7: .quad 0",
    "8: .quad 0",
    ".popsection",
);

unsafe extern "C" {
    fn twinbpf_hook_test_run(code: u64, state: *mut State);
}

/// A generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 32) % limit
    }

    /// Any register but rsp.
    fn register(&mut self) -> u8 {
        let register = self.below(15) as u8;
        if register >= 4 { register + 1 } else { register }
    }
}

/// A function in the making, at an address.
struct Maker<'a> {
    random: &'a mut Random,
    address: u64,
    data: u64,
    code: Vec<u8>,
    starts: Vec<usize>,
    /// Places of branch distances with their width, and the instruction after which they lead.
    branches: Vec<(usize, usize)>,
}

impl Maker<'_> {
    /// `REX.W op modrm` of two registers.
    fn two(&mut self, op: u8) {
        let (reg, rm) = (self.random.register(), self.random.register());
        self.code.extend([0x48 | (reg >> 3) << 2 | rm >> 3, op, 0xc0 | (reg & 7) << 3 | rm & 7]);
    }

    /// `REX.W op modrm disp32` relative to rip, to `target`.
    fn relative(&mut self, op: u8, target: u64) {
        let reg = self.random.register();
        self.code.extend([0x48 | (reg >> 3) << 2, op, 5 | (reg & 7) << 3]);
        let next = self.address + self.code.len() as u64 + 4;
        self.code.extend((target.wrapping_sub(next) as i32).to_le_bytes());
    }

    fn instruction(&mut self) {
        self.starts.push(self.code.len());
        let slot = self.data + 8 * self.random.below(16);
        match self.random.below(13) {
            0 => {
                let op = self.random.below(8) as usize;
                self.two([0x01, 0x29, 0x31, 0x21, 0x09, 0x39, 0x85, 0x89][op]);
            }
            1 => self.relative(0x8b, slot),
            2 => self.relative(0x89, slot),
            3 => self.relative(0x03, slot),
            // The function's own address, and others close by.
            4 => {
                let at = self.address + self.random.below(8);
                self.relative(0x8d, at);
            }
            5 => {
                let register = self.random.register();
                self.code.extend([0x48 | register >> 3, 0xb8 | register & 7]);
                self.code.extend(self.random.next().to_le_bytes());
            }
            6 => self.code.push(0x90),
            7 => self.code.extend([0x0f, 0x1f, 0x40, 0x00]),
            8 => self.code.extend([0xf3, 0x0f, 0x1e, 0xfa]),
            9 => {
                let register = self.random.register();
                let rex = if register >= 8 { &[0x41][..] } else { &[] };
                // push, and pop, to which no branch leads.
                self.code.extend(rex);
                self.code.push(0x50 | register & 7);
                self.code.extend(rex);
                self.code.push(0x58 | register & 7);
            }
            10 => {
                // A condition, over some instructions.
                self.code.extend([0x70 | self.random.below(16) as u8, 0]);
                self.branches.push((self.code.len() - 1, 1 + self.random.below(3) as usize));
            }
            11 => {
                self.code.extend([0x0f, 0x80 | self.random.below(16) as u8, 0, 0, 0, 0]);
                self.branches.push((self.code.len() - 4, 1 + self.random.below(3) as usize));
            }
            // A function that only returns, at the start of the data.
            _ => {
                let next = self.address + self.code.len() as u64 + 5;
                self.code.push(0xe8);
                self.code.extend(((self.data + DATA - 1).wrapping_sub(next) as i32).to_le_bytes());
            }
        }
    }

    /// Where the branches lead, by address.
    fn finish(&mut self) -> Vec<u64> {
        let mut targets = Vec::new();
        self.starts.push(self.code.len());
        self.code.push(0xc3);
        for (at, over) in std::mem::take(&mut self.branches) {
            let wide = self.code[at - 1] & 0xf0 == 0x80;
            let next = at + if wide { 4 } else { 1 };
            let after = self.starts.partition_point(|start| *start < next);
            let target = self.starts[(after + over).min(self.starts.len() - 1)];
            let distance = (target - next) as i32;
            match wide {
                true => self.code[at..at + 4].copy_from_slice(&distance.to_le_bytes()),
                false => self.code[at] = distance as u8,
            }
            targets.push(self.address + target as u64);
        }
        targets
    }
}

/// Memory at a fixed distance of code, moved instructions and data.
struct Memory(u64);

impl Memory {
    fn new() -> Memory {
        let at = sys::reserve(2 * CODE + DATA).expect("addresses");
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        sys::protect(at, 2 * CODE + DATA, all).expect("writable code");
        Memory(at)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        // SAFETY: it is ours, and this long.
        unsafe {
            let to: *mut u8 = std::ptr::with_exposed_provenance_mut(at as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn data(&self) -> Range<u64> {
        self.0 + 2 * CODE..self.0 + 2 * CODE + DATA
    }

    /// What a run leaves.
    fn run(&self, code: u64, before: &State, data: &[u8]) -> (State, Vec<u8>) {
        let mut state = *before;
        self.write(self.data().start, data);
        // SAFETY: the code keeps the stack pointer, and writes to the data only.
        unsafe { twinbpf_hook_test_run(code, &raw mut state) };
        let mut after = vec![0; data.len()];
        assert!(sys::read(self.data().start, &mut after));
        (state, after)
    }
}

#[test]
fn moved_instructions_do_the_same() {
    let count = std::env::var("TWINBPF_HOOK_MOVES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000_000_u32);
    let (memory, mut random) = (Memory::new(), Random(0x9e37_79b9_7f4a_7c15));
    memory.write(memory.data().end - 1, &[0xc3]);
    let (mut moved_count, mut refused) = (0, 0);
    for _ in 0..count {
        let address = memory.0 + random.below(64);
        let mut maker = Maker {
            random: &mut random,
            address,
            data: memory.data().start,
            code: Vec::new(),
            starts: Vec::new(),
            branches: Vec::new(),
        };
        (0..8).for_each(|_| maker.instruction());
        let targets = maker.finish();
        let code = maker.code;
        let inner = address + 1..address + JUMP as u64;
        let prologue = match displace(address, &code, address + code.len() as u64) {
            Ok(prologue) if !targets.iter().any(|target| inner.contains(target)) => prologue,
            Ok(_) | Err(Refusal::TooShort) => {
                refused += 1;
                continue;
            }
            Err(why) => panic!("{why}: {code:02x?}"),
        };
        let to = memory.0 + CODE + random.below(64);
        let moved = prologue.move_to(to).expect("it can move");
        memory.write(address, &code);
        memory.write(to, &moved.bytes);
        let before = State { registers: [(); 16].map(|()| random.next()), flags: 0x202 | random.next() & 0x8d5 };
        let data: Vec<u8> = (0..16).flat_map(|_| random.next().to_le_bytes()).collect();
        let [plain, other] = [address, to].map(|code| memory.run(code, &before, &data));
        assert_eq!(plain, other, "{code:02x?} at {address:#x}, moved to {to:#x}: {:02x?}", moved.bytes);
        moved_count += 1;
    }
    assert!(moved_count > count / 2, "{refused} of {count} functions were refused");
}
