//! A text with a caret under a part of it.

use std::ops::Range;

/// The text and the line below it, both indented. `span` is in bytes; an empty one gets one caret.
pub(crate) fn marked(text: &str, span: Range<usize>) -> String {
    let before = text.get(..span.start).unwrap_or(text).chars().count();
    let part = text.get(span).unwrap_or_default().chars().count();
    format!("    {text}\n    {}{}", " ".repeat(before), "^".repeat(part.max(1)))
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn carets_count_letters() {
        assert_eq!(marked("aé[9]=1", 4..5), "    aé[9]=1\n       ^");
        assert_eq!(marked("ab", 2..2), "    ab\n      ^");
    }
}
