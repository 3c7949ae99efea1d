//! Differences that are known: kernels in which something is wrong or otherwise, so that it is no news.

use twinbpf_vm::isa::text_at;

use super::Finding;

/// A known difference.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What it is.
    pub what: &'static str,
    /// Where it was seen.
    pub kernels: &'static str,
    /// Parts of the instruction at which it shows.
    marks: &'static [&'static str],
    /// It takes such an instruction on the stack, and may show at another one.
    stack: bool,
}

/// Version of the list.
pub const VERSION: u32 = 2;

/// All.
pub const ALL: &[Known] = &[
    Known {
        what: "the result of a 32-bit cmpxchg is not zero-extended where the verifier thinks nobody reads the upper half",
        kernels: "6.18 to 7.2",
        marks: &["cmpxchg_32", "= cmpxchg((u32"],
        stack: false,
    },
    Known {
        what: "a branch on a value that an atomic operation has fetched from the stack is taken for decided",
        kernels: "6.12, 6.18",
        marks: &["atomic_fetch_", "xchg"],
        stack: true,
    },
];

impl Known {
    fn marks(&self, insn: &str) -> bool {
        self.marks.iter().any(|mark| insn.contains(mark))
    }
}

/// The known difference that a finding is, by its first instruction or by one that is left of a small one: only a kernel
/// can have one.
pub fn find(finding: &Finding) -> Option<&'static str> {
    let kernel = finding.suspects.iter().all(|suspect| suspect.starts_with("kernel"));
    let insn = finding.insn.as_deref().filter(|_| kernel)?;
    let main = &finding.case.main;
    let left = |known: &&Known| {
        let mut texts = (0..main.len()).map(|pc| text_at(main, pc));
        known.stack && texts.any(|text| known.marks(&text) && text.contains("*)(r10"))
    };
    let found = ALL.iter().find(|known| known.marks(insn)).or_else(|| ALL.iter().find(left));
    found.map(|known| known.what)
}
