//! `bpf_strtol`, `bpf_strtoul`, `bpf_strncmp`.

use super::Host;
use crate::helper::HelperResult;
use crate::host::{HostFn, Ptr};
use crate::map::Errno;
use crate::trap::Trap;

/// Bits of the flags that hold the base.
const BASE_MASK: u64 = 0x1f;
/// Digits that the kernel reads.
const MAX_DIGITS: usize = 63;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_strtol", strtol),
        HostFn::typed::<(), _>("bpf_strtoul", strtoul),
        HostFn::typed::<(), _>("bpf_strncmp", strncmp),
    ]
}

fn strtol(mut caller: Host<'_>, text: Ptr, length: u64, flags: u64, result: Ptr) -> HelperResult<i64> {
    let (negative, magnitude, used) = parse(&caller.bytes(text, length)?, flags)?;
    let value = match negative {
        true => 0i64.checked_sub_unsigned(magnitude),
        false => i64::try_from(magnitude).ok(),
    };
    caller.write(result, &value.ok_or(Errno::ERANGE)?.to_le_bytes())?;
    Ok(used as i64)
}

fn strtoul(mut caller: Host<'_>, text: Ptr, length: u64, flags: u64, result: Ptr) -> HelperResult<i64> {
    let (negative, magnitude, used) = parse(&caller.bytes(text, length)?, flags)?;
    if negative {
        return Err(Errno::EINVAL.into());
    }
    caller.write(result, &magnitude.to_le_bytes())?;
    Ok(used as i64)
}

/// Sign, magnitude, and bytes used (`__bpf_strtoull`).
fn parse(text: &[u8], flags: u64) -> Result<(bool, u64, usize), Errno> {
    let base = flags & BASE_MASK;
    if text.is_empty() || !matches!(base, 0 | 8 | 10 | 16) || flags & !BASE_MASK != 0 {
        return Err(Errno::EINVAL);
    }
    // The kernel's isspace knows the vertical tab and the no-break space of Latin-1.
    let space = |byte: &&u8| byte.is_ascii_whitespace() || matches!(**byte, 0x0b | 0xa0);
    let skipped = text.iter().take_while(space).count();
    let negative = text.get(skipped) == Some(&b'-');
    let start = skipped + usize::from(negative);
    let digits = &text[start..];
    let digits = &digits[..digits.len().min(MAX_DIGITS)];
    let hex = matches!(digits, [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit());
    let (base, prefix) = match (base, digits) {
        (0, [b'0', ..]) if hex => (16, 2),
        (0, [b'0', ..]) => (8, 0),
        (0, _) => (10, 0),
        (16, [b'0', b'x' | b'X', ..]) => (16, 2),
        (base, _) => (base as u32, 0),
    };
    let mut value = 0u64;
    let mut used = 0;
    for byte in &digits[prefix..] {
        let Some(digit) = char::from(*byte).to_digit(base) else { break };
        let next = value.checked_mul(u64::from(base)).and_then(|value| value.checked_add(u64::from(digit)));
        value = next.ok_or(Errno::ERANGE)?;
        used += 1;
    }
    if used == 0 {
        return Err(Errno::EINVAL);
    }
    Ok((negative, value, start + prefix + used))
}

/// The first string has `size` bytes at most, and need not end; the second one does.
fn strncmp(mut caller: Host<'_>, a: Ptr, size: u32, b: Ptr) -> Result<i64, Trap> {
    let (a, b) = (caller.c_str(a, u64::from(size))?, caller.c_str(b, u64::from(size))?);
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let at = |text: &[u8]| text.get(same).map_or(0, |byte| i64::from(*byte));
    Ok((at(&a) - at(&b)).signum())
}
