//! Semantics of each operation, defined once: one row per entry of the instruction tables.
//!
//! A row becomes a zero-sized type. Both drivers execute these types, so they cannot disagree. The matches that
//! find the type of an operation are made of the rows; a table entry without a row does not compile.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::kind::Right;
use super::ops::{Alu, Atomic, Binary, Branch, Compare, Old, Pick, Rmw};
use twinbpf_isa::{AluOp, AtomicOp, Cond, Width};

/// In a row, `U` is the unsigned and `I` the signed integer type of the operation's width.
macro_rules! alu_rows {
    ($($Row:ident ($a:ident, $b:ident) $value:expr;)*) => {
        $(
            pub(super) struct $Row;
            #[allow(dead_code, reason = "not every row needs both integer types")]
            impl Binary for $Row {
                const OP: AluOp = AluOp::$Row;
                #[inline(always)]
                fn w32($a: u32, $b: u32) -> u32 { type U = u32; type I = i32; $value }
                #[inline(always)]
                fn w64($a: u64, $b: u64) -> u64 { type U = u64; type I = i64; $value }
            }
        )*

        /// Finds the type of an arithmetic operation.
        pub(super) fn alu<P: Pick>(width: Width, op: AluOp, right: Right, pick: P) -> P::Out {
            match op { $(AluOp::$Row => match (width, right) {
                (Width::W32, Right::Reg) => pick.pick::<Alu<$Row, false, false>>(),
                (Width::W32, Right::Imm) => pick.pick::<Alu<$Row, false, true>>(),
                (Width::W64, Right::Reg) => pick.pick::<Alu<$Row, true, false>>(),
                (Width::W64, Right::Imm) => pick.pick::<Alu<$Row, true, true>>(),
            },)* }
        }
    };
}

alu_rows! {
    Add(a, b) a.wrapping_add(b);
    Sub(a, b) a.wrapping_sub(b);
    Mul(a, b) a.wrapping_mul(b);
    Div(a, b) a.checked_div(b).unwrap_or(0);
    Sdiv(a, b) if b == 0 { 0 } else { (a as I).wrapping_div(b as I) as U };
    Or(a, b) a | b;
    And(a, b) a & b;
    Lsh(a, b) a.wrapping_shl(b as u32);
    Rsh(a, b) a.wrapping_shr(b as u32);
    Neg(a, _b) a.wrapping_neg();
    Mod(a, b) a.checked_rem(b).unwrap_or(a);
    Smod(a, b) if b == 0 { a } else { (a as I).wrapping_rem(b as I) as U };
    Xor(a, b) a ^ b;
    Mov(_a, b) b;
    Movsx8(_a, b) b as i8 as I as U;
    Movsx16(_a, b) b as i16 as I as U;
    Movsx32(_a, b) b as i32 as I as U;
    Arsh(a, b) (a as I).wrapping_shr(b as u32) as U;
}

macro_rules! branch_rows {
    ($($Row:ident ($a:ident, $b:ident) $value:expr;)*) => {
        pub(super) mod cond {
            $(pub(in crate::interp) struct $Row;)*
        }
        $(
            #[allow(dead_code, reason = "only signed rows need the signed integer type")]
            impl Compare for cond::$Row {
                const OP: Cond = Cond::$Row;
                #[inline(always)]
                fn w32($a: u32, $b: u32) -> bool { type I = i32; $value }
                #[inline(always)]
                fn w64($a: u64, $b: u64) -> bool { type I = i64; $value }
            }
        )*

        /// Finds the type of a conditional branch.
        pub(super) fn branch<P: Pick>(width: Width, op: Cond, right: Right, pick: P) -> P::Out {
            match op { $(Cond::$Row => match (width, right) {
                (Width::W32, Right::Reg) => pick.pick::<Branch<cond::$Row, false, false>>(),
                (Width::W32, Right::Imm) => pick.pick::<Branch<cond::$Row, false, true>>(),
                (Width::W64, Right::Reg) => pick.pick::<Branch<cond::$Row, true, false>>(),
                (Width::W64, Right::Imm) => pick.pick::<Branch<cond::$Row, true, true>>(),
            },)* }
        }
    };
}

branch_rows! {
    Eq(a, b) a == b;
    Gt(a, b) a > b;
    Ge(a, b) a >= b;
    Set(a, b) a & b != 0;
    Ne(a, b) a != b;
    Sgt(a, b) a as I > b as I;
    Sge(a, b) a as I >= b as I;
    Lt(a, b) a < b;
    Le(a, b) a <= b;
    Slt(a, b) (a as I) < b as I;
    Sle(a, b) a as I <= b as I;
}

/// Orderings are the kernel's (Documentation/atomic_t.txt): operations that give a value are fully ordered, the
/// others relaxed.
macro_rules! atomic_rows {
    ($($Row:ident $Old:ident ($cell:ident, $src:ident, $r0:ident) $value:expr;)*) => {
        pub(super) mod atomic {
            $(pub(in crate::interp) struct $Row;)*
        }
        $(
            impl Rmw for atomic::$Row {
                const OP: AtomicOp = AtomicOp::$Row;
                const OLD: Old = Old::$Old;
                #[inline(always)]
                fn w32($cell: &AtomicU32, $src: u32, $r0: u32) -> u32 { $value }
                #[inline(always)]
                fn w64($cell: &AtomicU64, $src: u64, $r0: u64) -> u64 { $value }
            }
        )*

        /// Finds the type of an atomic operation.
        pub(super) fn atomic<P: Pick>(width: Width, op: AtomicOp, pick: P) -> P::Out {
            match op { $(AtomicOp::$Row => match width {
                Width::W32 => pick.pick::<Atomic<atomic::$Row, false>>(),
                Width::W64 => pick.pick::<Atomic<atomic::$Row, true>>(),
            },)* }
        }
    };
}

atomic_rows! {
    Add Dropped (cell, src, _r0) cell.fetch_add(src, Ordering::Relaxed);
    Or Dropped (cell, src, _r0) cell.fetch_or(src, Ordering::Relaxed);
    And Dropped (cell, src, _r0) cell.fetch_and(src, Ordering::Relaxed);
    Xor Dropped (cell, src, _r0) cell.fetch_xor(src, Ordering::Relaxed);
    FetchAdd Src (cell, src, _r0) cell.fetch_add(src, Ordering::SeqCst);
    FetchOr Src (cell, src, _r0) cell.fetch_or(src, Ordering::SeqCst);
    FetchAnd Src (cell, src, _r0) cell.fetch_and(src, Ordering::SeqCst);
    FetchXor Src (cell, src, _r0) cell.fetch_xor(src, Ordering::SeqCst);
    Xchg Src (cell, src, _r0) cell.swap(src, Ordering::SeqCst);
    Cmpxchg R0 (cell, src, r0) match cell.compare_exchange(r0, src, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(old) | Err(old) => old,
    };
}
