//! Which passes run.

use std::fmt;
use std::str::FromStr;

use super::pipeline::PASSES;

/// The passes that run, of those that [`PassInfo::all`](super::PassInfo::all) lists. The default has all.
///
/// Its text is a list separated by commas, applied in order to the set of all passes: `-NAME` removes a pass, `+NAME` or `NAME`
/// adds it, `-all` and `all` do so with each.
///
/// ```
/// use twinbpf_jit::PassSet;
///
/// let set: PassSet = "-licm,-dce".parse()?;
/// assert_eq!(set.to_string(), "-licm,-dce");
/// # Ok::<(), twinbpf_jit::PassSetError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PassSet {
    removed: u32,
    /// Runs of passes after which no pass runs any more; see [`PassSet::bisect`].
    limit: Option<u64>,
}

const _: () = assert!(PASSES.len() <= u32::BITS as usize);

impl PassSet {
    /// Every pass, without a limit on changes.
    pub const ALL: PassSet = PassSet { removed: 0, limit: None };

    /// The same set, but only the first `count` runs of a pass over a function of an image take place. They are counted by
    /// function, then by pass, passes that are removed or skipped included, so that a count means the same in each
    /// compilation of an image.
    #[must_use]
    pub const fn bisect(self, count: Option<u64>) -> PassSet {
        PassSet { limit: count, ..self }
    }

    /// Whether a pass, by its position in the pipeline, runs over a function of the image.
    pub(crate) fn runs(self, pass: usize, function: u32) -> bool {
        let before = u64::from(function) * PASSES.len() as u64 + pass as u64;
        self.removed & 1 << pass == 0 && self.limit.is_none_or(|limit| before < limit)
    }
}

impl Default for PassSet {
    fn default() -> PassSet {
        PassSet::ALL
    }
}

/// The text of a [`PassSet`] names no pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no pass is called {name:?}; there are {}", names().join(", "))]
pub struct PassSetError {
    /// What was given.
    pub name: String,
}

fn names() -> Vec<&'static str> {
    PASSES.iter().map(|row| row.info.name).collect()
}

impl FromStr for PassSet {
    type Err = PassSetError;

    fn from_str(text: &str) -> Result<PassSet, PassSetError> {
        let mut set = PassSet::ALL;
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (adds, name) = match word.strip_prefix('-') {
                Some(name) => (false, name),
                None => (true, word.strip_prefix('+').unwrap_or(word)),
            };
            let found = PASSES.iter().position(|row| row.info.name == name).map(|at| 1 << at);
            let bits = found.or((name == "all").then_some(u32::MAX));
            let bits = bits.ok_or_else(|| PassSetError { name: name.to_owned() })?;
            set.removed = if adds { set.removed & !bits } else { set.removed | bits };
        }
        Ok(set)
    }
}

impl fmt::Display for PassSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let removed = PASSES.iter().enumerate().filter(|(at, _)| self.removed & 1 << at != 0);
        let removed: Vec<String> = removed.map(|(_, row)| format!("-{}", row.info.name)).collect();
        f.write_str(if removed.is_empty() { "all" } else { "" })?;
        f.write_str(&removed.join(","))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", {limit} runs"))
    }
}
