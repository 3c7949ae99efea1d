//! Why a definition has no instances.

use twinbpf_loader::section::PerfPart;

use crate::marked::marked;

/// A definition that cannot be met, and the parts of its section that say so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
#[non_exhaustive]
pub struct ProbeError {
    /// The reason, in words.
    pub why: String,
    /// Parts of the section's name that it is about.
    pub parts: Vec<PerfPart>,
}

impl ProbeError {
    /// Of one part.
    pub(crate) fn at(part: PerfPart, why: impl Into<String>) -> ProbeError {
        ProbeError { why: why.into(), parts: vec![part] }
    }

    /// Of the value of an option.
    pub(crate) fn option(key: &str, why: impl Into<String>) -> ProbeError {
        ProbeError::at(PerfPart::Option(key.into(), true), why)
    }

    /// The section's name with carets under the parts; `None` where it is about nothing in the section.
    pub fn marked(&self, section: &str) -> Option<String> {
        let spans: Vec<_> = self.parts.iter().filter_map(|part| part.span(section)).collect();
        (!spans.is_empty()).then(|| marked(section, &spans))
    }
}

impl From<String> for ProbeError {
    fn from(why: String) -> ProbeError {
        ProbeError { why, parts: Vec::new() }
    }
}
