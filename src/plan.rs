//! Dry run of linking: the resolution of an object's symbols, without an instance.

use std::collections::BTreeSet;

use twinbpf_isa::program::{Binding, Program};
use twinbpf_isa::{CallKind, Insn};
use twinbpf_loader::Object;
use twinbpf_vm::map::{MapSpec, kernel_only};

use crate::error::Error;
use crate::linker::Linker;
use crate::resolution::Resolution;
use crate::symbol::{SymbolError, SymbolFault};

/// What [`Linker::check`] finds.
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// let linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// for program in linker.check(&object)?.programs {
///     if let Some(problem) = program.problem {
///         println!("{}: {problem}", object.programs[program.spec].name);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The programs, in the order of the object.
    pub programs: Vec<PlannedProgram>,
    /// What each extern of the object means, in its order.
    pub externs: Vec<Resolution>,
    /// Helpers that programs call by number: name, and whether this machine has it.
    pub helpers: Vec<(String, bool)>,
    /// What [`InstancePre::warnings`](crate::InstancePre::warnings) returns.
    pub warnings: Vec<String>,
}

/// One program of a [`Plan`].
///
/// ```
/// # use twinbpf::{Config, Engine, ErrorKind, Linker, Object};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// linker.func("report", |_: u64, _: u64| {});
/// let program = linker.check(&object)?.programs.remove(0);
/// assert_eq!((&*object.programs[program.spec].name, program.functions), ("double_all", 1));
/// assert_eq!(program.problem.expect("'report' has one parameter").kind(), ErrorKind::Symbol);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct PlannedProgram {
    /// Index in [`Object::programs`].
    pub spec: usize,
    /// Instructions, with those of the functions it calls.
    pub insns: usize,
    /// Functions, itself included.
    pub functions: usize,
    /// Why it cannot run here.
    pub problem: Option<Error>,
}

impl<T: Send + 'static> Linker<T> {
    /// Says what [`Linker::instantiate_pre`] would do, and makes nothing.
    ///
    /// # Errors
    /// Only what concerns the object as a whole; a program that cannot run is part of the plan.
    pub fn check(&self, object: &Object) -> Result<Plan, Error> {
        let linked = self.link(object, None)?;
        let resolved: Vec<_> = linked.externs.iter().map(|symbol| self.resolve(symbol)).collect();
        let mut warnings = Vec::new();
        let mut programs = Vec::new();
        let mut helpers = BTreeSet::new();
        for failure in linked.failures {
            let problem = Some(failure.error.into());
            programs.push(PlannedProgram { spec: failure.spec, insns: 0, functions: 0, problem });
        }
        for (program, info) in linked.programs.into_iter().zip(&linked.infos) {
            let (insns, functions) = (program.insns.len(), program.functions.len());
            helpers.extend(called_helpers(&program));
            warnings.extend(self.absent_maps(&program, &linked.maps));
            let problem = self.prepare(program, &linked.externs, &resolved, &mut warnings).err();
            programs.push(PlannedProgram { spec: info.spec, insns, functions, problem });
        }
        programs.sort_by_key(|program| program.spec);
        let helpers = helpers.into_iter().map(|id| (self.helper_name(id), self.has_helper(id))).collect();
        Ok(Plan {
            programs,
            externs: resolved.into_iter().map(|(resolution, _)| resolution).collect(),
            helpers,
            warnings,
        })
    }
}

impl<T> Linker<T> {
    /// Says of each map that a program uses and whose kind exists only in the kernel where it is used first.
    pub(crate) fn absent_maps(&self, program: &Program, maps: &[MapSpec]) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let used = program.bindings.iter().filter_map(|(pc, binding)| match binding {
            Binding::Map(map) => Some((*pc, maps.get(*map).filter(|_| seen.insert(*map))?)),
            _ => None,
        });
        let absent = used.filter_map(|(pc, spec)| {
            let why = kernel_only(spec).filter(|_| !self.maps.contains_key(&*spec.name))?;
            Some(SymbolError::new(program, pc, &spec.name, SymbolFault::KernelMap(why)).to_string())
        });
        absent.collect()
    }
}

fn called_helpers(program: &Program) -> impl Iterator<Item = i32> + '_ {
    program.insns.iter().filter_map(|insn| match insn {
        Insn::Call { kind: CallKind::Helper, imm, .. } => Some(*imm),
        _ => None,
    })
}
