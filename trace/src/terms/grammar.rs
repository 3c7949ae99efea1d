//! From text to terms.

use std::ops::{Range, RangeInclusive};

use super::error::{TermError, TermErrorKind as Kind};
use super::event::{EventTerm, NAMES, number};
use super::{Indices, MapTerm, Setting, Terms};

/// The prefix of terms of maps.
const MAP: &str = "map:";

/// Reads the terms of an argument whose file ends at a slash.
pub(super) fn parse(argument: &str, slash: usize) -> Result<Terms, TermError> {
    let mut terms = Terms { text: argument.to_owned(), maps: Vec::new(), event_terms: Vec::new() };
    let body = slash + 1;
    if argument.len() <= body || !argument.ends_with('/') {
        return Err(terms.error(Kind::NoEnd, "OBJ/TERM,TERM/", argument.len()..argument.len()));
    }
    let end = argument.len() - 1;
    for term in pieces(argument, body..end) {
        if argument[term.clone()].starts_with(MAP) {
            let term = map_term(&terms, term)?;
            terms.maps.push(term);
        } else {
            let (found, span) = event_term(&terms, term)?;
            let other = terms.event_terms.iter().find(|(other, _)| other.excludes(found));
            if let Some((other, _)) = other {
                return Err(terms.error(Kind::Twice, format!("there is {other} before"), span));
            }
            terms.event_terms.push((found, span));
        }
    }
    Ok(terms)
}

/// The pieces between commas; none inside of brackets or of an event's own terms ends one.
fn pieces(text: &str, body: Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut start, mut brackets, mut own_terms) = (Vec::new(), body.start, false, false);
    if body.is_empty() {
        return found;
    }
    for (at, letter) in text[body.clone()].char_indices().map(|(at, letter)| (body.start + at, letter)) {
        match letter {
            '[' => brackets = true,
            ']' => brackets = false,
            '/' => own_terms = !own_terms,
            ',' if !brackets && !own_terms => {
                found.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(start..body.end);
    found
}

/// Name and value of a term; the name ends where `=` or the term does.
fn halves(text: &str, term: Range<usize>) -> (Range<usize>, Option<Range<usize>>) {
    match text[term.clone()].find('=') {
        Some(at) => (term.start..term.start + at, Some(term.start + at + 1..term.end)),
        None => (term, None),
    }
}

fn event_term(terms: &Terms, term: Range<usize>) -> Result<(EventTerm, Range<usize>), TermError> {
    let text = &terms.text;
    let (name, value) = halves(text, term.clone());
    match EventTerm::parse(&text[name.clone()], value.clone().map(|value| &text[value])) {
        Some(Ok(found)) => Ok((found, term)),
        Some(Err(why)) => Err(terms.error(Kind::EventValue, why, value.unwrap_or(name))),
        None => {
            let detail = format!("'{}' is no term; event terms are {}", &text[name.clone()], NAMES.join(", "));
            Err(terms.error(Kind::Option, detail, name))
        }
    }
}

fn map_term(terms: &Terms, term: Range<usize>) -> Result<MapTerm, TermError> {
    let text = &terms.text;
    let (left, value) = halves(text, term);
    let named = left.start + MAP.len();
    let invalid = |detail: &str, span| Err(terms.error(Kind::MapOption, detail, span));
    let Some(dot) = text[named..left.end].find('.').map(|at| named + at) else {
        return invalid("a map is followed by .value or .event", left.end..left.end);
    };
    if dot == named {
        return invalid("there is no name of a map", dot..dot);
    }
    let bracket = text[dot..left.end].find('[').map_or(left.end, |at| dot + at);
    let option = dot + 1..bracket;
    let is_value = match &text[option.clone()] {
        "value" => true,
        "event" => false,
        other => return invalid(&format!("'{other}' is neither value nor event"), option),
    };
    let indices = indices(terms, bracket..left.end)?;
    let Some(value_span) = value.filter(|value| !value.is_empty()) else {
        return Err(terms.error(Kind::NoValue, "", left.end..left.end));
    };
    let value = text[value_span.clone()].to_owned();
    Ok(MapTerm {
        map: text[named..dot].to_owned(),
        indices,
        setting: if is_value { Setting::Value(value) } else { Setting::Event(value) },
        map_span: named..dot,
        option_span: dot + 1..left.end,
        value_span,
    })
}

fn indices(terms: &Terms, span: Range<usize>) -> Result<Indices, TermError> {
    let text = &terms.text[span.clone()];
    if text.is_empty() || text == "[all]" {
        return Ok(Indices::All);
    }
    let wrong = |detail: String, span| terms.error(Kind::Indices, detail, span);
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inside = inside.ok_or_else(|| wrong(format!("'{text}' does not end with ]"), span.clone()))?;
    let (mut ranges, mut start) = (Vec::new(), span.start + 1);
    for part in inside.split(',') {
        let part_span = start..start + part.len();
        let range = range(part).map_err(|why| wrong(why, part_span.clone()))?;
        start = part_span.end + 1;
        ranges.push((range, part_span));
    }
    Ok(Indices::Some(ranges))
}

/// `3`, `3...5`, `0x10`.
fn range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once("...").unwrap_or((text, text));
    // What is no index of 32 bits is too large for every map.
    let index = |text: &str| number(text).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    match (index(first), index(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(_), Some(_)) => Err(format!("'{text}' ends before it begins")),
        _ => Err(format!("'{text}' is neither N nor N...M")),
    }
}
