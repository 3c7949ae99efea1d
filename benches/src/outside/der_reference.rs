//! The second implementation of the workload `der`: by recursion, over slices.

use crate::workload::fnv1a;

/// Kind of a mistake, and how many bytes are left after it.
type Mistake = (u64, usize);

/// How deep values may be in others.
const DEEPEST: u64 = 12;

/// The workload's result.
pub(super) fn der(input: &[u8], len: u64) -> u64 {
    input.chunks_exact(512).take(len as usize).fold(0_u64, |result, slot| {
        let size = usize::from(u16::from_be_bytes([slot[0], slot[1]])) % 511;
        let mut said = Vec::new();
        let value = match values(&slot[2..2 + size], 0, 0, &mut said) {
            Ok(()) => {
                said.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, value| (hash ^ value).wrapping_mul(0x100_0000_01b3))
            }
            Err((kind, left)) => kind << 16 | (2 + size - left) as u64,
        };
        result.wrapping_mul(31).wrapping_add(value)
    })
}

/// All values of a slice, before the last `outer` bytes of the message.
fn values(mut rest: &[u8], outer: usize, depth: u64, said: &mut Vec<u64>) -> Result<(), Mistake> {
    while let [tag, after @ ..] = rest {
        if tag & 31 == 31 {
            return Err((1, outer + after.len()));
        }
        let (len, after) = length(after).map_err(|left| (2, outer + left))?;
        let (contents, after) = after.split_at(len);
        said.push(u64::from(*tag) << 16 | len as u64);
        if tag & 32 == 0 {
            let what = primitive(*tag, contents).ok_or((4, outer + contents.len() + after.len()))?;
            said.extend(what);
        } else if depth + 1 == DEEPEST {
            return Err((3, outer + contents.len() + after.len()));
        } else {
            values(contents, outer + after.len(), depth + 1, said)?;
            said.push(depth);
        }
        rest = after;
    }
    Ok(())
}

/// The length that a slice begins with and what follows, or how much is left at a mistake.
fn length(bytes: &[u8]) -> Result<(usize, &[u8]), usize> {
    let (first, mut rest) = bytes.split_first().ok_or(0_usize)?;
    let mut len = usize::from(*first);
    if len > 127 {
        let size = len - 128;
        if !(1..=3).contains(&size) || size > rest.len() || rest[0] == 0 {
            return Err(rest.len());
        }
        len = rest[..size].iter().fold(0, |len, byte| len * 256 + usize::from(*byte));
        rest = &rest[size..];
        if len < 128 {
            return Err(rest.len());
        }
    }
    if len > rest.len() { Err(rest.len()) } else { Ok((len, rest)) }
}

/// What a value without others says; `None` if it is wrong.
fn primitive(tag: u8, contents: &[u8]) -> Option<Vec<u64>> {
    let text = || Some(vec![fnv1a(contents)]);
    match (tag, contents) {
        (1, [value @ (0 | 255)]) => Some(vec![u64::from(*value)]),
        (2, [_, ..]) => integer(contents),
        (3, [0]) | (3, [0..8, _, ..]) => text(),
        (5, []) => Some(Vec::new()),
        (6, [_, ..]) => object_id(contents),
        (1 | 2 | 3 | 5 | 6, _) => None,
        (19, _) => {
            let is_printable = |byte: &u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(byte);
            contents.iter().all(is_printable).then(text)?
        }
        (23, _) => (contents.len() == 13).then(|| time(contents, 2))?,
        (24, _) => (contents.len() == 15).then(|| time(contents, 4))?,
        _ => text(),
    }
}

fn integer(contents: &[u8]) -> Option<Vec<u64>> {
    let is_long = matches!(contents, [0, ..128, ..] | [255, 128..=255, ..]);
    let negative = contents[0] > 127;
    let value = match contents.len() {
        9.. => fnv1a(contents),
        _ => contents.iter().fold(if negative { u64::MAX } else { 0 }, |value, byte| value << 8 | u64::from(*byte)),
    };
    (!is_long).then_some(vec![value])
}

fn object_id(contents: &[u8]) -> Option<Vec<u64>> {
    let mut arcs = Vec::new();
    for arc in contents.split_inclusive(|byte| *byte < 128) {
        let value = arc.iter().fold(0, |value, byte| value << 7 | u64::from(byte & 127));
        let too_long = arc.len() > 5 || value > u64::from(u32::MAX);
        if arc[0] == 128 || arc[arc.len() - 1] > 127 || too_long {
            return None;
        }
        if arcs.is_empty() {
            let top = (value / 40).min(2);
            arcs.extend([top, value - 40 * top]);
        } else {
            arcs.push(value);
        }
    }
    Some(arcs)
}

/// A time with so many digits of the year.
fn time(contents: &[u8], digits: usize) -> Option<Vec<u64>> {
    let (numbers, zone) = contents.split_at(contents.len() - 1);
    let pairs = numbers.chunks_exact(2).map(|pair| {
        let is_number = pair.iter().all(u8::is_ascii_digit);
        if is_number { u64::from(pair[0] - b'0') * 10 + u64::from(pair[1] - b'0') } else { 99 }
    });
    let pairs: Vec<u64> = pairs.collect();
    let year = match digits {
        2 => pairs[0] + if pairs[0] < 50 { 2000 } else { 1900 },
        _ => pairs[0] * 100 + pairs[1],
    };
    let [month, day, hour, minute, second] = pairs[digits / 2..] else { return None };
    let holds = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 60;
    let seconds = ((((year * 12 + month) * 31 + day) * 24 + hour) * 60 + minute) * 60 + second;
    (zone == b"Z" && holds).then_some(vec![seconds])
}
