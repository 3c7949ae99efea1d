//! From an [`Object`] to programs: each entry function with everything it reaches in one stream.
//!
//! Functions are appended in depth-first order of their call sites, as libbpf's `bpf_object__reloc_code` does,
//! so that instruction streams compare slot by slot. Linking is pure and symbolic: maps, externs and functions
//! become [`Binding`]s.
//!
//! A function whose address is only in a data section (a table of functions) becomes a program of its own, and
//! the pointer leads to its first instruction; one that is an entry anyway is not linked twice. So each program
//! has its own copy of what it calls, and two addresses of one function may differ.
//!
//! A program that cannot be linked is a [`Failure`] and leaves the others alone.

mod layout;
mod relocated;
mod stream;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use twinbpf_isa::program::{Extern, Program};
use twinbpf_vm::map::{ARENA_PAGE, MapSpec, Pointer};

use crate::error::{Cause, Error};
use crate::kconfig::Kconfig;
use crate::kernel::target::Kernel;
use crate::object::{ArenaData, Object, ProgramSpec, Reference, Role};
use crate::section::Attach;
pub(crate) use layout::{Layout, Planner};
pub use relocated::CoreApplied;
pub(crate) use relocated::{CoreTypes, Functions};
use stream::Linker;

/// Instructions that one program may have, those of its functions included; the kernel's limit.
pub const MAX_INSNS: usize = 1_000_000;
/// Instructions that all programs of an object may have together, a function counting for
/// [`FUNCTION_WEIGHT`] more. With bindings and lines that is at most some 250 MB.
pub const MAX_TOTAL_INSNS: usize = 2_000_000;
/// What a function takes besides its instructions, in instructions.
pub const FUNCTION_WEIGHT: usize = 8;
/// Bytes of a stack frame, unless the options say otherwise.
pub const STACK_SIZE: u32 = 512;

/// How to link for the userspace VM.
#[derive(Clone, Debug, Default)]
pub struct LinkOptions {
    /// The kernel that the programs see: its types are those that CO-RE relocates to (if it
    /// has any), its configuration is what `__kconfig` variables hold. Without one, instructions keep what was compiled
    /// and configuration values are undefined symbols.
    pub kernel: Option<Arc<dyn Kernel>>,
    /// Bytes of a stack frame; [`STACK_SIZE`] if `None`. For code compiled with `-mllvm -bpf-stack-size=N`.
    pub stack_size: Option<u32>,
    /// Functions to link besides the entries, by name.
    pub entries: Vec<String>,
}

/// A linked object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Linked {
    /// The programs: entries in the order of the object, then functions that only data points to.
    pub programs: Vec<Program>,
    /// About each program, in the same order.
    pub infos: Vec<ProgramInfo>,
    /// Programs that could not be linked.
    pub failures: Vec<Failure>,
    /// Maps; pointers inside data maps lead to the programs above.
    pub maps: Vec<MapSpec>,
    /// Undefined symbols: the object's, then a weak one for each thing that CO-RE did not find.
    pub externs: Vec<Extern>,
}

/// What a linked program is.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramInfo {
    /// Index in [`Object::programs`].
    pub spec: usize,
    /// What its section says.
    pub attach: Attach,
    /// Why it was linked.
    pub origin: Origin,
}

/// Why a program was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is an entry of the object.
    Entry,
    /// The options name it.
    Named,
    /// A pointer in a data section leads to it.
    Pointed,
}

/// A program that could not be linked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// Index in [`Object::programs`].
    pub spec: usize,
    /// Error of linking the program.
    pub error: Error,
}

impl Linked {
    /// Index of the program with this name; an entry before others.
    pub fn program(&self, name: &str) -> Option<usize> {
        self.programs.iter().position(|program| &*program.name == name)
    }
}

impl Object {
    /// Links every entry of the object and those that the options name.
    ///
    /// # Errors
    ///
    /// [`Cause::NoProgram`] if the options name a function that does not exist. Everything else that is wrong
    /// concerns single programs, see [`Linked::failures`].
    pub fn link(&self, options: &LinkOptions) -> Result<Linked, Error> {
        let roots = self.roots(options)?;
        let kernel = options.kernel.as_deref();
        let kconfig = kernel.map_or_else(|| Kconfig::of_machine(self), |kernel| Kconfig::new(self, kernel, None));
        let types = || match kernel.and_then(|kernel| Some((kernel, kernel.btf()?))) {
            Some((kernel, btf)) => CoreTypes::Some(btf, Arc::from("vmlinux"), Box::new(move || kernel.modules())),
            None => CoreTypes::Own,
        };
        let functions = Functions::relocate(self, 0..self.programs.len(), types);
        let arena = self.arena_data(ARENA_PAGE, true);
        let stack_size = options.stack_size.unwrap_or(STACK_SIZE);
        let mut linker = Linker::new(self, stack_size, functions, kconfig.as_ref(), arena.as_ref());
        let mut result = Linked {
            programs: Vec::new(),
            infos: Vec::new(),
            failures: Vec::new(),
            maps: self.maps.iter().cloned().chain(kconfig.as_ref().map(|kconfig| kconfig.spec.clone())).collect(),
            externs: self.externs.clone(),
        };
        let mut linked = HashMap::new();
        for (spec, origin) in roots {
            match linker.program(spec) {
                Ok(program) => {
                    linked.insert(spec, result.programs.len());
                    result.programs.push(program);
                    let attach = self.programs.get(spec).map(|spec| spec.attach.clone());
                    result.infos.extend(attach.map(|attach| ProgramInfo { spec, attach, origin }));
                }
                Err(error) => result.failures.push(Failure { spec, error }),
            }
        }
        result.externs.append(&mut linker.absent);
        ArenaData::apply(arena.as_ref(), &mut result.maps);
        self.fill_pointers(&linked, arena.as_ref(), &mut result.maps);
        Ok(result)
    }

    fn roots(&self, options: &LinkOptions) -> Result<Vec<(usize, Origin)>, Error> {
        let is_entry = |(_, spec): &(usize, &ProgramSpec)| spec.role == Role::Entry;
        let entries = self.programs.iter().enumerate().filter(is_entry);
        let mut roots: Vec<(usize, Origin)> = entries.map(|(index, _)| (index, Origin::Entry)).collect();
        for name in &options.entries {
            let missing = || Error::new(&self.name, Cause::NoProgram { name: Arc::from(name.as_str()) });
            roots.push((self.program(name).ok_or_else(missing)?, Origin::Named));
        }
        for pointer in &self.pointers {
            match pointer.target {
                Ok(Reference::Address(function) | Reference::Call(function)) => roots.push((function, Origin::Pointed)),
                Ok(Reference::Map(_) | Reference::MapValue { .. } | Reference::Extern(_)) | Err(_) => {}
            }
        }
        let mut first = BTreeMap::new();
        roots.retain(|(spec, _)| first.insert(*spec, ()).is_none());
        Ok(roots)
    }

    fn fill_pointers(&self, linked: &HashMap<usize, usize>, arena: Option<&ArenaData>, maps: &mut [MapSpec]) {
        for pointer in &self.pointers {
            let target = match pointer.target {
                Ok(Reference::Map(map)) => Some(Pointer::Map(map)),
                Ok(Reference::MapValue { map, off }) => {
                    ArenaData::offset(arena, map, off).ok().map(|off| Pointer::MapValue { map, off })
                }
                Ok(Reference::Extern(index)) => Some(Pointer::Extern(index)),
                Ok(Reference::Call(function) | Reference::Address(function)) => {
                    linked.get(&function).map(|program| Pointer::Function { program: *program, pc: 0 })
                }
                Err(_) => None,
            };
            let data = maps.get_mut(pointer.map).and_then(|map| map.data.as_mut());
            if let (Some(data), Some(target)) = (data, target) {
                data.pointers.push((data.start.saturating_add(pointer.off), target));
            }
        }
    }
}
