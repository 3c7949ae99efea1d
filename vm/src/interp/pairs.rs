//! Which operations share a handler: the pairs that compute kernels execute most, by profile.

use super::ops::{Alu, Branch, Byte, Kind, Load, Op};
use super::rows::{Add, cond};
use super::threaded::{Handler, pair};

/// First and second operation, whether the second reads the first's result, and the handlers for a second that
/// goes forward or jumps back.
type Pair = ((Kind, Kind, bool), [Handler; 2]);

macro_rules! pairs {
    (forward { $($A:ty, $B:ty, $chained:literal;)* } jumps { $($C:ty, $J:ty, $linked:literal;)* }) => {
        pub(super) const PAIRS: &[Pair] = &[
            $((
                (<$A>::KIND, <$B>::KIND, $chained),
                [pair::<$A, $B, $chained, false>, pair::<$A, $B, $chained, false>],
            ),)*
            $((
                (<$C>::KIND, <$J>::KIND, $linked),
                [pair::<$C, $J, $linked, false>, pair::<$C, $J, $linked, true>],
            ),)*
        ];
    };
}

pairs! {
    forward {
        Alu<Add, true, false>, Load<Byte, false>, true;
    }
    jumps {
        Alu<Add, true, true>, Branch<cond::Ne, true, true>, true;
    }
}
