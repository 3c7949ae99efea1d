//! Patterns over names of functions.

pub(crate) use twinbpf_btf::glob::matches;

/// Whether a definition's name is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Whether a name with scopes (`a::b::f`) is meant by a pattern: as a whole, or from a scope on.
pub(crate) fn matches_scoped(pattern: &str, name: &str) -> bool {
    if matches(pattern, name) {
        return true;
    }
    let mut rest = name;
    while let Some(at) = scope_end(rest) {
        rest = &rest[at..];
        if matches(pattern, rest) {
            return true;
        }
    }
    false
}

/// After the first `::` that is not inside of `<>` or `()`.
fn scope_end(name: &str) -> Option<usize> {
    let mut depth = 0i32;
    let bytes = name.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'{' => depth += 1,
            b'>' | b')' | b'}' => depth -= 1,
            b':' if depth <= 0 && bytes.get(at + 1) == Some(&b':') => return Some(at + 2),
            _ => {}
        }
    }
    None
}
