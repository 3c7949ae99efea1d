//! A line of text as tokens. The operators are those of the tables.

use super::Fault;
use crate::{AluOp, Cond, Shape};

/// A token and its column, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Tok<'a>,
    pub(super) col: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tok<'a> {
    /// A name: register, keyword or label.
    Word(&'a str),
    /// A number without its sign.
    Num(u64),
    /// An operator or punctuation.
    Sym(&'static str),
    /// The end of the line.
    End,
}

const PUNCTUATION: [&str; 10] = ["(", ")", "[", "]", ",", ":", "*", "+", "-", "="];

/// The longest operator or punctuation that `text` starts with.
fn symbol(text: &str) -> Option<&'static str> {
    let alu = AluOp::TABLE.iter().filter(|row| row.shape == Shape::Binary).map(|row| row.symbol);
    let all = alu.chain(Cond::TABLE.iter().map(|row| row.symbol)).chain(PUNCTUATION);
    all.filter(|symbol| text.starts_with(symbol)).max_by_key(|symbol| symbol.len())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '@')
}

fn is_comment(text: &str) -> bool {
    text.starts_with([';', '#']) || text.starts_with("//")
}

fn number(text: &str, col: usize) -> Result<u64, Fault> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| Fault::new(col, format!("{text} is not a number of at most 64 bits")))
}

/// The tokens of one line, without comments, closed by [`Tok::End`].
pub(super) fn tokens(line: &str) -> Result<Vec<Token<'_>>, Fault> {
    let mut tokens = Vec::new();
    let (mut rest, mut col) = (line, 1);
    loop {
        let trimmed = rest.trim_start();
        col += rest.chars().count() - trimmed.chars().count();
        rest = trimmed;
        let Some(first) = rest.chars().next().filter(|_| !is_comment(rest)) else {
            tokens.push(Token { kind: Tok::End, col });
            return Ok(tokens);
        };
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        // No operator has more than one letter.
        let operator = if word < 2 { symbol(rest) } else { None };
        let (kind, len) = match operator {
            Some(symbol) => (Tok::Sym(symbol), symbol.len()),
            None if first.is_ascii_digit() => (Tok::Num(number(&rest[..word], col)?), word),
            None if word > 0 => (Tok::Word(&rest[..word]), word),
            None => return Err(Fault::new(col, format!("unexpected character {first:?}"))),
        };
        tokens.push(Token { kind, col });
        // Words, numbers and operators are ASCII: bytes are columns.
        rest = &rest[len..];
        col += len;
    }
}
