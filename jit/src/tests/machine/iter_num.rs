//! Numeric iterators give the same whether they are calls or code.

use super::*;

/// Ranges: empty, short, backwards, the longest, longer, those that leave 32 bits.
const RANGES: [(i64, i64); 11] = [
    (0, 0),
    (0, 3),
    (-2, 1),
    (5, 4),
    (0, 8 << 20),
    (0, (8 << 20) + 1),
    (i32::MIN as i64, i32::MAX as i64),
    (i32::MAX as i64, i32::MIN as i64),
    (i32::MAX as i64 - 1, i32::MAX as i64),
    (1 << 32, 1 << 32 | 2),
    (i32::MIN as i64, i32::MIN as i64 + 2),
];

/// Sums up to `most` numbers of an iterator at `at`, after `more` has changed it; leaves what `bpf_iter_num_new` gave, how many
/// there were, and the iterator.
fn sum((start, end): (i64, i64), at: &str, more: &str) -> String {
    format!(
        "r6 = r1
         r7 = 0
         r9 = 0
         r2 = {start} ll
         r3 = {end} ll
         r1 = {at}
         call extern(7)
         *(u64 *)(r6 + 0) = r0
         {more}
         loop: r1 = {at}
         call extern(8)
         if r0 == 0 goto done
         r2 = *(s32 *)(r0 + 0)
         r7 += r2
         r9 += 1
         if r9 < 5 goto loop
         r1 = {at}
         call extern(9)
         r8 = r0
         done: *(u64 *)(r6 + 8) = r9
         r1 = {at}
         r2 = *(u64 *)(r1 + 0)
         *(u64 *)(r6 + 16) = r2
         r0 = r7
         exit"
    )
}

/// Of the frame, at its ends and misaligned; of other memory.
const PLACES: [&str; 6] = [
    "r10\n r1 += -8",
    "r10\n r1 += -512",
    "r10\n r1 += -21",
    "r10\n r1 += -16\n r1 += 8",
    "r6\n r1 += 64",
    "r10\n r1 += r7\n r1 += -8",
];

#[test]
fn ranges_are_the_helpers() {
    let first = |text: &str| text.split(',').next().map(str::to_owned);
    for range in RANGES {
        let results: Vec<String> = PLACES[..4].iter().map(|at| Rig::new(&sum(range, at, "")).agree(0)).collect();
        for result in &results {
            assert_eq!(result, &results[0], "{range:?}");
        }
        let elsewhere = Rig::new(&sum(range, PLACES[4], "")).agree(0);
        assert_eq!(first(&elsewhere), first(&results[0]), "{range:?}");
    }
    assert!(Rig::new(&sum((0, 3), PLACES[0], "")).agree(0).starts_with("0x3,"));
    assert!(Rig::new(&sum((-2, 9), PLACES[0], "")).agree(0).starts_with("0x0,"));
}

/// A program may write to its iterator.
#[test]
fn iterators_may_hold_anything() {
    for word in ["0x7fffffff7fffffff", "0x80000000ffffffff", "-1", "0x500000004", "0x400000004"] {
        let more = format!("r1 = r10\n r1 += -8\n r2 = {word} ll\n *(u64 *)(r1 + 0) = r2");
        Rig::new(&sum((0, 3), PLACES[0], &more)).agree(0);
    }
}

#[test]
fn iterators_outside_are_refused() {
    for at in ["r10\n r1 += -7", "r10", "r10\n r1 += -516", "7"] {
        let text = Rig::new(&sum((0, 3), at, "")).agree(0);
        assert!(text.contains("argument 1 of bpf_iter_num_new: "), "{text}");
    }
    Rig::new(&sum((0, 3), PLACES[5], "")).agree(0);
}
