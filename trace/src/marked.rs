//! A text with carets under parts of it.

use std::ops::Range;

/// The text and the line below it, both indented. Spans are in bytes; an empty one gets one caret.
pub(crate) fn marked(text: &str, spans: &[Range<usize>]) -> String {
    let is_marked = |at: usize| spans.iter().any(|span| span.contains(&at) || (span.is_empty() && span.start == at));
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let carets: String = ends.map(|at| if is_marked(at) { '^' } else { ' ' }).collect();
    format!("    {text}\n    {}", carets.trim_end())
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn carets_count_letters() {
        let one = |text, span| marked(text, std::slice::from_ref(&span));
        assert_eq!(one("aé[9]=1", 4..5), "    aé[9]=1\n       ^");
        assert_eq!(one("ab", 2..2), "    ab\n      ^");
        assert_eq!(marked("ab cd ef", &[0..2, 6..8]), "    ab cd ef\n    ^^    ^^");
    }
}
