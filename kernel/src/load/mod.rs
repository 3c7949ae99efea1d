//! Loading of a linked object into the kernel: creates its maps, then loads its programs one by one.
//!
//! A map or program that cannot be made is a [`Failure`] and leaves alone what does not need it. Nothing is attached
//! here; [`Loaded::target`] says where a program belongs, [`Loaded::open`] brings it there.

mod failure;
mod instance;
mod maps;
mod program;
mod struct_ops;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

pub use failure::{Failure, Why};
pub use instance::InstanceFailure;
pub use program::LoadedProgram;
pub use struct_ops::StructOps;

use twinbpf_loader::Object;
use twinbpf_loader::kernel::{ContextTypes, Fixup, KernelLinked, KernelProgram};

use crate::btf::BtfObject;
use crate::error::Error;
use crate::link::{Options, Pending, Target, TargetError, usdt};
use crate::map::{Map, Shared, unpin};
use crate::probe::{Feature, has};
use crate::prog::Prog;

/// What to do if a map is to be pinned where another object is pinned already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// The map fails, and says in what they differ.
    #[default]
    Strict,
    /// The name goes to a new map.
    Replace,
    /// Maps are neither taken from paths nor pinned there.
    Ignore,
}

/// How to load.
#[derive(Debug, Default)]
pub struct LoadOptions<'a> {
    /// Directory of pinned maps; `/sys/fs/bpf` when empty.
    pub pins: PathBuf,
    /// What to do with differing ones.
    pub pinning: Pinning,
    /// Maps that exist, by index, in place of new ones.
    pub given: BTreeMap<usize, &'a Map>,
    /// Maps that are not created, by index: those that the linker's options name as absent.
    pub absent: BTreeSet<usize>,
    /// Level of the verifier's log for programs that load, too; 0 for none.
    pub log_level: u32,
    /// Programs that `freplace` programs extend, by index in [`twinbpf_loader::Object::programs`].
    pub extended: BTreeMap<usize, &'a Prog>,
}

/// An object in the kernel. What it holds ends with it, unless it is pinned or attached elsewhere.
#[derive(Debug)]
pub struct Loaded {
    /// Name of the object, for messages.
    pub object: Arc<str>,
    /// By index in the linked object; `None` where a map is absent or failed.
    pub maps: Vec<Option<Map>>,
    /// By index in the linked object; `None` where a program failed.
    pub programs: Vec<Option<LoadedProgram>>,
    /// What could not be made, maps first.
    pub failures: Vec<Failure>,
    /// The object's types.
    pub btf: Option<BtfObject>,
    /// Values of `.struct_ops` that can be registered.
    pub struct_ops: Vec<StructOps>,
    /// Memory of arenas, which the kernel wants mapped before programs use them.
    pub arenas: Vec<Shared>,
    /// Where maps were pinned that had no name before. Of an object with failures there are none: they are removed.
    pub new_pins: Vec<PathBuf>,
    usdt: Option<usdt::Specs>,
}

/// Makes the maps of a linked object and loads its programs.
pub fn load(object: &Object, linked: &KernelLinked, options: &LoadOptions<'_>) -> Loaded {
    let mut loading = Loading::new(object, linked, options);
    for program in &linked.programs {
        let loaded = loading.program(program);
        loading.keep(loaded);
    }
    loading.finish()
}

/// An object that is being loaded: its maps exist, its programs follow. For loading variants of a program; else use
/// [`load`].
#[derive(Debug)]
pub struct Loading<'a> {
    object: &'a Object,
    linked: &'a KernelLinked,
    options: &'a LoadOptions<'a>,
    /// Types of modules that functions or variables come from, by name.
    modules: BTreeMap<Arc<str>, Result<OwnedFd, Error>>,
    /// Types of functions on kernels that do not know the tag of context arguments.
    contexts: Option<ContextTypes>,
    /// Why a map is not there.
    missing: BTreeMap<usize, String>,
    loaded: Loaded,
}

impl<'a> Loading<'a> {
    /// Makes the maps.
    pub fn new(object: &'a Object, linked: &'a KernelLinked, options: &'a LoadOptions<'a>) -> Loading<'a> {
        let mut loaded = Loaded {
            object: object.name.clone(),
            maps: Vec::new(),
            programs: Vec::new(),
            failures: Vec::new(),
            btf: None,
            struct_ops: Vec::new(),
            arenas: Vec::new(),
            new_pins: Vec::new(),
            usdt: None,
        };
        let contexts = if has(Feature::ContextTag) { None } else { object.context_types(linked) };
        for mismatch in contexts.iter().flat_map(|contexts| &contexts.mismatches) {
            log::warn!("{}: {mismatch}", object.name);
        }
        let types = contexts.as_ref().map_or_else(|| object.kernel_btf(), |contexts| Some(contexts.btf.clone()));
        match types.map(|types| BtfObject::load(&types, &object.name)).transpose() {
            Ok(btf) => loaded.btf = btf,
            // Without the privilege for it nothing else can be loaded either, and that is reported.
            Err(error) if error.errno() == Some(libc::EPERM) => log::debug!("{error:#}"),
            // What keeps a program from being linked may be wrong in the types, too.
            Err(error) if !linked.failures.is_empty() => log::debug!("{error:#}"),
            // Programs load without, unless they need it, and then the verifier says so.
            Err(error) => log::warn!("{error:#}"),
        }
        let mut loading =
            Loading { object, linked, options, modules: BTreeMap::new(), contexts, missing: BTreeMap::new(), loaded };
        let fixups = linked.programs.iter().flat_map(|program| program.fixups.values());
        let variables = fixups.filter_map(|fixup| match fixup {
            Fixup::ModuleTypes(module) => Some(module),
            Fixup::Map(_) | Fixup::MapValue(_) => None,
        });
        for name in linked.fd_array.iter().chain(variables) {
            loading.modules.entry(name.clone()).or_insert_with(|| crate::btf::of_kernel(name));
        }
        loading.make_maps();
        loading.make_struct_ops();
        loading
    }

    /// Loads one program, perhaps a variant of one of the linked object's.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn program(&self, program: &KernelProgram) -> Result<LoadedProgram, Box<Failure>> {
        program::load(self, program)
    }

    /// Puts the next program of the linked object, or its failure, to the others.
    fn keep(&mut self, loaded: Result<LoadedProgram, Box<Failure>>) {
        match loaded {
            Ok(program) => self.loaded.programs.push(Some(program)),
            Err(failure) => {
                self.loaded.programs.push(None);
                self.loaded.failures.push(*failure);
            }
        }
    }

    /// The maps made so far.
    pub fn maps(&self) -> &[Option<Map>] {
        &self.loaded.maps
    }

    /// What there is, with slots of prog arrays filled.
    pub fn finish(mut self) -> Loaded {
        self.fill_prog_arrays();
        let specs = self.loaded.map(twinbpf_loader::usdt::SPECS).map(usdt::Specs::new);
        match specs.transpose() {
            Ok(specs) => self.loaded.usdt = specs,
            Err(error) => log::warn!("{error}"),
        }
        if !self.loaded.failures.is_empty() {
            unpin(&std::mem::take(&mut self.loaded.new_pins));
        }
        self.loaded
    }
}

impl Loaded {
    /// A map by the name it has in the object.
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.maps.iter().flatten().find(|map| map.info().name == name)
    }

    /// A program by the name of its function.
    pub fn program(&self, name: &str) -> Option<&LoadedProgram> {
        self.programs.iter().flatten().find(|program| program.prog.name() == name)
    }

    /// Where its section says that a program belongs; `None` where that is the caller's choice.
    ///
    /// # Errors
    /// The section says something that cannot be.
    pub fn target(&self, program: &LoadedProgram) -> Result<Option<Target>, TargetError> {
        Target::of_section(&program.attach.kind)
    }

    /// Prepares a program to run at its target.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(&self, program: &LoadedProgram, target: &Target, options: &Options<'_>) -> Result<Pending, Error> {
        let usdt = options.usdt.or(self.usdt.as_ref());
        target.open(&program.prog, &Options { usdt, ..options.clone() })
    }
}
