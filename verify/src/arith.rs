//! Abstract arithmetic: results of machine operations on abstract values.

use iced_x86::Mnemonic;

use crate::state::{Conditions, Meaning};
use crate::value::{Base, U32, Value};

/// All ones up to the highest bit of a number.
fn filled(number: u64) -> u64 {
    u64::MAX.checked_shr(number.leading_zeros()).unwrap_or(0)
}

/// The result of a binary operation on so many bytes.
pub(crate) fn binary(mnemonic: Mnemonic, bytes: usize, a: Value, b: Value, conditions: &mut Conditions) -> Value {
    let result = match mnemonic {
        Mnemonic::Add => a.plus(b),
        Mnemonic::Sub => match (a.minus(b), b.constant()) {
            // As the sum with what is missing to the next power.
            (Value::Any, Some(number)) if bytes < 8 => a.plus(Value::number(number.wrapping_neg()).low(bytes)),
            (value, _) => value,
        },
        Mnemonic::And => and(a, b, conditions),
        Mnemonic::Or => or(a, b, conditions),
        Mnemonic::Xor => xor(a, b, conditions),
        Mnemonic::Imul => match (a.range(), b.range()) {
            (Some((lo, hi)), Some((least, most))) => match hi.checked_mul(most) {
                Some(hi) => Value::Int { lo: lo * least, hi },
                None => Value::Any,
            },
            _ => Value::Any,
        },
        _ => Value::Any,
    };
    result.low(bytes)
}

fn and(a: Value, b: Value, conditions: &mut Conditions) -> Value {
    if let (Some(a), Some(b)) = (a.constant(), b.constant()) {
        return Value::number(a & b);
    }
    if let (Value::Bool { index: x, clean }, Value::Bool { index: y, clean: other }) = (a, b) {
        let (x, y) = (conditions.get(x), conditions.get(y));
        let nonzero = x.nonzero.iter().chain(&y.nonzero).copied().collect();
        let index = conditions.intern(Meaning { zero: Vec::new(), nonzero });
        return Value::Bool { index, clean: clean || other };
    }
    match (a.range(), b.range()) {
        (Some((_, hi)), Some((_, most))) => Value::Int { lo: 0, hi: hi.min(most) },
        (Some((_, hi)), None) | (None, Some((_, hi))) => Value::Int { lo: 0, hi },
        _ => Value::Any,
    }
}

fn or(a: Value, b: Value, conditions: &mut Conditions) -> Value {
    if let (Some(a), Some(b)) = (a.constant(), b.constant()) {
        return Value::number(a | b);
    }
    match (a, b) {
        (Value::Bool { index: x, clean }, Value::Bool { index: y, clean: other }) => {
            let (x, y) = (conditions.get(x), conditions.get(y));
            let zero = x.zero.iter().chain(&y.zero).copied().collect();
            let index = conditions.intern(Meaning { zero, nonzero: Vec::new() });
            return Value::Bool { index, clean: clean && other };
        }
        // The arena begins at a multiple of its size.
        (Value::Pointer { base: Base::Arena, lo: 0, hi: 0 }, number)
        | (number, Value::Pointer { base: Base::Arena, lo: 0, hi: 0 })
            if number.range().is_some_and(|(_, hi)| hi <= U32) =>
        {
            return Value::at(Base::Arena, 0).plus(number);
        }
        _ => {}
    }
    match (a.range(), b.range()) {
        (Some((lo, hi)), Some((least, most))) => Value::Int { lo: lo.max(least), hi: filled(hi | most) },
        _ => Value::Any,
    }
}

fn xor(a: Value, b: Value, conditions: &mut Conditions) -> Value {
    if let (Some(a), Some(b)) = (a.constant(), b.constant()) {
        return Value::number(a ^ b);
    }
    if let ((Value::Bool { index, clean: true }, Some(1)), _) | (_, (Value::Bool { index, clean: true }, Some(1))) =
        ((a, b.constant()), (b, a.constant()))
    {
        let Meaning { zero, nonzero } = conditions.get(index).clone();
        let index = conditions.intern(Meaning { zero: nonzero, nonzero: zero });
        return Value::Bool { index, clean: true };
    }
    match (a.range(), b.range()) {
        (Some((_, hi)), Some((_, most))) => Value::Int { lo: 0, hi: filled(hi | most) },
        _ => Value::Any,
    }
}

/// The result of a shift of so many bytes by a number of bits, if that is known.
pub(crate) fn shift(mnemonic: Mnemonic, bytes: usize, value: Value, by: Option<u64>) -> Value {
    let bits = 8 * bytes as u64;
    let by = by.map(|by| by & if bits == 64 { 63 } else { 31 });
    let value = value.low(bytes);
    let all = Value::of_size(bytes);
    let (lo, hi) = match (value.range(), all.range()) {
        (Some(range), _) => range,
        (None, Some(range)) => range,
        (None, None) => (0, u64::MAX),
    };
    let sign = 1 << (bits - 1);
    let result = match (mnemonic, by) {
        (Mnemonic::Shr | Mnemonic::Shrx, Some(by)) => Value::Int { lo: lo >> by, hi: hi >> by },
        (Mnemonic::Sar | Mnemonic::Sarx, Some(by)) if hi < sign => Value::Int { lo: lo >> by, hi: hi >> by },
        (Mnemonic::Shl | Mnemonic::Shlx, Some(by)) if hi.leading_zeros() as u64 > by => {
            Value::Int { lo: lo << by, hi: hi << by }
        }
        (Mnemonic::Shr | Mnemonic::Shrx, None) => Value::Int { lo: 0, hi },
        (Mnemonic::Sar | Mnemonic::Sarx, None) if hi < sign => Value::Int { lo: 0, hi },
        _ => all,
    };
    result.low(bytes)
}

/// The sign extension of the low bytes of a value.
pub(crate) fn sign_extended(value: Value, bytes: usize) -> Value {
    match value.low(bytes).range() {
        Some((_, hi)) if hi < 1 << (8 * bytes - 1) => value.low(bytes),
        Some((lo, hi)) if lo == hi => {
            Value::number((lo << (64 - 8 * bytes)) as i64 as u64).signed_shift(64 - 8 * bytes)
        }
        _ => Value::Any,
    }
}

impl Value {
    /// A constant shifted right with its sign.
    fn signed_shift(self, by: usize) -> Value {
        self.constant().map_or(Value::Any, |number| Value::number(((number as i64) >> by) as u64))
    }
}
