//! `<string.h>` over C strings, in the C locale.

use super::Host;
use crate::host::{CStr, HostFn, Ptr};
use crate::mem::{Access, FaultReason, Text};
use crate::trap::Trap;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("strlen", |text: CStr| text.len() as u64),
        HostFn::typed::<(), _>("strnlen", |mut caller: Host<'_>, text: Ptr, max: u64| {
            caller.c_str(text, max).map(|text| text.len() as u64)
        }),
        HostFn::typed::<(), _>("strcmp", |a: CStr, b: CStr| compare(&a, &b)),
        HostFn::typed::<(), _>("strncmp", |caller: Host<'_>, a: Ptr, b: Ptr, n: u64| compare_n(caller, a, b, n, false)),
        HostFn::typed::<(), _>("strcasecmp", |a: CStr, b: CStr| {
            compare(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
        }),
        HostFn::typed::<(), _>("strncasecmp", |caller: Host<'_>, a: Ptr, b: Ptr, n: u64| {
            compare_n(caller, a, b, n, true)
        }),
        HostFn::typed::<(), _>("strcpy", |caller: Host<'_>, to: Ptr, from: CStr| append(caller, to, 0, &from)),
        HostFn::typed::<(), _>("strncpy", strncpy),
        HostFn::typed::<(), _>("strcat", |mut caller: Host<'_>, to: Ptr, from: CStr| {
            let length = caller.c_str(to, u64::MAX)?.len() as u64;
            append(caller, to, length, &from)
        }),
        HostFn::typed::<(), _>("strncat", |mut caller: Host<'_>, to: Ptr, from: Ptr, n: u64| {
            let from = caller.c_str(from, n)?;
            let length = caller.c_str(to, u64::MAX)?.len() as u64;
            append(caller, to, length, &from)
        }),
        HostFn::typed::<(), _>("strchr", |text: CStr, c: i32| {
            find(&text, text.iter().position(|byte| *byte == c as u8), c)
        }),
        HostFn::typed::<(), _>("strrchr", |text: CStr, c: i32| {
            find(&text, text.iter().rposition(|byte| *byte == c as u8), c)
        }),
        HostFn::typed::<(), _>("strstr", |text: CStr, part: CStr| {
            search(&text, &part).map(|at| text.ptr().offset(at as u64))
        }),
        HostFn::typed::<(), _>("strspn", |text: CStr, accept: CStr| span(&text, &accept, true)),
        HostFn::typed::<(), _>("strcspn", |text: CStr, reject: CStr| span(&text, &reject, false)),
    ]
}

/// Difference of the first bytes that differ, as unsigned; the end counts as 0.
fn compare(a: &[u8], b: &[u8]) -> i32 {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let at = |text: &[u8]| text.get(same).map_or(0, |byte| i32::from(*byte));
    at(a) - at(b)
}

/// A string as far as it can be read, and the trap of reading on.
struct Prefix {
    bytes: Text,
    end_trap: Option<Trap>,
}

impl Prefix {
    fn read(caller: &mut Host<'_>, from: Ptr, n: u64) -> Result<Prefix, Trap> {
        match caller.view().c_str(from.addr(), n) {
            Ok(bytes) => Ok(Prefix { bytes, end_trap: None }),
            Err(fault) => {
                let trap = caller.c_str(from, n).expect_err("it faulted just now");
                let FaultReason::Overflow { size, off, .. } = fault.reason else { return Err(trap) };
                let bytes = caller.bytes(from, u64::from(size.saturating_sub(off)))?.into();
                Ok(Prefix { bytes, end_trap: Some(trap) })
            }
        }
    }

    /// A byte, 0 past the end.
    fn at(&self, index: usize) -> Result<u8, Trap> {
        match (self.bytes.get(index), &self.end_trap) {
            (Some(byte), _) => Ok(*byte),
            (None, None) => Ok(0),
            (None, Some(trap)) => Err(trap.clone()),
        }
    }
}

/// `strncmp`, with `fold` `strncasecmp`. An array without NUL is fine if the difference comes before its end.
fn compare_n(mut caller: Host<'_>, a: Ptr, b: Ptr, n: u64, fold: bool) -> Result<i32, Trap> {
    let (a, b) = (Prefix::read(&mut caller, a, n)?, Prefix::read(&mut caller, b, n)?);
    for index in 0..usize::try_from(n).unwrap_or(usize::MAX) {
        let (mut left, mut right) = (a.at(index)?, b.at(index)?);
        if fold {
            left.make_ascii_lowercase();
            right.make_ascii_lowercase();
        }
        if left != right || left == 0 {
            return Ok(i32::from(left) - i32::from(right));
        }
    }
    Ok(0)
}

/// Copies a string and its NUL to an offset; gives the start, as `strcpy` does.
fn append(mut caller: Host<'_>, to: Ptr, off: u64, from: &[u8]) -> Result<Ptr, Trap> {
    caller.write(to.offset(off), &[from, b"\0"].concat()[..])?;
    Ok(to)
}

/// Always writes `n` bytes, NULs after the string.
fn strncpy(mut caller: Host<'_>, to: Ptr, from: Ptr, n: u64) -> Result<Ptr, Trap> {
    let from = caller.c_str(from, n)?;
    caller.check(to, n, Access::Write)?;
    caller.write(to, &from[..])?;
    caller.fill(to.offset(from.len() as u64), n - from.len() as u64, 0)?;
    Ok(to)
}

/// A search for NUL finds the terminator.
fn find(text: &CStr, at: Option<usize>, c: i32) -> Option<Ptr> {
    let at = if c as u8 == 0 { Some(text.len()) } else { at };
    at.map(|at| text.ptr().offset(at as u64))
}

/// Knuth, Morris and Pratt: linear, so that no pair of strings can stall the host.
fn search(text: &[u8], part: &[u8]) -> Option<usize> {
    // borders[n]: length of the longest proper prefix of part[..=n] that is its suffix too.
    let mut borders = vec![0; part.len()];
    let step = |borders: &[usize], mut matched: usize, byte: u8| loop {
        if part[matched] == byte {
            return matched + 1;
        }
        if matched == 0 {
            return 0;
        }
        matched = borders[matched - 1];
    };
    for index in 1..part.len() {
        borders[index] = step(&borders, borders[index - 1], part[index]);
    }
    let mut matched = 0;
    for (index, byte) in text.iter().enumerate() {
        if matched == part.len() {
            return Some(index - matched);
        }
        matched = step(&borders, matched, *byte);
    }
    (matched == part.len()).then(|| text.len() - matched)
}

/// Length of the start of `text` whose bytes all are (or are not) in `set`.
fn span(text: &[u8], set: &[u8], member: bool) -> u64 {
    let mut table = [!member; 256];
    for byte in set {
        table[usize::from(*byte)] = member;
    }
    text.iter().take_while(|byte| table[usize::from(**byte)]).count() as u64
}
