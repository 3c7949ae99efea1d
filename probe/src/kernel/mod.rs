//! Functions of a kernel: their points by name, their arguments by its types (BTF) and the calling convention.
//!
//! BTF has prototypes and no places. At a function's first instruction they follow from the ABI (System V for x86-64, 3.2.3), unless
//! the compiler made a copy of it with other parameters, whose symbol then has a suffix (`.isra.0`). Such functions are refused, as
//! are those of which there are several: nothing says which one the types are of.

mod value;

use std::collections::{BTreeSet, HashMap};

use twinbpf_btf::{Btf, FuncProto, Type, TypeId};

use crate::definition::{Base, Definition, Position};
use crate::error::{Error, Refusal, nearest};
use crate::glob;
use crate::machine::Machine;
use crate::points::{Available, Point};
use crate::value::Value;
use value::{Parameter, parameters};

/// The types and symbols of a kernel, or of a module with the types of the kernel below.
pub struct KernelTypes<'a> {
    btf: &'a Btf,
    machine: Machine,
    /// How many symbols of code have the name.
    symbols: HashMap<&'a str, u32>,
}

impl<'a> KernelTypes<'a> {
    /// Of these types; `symbols` are the names of all code, as often as they are there.
    pub fn new(btf: &'a Btf, symbols: impl Iterator<Item = &'a str>, machine: Machine) -> KernelTypes<'a> {
        let mut counts = HashMap::new();
        for symbol in symbols {
            *counts.entry(symbol).or_insert(0) += 1;
        }
        KernelTypes { btf, machine, symbols: counts }
    }

    /// Functions whose names match a pattern: those that have a type and are there once.
    pub fn functions(&self, pattern: &str) -> Vec<&'a str> {
        let mut names: Vec<&str> =
            self.all().filter(|name| glob::matches(pattern, name) && self.symbols.get(name) == Some(&1)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Points of a definition, by name.
    ///
    /// # Errors
    /// No function, too many, or a position other than its beginning and its return.
    pub fn probe(&self, definition: &Definition) -> Result<Vec<Point>, Error> {
        let points = self.selected(definition)?.into_iter().map(|name| {
            let args = definition.args.iter().map(|arg| {
                let value = match (&arg.base, definition.position) {
                    (Base::Return, Position::Return) => self.result(name, &arg.steps, arg.cast),
                    (Base::Return, _) => Err(Refusal::NotAtReturn),
                    (Base::Register(register), _) => self.register(register, &arg.steps, arg.cast),
                    (Base::Symbol(symbol), _) => Err(Refusal::NoDebug(format!(
                        "the kernel's types say nothing of the global {symbol}: read it in the program by __ksym"
                    ))),
                    (Base::Variable(_), Position::Return) => Err(Refusal::AtReturn),
                    (Base::Variable(variable), _) => self.argument(name, variable, &arg.steps, arg.cast),
                };
                (arg.name.clone(), value)
            });
            self.point(definition, name, args.collect())
        });
        Ok(points.collect())
    }

    /// Parameters at each point of a definition.
    ///
    /// # Errors
    /// As [`KernelTypes::probe`].
    pub fn available(&self, definition: &Definition) -> Result<Vec<(Point, Vec<Available>)>, Error> {
        let all = self.selected(definition)?.into_iter().map(|name| {
            let parameters = self.parameters(name).into_iter().filter(|_| definition.position == Position::Entry);
            let one = |parameter: Parameter<'_>| Available {
                name: parameter.name.to_owned(),
                ty: self.btf.type_name(parameter.ty),
                is_parameter: true,
                value: self.argument(name, parameter.name, &[], None),
            };
            (self.point(definition, name, Vec::new()), parameters.map(one).collect())
        });
        Ok(all.collect())
    }

    fn point(&self, definition: &Definition, name: &str, args: Vec<(String, Result<Value, Refusal>)>) -> Point {
        Point {
            function: name.to_owned(),
            symbol: Some((name.to_owned(), 0)),
            aliases: Vec::new(),
            address: 0,
            offset: 0,
            source: None,
            inlined_in: None,
            is_return: definition.position == Position::Return,
            after_prologue: false,
            entry: None,
            cfa: None,
            args,
        }
    }

    /// All functions that have types.
    fn all(&self) -> impl Iterator<Item = &'a str> {
        let btf = self.btf;
        btf.ids().filter(move |id| matches!(btf.type_by_id(*id), Some(Type::Func { .. }))).map(move |id| btf.name(id))
    }

    /// The functions of a definition.
    fn selected(&self, definition: &Definition) -> Result<Vec<&'a str>, Error> {
        let needs =
            |what: &str| Error::NoDebug { what: what.to_owned(), why: "the kernel's types have none".to_owned() };
        match definition.position {
            Position::Entry | Position::Return => {}
            Position::Line(_) => return Err(needs("a line of the kernel")),
            Position::Offset(_) => return Err(needs("a place inside of a function of the kernel")),
        }
        if definition.file.is_some() {
            return Err(needs("a source file of the kernel"));
        }
        let name = definition.function.as_deref().ok_or_else(|| needs("a line of the kernel"))?;
        if !glob::is_pattern(name) {
            return self.function(name).map(|name| vec![name]);
        }
        let names = self.functions(name);
        match names.len() {
            0 => Err(Error::NoMatch(name.to_owned())),
            count => definition.limit(count).map(|()| names),
        }
    }

    /// A function that has a type and is there once.
    fn function(&self, name: &str) -> Result<&'a str, Error> {
        let refuse = |why: String| Err(Error::KernelFunction { function: name.to_owned(), why });
        let found = self.btf.func(name).map(|id| self.btf.name(id));
        match (self.symbols.get(name), found) {
            (Some(1), Some(found)) => Ok(found),
            (Some(1), None) if name.contains('.') => refuse(
                "it is a copy that the compiler made, with parameters that nothing says; name another function of the path"
                    .to_owned(),
            ),
            (Some(1), None) => refuse("the kernel has no type of it: kprobe/FUNCTION attaches without arguments".to_owned()),
            (Some(count), _) => refuse(format!("the kernel has {count} of that name, and nothing says which one is meant")),
            (None, found) => {
                let copies = self.symbols.keys().filter(|symbol| {
                    symbol.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
                });
                let mut copies: Vec<&str> = copies.copied().collect();
                copies.sort_unstable();
                match (copies.first(), found) {
                    (Some(copy), _) => refuse(format!("of it there is only {copy}, whose parameters nothing says")),
                    (None, Some(_)) => refuse("it is inlined wherever it is called: no symbol has its name".to_owned()),
                    (None, None) => {
                        Err(Error::NoFunction { name: name.to_owned(), nearest: nearest(name, self.all()) })
                    }
                }
            }
        }
    }

    /// The different prototypes of a name. pahole gives one symbol those of functions of several files, of which the compiler
    /// has inlined all but one.
    fn protos(&self, name: &str) -> Vec<FuncProto<'a>> {
        let proto = |id| match self.btf.type_by_id(id) {
            Some(Type::Func { proto, .. }) => Some(proto),
            _ => None,
        };
        let ids: BTreeSet<TypeId> = self.btf.funcs(name).filter_map(proto).collect();
        let proto = |id| match self.btf.type_by_id(id) {
            Some(Type::FuncProto(proto)) => Some(proto),
            _ => None,
        };
        ids.into_iter().filter_map(proto).collect()
    }

    /// The parameters of a function, those without a place included.
    fn parameters(&self, name: &str) -> Vec<Parameter<'a>> {
        let each: Vec<Vec<Parameter<'a>>> =
            self.protos(name).iter().map(|proto| parameters(self.btf, self.machine, proto)).collect();
        let mut all: Vec<Parameter<'a>> = Vec::new();
        for parameter in each.iter().flatten() {
            if all.iter().any(|other| other.name == parameter.name) {
                continue;
            }
            let agrees = each.iter().all(|list| list.iter().any(|other| self.are_same(other, parameter)));
            let place = if agrees { parameter.place.clone() } else { Err(Refusal::Passed(differently(each.len()))) };
            all.push(Parameter { place, ..*parameter });
        }
        all
    }

    fn are_same(&self, one: &Parameter<'_>, other: &Parameter<'_>) -> bool {
        let name = |ty| self.btf.type_name(ty);
        (one.name, &one.place) == (other.name, &other.place) && (one.ty == other.ty || name(one.ty) == name(other.ty))
    }
}

/// Why an argument in which functions of one name differ is refused.
fn differently(count: usize) -> String {
    format!(
        "differently by the {count} functions of that name in the kernel's types, and nothing says which one is meant"
    )
}

#[cfg(test)]
mod tests;
