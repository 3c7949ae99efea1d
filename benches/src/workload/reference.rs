//! The workloads a second time, in Rust. `input` is the input area, `len` the work; see the C sources for what they do.

fn u16_at(input: &[u8], at: usize) -> u32 {
    u32::from(u16::from_le_bytes([input[at], input[at + 1]]))
}

fn u32_of(input: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(input[4 * index..4 * index + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_of(input: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(input[8 * index..8 * index + 8].try_into().expect("eight bytes"))
}

/// `hash * 31 + next`, what most workloads fold their results with.
pub(super) fn fold(hash: u64, next: u64) -> u64 {
    hash.wrapping_mul(31).wrapping_add(next)
}

pub(super) fn alu64(input: &[u8], len: u64) -> u64 {
    let (mut a, mut b) = (u64_of(input, 0), u64_of(input, 1));
    for i in 0..len {
        a ^= a >> 29;
        a = a.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        b = b.rotate_left(23).wrapping_add(a);
        a ^= b >> 32;
        b = b.wrapping_sub(i).wrapping_mul(5);
        a = a.wrapping_add(b | i);
        b ^= a << 13;
    }
    a ^ b
}

pub(super) fn alu32(input: &[u8], len: u64) -> u64 {
    let (mut a, mut b) = (u32_of(input, 0), u32_of(input, 1));
    for i in 0..len as u32 {
        a ^= a >> 16;
        a = a.wrapping_mul(0x85eb_ca6b);
        b = b.rotate_left(13).wrapping_add(a);
        a ^= b >> 15;
        b = b.wrapping_sub(i).wrapping_mul(5);
        a = a.wrapping_add(b | i);
        b ^= a << 7;
    }
    u64::from(a) << 32 | u64::from(b)
}

pub(super) fn sieve(_input: &[u8], len: u64) -> u64 {
    let len = len as usize;
    let mut prime = vec![true; len];
    let (mut count, mut sum) = (0, 0);
    for i in 2..len {
        if prime[i] {
            count += 1;
            sum += i as u64;
            for multiple in (2 * i..len).step_by(i) {
                prime[multiple] = false;
            }
        }
    }
    count << 48 ^ sum
}

pub(super) fn heapsort(input: &[u8], len: u64) -> u64 {
    let mut words: Vec<u64> = (0..len as usize).map(|i| u64_of(input, i)).collect();
    words.sort_unstable();
    words.into_iter().fold(0, fold)
}

pub(super) fn fnv1a(input: &[u8], len: u64) -> u64 {
    input[..len as usize]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn sip_rounds(v: &mut [u64; 4], rounds: usize) {
    for _ in 0..rounds {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }
}

pub(super) fn siphash(input: &[u8], len: u64) -> u64 {
    let (k0, k1) = (u64_of(input, 0), u64_of(input, 1));
    let initial = [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];
    let mut v = [k0 ^ initial[0], k1 ^ initial[1], k0 ^ initial[2], k1 ^ initial[3]];
    let words = len as usize / 8;
    for m in (0..words).map(|i| u64_of(input, i + 2)).chain([len << 56]) {
        v[3] ^= m;
        sip_rounds(&mut v, 2);
        v[0] ^= m;
    }
    v[2] ^= 0xff;
    sip_rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
pub(super) fn sha256_constants() -> impl Iterator<Item = u32> {
    let is_prime = |n: &u128| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (2..).filter(is_prime).take(64).map(|prime| {
        let cube = prime << 96;
        let root = (0..36).rev().fold(0_u128, |root, bit| {
            let next = root | 1 << bit;
            if next * next * next <= cube { next } else { root }
        });
        root as u32
    })
}

fn sha256_chunk(h: &mut [u32; 8], k: &[u32], message: &[u8]) {
    let mut w: Vec<u32> = message.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect();
    for i in 16..64 {
        let (x, y) = (w[i - 15], w[i - 2]);
        let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
        let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
        w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
    }
    let mut s = *h;
    for i in 0..64 {
        let [a, b, c, d, e, f, g, last] = s;
        let t1 = last
            .wrapping_add(e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25))
            .wrapping_add((e & f) ^ (!e & g))
            .wrapping_add(k[i])
            .wrapping_add(w[i]);
        let t2 =
            (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22)).wrapping_add((a & b) ^ (a & c) ^ (b & c));
        s = [t1.wrapping_add(t2), a, b, c, d.wrapping_add(t1), e, f, g];
    }
    for (word, add) in h.iter_mut().zip(s) {
        *word = word.wrapping_add(add);
    }
}

fn sha256_words(k: &[u32], message: &[u8]) -> [u32; 8] {
    let mut h =
        [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
    for chunk in message.chunks_exact(64) {
        sha256_chunk(&mut h, k, chunk);
    }
    h
}

pub(super) fn sha256(input: &[u8], len: u64) -> u64 {
    let k: Vec<u32> = (0..64).map(|i| u32_of(input, i)).collect();
    let h = sha256_words(&k, &input[256..256 + len as usize]);
    h.chunks_exact(2).fold(0, |hash, pair| hash ^ (u64::from(pair[0]) << 32 | u64::from(pair[1])))
}

pub(super) fn strsearch(input: &[u8], len: u64) -> u64 {
    let text = &input[..len as usize];
    let (mut found, mut hash) = (0, 0_u64);
    for (at, window) in text.windows(6).enumerate() {
        if window == &text[..6] {
            found += 1;
            hash = hash.wrapping_mul(17).wrapping_add(at as u64);
        }
    }
    found << 48 ^ hash
}

pub(super) fn matmul(input: &[u8], len: u64) -> u64 {
    let n = len as usize;
    let mut hash = 0;
    for row in 0..n {
        for column in 0..n {
            let products =
                (0..n).map(|k| u64_of(input, row * n + k).wrapping_mul(u64_of(input, 4096 + k * n + column)));
            hash = fold(hash, products.fold(0, u64::wrapping_add));
        }
    }
    hash
}

pub(super) fn div64(input: &[u8], len: u64) -> u64 {
    (0..len as usize).fold(1, |hash, i| {
        let (a, b) = (u64_of(input, i), u64_of(input, i + 1) >> (i & 31) | 1);
        let narrow = a as u32 / ((b >> 7) as u32 | 1);
        fold(fold(fold(hash, a / b), a % b), u64::from(narrow))
    })
}

pub(super) fn switchvm(input: &[u8], len: u64) -> u64 {
    let (mut r, mut pc) = ([1_u64, 2, 3, 5], 0_u32);
    for _ in 0..len {
        let word = u32_of(input, pc as usize & 4095);
        let small = word >> 8 & 0xffff;
        let value = u64::from(small);
        pc = pc.wrapping_add(1);
        match word & 15 {
            0 => r[0] = r[0].wrapping_add(value),
            1 => r[1] ^= r[0],
            2 => r[2] = r[2].wrapping_mul(3).wrapping_add(value),
            3 => r[3] = r[3].wrapping_sub(r[1]),
            4 => r[0] = r[0].rotate_left(5),
            5 => r[1] = r[1].wrapping_add(r[2] >> 7),
            6 => r[2] &= !value,
            7 => r[3] |= r[0] & value,
            8 if r[0] & 1 == 1 => pc = pc.wrapping_add(small & 63),
            9 if r[1] > r[2] => pc = pc.wrapping_sub(small & 15),
            8 | 9 => {}
            10 => r[0] = u64_of(input, r[1] as usize & 4095),
            11 => r[3] ^= u64::from(u32_of(input, r[2] as usize & 4095)),
            12 => r[1] = r[3].wrapping_add(value),
            13 => r[2] = r[0].wrapping_sub(r[3]),
            14 => pc = pc.wrapping_add(3),
            _ => r[0] ^= r[3].wrapping_mul(value),
        }
    }
    r[0] ^ r[1].wrapping_mul(3) ^ r[2].wrapping_mul(5) ^ r[3].wrapping_mul(7) ^ u64::from(pc)
}

pub(super) fn pktparse(input: &[u8], len: u64) -> u64 {
    input.chunks_exact(128).take(len as usize).fold(0, packet)
}

fn packet(hash: u64, packet: &[u8]) -> u64 {
    let be16 = |at: usize| u16_at(packet, at).swap_bytes() >> 16;
    let mut protocol = be16(12);
    let mut ip = 14;
    if protocol == 0x8100 || protocol == 0x88a8 {
        protocol = be16(16);
        ip = 18;
    }
    if protocol != 0x0800 {
        return fold(hash, u64::from(protocol));
    }
    let header = usize::from(packet[ip] & 15) * 4;
    if packet[ip] >> 4 != 4 || header < 20 || ip + header > packet.len() {
        return fold(hash, 1);
    }
    let sum: u32 = (0..header).step_by(2).map(|k| u16_at(packet, ip + k)).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let mut hash = fold(hash, u64::from(sum & 0xffff) + u64::from(sum >> 16));
    let address = |at: usize| u64::from(u32_of(&packet[at..], 0));
    hash ^= address(ip + 12) << 32 | address(ip + 16);
    let at = ip + header;
    let needed = match packet[ip + 9] {
        6 => 20,
        17 => 8,
        _ => return hash,
    };
    if at + needed > packet.len() {
        return hash;
    }
    fold(hash, u64::from(be16(at)) << 16 | u64::from(be16(at + 2)))
}

pub(super) fn hashtable(input: &[u8], len: u64) -> u64 {
    let len = len as usize;
    let mut counts = std::collections::HashMap::new();
    for i in 0..len {
        *counts.entry((u64_of(input, i) & 2047) + 1).or_insert(0) += i as u64;
    }
    let keys = (len..2 * len).map(|i| (u64_of(input, i) & 4095) + 1);
    let sum = keys.filter_map(|key| counts.get(&key)).fold(0, |sum, &count| fold(sum, count));
    (counts.len() as u64) << 48 ^ sum
}

pub(super) fn memcpy64(input: &[u8], len: u64) -> u64 {
    let words = len as usize / 8;
    u64_of(input, 0) ^ u64_of(input, words / 2) ^ u64_of(input, words - 1)
}

fn chacha20_block(mut x: [u32; 16]) -> [u32; 16] {
    const QUARTERS: [[usize; 4]; 8] = [
        [0, 4, 8, 12],
        [1, 5, 9, 13],
        [2, 6, 10, 14],
        [3, 7, 11, 15],
        [0, 5, 10, 15],
        [1, 6, 11, 12],
        [2, 7, 8, 13],
        [3, 4, 9, 14],
    ];
    let start = x;
    for [a, b, c, d] in (0..10).flat_map(|_| QUARTERS) {
        for (to, add, turned, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
            x[to] = x[to].wrapping_add(x[add]);
            x[turned] = (x[turned] ^ x[to]).rotate_left(by);
        }
    }
    std::array::from_fn(|i| x[i].wrapping_add(start[i]))
}

pub(super) fn chacha20(input: &[u8], len: u64) -> u64 {
    let key = |i| u32_of(input, i);
    let mut out = Vec::new();
    for chunk in 0..len as u32 / 64 {
        let start: [u32; 16] = std::array::from_fn(|i| match i {
            0..4 => [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574][i],
            4..12 => key(i - 4),
            12 => key(11).wrapping_add(chunk),
            _ => key(i - 5),
        });
        let stream = chacha20_block(start).into_iter().enumerate();
        out.extend(stream.flat_map(|(i, word)| (word ^ u32_of(input, 16 + 16 * chunk as usize + i)).to_le_bytes()));
    }
    (0..out.len() / 8).fold(0, |hash, i| fold(hash, u64_of(&out, i)))
}

pub(super) fn btree(input: &[u8], len: u64) -> u64 {
    let (n, key) = (len as usize, |i| u32_of(input, i) & 8191);
    let mut tree = std::collections::BTreeMap::new();
    for i in 0..n {
        *tree.entry(key(i)).or_insert(0_u32) += i as u32;
    }
    let found = (0..2 * n).filter_map(|i| tree.get(&key(n / 2 + i)));
    let hash = found.fold(0, |hash, &value| fold(hash, value.into()));
    tree.iter().fold(hash, |hash, (&key, &value)| fold(hash, u64::from(key) << 32 | u64::from(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors() {
        let mut padded = [0; 64];
        padded[..4].copy_from_slice(b"abc\x80");
        padded[63] = 24;
        let k: Vec<u32> = sha256_constants().collect();
        assert_eq!((k[0], k[63]), (0x428a_2f98, 0xc671_78f2));
        let digest = sha256_words(&k, &padded);
        assert_eq!((digest[0], digest[7]), (0xba78_16bf, 0xf200_15ad), "FIPS 180-4, example of one block");

        let key_and_data: Vec<u8> = (0..16).chain(0..8).collect();
        assert_eq!(siphash(&key_and_data, 8), 0x93f5_f579_9a93_2462, "SipHash paper, vectors of 8 bytes");

        assert_eq!(fnv1a(b"foobar", 6), 0x8594_4171_f739_67e8);
        assert_eq!(sieve(&[], 30), 10 << 48 ^ 129);

        let key = |i: u32| u32::from_le_bytes([4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3].map(|byte| byte as u8));
        let mut start = [
            0x6170_7865,
            0x3320_646e,
            0x7962_2d32,
            0x6b20_6574,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            1,
            0x0900_0000,
            0x4a00_0000,
            0,
        ];
        start[4..12].copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7].map(key));
        assert_eq!(chacha20_block(start)[..2], [0xe4e7_f110, 0x1559_3bd1], "RFC 8439, 2.3.2");
    }
}
