//! Formats taken apart, and a few of them kept: a script that prints a line for each event prints it a million times.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::Spec;
use super::spec::Plain;

/// Formats that a thread keeps, and the longest of them.
const KEPT: usize = 16;
const LONG: usize = 1024;

/// A format, as far as it can be obeyed.
#[derive(Debug)]
pub(crate) struct Format {
    text: Box<[u8]>,
    /// Conversions, each with the text in front of it.
    pub(super) pieces: Vec<Piece>,
    /// What is behind the last.
    pub(super) rest: Range<usize>,
    /// Where in the rest a `%` begins no conversion, and why.
    pub(super) wrong: Option<(usize, &'static str)>,
}

/// A conversion, and the text in front of it.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) before: Range<usize>,
    pub(super) spec: Spec,
    pub(super) plain: Option<Plain>,
    /// The conversion's own text.
    pub(super) text: Range<usize>,
}

impl Format {
    pub(super) fn parse(text: &[u8]) -> Format {
        let (mut pieces, mut from, mut wrong) = (Vec::new(), 0, None);
        while let Some(at) = text[from..].iter().position(|byte| *byte == b'%') {
            let at = from + at;
            match Spec::parse(&text[at..]) {
                Ok((spec, used)) => {
                    pieces.push(Piece { before: from..at, plain: spec.plain(), spec, text: at..at + used })
                }
                Err(why) => {
                    wrong = Some((at, why));
                    break;
                }
            }
            from = at + pieces.last().map_or(0, |piece| piece.text.len());
        }
        Format { text: text.into(), pieces, rest: from..text.len(), wrong }
    }

    pub(super) fn text(&self, range: &Range<usize>) -> &[u8] {
        &self.text[range.clone()]
    }
}

thread_local! {
    /// The formats that this thread used last, found by what they say: the program may change the memory that they are in.
    static RECENT: RefCell<Vec<Rc<Format>>> = const { RefCell::new(Vec::new()) };
}

impl Format {
    /// A format, taken apart now or lately.
    pub(crate) fn of(text: &[u8]) -> Rc<Format> {
        RECENT.with_borrow_mut(|recent| {
            if let Some(known) = recent.iter().find(|format| *format.text == *text) {
                return Rc::clone(known);
            }
            let format = Rc::new(Format::parse(text));
            if text.len() <= LONG {
                recent.truncate(KEPT - 1);
                recent.insert(0, Rc::clone(&format));
            }
            format
        })
    }
}
