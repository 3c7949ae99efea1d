//! `.ksyms` and `.kconfig`: what each undefined symbol of an object is in a kernel.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use twinbpf_btf::core_relo::{Budget, types_are_compatible};
use twinbpf_btf::{Btf, Type, TypeId, essential_name};
use twinbpf_isa::program::ExternKind;

use super::{Kernel, Module, RESERVE};
use crate::error::Cause;
use crate::kconfig::{self, Kconfig};
use crate::object::Object;

/// Modules whose functions are called; `off` of a call has 15 bits.
const MAX_FD_ARRAY: usize = i16::MAX as usize;

/// What a symbol is.
#[derive(Clone, Debug)]
pub(super) enum Symbol {
    /// A value at an offset of the `.kconfig` map.
    Value(u32),
    /// A variable that the kernel's types describe; of a module if there is an index.
    Variable { id: TypeId, module: Option<usize> },
    /// The address of a symbol without a type.
    Address(u64),
    /// A function, and the slot of its types in `fd_array`.
    Function { id: TypeId, slot: i16 },
    /// The function that reserves a record of the session's output.
    Output,
    /// A weak one that is not there: libbpf's number for it, and why.
    Absent { rank: usize, why: Cause },
}

/// The symbols of an object, by index.
pub(super) struct Symbols {
    pub(super) found: Vec<Result<Symbol, Cause>>,
    pub(super) fd_array: Vec<Arc<str>>,
    /// Names of all modules, if some variable is in one.
    pub(super) modules: Vec<Arc<str>>,
}

/// A symbol as the object declares it.
struct Wanted {
    name: Arc<str>,
    weak: bool,
    rank: usize,
    /// Type without typedefs and qualifiers; `void` for an address without a type.
    type_id: TypeId,
}

/// Where a type was found.
struct Found<'k> {
    id: TypeId,
    btf: &'k Btf,
    module: Option<usize>,
}

/// What the symbols are that `used` names; the others are left open, so that functions that only scripts call do not
/// cost reading the kernel's types.
pub(super) fn resolve(
    object: &Object,
    kernel: &dyn Kernel,
    kconfig: Option<&Kconfig>,
    used: &BTreeSet<usize>,
    output: bool,
) -> Symbols {
    let symbols = resolve_those(object, kernel, kconfig, |index| used.contains(&index));
    // Modules get their slots from all that is declared, in its order.
    let all = !symbols.fd_array.is_empty();
    let mut symbols = if all { resolve_those(object, kernel, kconfig, |_| true) } else { symbols };
    let reserve = object.externs.iter().position(|symbol| output && &*symbol.name == RESERVE);
    if let Some(index) = reserve {
        symbols.found[index] = Ok(Symbol::Output);
    }
    symbols
}

fn resolve_those(
    object: &Object,
    kernel: &dyn Kernel,
    kconfig: Option<&Kconfig>,
    wanted: impl Fn(usize) -> bool,
) -> Symbols {
    let mut search = Search { object, kernel, budget: Budget::default(), slots: HashMap::new(), fd_array: Vec::new() };
    let unknown = |index: usize| {
        let name = object.externs[index].name.clone();
        Err(Cause::Undeclared { name })
    };
    let mut found: Vec<_> = (0..object.externs.len()).map(unknown).collect();
    let declared = declared(object);
    let mut addresses = Vec::new();
    // In libbpf's order, in which modules get their slots.
    for (rank, index) in kconfig::ranks(object).into_iter().enumerate() {
        let symbol = &object.externs[index];
        if symbol.kind == ExternKind::Kconfig {
            let missing = || Err(Cause::Kconfig { name: symbol.name.clone(), why: "its type is not known".into() });
            let place = kconfig.and_then(|kconfig| kconfig.offset(index));
            found[index] = place.unwrap_or_else(missing).map(Symbol::Value);
            continue;
        }
        let Some((type_id, is_function)) = declared.get(&*symbol.name).copied().filter(|_| wanted(index)) else {
            continue;
        };
        let wanted = Wanted { name: symbol.name.clone(), weak: symbol.weak, rank, type_id };
        if type_id == TypeId::VOID && !is_function {
            addresses.push((index, wanted));
            continue;
        }
        found[index] = if is_function { search.function(&wanted) } else { search.variable(&wanted) };
    }
    for (index, symbol) in search.addresses(addresses) {
        found[index] = symbol;
    }
    let in_module = |found: &Result<Symbol, Cause>| matches!(found, Ok(Symbol::Variable { module: Some(_), .. }));
    let modules = match found.iter().any(in_module) {
        true => kernel.modules().iter().map(|module| module.name.clone()).collect(),
        false => Vec::new(),
    };
    Symbols { found, fd_array: search.fd_array, modules }
}

/// What `.ksyms` declares: type, and whether it is a function.
fn declared(object: &Object) -> HashMap<&str, (TypeId, bool)> {
    let Some(btf) = object.btf.as_deref() else { return HashMap::new() };
    let section = btf.datasec(".ksyms");
    let vars = section.iter().flat_map(|section| section.vars());
    vars.map(|var| (var.name, (btf.resolve(var.type_id).map_or(var.type_id, |(id, _)| id), var.is_func))).collect()
}

struct Search<'a> {
    object: &'a Object,
    kernel: &'a dyn Kernel,
    budget: Budget,
    /// Module to its slot in `fd_array`.
    slots: HashMap<usize, i16>,
    fd_array: Vec<Arc<str>>,
}

impl<'a> Search<'a> {
    fn function(&mut self, wanted: &Wanted) -> Result<Symbol, Cause> {
        let name = essential_name(&wanted.name);
        let Some(found) = self.find(name, Btf::func) else {
            return self.absent(wanted, "no function of the kernel or its modules has this name");
        };
        let Some(Type::Func { proto, .. }) = found.btf.type_by_id(found.id) else {
            return self.absent(wanted, "it has no prototype in the kernel");
        };
        if !self.compatible(wanted, found.btf, proto)? {
            let why = format!("the kernel's function has another prototype, {}", prototype(found.btf, found.id));
            let error = Cause::Ksym { name: wanted.name.clone(), why };
            return if wanted.weak { Ok(Symbol::Absent { rank: wanted.rank, why: error }) } else { Err(error) };
        }
        let slot = match found.module {
            Some(module) => self.slot(module)?,
            None => 0,
        };
        Ok(Symbol::Function { id: found.id, slot })
    }

    fn variable(&mut self, wanted: &Wanted) -> Result<Symbol, Cause> {
        let find = |btf: &Btf, name: &str| btf.var(name).map(|var| var.var_id);
        let Some(found) = self.find(&wanted.name, find) else {
            return self.absent(wanted, "no variable of the kernel or its modules has this name and a type");
        };
        let Some(Type::Var { type_id, .. }) = found.btf.type_by_id(found.id) else {
            return self.absent(wanted, "it has no type in the kernel");
        };
        let at = found.btf.resolve(type_id).map_or(type_id, |(id, _)| id);
        if !self.compatible(wanted, found.btf, at)? {
            let why = format!("it is {} in the kernel", found.btf.type_name(type_id));
            return Err(Cause::Ksym { name: wanted.name.clone(), why });
        }
        Ok(Symbol::Variable { id: found.id, module: found.module })
    }

    fn compatible(&mut self, wanted: &Wanted, btf: &Btf, id: TypeId) -> Result<bool, Cause> {
        let Some(local) = self.object.btf.as_deref() else { return Ok(false) };
        let pair = ((local, wanted.type_id), (btf, id));
        types_are_compatible(pair, &mut self.budget).map_err(Cause::Core)
    }

    fn absent(&self, wanted: &Wanted, why: &str) -> Result<Symbol, Cause> {
        let why = if self.kernel.btf().is_some() { why } else { "the kernel has no types (BTF) to look it up in" };
        let error = Cause::Ksym { name: wanted.name.clone(), why: why.into() };
        if wanted.weak { Ok(Symbol::Absent { rank: wanted.rank, why: error }) } else { Err(error) }
    }

    /// In the kernel's types first, then in those of each module.
    fn find(&self, name: &str, find: impl Fn(&Btf, &str) -> Option<TypeId>) -> Option<Found<'a>> {
        let btf = self.kernel.btf()?;
        if let Some(id) = find(btf, name) {
            return Some(Found { id, btf, module: None });
        }
        let modules: &'a [Module] = self.kernel.modules();
        modules.iter().enumerate().find_map(|(index, module)| {
            Some(Found { id: find(&module.btf, name)?, btf: &module.btf, module: Some(index) })
        })
    }

    fn slot(&mut self, module: usize) -> Result<i16, Cause> {
        if let Some(slot) = self.slots.get(&module) {
            return Ok(*slot);
        }
        let name = self.kernel.modules()[module].name.clone();
        if self.fd_array.len() + 1 >= MAX_FD_ARRAY {
            return Err(Cause::Ksym { name, why: "too many modules are called".into() });
        }
        self.fd_array.push(name);
        let slot = self.fd_array.len() as i16;
        self.slots.insert(module, slot);
        Ok(slot)
    }

    /// Looks up symbols without a type, in one pass over the kernel's list.
    fn addresses(&self, wanted: Vec<(usize, Wanted)>) -> Vec<(usize, Result<Symbol, Cause>)> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut addresses: HashMap<&str, Result<u64, u64>> = HashMap::new();
        let names: HashMap<&str, ()> = wanted.iter().map(|(_, wanted)| (&*wanted.name, ())).collect();
        for line in self.kernel.kallsyms().unwrap_or("").lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let name = if kind == "d" { name.split(".llvm.").next().unwrap_or(name) } else { name };
            let Some((name, ())) = names.get_key_value(name) else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            let known = addresses.entry(name).or_insert(Ok(address));
            if *known != Ok(address) {
                *known = Err(address);
            }
        }
        let answer = |wanted: &Wanted| match addresses.get(&*wanted.name) {
            Some(Ok(address)) => Ok(Symbol::Address(*address)),
            Some(Err(_)) => Err(Cause::Ksym {
                name: wanted.name.clone(),
                why: "the kernel has several symbols of this name".into(),
            }),
            None if wanted.weak => Ok(Symbol::Address(0)),
            None => {
                let why = match self.kernel.kallsyms() {
                    Some(_) => "it is not among the kernel's symbols",
                    None => "the kernel's symbols cannot be read",
                };
                Err(Cause::Ksym { name: wanted.name.clone(), why: why.into() })
            }
        };
        wanted.iter().map(|(index, wanted)| (*index, answer(wanted))).collect()
    }
}

/// A function as C declares it.
fn prototype(btf: &Btf, id: TypeId) -> String {
    let Some(Type::Func { proto, .. }) = btf.type_by_id(id) else { return btf.type_name(id) };
    let Some(Type::FuncProto(of)) = btf.type_by_id(proto) else { return btf.type_name(id) };
    let params: Vec<String> = of.params().map(|param| btf.type_name(param.type_id)).collect();
    format!("{} {}({})", btf.type_name(of.result), btf.name(id), params.join(", "))
}
