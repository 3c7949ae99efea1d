//! The command line of a bench.

/// Whether the command line has this flag.
pub fn has_flag(word: &str) -> bool {
    std::env::args().skip(1).any(|argument| argument == word)
}

/// Whether the command line selects this case: it has no filter, or one that is part of this name.
pub fn is_selected(name: &str) -> bool {
    std::env::args().skip(1).find(|argument| !argument.starts_with('-')).is_none_or(|part| name.contains(&part))
}
