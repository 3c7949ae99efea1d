//! Where the parts of a probe definition stand in a section's name.

use std::ops::Range;
use std::sync::Arc;

/// A part of a section's name in perf's notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerfPart {
    /// An option before the definition, by its key; with `true` its value alone.
    Option(Arc<str>, bool),
    /// A piece before the definition that is no option.
    Piece(Arc<str>),
    /// The name of the event.
    Event,
    /// The function, with its position.
    Function,
    /// An argument by its number, from 0.
    Argument(usize),
}

impl PerfPart {
    /// Where the part is, in bytes; `None` where the section does not have it.
    ///
    /// ```
    /// use twinbpf_loader::section::PerfPart;
    ///
    /// let section = "exec=./t;wk=work* n  who:string";
    /// let part = |part: PerfPart| part.span(section).map(|span| &section[span]);
    /// assert_eq!(part(PerfPart::Option("exec".into(), true)), Some("./t"));
    /// assert_eq!([part(PerfPart::Event), part(PerfPart::Function)], [Some("wk"), Some("work*")]);
    /// assert_eq!(part(PerfPart::Argument(1)), Some("who:string"));
    /// assert_eq!(part(PerfPart::Argument(2)), None);
    /// ```
    pub fn span(&self, section: &str) -> Option<Range<usize>> {
        let main = main(section);
        let first = || {
            let word = word(section, main, 0)?;
            let equals = section[word.clone()].find('=').map(|at| word.start + at)?;
            Some((word.start..equals, equals + 1..word.end))
        };
        match self {
            PerfPart::Option(key, is_value) => {
                let name = option(section, main, key)?;
                let end = section[name.end..].find(';').map_or(section.len(), |at| name.end + at);
                Some(if *is_value { name.end + 1..end } else { name })
            }
            PerfPart::Piece(text) => {
                let mut start = 0;
                let pieces = section[..main].split_inclusive(';').map(|piece| {
                    let begin = start;
                    start += piece.len();
                    (begin, piece.trim_end_matches(';'))
                });
                let mut found = pieces.filter(|(_, piece)| piece.trim_start_matches('?') == &**text);
                found.next().map(|(begin, piece)| begin + piece.len() - text.len()..begin + piece.len())
            }
            PerfPart::Event => first().map(|(event, _)| event),
            PerfPart::Function => first().map(|(_, function)| function),
            PerfPart::Argument(index) => word(section, main, index + 1),
        }
    }
}

/// Where the definition begins, after the options.
pub(super) fn main(section: &str) -> usize {
    section.rfind(';').map_or(usize::from(section.starts_with('?')), |at| at + 1)
}

/// The key of an option that stands before `main`.
pub(super) fn option(section: &str, main: usize, key: &str) -> Option<Range<usize>> {
    let options = &section[..main];
    let starts = |at: usize| at == 0 || matches!(options.as_bytes()[at - 1], b';' | b'?');
    let mut all = options.match_indices(key).map(|(at, _)| at..at + key.len());
    all.find(|found| starts(found.start) && options[found.end..].starts_with('='))
}

/// A word of the definition by its number.
fn word(section: &str, main: usize, index: usize) -> Option<Range<usize>> {
    let word = section[main..].split_ascii_whitespace().nth(index)?;
    let start = word.as_ptr() as usize - section.as_ptr() as usize;
    Some(start..start + word.len())
}
