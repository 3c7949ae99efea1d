//! Comparing memory of programs.
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

/// Whether memory of a program holds these bytes. Words are compared as such: keys are short.
///
/// # Safety
/// There are as many bytes at `at`, in an arena that is mapped.
#[inline(always)]
pub(super) unsafe fn equal(at: *const u8, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let (half, tail) = rest.as_chunks::<4>();
    let from = [words.len() * 8, bytes.len() - tail.len()];
    // SAFETY: the caller promises all bytes.
    unsafe {
        words.iter().enumerate().all(|(index, word)| at.add(index * 8).cast::<[u8; 8]>().read() == *word)
            && half.iter().all(|half| at.add(from[0]).cast::<[u8; 4]>().read() == *half)
            && tail.iter().enumerate().all(|(index, byte)| at.add(from[1] + index).read() == *byte)
    }
}

/// Leading bits, from the most significant of the first byte on, in which memory of a program is these bytes.
///
/// # Safety
/// As [`equal`].
#[inline(always)]
pub(super) unsafe fn common_bits(at: *const u8, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (half, tail) = rest.as_chunks::<4>();
    let differ = |bits: u32, differ: u64| (differ != 0).then(|| bits + differ.leading_zeros());
    let from = [words.len() * 8, bytes.len() - tail.len()];
    // SAFETY: the caller promises all bytes.
    let found = unsafe {
        let mut words = words.iter().enumerate().map(|(index, word)| {
            let own = at.add(index * 8).cast::<[u8; 8]>().read();
            differ(index as u32 * 64, u64::from_be_bytes(own) ^ u64::from_be_bytes(*word))
        });
        let half = || {
            let [half] = half else { return None };
            let own = at.add(from[0]).cast::<[u8; 4]>().read();
            differ(from[0] as u32 * 8, u64::from(u32::from_be_bytes(own) ^ u32::from_be_bytes(*half)) << 32)
        };
        let tail = || {
            let mut tail = tail.iter().enumerate();
            tail.find_map(|(index, byte)| {
                let index = from[1] + index;
                differ(index as u32 * 8, u64::from(at.add(index).read() ^ byte) << 56)
            })
        };
        words.find_map(|found| found).or_else(half).or_else(tail)
    };
    found.unwrap_or(bytes.len() as u32 * 8)
}
