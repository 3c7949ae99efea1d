//! The arguments at a point.

use super::{Available, Target, entry};
use crate::binary::Binary;
use crate::code;
use crate::debug::Die;
use crate::definition::{Argument, Base, Definition, Position};
use crate::elf::SymbolKind;
use crate::error::{Refusal, nearest_first};
use crate::expr::Expr;
use crate::locate::Location;
use crate::machine::Machine;
use crate::retval;
use crate::scope::{self, Variable};
use crate::site::Site;
use crate::types::Types;
use crate::value::Value;
use crate::walk::{self, Spot, Start};

type Args = Vec<(String, Result<Value, Refusal>)>;

/// The definition's arguments at a target. Where the prologue stores them, the point moves after it.
pub(super) fn all(binary: &Binary<'_>, definition: &Definition, target: Target) -> (Target, Args) {
    let at = |target: &Target| -> Args {
        let one = |argument: &Argument| (argument.name.clone(), value(binary, definition, target, argument));
        definition.args.iter().map(one).collect()
    };
    let first = at(&target);
    if !needs_move(definition, &target, first.iter().map(|(_, value)| value)) {
        return (target, first);
    }
    match after_prologue(binary, &target) {
        Some(moved) => {
            let args = at(&moved);
            (moved, checked(binary, &moved, args))
        }
        None => (target, first),
    }
}

/// Whether some argument has its place only after the prologue, and the definition leaves the choice.
fn needs_move<'v>(
    definition: &Definition,
    target: &Target,
    mut values: impl Iterator<Item = &'v Result<Value, Refusal>>,
) -> bool {
    matches!(definition.position, Position::Entry | Position::Line(_))
        && target.pc == target.copy.map_or(target.entry, |(begin, _)| begin)
        && values.any(|value| matches!(value, Err(Refusal::Prologue { .. })))
}

/// The first instruction after the prologue of the function or copy, if that is passed once in each call.
fn after_prologue(binary: &Binary<'_>, target: &Target) -> Option<Target> {
    let site = target.site(binary)?;
    let (_, body) = site.stores().filter(|(_, body)| *body < target.copy.map_or(target.end, |(_, end)| end))?;
    (!code::is_branch_target(&site, body)).then_some(Target { pc: body, view: Some(0), ..*target })
}

/// Refuses what the prologue may not have stored.
fn checked(binary: &Binary<'_>, target: &Target, args: Args) -> Args {
    let Some(site) = target.site(binary) else { return args };
    let check =
        |value: Value| if code::is_sure(&site, &value.expr) { Ok(value) } else { Err(Refusal::NotStored(site.pc)) };
    args.into_iter().map(|(name, value)| (name, value.and_then(check))).collect()
}

fn value(binary: &Binary<'_>, definition: &Definition, target: &Target, argument: &Argument) -> Result<Value, Refusal> {
    let is_return = definition.position == Position::Return;
    let site = target.site(binary);
    let site = || site.as_ref().ok_or_else(|| no_debug(binary));
    match &argument.base {
        Base::Register(name) => register(binary, target, argument, name),
        Base::Symbol(name) => symbol(binary, target, argument, name),
        Base::Return if !is_return => Err(Refusal::NotAtReturn),
        Base::Return => {
            if site().is_err() && argument.steps.is_empty() {
                return untyped(binary, target, argument, Expr::Register(binary.machine().returns()[0]));
            }
            let site = site()?;
            let ty = scope::type_of(site, target.dies.map_or(site.function, |(_, instance)| instance))?;
            let spot = Spot::new(retval::place(site, ty)?, false);
            walk::value(site, argument, Start { spot, ty, untyped: 0 })
        }
        Base::Variable(_) if is_return => Err(Refusal::AtReturn),
        Base::Variable(name) => variable(site()?, target, argument, name),
    }
}

fn no_debug(binary: &Binary<'_>) -> Refusal {
    match binary.no_debug() {
        Some(why) => Refusal::NoDebug(format!("it needs debug information: {why}")),
        None => Refusal::NoDebug(
            "the debug information does not have the function; its unit was compiled without -g".to_owned(),
        ),
    }
}

fn variable(site: &Site<'_, '_>, target: &Target, argument: &Argument, name: &str) -> Result<Value, Refusal> {
    let Some((function, instance)) = target.dies else { return Err(no_debug(site.binary)) };
    let variables = visible(site, instance)?;
    let found = variables.iter().find(|variable| variable.name == name).cloned();
    let found = match found {
        Some(found) => Some(found),
        None => scope::global(site, function.unit, name)?,
    };
    let Some(found) = found else {
        let names = variables.into_iter().map(|variable| variable.name).collect();
        return Err(Refusal::NoVariable { name: name.to_owned(), available: nearest_first(name, names) });
    };
    of(site, &found, argument)
}

/// Variables that are there, each name once: the innermost one hides the others. At the beginning, where blocks may begin as
/// well, a parameter hides all.
fn visible(site: &Site<'_, '_>, instance: Die) -> Result<Vec<Variable>, Refusal> {
    let mut variables = scope::variables(site, instance)?;
    let begins = site.pc == site.copy.map_or(site.entry, |(begin, _)| begin);
    let is_own = |variable: &Variable| begins && variable.is_parameter;
    let mut seen: Vec<String> = variables.iter().filter(|one| is_own(one)).map(|one| one.name.clone()).collect();
    variables.reverse();
    variables.retain(|variable| {
        let is_new = is_own(variable) || !seen.contains(&variable.name);
        seen.push(variable.name.clone());
        is_new
    });
    variables.reverse();
    Ok(variables)
}

fn of(site: &Site<'_, '_>, variable: &Variable, argument: &Argument) -> Result<Value, Refusal> {
    let ty = scope::type_of(site, variable.die)?;
    // A name that the type does not have is the clearer error, whatever the place is.
    let place = site.place(variable.die).and_then(|place| entry::passed(site, variable, place));
    let is_llvm = site.binary.is_llvm(variable.die.unit);
    let start = |place| Start { spot: Spot::new(place, is_llvm), ty, untyped: 0 };
    match place {
        Ok(place) => walk::value(site, argument, start(place)),
        Err(refusal) => match walk::value(site, argument, start(Location::Nowhere)) {
            Err(Refusal::OptimisedOut) | Ok(_) => Err(refusal),
            Err(other) => Err(other),
        },
    }
}

/// A value without a type of its own.
fn untyped(binary: &Binary<'_>, target: &Target, argument: &Argument, expr: Expr) -> Result<Value, Refusal> {
    let site = target.site(binary).unwrap_or(plain_site(binary, target));
    walk::value(&site, argument, Start { spot: Spot::new(Location::Value(expr), false), ty: None, untyped: 8 })
}

/// A site without debug information: only places that need none are evaluated there.
fn plain_site<'b, 'a>(binary: &'b Binary<'a>, target: &Target) -> Site<'b, 'a> {
    let function = Die { unit: usize::MAX, offset: gimli::UnitOffset(0) };
    let Target { entry, end, pc, view, .. } = *target;
    Site { binary, function, entry, end, pc, copy: None, view, depth: 0 }
}

fn register(binary: &Binary<'_>, target: &Target, argument: &Argument, name: &str) -> Result<Value, Refusal> {
    let register = binary.machine().register(name).ok_or_else(|| Refusal::NoRegister(name.to_owned()))?;
    untyped(binary, target, argument, Expr::Register(register))
}

fn symbol(binary: &Binary<'_>, target: &Target, argument: &Argument, name: &str) -> Result<Value, Refusal> {
    let (plain, offset) = match name.split_once('+') {
        Some((plain, offset)) => (plain, parse(offset).ok_or_else(|| Refusal::NoSymbol(name.to_owned()))?),
        None => (name, 0),
    };
    let mut found = binary.symbols().iter().filter(|symbol| symbol.name == plain && symbol.kind == SymbolKind::Data);
    let first = found.next().ok_or_else(|| Refusal::NoSymbol(name.to_owned()))?;
    if found.any(|other| other.address != first.address) {
        return Err(Refusal::NoSymbol(format!("{name} that is the only one: there are several")));
    }
    let site = target.site(binary).unwrap_or(plain_site(binary, target));
    let place = Location::Memory(Expr::Address(first.address.wrapping_add(offset)));
    let variable = match target.dies {
        Some((function, _)) if offset == 0 => scope::global(&site, function.unit, plain)?,
        _ => None,
    };
    let ty = variable.map(|variable| scope::type_of(&site, variable.die)).transpose()?.flatten();
    let untyped = if matches!(first.size, 1 | 2 | 4 | 8) && offset == 0 { first.size } else { 8 };
    walk::value(&site, argument, Start { spot: Spot::new(place, false), ty, untyped })
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The variables that are there, with their values; the target moves as for arguments.
pub(super) fn available(binary: &Binary<'_>, definition: &Definition, target: Target) -> (Target, Vec<Available>) {
    let Some(site) = target.site(binary) else { return (target, Vec::new()) };
    let at = |site: &Site<'_, '_>| -> Vec<Available> {
        let instance = target.dies.map_or(site.function, |(_, instance)| instance);
        let variables = visible(site, instance).unwrap_or_default();
        variables.iter().map(|variable| describe(site, variable)).collect()
    };
    let first = at(&site);
    let parameters = first.iter().filter(|one| one.is_parameter).map(|one| &one.value);
    if binary.machine() == Machine::X86_64 || needs_move(definition, &target, parameters.clone()) {
        let moved = after_prologue(binary, &target).filter(|_| needs_move(definition, &target, parameters));
        if let Some((moved, site)) = moved.and_then(|moved| Some((moved, moved.site(binary)?))) {
            let check = |one: Available| {
                let sure = one.value.as_ref().is_ok_and(|value| code::is_sure(&site, &value.expr)) || !one.is_parameter;
                let value = if sure { one.value } else { one.value.and(Err(Refusal::NotStored(site.pc))) };
                Available { value, ..one }
            };
            return (moved, at(&site).into_iter().map(check).collect());
        }
    }
    (target, first)
}

fn describe(site: &Site<'_, '_>, variable: &Variable) -> Available {
    let ty = scope::type_of(site, variable.die);
    let name = match &ty {
        Ok(ty) => Types { binary: site.binary }.name(*ty),
        Err(_) => "a type that cannot be read".to_owned(),
    };
    let argument = Argument {
        name: variable.name.clone(),
        text: variable.name.clone(),
        base: Base::Variable(variable.name.clone()),
        steps: Vec::new(),
        cast: None,
    };
    let value = ty.and_then(|_| of(site, variable, &argument));
    Available { name: variable.name.clone(), ty: name, is_parameter: variable.is_parameter, value }
}
