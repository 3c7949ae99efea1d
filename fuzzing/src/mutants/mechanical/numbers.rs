//! Arithmetic on ranges.

use iced_x86::Mnemonic as M;

use super::facts::What;

/// What becomes of numbers.
pub(super) fn numbers(mnemonic: M, a: What, b: What, bytes: usize) -> What {
    let (Some((lo, hi)), Some((least, most))) = (a.range(), b.range()) else {
        return match (mnemonic, a.range().or(b.range())) {
            (M::And, Some((_, hi))) => What::Number { lo: 0, hi },
            (M::Shr, _) if b.constant().is_some() => {
                What::Number { lo: 0, hi: u64::MAX >> (b.constant().unwrap_or(0) & 63) }
            }
            _ => What::of_size(bytes),
        };
    };
    let filled = u64::MAX.checked_shr((hi | most).leading_zeros()).unwrap_or(0);
    let by = (lo == hi || least == most).then_some(most & if bytes == 8 { 63 } else { 31 });
    match (mnemonic, by) {
        (M::And, _) => What::Number { lo: 0, hi: hi.min(most) },
        (M::Or | M::Xor, _) => What::Number { lo: 0, hi: filled },
        (M::Shr, Some(by)) if least == most => What::Number { lo: lo >> by, hi: hi >> by },
        (M::Shr, _) => What::Number { lo: 0, hi },
        (M::Shl, Some(by)) if least == most && u64::from(hi.leading_zeros()) > by => {
            What::Number { lo: lo << by, hi: hi << by }
        }
        (M::Imul, _) => match hi.checked_mul(most) {
            Some(hi) => What::Number { lo: lo * least, hi },
            None => What::Any,
        },
        _ => What::of_size(bytes),
    }
}
