//! Patterns over names of functions.

/// Whether a name matches a pattern: `*` stands for any text, `?` for a character.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut to) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while to < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, to));
                at += 1;
            }
            Some(b'?') => (at, to) = (at + 1, to + 1),
            Some(byte) if *byte == name[to] => (at, to) = (at + 1, to + 1),
            _ => match star {
                // The last star takes one byte more.
                Some((back, taken)) => {
                    star = Some((back, taken + 1));
                    (at, to) = (back + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

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
