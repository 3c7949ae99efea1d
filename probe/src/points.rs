//! From a definition to points: functions by name, lines, offsets.

mod address;
mod args;
mod entry;
mod select;
mod source;

use crate::binary::Binary;
use crate::debug::Die;
use crate::definition::{Definition, Position};
use crate::error::{Error, Refusal};
use crate::expr::Expr;
use crate::site::Site;
use crate::value::{Class, Value};

/// A place in the file's code, and what the definition's arguments are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The function's name, with its scopes.
    pub function: String,
    /// The symbol around the address, and bytes from there.
    pub symbol: Option<(String, u64)>,
    /// Further symbols of the same function.
    pub aliases: Vec<String>,
    /// Address of the instruction, as the file has it.
    pub address: u64,
    /// Where the instruction is in the file, which is what uprobes take.
    pub offset: u64,
    /// Path and line.
    pub source: Option<(String, u32)>,
    /// The function that has the code, if this is an inlined copy.
    pub inlined_in: Option<String>,
    /// Whether it is taken when the function returns.
    pub is_return: bool,
    /// Whether it was moved from the function's entry, since arguments have their places only after the prologue.
    pub after_prologue: bool,
    /// First instruction of the function that has the code: where the registers of [`crate::Expr::Entry`] are to be taken.
    pub entry: Option<u64>,
    /// Where a value needs registers at the entry: the canonical frame address, which is that of the same call there.
    pub cfa: Option<Expr>,
    /// Each argument's name, and its value or why there is none.
    pub args: Vec<(String, Result<Value, Refusal>)>,
}

/// A variable that is there at a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// The variable's name.
    pub name: String,
    /// Its type in the source language.
    pub ty: String,
    /// Whether it is a parameter.
    pub is_parameter: bool,
    /// Its value, if it is a single one and has a place.
    pub value: Result<Value, Refusal>,
}

/// Where a point will be.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// The function with the code and the function or inlined copy that is meant, if the debug information has them.
    dies: Option<(Die, Die)>,
    entry: u64,
    end: u64,
    pc: u64,
    /// Range of the copy that is meant, from its first instruction.
    copy: Option<(u64, u64)>,
    view: Option<u64>,
}

impl Target {
    fn site<'b, 'a>(&self, binary: &'b Binary<'a>) -> Option<Site<'b, 'a>> {
        let (function, _) = self.dies?;
        let Target { entry, end, pc, copy, view, .. } = *self;
        Some(Site { binary, function, entry, end, pc, copy, view, depth: 0 })
    }
}

impl<'a> Binary<'a> {
    /// The points of a definition, in the order of their addresses.
    ///
    /// # Errors
    /// No point, or too many. An argument that has no place is an error in its point.
    pub fn probe(&self, definition: &Definition) -> Result<Vec<Point>, Error> {
        let targets = select::targets(self, definition)?;
        definition.limit(targets.len())?;
        Ok(targets.into_iter().map(|target| self.point(definition, target)).collect())
    }

    /// Variables that can be had at each point of a definition, without the definition's arguments.
    ///
    /// # Errors
    /// No point, or too many.
    pub fn available(&self, definition: &Definition) -> Result<Vec<(Point, Vec<Available>)>, Error> {
        let plain = Definition { args: Vec::new(), ..definition.clone() };
        let targets = select::targets(self, &plain)?;
        definition.limit(targets.len())?;
        let mut found = Vec::new();
        for target in targets {
            let (target, variables) = args::available(self, definition, target);
            let moved = target.pc;
            let mut point = self.point(&plain, target);
            point.after_prologue =
                definition.position == Position::Entry && moved != target.entry && point.after_prologue;
            found.push((point, variables));
        }
        Ok(found)
    }

    fn point(&self, definition: &Definition, target: Target) -> Point {
        let (moved, args) = args::all(self, definition, target);
        let is_return = definition.position == Position::Return;
        let begin = self.symbol_over(moved.pc).map(|symbol| symbol.address);
        let mut symbols: Vec<&str> =
            begin.into_iter().flat_map(|begin| self.symbols_at(begin)).map(|symbol| symbol.name).collect();
        let names = target.dies.and_then(|(function, _)| self.index().names(self.debug(), function));
        // The one by which the debug information knows the function is first.
        let own = |symbol: &&str| names.as_ref().is_some_and(|names| names.is_symbol(symbol));
        symbols.sort_by_key(|symbol| !own(symbol));
        let covering = symbols.first().zip(begin).map(|(name, begin)| ((*name).to_owned(), moved.pc - begin));
        let inner = target.dies.map(|(function, instance)| (self.shown(instance), instance != function, function));
        let function = match &inner {
            Some((Some(name), ..)) => name.clone(),
            _ => covering.as_ref().map_or_else(|| format!("{:#x}", moved.entry), |(name, _)| name.clone()),
        };
        let aliases = symbols.iter().skip(1).map(|name| (*name).to_owned()).collect();
        let needs_entry = args.iter().flat_map(|(_, value)| value).any(|value| value.class() == Class::Entry);
        Point {
            symbol: covering,
            aliases,
            address: moved.pc,
            offset: self.elf().file_offset(moved.pc).unwrap_or(0),
            source: target.dies.and_then(|(outer, _)| source::line_of(self, outer.unit, moved.pc)),
            inlined_in: inner.and_then(|(_, is_copy, outer)| self.shown(outer).filter(|_| is_copy)),
            is_return,
            after_prologue: moved.pc != target.pc,
            entry: target.dies.map(|_| moved.entry),
            cfa: needs_entry.then(|| moved.site(self)?.cfa().ok()).flatten(),
            function,
            args,
        }
    }

    fn shown(&self, function: Die) -> Option<String> {
        self.index().names(self.debug(), function).map(|names| names.shown())
    }
}
