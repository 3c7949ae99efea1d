//! Sets of superinstructions, and how often code has each.

use std::fmt;
use std::str::FromStr;

use super::table::ROWS;

/// The superinstructions that the interpreter uses, of those that [`Superinstruction::all`](super::Superinstruction::all) lists.
/// The default has all. Results are the same with each set.
///
/// Its text is a list separated by commas, applied in order to the set of all: `-NAME` removes one, `+NAME` or `NAME` adds it,
/// `-all` and `all` do so with each.
///
/// ```
/// use twinbpf_vm::interp::SuperinstructionSet;
///
/// let set: SuperinstructionSet = "-rotate,-add-load".parse()?;
/// assert_eq!(set.to_string(), "-rotate,-add-load");
/// # Ok::<(), twinbpf_vm::interp::SuperinstructionSetError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SuperinstructionSet {
    removed: u64,
}

/// A bit for each row.
const EVERY: u64 = u64::MAX >> (u64::BITS as usize - ROWS.len());

impl SuperinstructionSet {
    /// All superinstructions of the table.
    pub const ALL: SuperinstructionSet = SuperinstructionSet { removed: 0 };

    /// Whether it has the superinstruction of this row.
    pub(in crate::interp) fn has(self, row: usize) -> bool {
        self.removed & 1 << row == 0
    }
}

/// The text of a [`SuperinstructionSet`] names no superinstruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no superinstruction is called {name:?}; there are {}", names().join(", "))]
pub struct SuperinstructionSetError {
    /// What was given.
    pub name: String,
}

fn names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

impl FromStr for SuperinstructionSet {
    type Err = SuperinstructionSetError;

    fn from_str(text: &str) -> Result<SuperinstructionSet, SuperinstructionSetError> {
        let mut set = SuperinstructionSet::ALL;
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (adds, name) = match word.strip_prefix('-') {
                Some(name) => (false, name),
                None => (true, word.strip_prefix('+').unwrap_or(word)),
            };
            let found = ROWS.iter().position(|row| row.name == name).map(|at| 1 << at);
            let bits: Option<u64> = found.or((name == "all").then_some(EVERY));
            let bits = bits.ok_or_else(|| SuperinstructionSetError { name: name.to_owned() })?;
            set.removed = if adds { set.removed & !bits } else { set.removed | bits };
        }
        Ok(set)
    }
}

impl fmt::Display for SuperinstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let removed = ROWS.iter().enumerate().filter(|(at, _)| !self.has(*at));
        let removed: Vec<String> = removed.map(|(_, row)| format!("-{}", row.name)).collect();
        f.write_str(if removed.is_empty() { "all" } else { "" })?;
        f.write_str(&removed.join(","))
    }
}

/// How often the code of a function has a superinstruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuperinstructionUse {
    /// Index of the function in the image.
    pub function: usize,
    /// Name of the superinstruction.
    pub name: &'static str,
    /// Places that have it.
    pub count: usize,
}
