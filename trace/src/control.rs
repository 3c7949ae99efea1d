//! Host data of a session's script instances.

use std::collections::BTreeMap;
use std::time::Duration;

/// Processes whose memory scripts may read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// That of every process (`--unsafe`).
    pub(crate) any: bool,
    /// Those of the session's options, by the number of one of their threads.
    pub(crate) chosen: Vec<u32>,
    /// What a script learns once.
    pub(crate) refusal_reported: bool,
}

/// The data of an instance of a session.
#[derive(Debug, Default)]
pub struct Control {
    /// Process id of the workload, which is suspended until BEGIN has returned.
    pub(crate) workload: u32,
    /// Timer period that the last program requested.
    pub(crate) period: Option<Duration>,
    /// Processes whose memory programs may read.
    pub(crate) reach: Reach,
    /// Folded stacks and how often each was added, where they are drawn.
    pub(crate) folded: Option<BTreeMap<String, u64>>,
}
