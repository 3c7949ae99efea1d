//! Numbers from text, `<stdlib.h>`.

use super::Host;
use crate::host::{CStr, HostFn, Ptr};
use crate::trap::Trap;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("atoi", |text: CStr| parse(&text, 10).signed() as i32),
        HostFn::typed::<(), _>("atol", |text: CStr| parse(&text, 10).signed()),
        HostFn::typed::<(), _>("strtol", |caller: Host<'_>, text: CStr, end: Ptr, base: i32| {
            convert(caller, &text, end, base).map(|number| number.signed())
        }),
        HostFn::typed::<(), _>("strtoul", |caller: Host<'_>, text: CStr, end: Ptr, base: i32| {
            convert(caller, &text, end, base).map(|number| number.unsigned())
        }),
    ]
}

/// The number at the start of a text, and how much of the text it took.
#[derive(Default)]
struct Number {
    negative: bool,
    /// `None` on overflow.
    magnitude: Option<u64>,
    used: usize,
}

impl Number {
    /// As `strtol`: `LONG_MIN` or `LONG_MAX` when out of range.
    fn signed(&self) -> i64 {
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        match self.magnitude {
            Some(magnitude) if self.negative => 0i64.checked_sub_unsigned(magnitude).unwrap_or(limit),
            Some(magnitude) => i64::try_from(magnitude).unwrap_or(limit),
            None => limit,
        }
    }

    /// As `strtoul`: negated in the unsigned type, `ULONG_MAX` when out of range.
    fn unsigned(&self) -> u64 {
        match self.magnitude {
            Some(magnitude) if self.negative => magnitude.wrapping_neg(),
            Some(magnitude) => magnitude,
            None => u64::MAX,
        }
    }
}

fn convert(mut caller: Host<'_>, text: &CStr, end: Ptr, base: i32) -> Result<Number, Trap> {
    let number = match base {
        0 | 2..=36 => parse(text, base as u32),
        // C sets EINVAL, which a script cannot see.
        _ => Number { magnitude: Some(0), ..Number::default() },
    };
    if !end.is_null() {
        let addr = text.ptr().offset(number.used as u64).addr();
        caller.write(end, &addr.to_le_bytes())?;
    }
    Ok(number)
}

/// White space, a sign, a prefix that fits the base, digits. Without digits nothing is used.
fn parse(text: &[u8], base: u32) -> Number {
    let space = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let sign = text.get(space).copied();
    let mut at = space + usize::from(matches!(sign, Some(b'-' | b'+')));
    let digit = |at: usize, base: u32| text.get(at).and_then(|byte| char::from(*byte).to_digit(base));
    let zero = text.get(at) == Some(&b'0');
    let hex = zero && matches!(text.get(at + 1), Some(b'x' | b'X')) && digit(at + 2, 16).is_some();
    let base = match base {
        0 if hex => 16,
        0 if zero => 8,
        0 => 10,
        base => base,
    };
    if base == 16 && hex {
        at += 2;
    }
    let start = at;
    let mut magnitude = Some(0u64);
    while let Some(digit) = digit(at, base) {
        magnitude = magnitude.and_then(|sum| sum.checked_mul(u64::from(base))?.checked_add(u64::from(digit)));
        at += 1;
    }
    Number { negative: sign == Some(b'-'), magnitude, used: if at > start { at } else { 0 } }
}
