//! Formats taken apart, and a few of them kept: a script that prints a line for each event prints it a million times.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::Spec;
use super::spec::Plain;
use crate::mem::{Fault, View};

/// Formats that a thread keeps, and the longest of them.
const KEPT: usize = 16;
const LONG: usize = 1024;

/// A format, as far as it can be obeyed.
#[derive(Debug)]
pub(crate) struct Format {
    /// With its NUL.
    text: Box<[u8]>,
    /// Conversions, each with the text before it.
    pub(super) pieces: Vec<Piece>,
    /// The text after the last.
    pub(super) rest: Range<usize>,
    /// Where in the rest a `%` begins no conversion, and why.
    pub(super) wrong: Option<(usize, &'static str)>,
}

/// A conversion, and the text before it.
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
        Format { text: [text, b"\0"].concat().into(), pieces, rest: from..text.len(), wrong }
    }

    pub(super) fn text(&self, range: &Range<usize>) -> &[u8] {
        &self.text[range.clone()]
    }
}

thread_local! {
    /// The formats that this thread used last, and where they were: the program may change the memory that they are in.
    static RECENT: RefCell<Vec<(u64, Rc<Format>)>> = const { RefCell::new(Vec::new()) };
}

impl Format {
    /// The format at an address, taken apart now or lately.
    pub(crate) fn at(view: &mut View, addr: u64) -> Result<Rc<Format>, Fault> {
        RECENT.with_borrow_mut(|recent| {
            let known = recent.iter().position(|(at, _)| *at == addr);
            if let Some(known) = known {
                let format = &recent[known].1;
                if view.holds(addr, &format.text) {
                    return Ok(Rc::clone(format));
                }
                recent.remove(known);
            }
            let text = view.c_str(addr, u64::MAX)?;
            let format = Rc::new(Format::parse(&text));
            if text.len() <= LONG {
                recent.truncate(KEPT - 1);
                recent.insert(0, (addr, Rc::clone(&format)));
            }
            Ok(format)
        })
    }
}
