//! Superinstructions: what one handler of the threaded driver executes in place of several instructions.
//!
//! [`ROWS`](table::ROWS) has a row for each: its name, what it replaces and why. From it come the layout of threaded code,
//! [`SuperinstructionSet`], what `twinbpf disasm --stats` counts, and `docs/superinstructions.md`.

mod patterns;
mod set;
mod table;

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::handlers::Handler;
use super::kind::Kind;
use super::operands::Operands;
use super::unit::Unit;

pub use set::{SuperinstructionSet, SuperinstructionSetError, SuperinstructionUse};
use table::ROWS;

/// A superinstruction of the interpreter, for statistics and documentation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Superinstruction {
    /// The name in options and statistics.
    pub name: &'static str,
    /// The sequences of instructions that it executes, in mnemonics of the assembler or as code. `A → B`: the second reads what the
    /// first computes.
    pub replaces: Vec<String>,
    /// Which code has the sequence, and what it saves.
    pub reason: &'static str,
}

impl Superinstruction {
    /// All of them, in the order of the table.
    pub fn all() -> &'static [Superinstruction] {
        static ALL: LazyLock<Vec<Superinstruction>> = LazyLock::new(|| {
            let info = |row: &Row| Superinstruction { name: row.name, replaces: row.replaces(), reason: row.reason };
            ROWS.iter().map(info).collect()
        });
        &ALL
    }
}

/// A row of the table.
struct Row {
    name: &'static str,
    pattern: Pattern,
    reason: &'static str,
}

type Fold = fn(&Unit, &Unit) -> Option<(Kind, Operands)>;
type Triple = fn(&[Unit]) -> Option<Handler>;

/// How a superinstruction is found in a sequence of operations. None reaches over an operation that something jumps to.
enum Pattern {
    /// Two operations that become one of the instruction set's own. The text is an example.
    Fold(Fold, &'static str),
    /// A handler for the first three operations. The text is an example.
    Triple(Triple, &'static str),
    /// Pairs of operations with a handler for both.
    Pairs(&'static [Pair]),
}

/// What a pair is found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    first: Kind,
    second: Kind,
    link: Link,
}

/// How the second operation of a pair depends on the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Link {
    /// It need not.
    Any,
    /// It reads the result of the first as its left operand or base.
    Fed,
}

/// Two operations that share a handler.
struct Pair {
    key: Key,
    /// The handler, unless the second jumps back.
    forward: Handler,
    back: Handler,
}

impl Row {
    fn replaces(&self) -> Vec<String> {
        match self.pattern {
            Pattern::Fold(_, text) | Pattern::Triple(_, text) => vec![text.to_owned()],
            Pattern::Pairs(pairs) => pairs.iter().map(Pair::text).collect(),
        }
    }
}

impl Pair {
    fn text(&self) -> String {
        let Key { first, second, link } = self.key;
        let sign = match link {
            Link::Any => ", ",
            Link::Fed => " → ",
        };
        format!("{}{sign}{}", first.mnemonic(), second.mnemonic())
    }
}

/// The rows by pattern, each with its position in the table.
struct Index {
    folds: Vec<(usize, Fold)>,
    triples: Vec<(usize, Triple)>,
    pairs: HashMap<Key, (usize, &'static Pair)>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { folds: Vec::new(), triples: Vec::new(), pairs: HashMap::new() };
    for (row, found) in ROWS.iter().enumerate() {
        match found.pattern {
            Pattern::Fold(fold, _) => index.folds.push((row, fold)),
            Pattern::Triple(triple, _) => index.triples.push((row, triple)),
            Pattern::Pairs(pairs) => index.pairs.extend(pairs.iter().map(|pair| (pair.key, (row, pair)))),
        }
    }
    index
});

/// One operation that does what two do, if the set has it, and its row.
pub(super) fn find_fold(set: SuperinstructionSet, first: &Unit, second: &Unit) -> Option<(usize, (Kind, Operands))> {
    let folds = INDEX.folds.iter().filter(|(row, _)| set.has(*row));
    folds.copied().find_map(|(row, fold)| Some((row, fold(first, second)?)))
}

/// The row and the handler of the three operations at the start of `units`.
pub(super) fn find_triple(set: SuperinstructionSet, units: &[Unit]) -> Option<(usize, Handler)> {
    let triples = INDEX.triples.iter().filter(|(row, _)| set.has(*row));
    triples.copied().find_map(|(row, triple)| Some((row, triple(units)?)))
}

/// The row and the handler of a pair. One in which the second reads the result of the first comes before one in which it may do
/// anything.
pub(super) fn find_pair(set: SuperinstructionSet, first: &Unit, second: &Unit) -> Option<(usize, Handler)> {
    let key = |link| Key { first: first.kind, second: second.kind, link };
    let find = |link| INDEX.pairs.get(&key(link)).filter(|(row, _)| set.has(*row));
    let fed = if first.feeds(second) { find(Link::Fed) } else { None };
    let (row, pair) = fed.or_else(|| find(Link::Any))?;
    Some((*row, if second.jumps_back() { pair.back } else { pair.forward }))
}
