//! Second implementations, in Rust, of workloads whose expected result is not from native code alone: as plain as they can be, and by
//! other ways than the C where there are others.

use crate::workload::fnv1a;

/// From the input and the length to the result.
type Reference = fn(&[u8], u64) -> u64;

/// By the names of the workloads.
pub(super) const REFERENCES: &[(&str, Reference)] = &[
    ("sha3", sha3),
    ("bigdiv", bigdiv),
    ("ahocorasick", ahocorasick),
    ("bwt", bwt),
    ("rangecoder", rangecoder),
    ("reedsolomon", reedsolomon),
    ("kdtree", kdtree),
    ("forth", forth),
    ("der", der),
    ("logformat", logformat),
];

fn fold(hash: u64, value: u64) -> u64 {
    hash.wrapping_mul(31).wrapping_add(value)
}

fn word(input: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(input[4 * at..4 * at + 4].try_into().expect("four bytes"))
}

/// One bit of a round constant, `rc(t)`: from the linear-feedback shift register (LFSR) of FIPS 202, 3.2.5.
fn round_bit(t: u32) -> u64 {
    let mut register = 1_u32;
    for _ in 0..t % 255 {
        register <<= 1;
        register ^= if register & 0x100 != 0 { 0x171 } else { 0 };
    }
    u64::from(register & 1)
}

fn keccak(a: &mut [[u64; 5]; 5]) {
    for round in 0..24 {
        let c: [u64; 5] = std::array::from_fn(|x| a[x].iter().fold(0, |sum, lane| sum ^ lane));
        for x in 0..5 {
            let d = c[(x + 4) % 5] ^ c[(x + 1) % 5].rotate_left(1);
            a[x].iter_mut().for_each(|lane| *lane ^= d);
        }
        let (mut x, mut y) = (1, 0);
        for t in 0..24_u32 {
            a[x][y] = a[x][y].rotate_left((t + 1) * (t + 2) / 2 % 64);
            (x, y) = (y, (2 * x + 3 * y) % 5);
        }
        let old = *a;
        let b: [[u64; 5]; 5] = std::array::from_fn(|x| std::array::from_fn(|y| old[(x + 3 * y) % 5][x]));
        for x in 0..5 {
            for y in 0..5 {
                a[x][y] = b[x][y] ^ (!b[(x + 1) % 5][y] & b[(x + 2) % 5][y]);
            }
        }
        a[0][0] ^= (0..7).fold(0, |constant, j| constant | round_bit(j + 7 * round) << ((1 << j) - 1));
    }
}

fn sha3(input: &[u8], len: u64) -> u64 {
    let mut message = input[..len as usize].to_vec();
    message.push(6);
    message.resize(message.len().next_multiple_of(136), 0);
    *message.last_mut().expect("it has a byte") |= 0x80;
    let mut a = [[0; 5]; 5];
    for part in message.chunks_exact(136) {
        for (at, lane) in part.chunks_exact(8).enumerate() {
            a[at % 5][at / 5] ^= u64::from_le_bytes(lane.try_into().expect("eight bytes"));
        }
        keccak(&mut a);
    }
    a[0][0].swap_bytes()
}

/// Bit by bit.
fn bigdiv(input: &[u8], len: u64) -> u64 {
    let mut result = 0;
    for i in 0..len as usize {
        let digits = |from: usize, count: usize| (0..count).map(move |at| word(input, 64 * i + from + at));
        let (dividend, divisor): (Vec<u32>, Vec<u32>) = (digits(0, 48).collect(), digits(48, 1 + i % 16).collect());
        let (mut quotient, mut rest) = ([0_u32; 48], [0_u32; 17]);
        let divisor: Vec<u32> = divisor.into_iter().chain(std::iter::repeat(0)).take(17).collect();
        for bit in (0..48 * 32).rev().filter(|_| divisor.iter().any(|digit| *digit != 0)) {
            for at in (0..17).rev() {
                rest[at] =
                    rest[at] << 1 | if at > 0 { rest[at - 1] >> 31 } else { dividend[bit / 32] >> (bit % 32) & 1 };
            }
            if rest.iter().rev().cmp(divisor.iter().rev()).is_ge() {
                quotient[bit / 32] |= 1 << (bit % 32);
                let mut borrow = 0;
                for (digit, less) in rest.iter_mut().zip(&divisor) {
                    let difference = i64::from(*digit) - i64::from(*less) - borrow;
                    *digit = difference as u32;
                    borrow = i64::from(difference < 0);
                }
            }
        }
        result = quotient.iter().chain(&rest[..16]).fold(result, |hash, digit| fold(hash, u64::from(*digit)));
    }
    result
}

/// Every word at every place.
fn ahocorasick(input: &[u8], len: u64) -> u64 {
    let input = input[..len as usize].to_ascii_lowercase();
    let start = input.windows(2).position(|pair| pair == [0, 0]).expect("words end") + 2;
    let mut words: Vec<&[u8]> = Vec::new();
    for word in input[..start - 2].split(|byte| *byte == 0) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    let mut words: Vec<(usize, &[u8])> = words.into_iter().enumerate().collect();
    words.sort_by_key(|(_, word)| std::cmp::Reverse(word.len()));
    let text = &input[start..];
    let (mut hash, mut found) = (0, 0);
    for at in 0..text.len() {
        for (number, _) in words.iter().filter(|(_, word)| text[..=at].ends_with(word)) {
            hash = fold(hash, (at << 16 | (number + 1)) as u64);
            found += 1;
        }
    }
    fold(hash, found)
}

fn bwt(input: &[u8], len: u64) -> u64 {
    let text = &input[..len as usize];
    let mut suffixes: Vec<usize> = (0..=text.len()).collect();
    suffixes.sort_by_key(|at| &text[*at..]);
    let column: Vec<u8> = suffixes.iter().map(|at| if *at == 0 { 0 } else { text[at - 1] }).collect();
    fnv1a(&column) ^ suffixes.iter().position(|at| *at == 0).expect("it is there") as u64
}

/// Carries go back into the bytes that are out.
fn rangecoder(input: &[u8], len: u64) -> u64 {
    let mut chances = [[1_u32 << 10; 256]; 8];
    let (mut low, mut range, mut out) = (0_u32, u32::MAX, vec![0_u8]);
    let mut before = 0;
    for byte in &input[..len as usize] {
        let mut node = 1;
        for bit in (0..8).rev().map(|shift| byte >> shift & 1) {
            let chance = &mut chances[usize::from(before >> 5)][node];
            let bound = (range >> 11) * *chance;
            if bit == 0 {
                range = bound;
                *chance += (2048 - *chance) >> 5;
            } else {
                range -= bound;
                *chance -= *chance >> 5;
                let (sum, carry) = low.overflowing_add(bound);
                low = sum;
                let mut at = out.len();
                let mut carry = carry;
                while carry {
                    at -= 1;
                    (out[at], carry) = out[at].overflowing_add(1);
                }
            }
            while range < 1 << 24 {
                range <<= 8;
                out.push((low >> 24) as u8);
                low <<= 8;
            }
            node = node << 1 | usize::from(bit);
        }
        before = *byte;
    }
    out.extend(low.to_be_bytes());
    fnv1a(&out) ^ out.len() as u64
}

/// A product in GF(256), bit by bit.
fn product(a: u8, b: u8) -> u8 {
    let wide = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0_u32, |sum, bit| sum ^ u32::from(a) << bit);
    (8..15).rev().fold(wide, |rest, bit| if rest >> bit & 1 == 1 { rest ^ 0x11d << (bit - 8) } else { rest }) as u8
}

/// The rest of a division of polynomials.
fn reedsolomon(input: &[u8], len: u64) -> u64 {
    let (checks, size) = (usize::from(input[0]), usize::from(input[1]));
    let (mut divisor, mut root) = (vec![1_u8], 1);
    for _ in 0..checks {
        let mut next = [&divisor[..], &[0]].concat();
        divisor.iter().enumerate().for_each(|(at, factor)| next[at + 1] ^= product(*factor, root));
        (divisor, root) = (next, product(root, 2));
    }
    input[2..].chunks_exact(size).take(len as usize).fold(0, |hash, data| {
        let mut rest = [data, &vec![0; checks]].concat();
        for at in 0..size {
            let factor = rest[at];
            divisor.iter().enumerate().for_each(|(i, term)| rest[at + i] ^= product(factor, *term));
        }
        fold(hash, fnv1a(&rest[size..]))
    })
}

/// Every point for every search.
fn kdtree(input: &[u8], len: u64) -> u64 {
    let point = |at: usize| -> [i64; 3] {
        std::array::from_fn(|axis| {
            i64::from(u16::from_le_bytes([input[6 * at + 2 * axis], input[6 * at + 2 * axis + 1]]))
        })
    };
    let points: Vec<[i64; 3]> = (0..len as usize).map(point).collect();
    (0..points.len() / 2).fold(0, |mut hash, i| {
        let target = point(2048 + i);
        let distance = |point: &[i64; 3]| (0..3).map(|axis| (point[axis] - target[axis]).pow(2)).sum::<i64>() as u64;
        let (least, number) = points.iter().enumerate().map(|(at, point)| (distance(point), at)).min().expect("some");
        hash = fold(hash, least + number as u64);
        if i % 8 == 0 {
            let is_in = |point: &[i64; 3]| (0..3).all(|axis| (0..16384).contains(&(point[axis] - target[axis])));
            let found = points.iter().enumerate().filter(|(_, point)| is_in(point));
            hash = fold(hash, found.map(|(at, _)| at as u64 + 1).sum());
        }
        hash
    })
}

/// What the program prints, without the program.
fn forth(_input: &[u8], _len: u64) -> u64 {
    fn divisor(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    let steps = |from: u64| {
        let next = |n: &u64| (*n > 1).then(|| if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 });
        std::iter::successors(Some(from), next).count() as u64 - 1
    };
    let divisors = (1..200).map(|i| divisor(3600, i));
    let primes = (2..500_u64).filter(|n| (2..*n).all(|m| !n.is_multiple_of(m)));
    let sums = std::iter::successors(Some((0, 1)), |(a, b)| Some((*b, a + b))).map(|(a, _)| a).take(13);
    divisors.chain((1..40).map(steps)).chain(primes).chain(sums).fold(0, fold)
}

fn der(input: &[u8], len: u64) -> u64 {
    super::der_reference::der(input, len)
}

/// The date of a day after 1970, year by year and month by month.
fn date(mut days: u32) -> String {
    let is_leap = |year: u32| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u32::from(is_leap(year)) {
        days -= 365 + u32::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u32::from(is_leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

fn logformat(input: &[u8], len: u64) -> u64 {
    const NAMES: [&str; 8] = ["kernel", "sshd", "cron", "systemd", "postgres", "nginx", "dhclient", "ntpd"];
    (0..len as usize).fold(0, |hash, record| {
        let value = |at: usize| word(input, 8 * record + at);
        let (a, b, c, d) = (value(2), value(3), value(4), value(5));
        let (time, name) = (value(0), |at| NAMES[value(at) as usize % 8]);
        let clock = format!("{} {:02}:{:02}:{:02}", date(time / 86400), time / 3600 % 24, time / 60 % 60, time % 60);
        let line = match value(7) % 4 {
            0 => format!("{clock} {:<8} pid={a} status={} bytes={c}\n", name(1), b as i32),
            1 => format!("{clock} [{:5}] {}: 0x{b:08x} {:+}%\n", value(1), name(2), c as i32),
            2 => {
                let letter = char::from(b'a' + (c % 26) as u8);
                format!("{clock} {:>10}|{:<10}|{:010}|{letter}|{d:x}\n", name(1), a as i32, b as i32)
            }
            _ => format!("{clock} {} moved from {a:04x}:{b:04x} to {c} ({})\n", name(1), d as i32),
        };
        fold(hash, fnv1a(line.as_bytes()))
    })
}
