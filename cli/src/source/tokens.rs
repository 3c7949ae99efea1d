//! Words of a C source, as far as the command must know them: names and punctuation, without comments and literals.

/// A word, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

/// Names, numbers and single characters of punctuation.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let bytes = source.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &source[at..];
        let end = match bytes[at] {
            b'/' if rest.starts_with("//") => at + rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => at + rest.find("*/").map_or(rest.len(), |end| end + 2),
            quote @ (b'"' | b'\'') => literal(bytes, at, quote),
            byte if byte.is_ascii_whitespace() => at + 1,
            byte if is_word(byte) => {
                let end = bytes[at..].iter().position(|byte| !is_word(*byte)).map_or(bytes.len(), |len| at + len);
                found.push(Token { text: &source[at..end], at });
                end
            }
            _ => {
                found.push(Token { text: &source[at..=at], at });
                at + 1
            }
        };
        at = end;
    }
    found
}

/// Where a literal ends that begins here.
fn literal(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The arguments of a call whose name is at `index`: the names among its tokens, up to the closing parenthesis.
pub(super) fn arguments<'a>(all: &[Token<'a>], index: usize) -> Vec<Token<'a>> {
    if all.get(index + 1).is_none_or(|token| token.text != "(") {
        return Vec::new();
    }
    let mut depth = 0;
    let mut inside = Vec::new();
    for token in &all[index + 1..] {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        inside.push(*token);
    }
    inside.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::{arguments, tokens};

    #[test]
    fn comments_and_literals_are_no_words() {
        let texts = |source| tokens(source).iter().map(|token| token.text).collect::<Vec<_>>();
        assert_eq!(texts("a /* b */ // c\n\"d \\\" e\" 'f' g->h1"), ["a", "g", "-", ">", "h1"]);
        assert_eq!(texts("\"open"), Vec::<&str>::new());
        assert_eq!(texts("/* open"), Vec::<&str>::new());
    }

    #[test]
    fn arguments_end_with_their_parenthesis() {
        let all = tokens("count(&calls, f(x)); g(y)");
        let inside: Vec<&str> = arguments(&all, 0).iter().map(|token| token.text).collect();
        assert_eq!(inside, ["&", "calls", ",", "f", "(", "x", ")"]);
        assert!(arguments(&all, 2).is_empty());
    }
}
