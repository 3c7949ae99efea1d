//! Patterns over names of functions and types.

/// Whether a name matches a pattern: `*` stands for any text, `?` for a character.
pub fn matches(pattern: &str, name: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn globs() {
        for (pattern, name, expected) in [
            ("tcp_*", "tcp_connect", true),
            ("*_connect", "tcp_connect", true),
            ("t?p*c*t", "tcp_connect", true),
            ("tcp", "tcp_connect", false),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
