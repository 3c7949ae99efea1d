//! Doubles as C prints them. Decimal digits come from Rust's exact formatting, which is correctly rounded
//! (ties to even), as glibc's is.

use super::Sink;
use super::spec::{Number, Spec};

/// More digits than any double has after its point (1074); further ones are zeros.
const MAX_DIGITS: u64 = 1100;

/// `%e %f %g %a` and their capitals.
pub(super) fn write(spec: &Spec, out: &mut Sink, value: f64) {
    let capital = spec.conversion.is_ascii_uppercase();
    let prefix = spec.float_sign(value);
    let mut number = if value.is_nan() {
        Number { head: b"nan".to_vec(), ..Number::default() }
    } else if value.is_infinite() {
        Number { head: b"inf".to_vec(), ..Number::default() }
    } else {
        let value = value.abs();
        let precision = spec.precision.unwrap_or(6);
        let number = match spec.conversion.to_ascii_lowercase() {
            b'f' => fixed(value, precision, spec.alternate),
            b'e' => exponential(value, precision, spec.alternate),
            b'g' => general(value, precision.max(1), spec.alternate),
            b'a' => hexadecimal(value, spec.precision, spec.alternate),
            other => unreachable!("conversion {other} is of no float"),
        };
        Number { zero_pad: true, ..number }
    };
    number.prefix.splice(0..0, prefix.iter().copied());
    if capital {
        for part in [&mut number.prefix, &mut number.head, &mut number.tail] {
            part.make_ascii_uppercase();
        }
    }
    spec.number(out, number);
}

fn fixed(value: f64, precision: u64, point: bool) -> Number {
    let digits = precision.min(MAX_DIGITS);
    let mut head = format!("{value:.*}", digits as usize).into_bytes();
    if point && precision == 0 {
        head.push(b'.');
    }
    Number { head, trailing: precision - digits, ..Number::default() }
}

fn exponential(value: f64, precision: u64, point: bool) -> Number {
    let digits = precision.min(MAX_DIGITS);
    let (mantissa, exponent) = scientific(value, digits);
    let mut head = mantissa.into_bytes();
    if point && precision == 0 {
        head.push(b'.');
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let tail = format!("e{sign}{:02}", exponent.unsigned_abs()).into_bytes();
    Number { head, trailing: precision - digits, tail, ..Number::default() }
}

/// Mantissa with this many digits after the point, and the exponent after rounding.
fn scientific(value: f64, digits: u64) -> (String, i32) {
    let text = format!("{value:.*e}", digits as usize);
    let (mantissa, exponent) = text.split_once('e').expect("Rust writes an exponent");
    (mantissa.to_owned(), exponent.parse().expect("Rust writes a number"))
}

/// `precision` significant digits, in the shorter of both forms, without trailing zeros.
fn general(value: f64, precision: u64, alternate: bool) -> Number {
    let (_, exponent) = scientific(value, (precision - 1).min(MAX_DIGITS));
    let small = i64::from(exponent);
    let mut number = if small < -4 || small >= precision as i64 {
        exponential(value, precision - 1, alternate)
    } else {
        fixed(value, (precision as i64 - 1 - small) as u64, alternate)
    };
    if !alternate {
        number.trailing = 0;
        if number.head.contains(&b'.') {
            let keep = number.head.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
            number.head.truncate(keep);
            if number.head.last() == Some(&b'.') {
                number.head.pop();
            }
        }
    }
    number
}

/// `0x1.8p+3`. Denormals keep a leading 0, as in glibc.
fn hexadecimal(value: f64, precision: Option<u64>, point: bool) -> Number {
    const FRACTION: u32 = 52;
    let bits = value.to_bits();
    let fraction = bits & ((1 << FRACTION) - 1);
    let biased = (bits >> FRACTION) as i32;
    let exponent = match (biased, fraction) {
        (0, 0) => 0,
        (0, _) => -1022,
        _ => biased - 1023,
    };
    let mut all = u64::from(biased != 0) << FRACTION | fraction;
    let mut digits = 13;
    match precision {
        Some(wanted) if wanted < 13 => {
            digits = wanted as u32;
            let drop = FRACTION - 4 * digits;
            let (rest, half) = (all & ((1 << drop) - 1), 1 << (drop - 1));
            all >>= drop;
            all += u64::from(rest > half || rest == half && all & 1 == 1);
        }
        Some(_) => {}
        None => {
            let zeros = if fraction == 0 { 13 } else { fraction.trailing_zeros() / 4 };
            digits -= zeros;
            all >>= 4 * zeros;
        }
    }
    let mut head = format!("{:x}", all >> (4 * digits)).into_bytes();
    if digits > 0 || point || precision.is_some_and(|wanted| wanted > 0) {
        head.push(b'.');
    }
    if digits > 0 {
        let mask = (1u64 << (4 * digits)) - 1;
        head.extend(format!("{:0width$x}", all & mask, width = digits as usize).bytes());
    }
    let trailing = precision.unwrap_or(0).saturating_sub(u64::from(digits));
    let sign = if exponent < 0 { '-' } else { '+' };
    let tail = format!("p{sign}{}", exponent.unsigned_abs()).into_bytes();
    Number { prefix: b"0x".to_vec(), head, trailing, tail, ..Number::default() }
}
