//! Which operations share a handler: the pairs that compute kernels execute most, by profile.

use super::ops::{Alu, Branch, Byte, Double, Half, Kind, Load, Op, Store, Word};
use super::rows::{Add, And, Arsh, Lsh, Mov, Mul, Or, Rsh, Sub, Xor, cond};
use super::threaded::{Handler, pair};

/// First and second operation, whether the second reads the first's result, and the handlers for a second that
/// goes forward or jumps back.
type Pair = ((Kind, Kind, bool), [Handler; 2]);

macro_rules! pairs {
    ($($A:ty, $B:ty, $chained:literal;)*) => {
        pub(super) const PAIRS: &[Pair] = &[$((
            (<$A>::KIND, <$B>::KIND, $chained),
            [pair::<$A, $B, $chained, false>, pair::<$A, $B, $chained, true>],
        ),)*];
    };
}

pairs! {
    Alu<Add, true, false>, Load<Byte, false>, true;
}
