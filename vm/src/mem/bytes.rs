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
