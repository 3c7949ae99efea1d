//! The command line of a bench.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Filters that were part of some case's name.
static MATCHED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Whether the command line has this flag.
pub fn has_flag(word: &str) -> bool {
    std::env::args().skip(1).any(|argument| argument == word)
}

fn filters() -> impl Iterator<Item = String> {
    std::env::args().skip(1).filter(|argument| !argument.starts_with('-'))
}

/// Whether the command line selects this case: it has no filter, or one that is part of this name.
pub fn is_selected(name: &str) -> bool {
    let matching: Vec<String> = filters().filter(|filter| name.contains(filter)).collect();
    let selected = !matching.is_empty() || filters().next().is_none();
    MATCHED.lock().unwrap_or_else(PoisonError::into_inner).extend(matching);
    selected
}

/// Filters of the command line that no case had in its name.
pub(crate) fn unmatched() -> Vec<String> {
    let matched = MATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    filters().filter(|filter| !matched.contains(filter)).collect()
}
