//! Errors of declarations.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::grammar::Fault;
use crate::marked::marked;

/// A declaration that cannot be read, or does not fit its map. The text has a caret under the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DisplayError {
    /// Name of the object file.
    pub object: Arc<str>,
    /// Where it is declared, as in `map calls` or `section config`.
    pub place: String,
    /// The reason, in words.
    pub why: String,
    /// The declaration, or its line.
    pub text: String,
    /// The part of it that is wrong, in bytes.
    pub span: Range<usize>,
}

impl DisplayError {
    pub(super) fn new(object: &Arc<str>, place: String, text: &str, fault: Fault) -> DisplayError {
        let Fault { why, span } = fault;
        DisplayError { object: Arc::clone(object), place, why, text: text.to_owned(), span }
    }
}

impl fmt::Display for DisplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DisplayError { object, place, why, text, span } = self;
        write!(f, "{object}: {place}: {why}\n{}", marked(text, std::slice::from_ref(span)))
    }
}

impl std::error::Error for DisplayError {}
