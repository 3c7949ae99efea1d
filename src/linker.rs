//! From names to things: which host function, map or value a symbol means.
//!
//! Searches for a symbol that the object does not define, in this order: the functions of the embedder, the kernel's
//! helpers and the script functions, the libraries that the user named. For a trusted program the libraries go before
//! the script functions that only copy what C has, such as `strlen`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twinbpf_isa::Insn;
use twinbpf_isa::program::{Binding, Extern, ExternKind, Program, Signature};
use twinbpf_isa::validate::Valid;
use twinbpf_loader::kernel::Kernel;
use twinbpf_loader::{LinkOptions, Linked, Object};
use twinbpf_vm::helper;
use twinbpf_vm::host::native::Native;
use twinbpf_vm::host::{Activation, HostFn, IntoHostFn};
use twinbpf_vm::image::{Image, Resolve, Target};
use twinbpf_vm::map::{MapOps, MapSpec, Maps, Pointer, Slot};
use twinbpf_vm::mem::MemError;
use twinbpf_vm::recover::with_stack;
use twinbpf_vm::trap::{Trap, TrapCode};

use crate::config::EngineKind;
use crate::engine::Engine;
use crate::error::{Cause, Error};
use crate::instance::InstancePre;
use crate::native;
use crate::object_types::ObjectTypes;
use crate::resolution::{Resolution, TAIL_CALL_NAME};
use crate::source::Source;
use crate::symbol::{SymbolError, SymbolFault, check_parameters};

/// Native stack that linking, validating and compiling need.
const STACK: usize = 1 << 20;

/// Names and what they mean. `T` is the data of the instances that will be made.
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// linker.func("report", |n: u64| println!("{n}"));
/// let pre = linker.instantiate_pre(&object)?;
/// assert!(pre.program("double_all").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Linker<T> {
    engine: Engine,
    pub(crate) functions: BTreeMap<Arc<str>, HostFn>,
    /// Names of the embedder's functions that programs call by number.
    pub(crate) numbers: BTreeMap<u32, Arc<str>>,
    pub(crate) maps: BTreeMap<String, Arc<dyn MapOps>>,
    values: BTreeMap<Arc<str>, u64>,
    kernel: Option<Arc<dyn Kernel>>,
    refused: BTreeMap<Arc<str>, Arc<str>>,
    #[cfg(feature = "dl")]
    libraries: Vec<crate::dl::Library>,
    #[cfg(feature = "dl")]
    declarations: crate::dl::Declarations,
    #[cfg(all(feature = "dl", feature = "jit"))]
    compiled: Vec<crate::compiled::Compiled>,
    data: std::marker::PhantomData<fn(T) -> T>,
}

impl<T: Send + 'static> Linker<T> {
    /// A linker that knows the kernel's helpers and the script functions.
    pub fn new(engine: &Engine) -> Linker<T> {
        Linker {
            engine: engine.clone(),
            functions: BTreeMap::new(),
            numbers: BTreeMap::new(),
            maps: BTreeMap::new(),
            values: BTreeMap::new(),
            kernel: None,
            refused: BTreeMap::new(),
            #[cfg(feature = "dl")]
            libraries: Vec::new(),
            #[cfg(feature = "dl")]
            declarations: crate::dl::Declarations::default(),
            #[cfg(all(feature = "dl", feature = "jit"))]
            compiled: Vec::new(),
            data: std::marker::PhantomData,
        }
    }

    /// What its programs will run in.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The functions that it was given, by name.
    pub fn functions(&self) -> impl Iterator<Item = &HostFn> {
        self.functions.values()
    }

    /// Gives programs a function. The closure's type is the declaration: up to five parameters, the first
    /// optionally a [`Caller`](crate::Caller). It goes before a built-in function of the same name (not `bpf_tail_call`), and
    /// before one that this linker was given earlier.
    pub fn func<Params>(&mut self, name: &str, function: impl IntoHostFn<T, Params>) -> &mut Linker<T> {
        self.functions.insert(name.into(), HostFn::typed(name, function));
        self
    }

    /// Has programs call a function of this type that is not here: they can be compiled for a host that has it
    /// ([`InstancePre::object_file`]), and trap if they call it here.
    pub fn elsewhere(&mut self, name: &str, signature: Signature) -> &mut Linker<T> {
        let shared: Arc<str> = name.into();
        let detail = format!("{name} is a function of another host");
        let body = move |_: &mut dyn Activation, _: &[u64; 5]| Err(Trap::new(TrapCode::Unresolved, detail.as_str()));
        self.functions.insert(Arc::clone(&shared), HostFn::new(shared, signature, Arc::new(body)));
        self
    }

    /// Refuses programs that call this function, weak or not, and says what they need: "needs --unsafe".
    pub fn refuse(&mut self, name: &str, why: &str) -> &mut Linker<T> {
        self.refused.insert(name.into(), why.into());
        self
    }

    /// Gives every object that declares a map of this name the same map, instead of one of its own.
    pub fn map(&mut self, name: &str, map: Arc<dyn MapOps>) -> &mut Linker<T> {
        self.maps.insert(name.to_owned(), map);
        self
    }

    /// Gives a symbol that programs load (`extern` without a call, an assembler's constant) this value.
    pub fn value(&mut self, name: &str, value: u64) -> &mut Linker<T> {
        self.values.insert(name.into(), value);
        self
    }

    /// Has programs believe that they run in this kernel: CO-RE relocates them to its types, and `__kconfig` variables
    /// hold its configuration. Without one, instructions keep what was compiled.
    pub fn kernel(&mut self, kernel: Arc<dyn Kernel>) -> &mut Linker<T> {
        self.kernel = Some(kernel);
        self
    }

    /// Lets programs call the functions of a shared library, by path or by the name the system's loader knows.
    ///
    /// # Errors
    /// The library cannot be loaded.
    ///
    /// # Safety
    /// Loading runs the library's initialisers. In an engine of [`Engine::new_trusted`], programs that this linker
    /// instantiates may call any of its functions, with any arguments that the prototype in their object allows, and the
    /// caller answers for what the functions do with that. In a sandbox they call those of [`Linker::declare`], and
    /// arithmetic of the C library.
    #[cfg(feature = "dl")]
    #[expect(unsafe_code, reason = "loads a library")]
    pub unsafe fn library(&mut self, name: &str) -> Result<&mut Linker<T>, Error> {
        // SAFETY: passed on to the caller.
        self.libraries.push(unsafe { crate::dl::Library::open(name) }?);
        Ok(self)
    }

    /// Declares functions of libraries in C: `double f(double, int); long g(void);`. In the sandbox a program can call
    /// a function of a library if it is declared here with scalar types, or known to have no effect but its result (those
    /// of the C library's arithmetic and of `libm`); the prototype in the object must be the same. A trusted program may
    /// call all functions, by the prototypes in its object.
    ///
    /// # Errors
    /// A declaration cannot be read: types are those of C, of `stdint.h`, and pointers.
    ///
    /// # Safety
    /// The functions have these types, and programs may call them at any time with any arguments: they follow none, keep
    /// no file or lock that the host relies on, and do nothing that the host cannot bear.
    #[cfg(feature = "dl")]
    #[expect(unsafe_code, reason = "the caller answers for the prototypes")]
    pub unsafe fn declare(&mut self, prototypes: &str) -> Result<&mut Linker<T>, Error> {
        self.declarations.add(prototypes)?;
        Ok(self)
    }

    /// Has the programs of the object that this was made of run as the code in it, whatever engine runs others.
    /// Every object needs one, once there is any.
    #[cfg(all(feature = "dl", feature = "jit"))]
    pub fn compiled(&mut self, compiled: crate::Compiled) -> &mut Linker<T> {
        self.compiled.push(compiled);
        self
    }

    /// Makes the maps, globals and programs of an object, once for all instances. Of an object that has neither
    /// a script nor programs for the kernel, the programs are its global functions; elsewhere name such functions
    /// with [`Linker::instantiate_programs`].
    ///
    /// # Errors
    /// The first program, in the order of the object, that cannot run here.
    pub fn instantiate_pre(&self, object: &Object) -> Result<InstancePre<T>, Error> {
        self.instantiate(object, None)
    }

    /// As [`Linker::instantiate_pre`], but only the named functions must be able to run. Other programs of the
    /// object come along where they can, as targets of tail calls; of those that cannot, ones that do not even
    /// link are in [`InstancePre::warnings`], the rest goes to the log. A name may be that of any function of the
    /// object.
    pub fn instantiate_programs(&self, object: &Object, names: &[&str]) -> Result<InstancePre<T>, Error> {
        self.instantiate(object, Some(names))
    }

    fn instantiate(&self, object: &Object, names: Option<&[&str]>) -> Result<InstancePre<T>, Error> {
        with_stack(STACK, || self.instantiate_here(object, names)).map_err(MemError::from)?
    }

    /// What [`Linker::instantiate`] does, with enough native stack.
    fn instantiate_here(&self, object: &Object, names: Option<&[&str]>) -> Result<InstancePre<T>, Error> {
        #[cfg(all(feature = "dl", feature = "jit"))]
        let compiled =
            self.compiled_of(object.digest, &object.name)?.map(|compiled| compiled.programs_with(names)).transpose()?;
        #[cfg(all(feature = "dl", feature = "jit"))]
        let names = compiled.as_deref().or(names);
        let linked = self.link(object, names)?;
        self.build(object, linked, names)
    }

    /// Makes everything of what was linked. The programs with these names must be able to run, all of them without names.
    pub(crate) fn build(
        &self,
        object: &Object,
        linked: Linked,
        names: Option<&[&str]>,
    ) -> Result<InstancePre<T>, Error> {
        self.check_functions()?;
        let config = self.engine.config();
        let prepared = self.prepare_all(object, linked, names)?;
        let Prepared { programs, positions, targets, specs, mut warnings } = prepared;

        let index_of = |name: &str| programs.iter().position(|program| &*program.name == name);
        let maps = Arc::new(Maps::with(
            &specs,
            self.engine.arena(),
            config.cpus,
            &mut |_, spec| self.maps.get(&*spec.name).cloned(),
            &mut |name| index_of(name).map(|index| index as u32),
        )?);
        let handles: Vec<u64> = (0..specs.len()).map(|index| maps.handle(index)).collect();
        let values: Vec<u64> = (0..specs.len()).map(|index| maps.addr_of_value(index).unwrap_or(0)).collect();
        let pointed: Vec<usize> = specs.iter().flat_map(pointed_externs).collect();
        let resolve = Resolve {
            maps: &handles,
            values: &values,
            externs: &targets,
            helper: &|number| self.numbered(number),
            labels: &[],
            pointed: &pointed,
        };
        let image = Image::new(self.engine.arena(), programs, resolve)?.with_maps(&maps);
        maps.write_pointers::<Error>(|pointer| {
            Ok(match pointer {
                Pointer::Function { program, pc } => positions
                    .get(program)
                    .and_then(|position| image.function_address(*position, *pc))
                    .unwrap_or_else(|| dangling(&mut warnings, *program)),
                Pointer::Extern(index) => {
                    linked_name(object, *index).and_then(|name| image.host_address(name)).unwrap_or(0)
                }
                Pointer::Map(_) | Pointer::MapValue { .. } => 0,
            })
        })?;
        let (image, source) = (Arc::new(image), Source::new(object, &specs));
        let native = self.native(&image, &source)?;
        let types = ObjectTypes::new(object);
        Ok(InstancePre::new(self.engine.clone(), image, native, maps, source, types, warnings))
    }

    /// What runs the programs of an image besides the interpreter.
    fn native(&self, image: &Arc<Image>, source: &Source) -> Result<Option<Arc<dyn Native>>, Error> {
        #[cfg(all(feature = "dl", feature = "jit"))]
        if let Some(compiled) = self.compiled_of(source.digest, &source.object)? {
            let verify = native::verifies(&self.engine);
            return Ok(Some(compiled.native(image, native::options(&self.engine), source, verify)?));
        }
        let native = native::native(&self.engine, image);
        Ok(native.map_err(|why| Cause::Compile { object: Arc::clone(&source.object), why })?)
    }

    /// The compiled programs of the object with these bytes.
    #[cfg(all(feature = "dl", feature = "jit"))]
    fn compiled_of(&self, digest: u128, object: &Arc<str>) -> Result<Option<&crate::Compiled>, Error> {
        match self.compiled.iter().find(|compiled| compiled.is_of(digest)) {
            None if !self.compiled.is_empty() => Err(self.compiled[0].other(object).into()),
            found => Ok(found),
        }
    }

    pub(crate) fn link(&self, object: &Object, names: Option<&[&str]>) -> Result<Linked, Error> {
        for name in names.unwrap_or(&[]) {
            if object.program(name).is_none() {
                let known = object.programs.iter().map(|program| Arc::clone(&program.name)).collect();
                let (object, name) = (Arc::clone(&object.name), (*name).to_owned());
                return Err(Cause::NoProgram { object, name, known }.into());
            }
        }
        let entries = match names {
            Some(names) => names.iter().map(|name| (*name).to_owned()).collect(),
            None => object.exported().map(str::to_owned).collect(),
        };
        let options = LinkOptions { kernel: self.kernel.clone(), stack_size: self.engine.config().frame_size, entries };
        Ok(object.link(&options)?)
    }

    /// Decides which programs can run, and what every extern is.
    fn prepare_all(&self, object: &Object, linked: Linked, names: Option<&[&str]>) -> Result<Prepared, Error> {
        let mut prepared = Prepared { specs: linked.maps, ..Prepared::default() };
        let needed = |name: &str| names.is_none_or(|names| names.contains(&name));
        for failure in linked.failures {
            let name = object.programs.get(failure.spec).map_or("", |spec| &*spec.name);
            if needed(name) {
                return Err(failure.error.into());
            }
            prepared.warnings.push(failure.error.to_string());
        }
        let resolved: Vec<Resolved> = linked.externs.iter().map(|symbol| self.resolve(symbol)).collect();
        for (index, program) in linked.programs.into_iter().enumerate() {
            let name = Arc::clone(&program.name);
            let mut warnings = self.absent_maps(&program, &prepared.specs);
            match self.prepare(program, &linked.externs, &resolved, &mut warnings) {
                Ok(program) => {
                    prepared.positions.insert(index, prepared.programs.len());
                    prepared.programs.push(program);
                }
                Err(error) if needed(&name) => return Err(error),
                Err(error) => warnings.push(error.to_string()),
            }
            // What concerns programs that were not requested is only of interest to `check`.
            if needed(&name) {
                prepared.warnings.append(&mut warnings);
            } else {
                warnings.iter().for_each(|warning| log::info!("{warning}"));
            }
        }
        prepared.drop_missing_slots();
        let targets = linked.externs.iter().zip(resolved);
        prepared.targets = targets.map(|(symbol, (what, function))| what.target(&symbol.name, function)).collect();
        Ok(prepared)
    }

    /// Validates a program whose externs are all resolved.
    pub(crate) fn prepare(
        &self,
        program: Program,
        externs: &[Extern],
        resolved: &[Resolved],
        warnings: &mut Vec<String>,
    ) -> Result<Valid<Program>, Error> {
        let mut seen = BTreeSet::new();
        for (pc, binding) in &program.bindings {
            let Binding::Extern(index) = *binding else { continue };
            let (Some(symbol), Some((resolution, _))) = (externs.get(index), resolved.get(index)) else { continue };
            let called = matches!(program.insns.get(*pc), Some(Insn::Call { .. }));
            let fault = match resolution {
                Resolution::Fault(why) => return Err(SymbolError::new(&program, *pc, &symbol.name, why.clone()).into()),
                Resolution::Weak => SymbolFault::Weak,
                Resolution::Absent => SymbolFault::Absent,
                Resolution::Host { .. } | Resolution::Value(_) | Resolution::TailCall => continue,
            };
            if called && seen.insert(index) {
                let why = fault(Arc::clone(&symbol.name));
                warnings.push(SymbolError::new(&program, *pc, &symbol.name, why).to_string());
            }
        }
        let program = program.validate(&self.engine.config().policy, &|number| self.helper_exists(number))?;
        if self.engine.config().engine != EngineKind::Interp {
            warnings.extend(native::exceeding(&self.engine, &program));
        }
        Ok(program)
    }

    /// What an extern means here, and the function that it resolves to, if it is one.
    pub(crate) fn resolve(&self, symbol: &Extern) -> Resolved {
        let name = &symbol.name;
        if let Some(value) = self.values.get(name) {
            return (Resolution::Value(*value), None);
        }
        if let Some(why) = self.refused.get(name) {
            return (Resolution::Fault(SymbolFault::Refused { name: Arc::clone(name), why: Arc::clone(why) }), None);
        }
        if &**name == TAIL_CALL_NAME {
            return (Resolution::TailCall, None);
        }
        if let Some(found) = self.of_its_own(symbol) {
            return found;
        }
        let known = self.functions.get(name).cloned().or_else(|| helper::by_name(name));
        if let Some(function) = known {
            return match check_parameters(symbol, &function) {
                Ok(()) => {
                    let signature = function.signature().clone();
                    (Resolution::Host { signature, library: None }, Some(function))
                }
                Err(fault) => (Resolution::Fault(fault), None),
            };
        }
        // Without BTF, a function whose address is taken looks like a variable of the kernel's; hence only now.
        let fault = match symbol.kind {
            ExternKind::Function => match self.in_libraries(symbol) {
                Some(found) => return found,
                None => SymbolFault::Unknown(Arc::clone(name)),
            },
            ExternKind::Absent => return (Resolution::Absent, None),
            ExternKind::Ksym | ExternKind::Kconfig => SymbolFault::Kernel(Arc::clone(name)),
        };
        match symbol.weak && symbol.kind != ExternKind::Kconfig {
            true => (Resolution::Weak, None),
            false => (Resolution::Fault(fault), None),
        }
    }

    /// The function of a library that goes before the script function of the same name: a trusted program gets C's own
    /// `strlen` and `qsort` from a library that the user named.
    fn of_its_own(&self, symbol: &Extern) -> Option<Resolved> {
        let name = &*symbol.name;
        let own = self.trusted() && helper::is_of_c(name) && !self.functions.contains_key(name);
        if own { self.in_libraries(symbol) } else { None }
    }

    fn trusted(&self) -> bool {
        self.engine.is_trusted()
    }

    #[cfg(not(feature = "dl"))]
    fn in_libraries(&self, _: &Extern) -> Option<Resolved> {
        None
    }

    #[cfg(feature = "dl")]
    fn in_libraries(&self, symbol: &Extern) -> Option<Resolved> {
        self.libraries.iter().find_map(|library| {
            let found =
                library.function(&symbol.name, symbol.signature.as_ref(), &self.declarations, self.trusted())?;
            let name = Arc::clone(&symbol.name);
            Some(match found {
                Ok(function) => {
                    let signature = function.signature().clone();
                    (Resolution::Host { signature, library: Some(Arc::clone(library.name())) }, Some(function))
                }
                Err(why) => {
                    let why = why.to_string().into();
                    (Resolution::Fault(SymbolFault::Library { name, why }), None)
                }
            })
        })
    }
}

/// An extern's meaning, and the function that it resolves to, if it is one.
pub(crate) type Resolved = (Resolution, Option<HostFn>);

/// The parts of an instance before anything is made.
#[derive(Default)]
struct Prepared {
    programs: Vec<Valid<Program>>,
    /// Index in the linked object -> index in `programs`.
    positions: BTreeMap<usize, usize>,
    targets: Vec<Target>,
    specs: Vec<MapSpec>,
    warnings: Vec<String>,
}

impl Prepared {
    /// Slots of prog arrays whose program is not there stay empty: tail calls to them fall through.
    fn drop_missing_slots(&mut self) {
        let names: BTreeSet<Arc<str>> = self.programs.iter().map(|program| Arc::clone(&program.name)).collect();
        for spec in &mut self.specs {
            let map = Arc::clone(&spec.name);
            spec.slots.retain(|(slot, content)| match content {
                Slot::Program(name) if !names.contains(name) => {
                    self.warnings.push(format!("slot {slot} of map {map} stays empty: program {name} cannot run here"));
                    false
                }
                Slot::Program(_) | Slot::Map(_) => true,
            });
        }
    }
}

fn pointed_externs(spec: &MapSpec) -> Vec<usize> {
    let pointers = spec.data.iter().flat_map(|data| &data.pointers);
    let externs = pointers.filter_map(|(_, pointer)| match pointer {
        Pointer::Extern(index) => Some(*index),
        Pointer::Function { .. } | Pointer::Map(_) | Pointer::MapValue { .. } => None,
    });
    externs.collect()
}

fn linked_name(object: &Object, index: usize) -> Option<&str> {
    object.externs.get(index).map(|symbol| &*symbol.name)
}

fn dangling(warnings: &mut Vec<String>, program: usize) -> u64 {
    warnings.push(format!("a pointer to program number {program} is null: the program cannot run here"));
    0
}

#[cfg(all(test, feature = "jit", target_arch = "x86_64", target_os = "linux"))]
mod tests;
