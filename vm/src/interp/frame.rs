//! Frames of the interpreter's calls.

/// One call that has not returned.
pub(super) struct Frame {
    /// pc of the call; the callee returns after it.
    pub(super) site: u32,
    /// Stack bytes that count against the limit.
    pub(super) size: u32,
    /// `may_goto` budget of the caller.
    pub(super) loops: u32,
    /// r6 to r9 of the caller.
    pub(super) saved: [u64; 4],
}

impl Frame {
    /// pc of the call, or [`NO_SITE`].
    pub(super) fn site(&self) -> usize {
        self.site as usize
    }
}

/// In place of the pc of a call: what called is known otherwise.
pub(super) const NO_SITE: usize = u32::MAX as usize;
