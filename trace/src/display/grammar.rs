//! Text of a declaration: settings after commas, `title='Reads by process', sort=value desc, top=10`.

use std::fmt;
use std::ops::Range;

/// What is wrong with a part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) why: String,
    pub(super) span: Range<usize>,
}

impl Fault {
    pub(super) fn new(span: &Range<usize>, why: impl fmt::Display) -> Fault {
        Fault { why: why.to_string(), span: span.clone() }
    }
}

/// A setting as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting<'a> {
    pub(super) name: &'a str,
    pub(super) name_span: Range<usize>,
    /// Without its quotes. `None`: there is no `=`.
    pub(super) value: Option<String>,
    /// That of the name where there is no value.
    pub(super) value_span: Range<usize>,
}

/// The settings in a part of a text.
///
/// # Errors
/// A quote that does not end, words after one, a setting without a name.
pub(super) fn settings(text: &str, part: Range<usize>) -> Result<Vec<Setting<'_>>, Fault> {
    let mut settings = Vec::new();
    let mut rest = part;
    while !text[rest.clone()].trim().is_empty() || !settings.is_empty() {
        let end = end_of_setting(text, &rest)?;
        settings.push(setting(text, rest.start..end)?);
        if end == rest.end {
            break;
        }
        rest.start = end + 1;
    }
    Ok(settings)
}

/// Where the first setting ends: at a comma outside of quotes.
fn end_of_setting(text: &str, rest: &Range<usize>) -> Result<usize, Fault> {
    let mut quote: Option<(usize, char)> = None;
    let mut before = None;
    for (at, char) in text[rest.clone()].char_indices().map(|(at, char)| (rest.start + at, char)) {
        match quote {
            Some((_, open)) if char == open => quote = None,
            Some(_) => {}
            // A quote begins a value; elsewhere it is an apostrophe.
            None if ['"', '\''].contains(&char) && before == Some('=') => quote = Some((at, char)),
            None if char == ',' => return Ok(at),
            None => {}
        }
        if !char.is_whitespace() {
            before = Some(char);
        }
    }
    match quote {
        Some((at, char)) => Err(Fault::new(&(at..rest.end), format_args!("no {char} ends what begins here"))),
        None => Ok(rest.end),
    }
}

fn setting(text: &str, span: Range<usize>) -> Result<Setting<'_>, Fault> {
    let equals = text[span.clone()].find('=').map(|at| span.start + at);
    let name_span = trimmed(text, span.start..equals.unwrap_or(span.end));
    let name = &text[name_span.clone()];
    if name.is_empty() {
        return Err(Fault::new(&name_span, "a setting has a name: NAME or NAME=VALUE"));
    }
    let Some(equals) = equals else {
        return Ok(Setting { name, value_span: name_span.clone(), name_span, value: None });
    };
    let value_span = trimmed(text, equals + 1..span.end);
    let value = &text[value_span.clone()];
    if ["", "''", "\"\""].contains(&value) {
        return Err(Fault::new(&name_span, format_args!("{name}= has no value")));
    }
    let value = match value.chars().next().filter(|quote| ['"', '\''].contains(quote)) {
        None => value,
        Some(quote) => match value[1..].split_once(quote) {
            Some((inside, "")) => inside,
            _ => return Err(Fault::new(&value_span, "a comma follows a quoted value")),
        },
    };
    Ok(Setting { name, name_span, value: Some(value.to_owned()), value_span })
}

/// Without white space at both ends.
pub(super) fn trimmed(text: &str, span: Range<usize>) -> Range<usize> {
    let inside = &text[span.clone()];
    let start = span.start + (inside.len() - inside.trim_start().len());
    start..start + inside.trim().len()
}

#[cfg(test)]
mod tests {
    use super::{Fault, settings};

    fn read(text: &str) -> Vec<(String, Option<String>)> {
        let settings = settings(text, 0..text.len()).unwrap();
        settings.into_iter().map(|setting| (setting.name.to_owned(), setting.value)).collect()
    }

    fn fault(text: &str) -> (String, String) {
        let Fault { why, span } = settings(text, 0..text.len()).unwrap_err();
        (why, text[span].to_owned())
    }

    #[test]
    fn settings_follow_commas() {
        let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        let all = read("title = 'a, \"b\"' ,sort=value desc, clear");
        assert_eq!(all, [pair("title", Some("a, \"b\"")), pair("sort", Some("value desc")), pair("clear", None)]);
        assert_eq!(read("title=Bob's reads, top=3"), [pair("title", Some("Bob's reads")), pair("top", Some("3"))]);
        assert_eq!(read("  "), []);
    }

    #[test]
    fn malformed_settings_are_marked() {
        assert_eq!(fault("title='a, b"), ("no ' ends what begins here".into(), "'a, b".into()));
        assert_eq!(fault("title='a' b"), ("a comma follows a quoted value".into(), "'a' b".into()));
        assert_eq!(fault("top="), ("top= has no value".into(), "top".into()));
        assert_eq!(fault("top=1, title=''"), ("title= has no value".into(), "title".into()));
        assert_eq!(fault("top=1,"), ("a setting has a name: NAME or NAME=VALUE".into(), String::new()));
        assert_eq!(fault("=1").1, "");
    }
}
