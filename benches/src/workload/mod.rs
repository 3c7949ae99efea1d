//! The workloads of `corpus/bench`: what they get as input and what they must return.
//!
//! The layout of the block is `corpus/bench/block.h`'s. The expected result comes from a second implementation of
//! each workload, in Rust, so that a machine that computes the wrong thing is never timed.

mod balancer;
mod block;
mod calls;
mod dice;
mod json;
mod lz4;
mod object;
mod reference;
mod stackvm;
mod utf8;

pub use block::Block;
pub use calls::{Calls, code_with};
pub use dice::Dice;
pub use object::{Dialect, code, corpus, corpus_object, link, program};

/// Bytes of the input and of the scratch area.
pub const AREA: usize = 65536;
/// Offset of the input in the block.
pub const INPUT: usize = 64;
/// Bytes of the whole block.
pub const BLOCK: usize = INPUT + 2 * AREA;

/// A program with its input and its expected result.
pub struct Workload {
    /// File name in `corpus/bench`, without extension.
    pub name: &'static str,
    /// Work of one run, in the workload's own unit.
    pub len: u64,
    shape: fn(&mut [u8]),
    reference: fn(&[u8], u64) -> u64,
}

/// Every workload, in the order of the tables.
pub const WORKLOADS: &[Workload] = &[
    Workload { name: "alu64", len: 8000, shape: as_it_is, reference: reference::alu64 },
    Workload { name: "alu32", len: 8000, shape: as_it_is, reference: reference::alu32 },
    Workload { name: "sieve", len: 16384, shape: as_it_is, reference: reference::sieve },
    Workload { name: "heapsort", len: 512, shape: as_it_is, reference: reference::heapsort },
    Workload { name: "fnv1a", len: 16384, shape: as_it_is, reference: reference::fnv1a },
    Workload { name: "siphash", len: 16384, shape: as_it_is, reference: reference::siphash },
    Workload { name: "sha256", len: 4096, shape: round_constants, reference: reference::sha256 },
    Workload { name: "strsearch", len: 16384, shape: four_letters, reference: reference::strsearch },
    Workload { name: "matmul", len: 24, shape: as_it_is, reference: reference::matmul },
    Workload { name: "div64", len: 2000, shape: as_it_is, reference: reference::div64 },
    Workload { name: "switchvm", len: 10000, shape: as_it_is, reference: reference::switchvm },
    Workload { name: "pktparse", len: 512, shape: packets, reference: reference::pktparse },
    Workload { name: "hashtable", len: 1024, shape: as_it_is, reference: reference::hashtable },
    Workload { name: "memcpy64", len: 65536, shape: as_it_is, reference: reference::memcpy64 },
    Workload { name: "chacha20", len: 4096, shape: as_it_is, reference: reference::chacha20 },
    Workload { name: "json", len: 16384, shape: json::shape, reference: json::reference },
    Workload { name: "balancer", len: 384, shape: balancer::shape, reference: balancer::reference },
    Workload { name: "lz4", len: lz4::TEXT as u64, shape: lz4::shape, reference: lz4::reference },
    Workload { name: "stackvm", len: 60, shape: stackvm::shape, reference: stackvm::reference },
    Workload { name: "btree", len: 1024, shape: as_it_is, reference: reference::btree },
    Workload { name: "utf8", len: utf8::TEXT as u64, shape: utf8::shape, reference: utf8::reference },
];

impl Workload {
    /// The block as every machine gets it: the same bytes on every run and machine.
    pub fn block(&self) -> Vec<u8> {
        block_of(self.len, self.shape)
    }

    /// What a run over [`block`](Self::block) must return.
    pub fn expected(&self) -> u64 {
        (self.reference)(&self.block()[INPUT..INPUT + AREA], self.len)
    }
}

/// A block with this length, random bytes as its input, which are the same each time, and what the shape makes of them.
pub fn block_of(len: u64, shape: fn(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..8].copy_from_slice(&len.to_le_bytes());
    let input = &mut block[INPUT..INPUT + AREA];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for word in input.chunks_exact_mut(8) {
        state ^= state << 7;
        state ^= state >> 9;
        word.copy_from_slice(&state.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    shape(input);
    block
}

/// FNV-1a, 64 bits: what long results are folded with, and what divides workloads from outside.
pub const fn fnv1a(bytes: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
}

fn as_it_is(_input: &mut [u8]) {}

fn four_letters(input: &mut [u8]) {
    for byte in input {
        *byte = b"acgt"[usize::from(*byte >> 6)];
    }
}

fn round_constants(input: &mut [u8]) {
    for (slot, constant) in input.chunks_exact_mut(4).zip(reference::sha256_constants()) {
        slot.copy_from_slice(&constant.to_le_bytes());
    }
}

/// Mostly IPv4 with TCP or UDP, some with a VLAN tag or options, some of another protocol or broken.
fn packets(input: &mut [u8]) {
    for packet in input.chunks_exact_mut(128) {
        let dice = packet[100];
        let tagged = dice & 3 == 0;
        let ip = if tagged { 18 } else { 14 };
        if tagged {
            packet[12..14].copy_from_slice(&[0x81, 0x00]);
        }
        packet[ip - 2..ip].copy_from_slice(if dice > 240 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
        packet[ip] = 0x45 + (packet[101] & 3);
        if packet[102] < 8 {
            packet[ip] = 0x42;
        }
        packet[ip + 9] = [6, 6, 17, 1][usize::from(packet[103] & 3)];
    }
}
