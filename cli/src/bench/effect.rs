//! What a run of a program changes, and how that of one engine is compared with that of another.

use crate::args::BenchEngine;

/// What a run leaves behind.
pub(super) struct Effect {
    pub(super) r0: u64,
    /// The context; contexts of packets hold addresses, there it is the packet with its metadata.
    pub(super) bytes: Vec<u8>,
    pub(super) output: Vec<u8>,
}

impl Effect {
    /// What is not as the engine `first` has it. Of r0 the kernel gives the lower half.
    pub(super) fn difference(&self, own: BenchEngine, first: BenchEngine, wanted: &Effect) -> Option<String> {
        let half = [own, first].contains(&BenchEngine::Kernel);
        let seen = |r0: u64| if half { u64::from(r0 as u32) } else { r0 };
        let first = first.name();
        if seen(self.r0) != seen(wanted.r0) {
            return Some(format!("wrong result: r0 = {:#x}, {first} has {:#x}", self.r0, wanted.r0));
        }
        let what = match (self.bytes == wanted.bytes, self.output == wanted.output) {
            (true, true) => return None,
            (false, _) => "bytes of the context or packet",
            (true, false) => "output",
        };
        Some(format!("wrong result: {what} not as on {first}"))
    }
}
