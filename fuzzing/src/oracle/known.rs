//! Differences that are known: kernels in which something is wrong or otherwise, so that it is no news.

use twinbpf_isa::text_at;

use crate::finding::Finding;

/// A known difference.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What it is.
    pub what: &'static str,
    /// Where it was seen.
    pub kernels: &'static str,
    /// The version from which on it is no more.
    gone: Option<(u32, u32)>,
    /// Parts of the instruction at which it shows.
    marks: &'static [&'static str],
    /// It may show at another instruction, as long as there is such a one, with this in it too.
    elsewhere: Option<&'static str>,
}

/// Version of the list.
pub const VERSION: u32 = 3;

/// All known differences, the list that a campaign consults.
pub const ALL: &[Known] = &[
    Known {
        what: "the result of a 32-bit cmpxchg is not zero-extended where the verifier finds its upper half dead",
        kernels: "6.18 to 7.2",
        gone: None,
        marks: &["cmpxchg32_32", "= cmpxchg((u32"],
        elsewhere: Some(""),
    },
    Known {
        what: "a branch on a value that an atomic operation has fetched from the stack is taken for decided",
        kernels: "6.12, 6.18",
        gone: None,
        marks: &["atomic_fetch_", "xchg"],
        elsewhere: Some("(r10"),
    },
    Known {
        what: "what changing an element of a map returns has 32 bits, since it is called directly and is an int",
        kernels: "6.1",
        gone: Some((6, 4)),
        marks: &["call 2", "call 3"],
        elsewhere: Some(""),
    },
];

impl Known {
    fn marks(&self, insn: &str) -> bool {
        self.marks.iter().any(|mark| insn.contains(mark))
    }

    /// Whether a kernel, by its name as an engine, may have it.
    fn is_of(&self, engine: &str) -> bool {
        let version = engine.split_once('(').and_then(|(_, release)| version(release));
        is_kernel(engine) && self.gone.is_none_or(|gone| version.is_some_and(|version| version < gone))
    }
}

/// Whether an engine is a kernel's, by its name.
pub(crate) fn is_kernel(engine: &str) -> bool {
    engine.starts_with("kernel")
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next())
}

/// The known difference that a finding is, by its first instruction or by one that is left of a small one: only a kernel
/// can have one.
pub fn find(finding: &Finding) -> Option<&'static str> {
    let insn = finding.insn.as_deref()?;
    let main = &finding.case.main;
    let left = |known: &&Known| {
        let mut texts = (0..main.len()).map(|pc| text_at(main, pc));
        known.elsewhere.is_some_and(|part| texts.any(|text| known.marks(&text) && text.contains(part)))
    };
    let fits = |known: &&Known| finding.suspects.iter().all(|suspect| known.is_of(suspect));
    let all = || ALL.iter().filter(fits);
    all().find(|known| known.marks(insn)).or_else(|| all().find(left)).map(|known| known.what)
}
