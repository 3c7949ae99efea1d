//! gzip, as `/proc/config.gz` has it: RFC 1952 around RFC 1951. Checksums are not looked at; the kernel made it.

/// Extra bits of the length codes 257 to 285, and the length each begins with.
const LENGTHS: [(u8, u16); 29] = [
    (0, 3),
    (0, 4),
    (0, 5),
    (0, 6),
    (0, 7),
    (0, 8),
    (0, 9),
    (0, 10),
    (1, 11),
    (1, 13),
    (1, 15),
    (1, 17),
    (2, 19),
    (2, 23),
    (2, 27),
    (2, 31),
    (3, 35),
    (3, 43),
    (3, 51),
    (3, 59),
    (4, 67),
    (4, 83),
    (4, 99),
    (4, 115),
    (5, 131),
    (5, 163),
    (5, 195),
    (5, 227),
    (0, 258),
];
/// The same of the 30 distance codes: each pair of codes has one more bit than the pair before.
fn distance(code: u16) -> (u8, u32) {
    match code {
        0..=3 => (0, u32::from(code) + 1),
        _ => {
            let bits = code / 2 - 1;
            (bits as u8, (2 + u32::from(code & 1)) * (1 << bits) + 1)
        }
    }
}
/// Order in which the lengths of code lengths are written.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/// No configuration is larger.
const MOST: usize = 64 << 20;

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    bit: u8,
}

impl Bits<'_> {
    fn one(&mut self) -> Option<u16> {
        let bit = self.bytes.get(self.at)? >> self.bit & 1;
        self.bit += 1;
        if self.bit == 8 {
            (self.bit, self.at) = (0, self.at + 1);
        }
        Some(bit.into())
    }

    fn take(&mut self, count: u8) -> Option<u16> {
        (0..count).try_fold(0, |value, at| Some(value | self.one()? << at))
    }

    /// From the next whole byte on.
    fn align(&mut self) {
        if self.bit != 0 {
            (self.bit, self.at) = (0, self.at + 1);
        }
    }
}

/// A canonical Huffman code: how many codes each length has, and the symbols in their order.
struct Code {
    counts: [u16; 16],
    symbols: Vec<u16>,
}

impl Code {
    fn new(lengths: &[u8]) -> Code {
        let mut counts = [0; 16];
        lengths.iter().filter(|length| **length != 0).for_each(|length| counts[usize::from(*length)] += 1);
        let mut symbols: Vec<u16> = (0..lengths.len() as u16).filter(|at| lengths[usize::from(*at)] != 0).collect();
        symbols.sort_by_key(|symbol| lengths[usize::from(*symbol)]);
        Code { counts, symbols }
    }

    fn next(&self, bits: &mut Bits<'_>) -> Option<u16> {
        let (mut code, mut first, mut index) = (0_u32, 0_u32, 0_u32);
        for count in &self.counts[1..] {
            code |= u32::from(bits.one()?);
            let count = u32::from(*count);
            if code < first + count {
                return self.symbols.get((index + code - first) as usize).copied();
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

/// What a gzip file holds; `None` if it is none or damaged.
pub(crate) fn gunzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let flags = *bytes.get(3).filter(|_| bytes.starts_with(&[0x1f, 0x8b, 8]))?;
    let mut at = 10;
    if flags & 4 != 0 {
        at += 2 + usize::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            at += bytes.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
        }
    }
    at += if flags & 2 != 0 { 2 } else { 0 };
    inflate(&mut Bits { bytes, at, bit: 0 })
}

fn inflate(bits: &mut Bits<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let last = bits.one()? == 1;
        match bits.take(2)? {
            0 => {
                bits.align();
                let len = usize::from(u16::from_le_bytes(*bits.bytes.get(bits.at..)?.first_chunk()?));
                out.extend_from_slice(bits.bytes.get(bits.at + 4..bits.at + 4 + len)?);
                bits.at += 4 + len;
            }
            1 => {
                let mut lengths = [8; 288];
                lengths[144..256].fill(9);
                lengths[256..280].fill(7);
                block(bits, &mut out, &Code::new(&lengths), &Code::new(&[5; 30]))?;
            }
            2 => {
                let (literals, distances) = codes(bits)?;
                block(bits, &mut out, &literals, &distances)?;
            }
            _ => return None,
        }
        if last {
            return Some(out);
        }
    }
}

/// The two codes of a block that brings its own.
fn codes(bits: &mut Bits<'_>) -> Option<(Code, Code)> {
    let (literals, distances) = (usize::from(bits.take(5)?) + 257, usize::from(bits.take(5)?) + 1);
    let mut lengths = [0; 19];
    for at in ORDER.iter().take(usize::from(bits.take(4)?) + 4) {
        lengths[*at] = bits.take(3)? as u8;
    }
    let code = Code::new(&lengths);
    let mut lengths = Vec::new();
    while lengths.len() < literals + distances {
        let (value, repeat) = match code.next(bits)? {
            16 => (*lengths.last()?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length as u8, 1),
        };
        lengths.extend(std::iter::repeat_n(value, repeat.into()));
    }
    let (first, second) = lengths.split_at(literals);
    Some((Code::new(first), Code::new(second)))
}

fn block(bits: &mut Bits<'_>, out: &mut Vec<u8>, literals: &Code, distances: &Code) -> Option<()> {
    loop {
        match literals.next(bits)? {
            literal @ 0..=255 => out.push(literal as u8),
            256 => return Some(()),
            code => {
                let (extra, base) = *LENGTHS.get(usize::from(code) - 257)?;
                let len = usize::from(base + bits.take(extra)?);
                let (extra, base) = distance(distances.next(bits)?);
                let back = (base + u32::from(bits.take(extra)?)) as usize;
                let start = out.len().checked_sub(back)?;
                (start..start + len).for_each(|at| out.push(out[at]));
            }
        }
        if out.len() > MOST {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::gunzip;

    #[test]
    fn what_gzip_packs_comes_out() {
        let text: Vec<u8> = (0..20_000_u32).flat_map(|n| format!("CONFIG_{}=y\n", n * n % 977).into_bytes()).collect();
        for (level, text) in [("-1", &text[..]), ("-9", &text), ("-9", b"x"), ("-9", b"")] {
            let mut child =
                Command::new("gzip").args([level, "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            let owned = text.to_vec();
            let feeder = std::thread::spawn(move || input.write_all(&owned));
            let packed = child.wait_with_output().unwrap().stdout;
            feeder.join().unwrap().unwrap();
            assert_eq!(gunzip(&packed).as_deref(), Some(text));
            for cut in [1, packed.len() / 2, packed.len() - 9].into_iter().filter(|_| !text.is_empty()) {
                assert_ne!(gunzip(&packed[..cut]).as_deref(), Some(text), "{cut}");
            }
        }
        assert_eq!(gunzip(b"no gzip"), None);
    }
}
