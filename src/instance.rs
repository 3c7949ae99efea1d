//! Running: maps, globals and programs made once, and threads that call them.

use std::any::Any;
use std::fmt;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "jit")]
use twinbpf_jit::{Code, Listing};
use twinbpf_vm::host::native::Native;
use twinbpf_vm::host::{Packet, Reason, Runtime, TargetMemory};
use twinbpf_vm::ident::ProgramId;
use twinbpf_vm::image::Image;
#[cfg(feature = "hook")]
use twinbpf_vm::image::Link;
use twinbpf_vm::interp::{Limits, Machine};
use twinbpf_vm::map::{MapOps, Maps};
use twinbpf_vm::mem::{Block, MemError, RegionKind, RegionSpec};
use twinbpf_vm::trap::{Trap, TrapCode};

use crate::cancel::{CallOptions, CancelToken};
use crate::cpus::{Cpu, PerCpuMaps};
use crate::engine::Engine;
use crate::error::Error;
use crate::object_types::ObjectTypes;
use crate::source::Source;
use crate::watchdog;

/// The maps, globals and programs of an object, ready to run. A clone is the same thing; it can be used from
/// every thread.
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// # let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new())?);
/// # linker.func("report", |_: u64| ());
/// # let pre = linker.instantiate_pre(&object)?;
/// assert_eq!(pre.programs().collect::<Vec<_>>(), ["double_all"]);
/// let other = pre.clone();
/// std::thread::spawn(move || drop(other.instance(Vec::new()))).join().expect("no panic");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct InstancePre<T> {
    inner: Arc<Pre>,
    data: PhantomData<fn(T) -> T>,
}

struct Pre {
    engine: Engine,
    image: Arc<Image>,
    maps: Arc<Maps>,
    per_cpu: PerCpuMaps,
    native: Option<Arc<dyn Native>>,
    source: Source,
    types: ObjectTypes,
    warnings: Vec<String>,
    /// What the map of static probes' specifications has, by number.
    #[cfg(feature = "hook")]
    usdt_specs: std::sync::Mutex<Vec<Vec<u8>>>,
}

/// A program of an [`InstancePre`], found by name. Other instances do not know it.
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// # let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new())?);
/// # linker.func("report", |_: u64| ());
/// # let pre = linker.instantiate_pre(&object)?;
/// let entry = pre.program("double_all").expect("the object has it");
/// assert_eq!(pre.instance(Vec::new())?.call(entry, &[0, 0])?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry(ProgramId);

impl<T> Clone for InstancePre<T> {
    fn clone(&self) -> InstancePre<T> {
        InstancePre { inner: Arc::clone(&self.inner), data: PhantomData }
    }
}

impl<T> fmt::Debug for InstancePre<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pre { source, image, .. } = &*self.inner;
        f.debug_struct("InstancePre").field("object", &source.object).field("image", image).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> InstancePre<T> {
    pub(crate) fn new(
        engine: Engine,
        image: Arc<Image>,
        native: Option<Arc<dyn Native>>,
        maps: Arc<Maps>,
        source: Source,
        types: ObjectTypes,
        warnings: Vec<String>,
    ) -> InstancePre<T> {
        let per_cpu = PerCpuMaps::new(maps.own());
        InstancePre {
            inner: Arc::new(Pre {
                engine,
                image,
                maps,
                per_cpu,
                native,
                source,
                types,
                warnings,
                #[cfg(feature = "hook")]
                usdt_specs: std::sync::Mutex::default(),
            }),
            data: PhantomData,
        }
    }

    #[cfg(feature = "jit")]
    #[doc(hidden)]
    pub fn image(&self) -> &Arc<Image> {
        &self.inner.image
    }

    #[cfg(feature = "jit")]
    pub(crate) fn source(&self) -> &Source {
        &self.inner.source
    }

    pub(crate) fn types(&self) -> &ObjectTypes {
        &self.inner.types
    }

    /// The native code of a program's functions, in text, with what the optimiser's passes did: name and listing of each.
    /// Compiles them for this purpose.
    ///
    /// # Errors
    /// There is no compiler for this machine, or it cannot compile them; or the entry is another [`InstancePre`]'s.
    #[cfg(feature = "jit")]
    pub fn listing(&self, entry: Entry) -> Result<Vec<(Arc<str>, Listing)>, Error> {
        let image = &self.inner.image;
        let code = Code::new(Arc::clone(image), crate::native::options(&self.inner.engine))?;
        let program = image.index_of(entry.0).ok_or(crate::error::Cause::Foreign)?;
        let functions = image.functions().iter().enumerate();
        let own = functions.filter(|(_, function)| function.program as usize == program);
        own.map(|(index, function)| Ok((Arc::clone(&function.name), code.disassemble(index as u32)?))).collect()
    }

    /// The program with this name.
    pub fn program(&self, name: &str) -> Option<Entry> {
        let image = &self.inner.image;
        image.program_index(name).map(|index| Entry(image.program_id(index)))
    }

    /// Name of one of its programs.
    pub(crate) fn name_of(&self, entry: Entry) -> Option<&str> {
        let image = &self.inner.image;
        image.index_of(entry.0).map(|index| &*image.programs()[index].name)
    }

    #[cfg(feature = "hook")]
    pub(crate) fn index_of(&self, entry: Entry) -> Option<usize> {
        self.inner.image.index_of(entry.0)
    }

    /// The instructions of a program's first function.
    #[cfg(feature = "hook")]
    pub(crate) fn instructions(&self, entry: Entry) -> Option<&[twinbpf_isa::Insn]> {
        let image = &self.inner.image;
        let start = image.entry(image.index_of(entry.0)?);
        let function = image.functions().iter().find(|function| function.start as usize == start)?;
        image.insns().get(start..function.end as usize)
    }

    /// Whether no function that a program can call does floating-point arithmetic, which programs cannot do themselves.
    #[cfg(feature = "hook")]
    pub(crate) fn is_without_floats(&self, entry: Entry) -> bool {
        let image = &self.inner.image;
        let Some(program) = image.index_of(entry.0) else { return false };
        let own = image.functions().iter().filter(|function| function.program as usize == program);
        own.flat_map(|function| function.start as usize..function.end as usize).all(|pc| match image.links()[pc] {
            Link::Host(host) => image.hosts()[host as usize].is_without_floats(),
            Link::TailCall => false,
            _ => !matches!(image.insns()[pc], twinbpf_isa::Insn::Callx { .. }),
        })
    }

    /// Whether a program's first function is native by now.
    #[doc(hidden)]
    pub fn is_native(&self, entry: Entry) -> bool {
        let image = &self.inner.image;
        let Some(program) = image.index_of(entry.0) else { return false };
        let function = image.entry_function(program) as u32;
        self.inner.native.as_ref().is_some_and(|native| native.entry(function).is_some())
    }

    /// Where the native code of a program begins.
    #[cfg(feature = "hook")]
    pub(crate) fn native_code(&self, entry: Entry) -> Option<u64> {
        let image = &self.inner.image;
        let function = image.entry_function(image.index_of(entry.0)?) as u32;
        self.inner.native.as_ref().filter(|native| native.is_final(function))?.entry(function)
    }

    #[cfg(feature = "hook")]
    pub(crate) fn has_per_cpu_maps(&self) -> bool {
        !self.inner.per_cpu.is_empty()
    }

    #[cfg(feature = "hook")]
    pub(crate) fn usdt_specs(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.inner.usdt_specs.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Names of all programs, in the order of the object.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.inner.image.programs().iter().map(|program| &*program.name)
    }

    /// The map with this name, without types; data sections have their section's name (`.bss`).
    pub fn map_ops(&self, name: &str) -> Option<&Arc<dyn MapOps>> {
        self.inner.maps.by_name(name).map(|index| &self.inner.maps.own()[index])
    }

    /// What a program has in a register for the map with this name: the first argument of a host function such as
    /// `print_map`.
    pub fn map_handle(&self, name: &str) -> Option<u64> {
        self.inner.maps.by_name(name).map(|index| self.inner.maps.handle(index))
    }

    /// Why programs cannot use the map with this name: its kind exists only in the kernel.
    pub(crate) fn absent(&self, name: &str) -> Option<&str> {
        let maps = &self.inner.maps;
        maps.by_name(name).and_then(|index| maps.absent(maps.handle(index)))
    }

    /// All maps, in the order of the object.
    pub fn maps(&self) -> &[Arc<dyn MapOps>] {
        self.inner.maps.own()
    }

    /// Warnings of linking, which do not stop the requested programs: weak symbols that they call and
    /// nothing defines, other programs of the object that do not link, slots and pointers that stay empty for want
    /// of their program.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// The engine it was made in.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// A thread's own stack and state. Output of programs goes to standard output.
    ///
    /// To programs, an instance is a CPU (`bpf_get_smp_processor_id`): where the object has per-CPU maps, one of its own
    /// until it is dropped; else 0.
    ///
    /// # Errors
    /// There is no memory for its stacks, or as many instances with one of its per-CPU maps live as the engine has CPUs
    /// ([`Config::cpus`](crate::Config::cpus)).
    pub fn instance(&self, data: T) -> Result<Instance<T>, Error> {
        self.make(None, data, Box::new(std::io::stdout()))
    }

    /// As [`InstancePre::instance`], with this CPU number.
    ///
    /// # Errors
    /// Also if the engine has no such CPU, or another instance that shares a per-CPU map is it.
    pub fn instance_on(&self, cpu: u32, data: T) -> Result<Instance<T>, Error> {
        self.make(Some(cpu), data, Box::new(std::io::stdout()))
    }

    pub(crate) fn make(&self, cpu: Option<u32>, data: T, output: Box<dyn Write + Send>) -> Result<Instance<T>, Error> {
        let config = self.inner.engine.config();
        let cpu = self.inner.engine.cpus().take(&self.inner.per_cpu, config.cpus, cpu)?;
        let data: Box<dyn Any + Send> = Box::new(data);
        let runtime = Runtime::new(self.inner.engine.view(), Arc::clone(&self.inner.maps) as _, output, data);
        let runtime = runtime.on_cpu(cpu.number());
        let limits =
            Limits { max_insns: config.max_insns, max_depth: config.max_depth, stack_bytes: config.stack_limit };
        let mut machine = Machine::new(Arc::clone(&self.inner.image), runtime, limits)?;
        machine.set_driver(config.driver);
        machine.set_superinstructions(config.superinstructions);
        machine.set_native(self.inner.native.clone()).map_err(MemError::from)?;
        Ok(Instance { machine, timeout: config.timeout, pre: self.clone(), spare: None, _cpu: cpu })
    }
}

/// One thread's stack and state. Calls programs one after another; globals and maps are shared with the other
/// instances of the same [`InstancePre`].
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object};
/// # let object = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o"))?;
/// # let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new())?);
/// # linker.func("report", |_: u64| ());
/// # let pre = linker.instantiate_pre(&object)?;
/// let entry = pre.program("double_all").expect("the object has it");
/// let mut instance = pre.instance(vec![1])?;
/// instance.data_mut().push(2);
/// let numbers = instance.context(&7_u64.to_le_bytes())?;
/// assert_eq!(instance.call(entry, &[numbers.addr(), 1])?, 1);
/// assert_eq!(numbers.to_vec(0, 8), 14_u64.to_le_bytes());
/// assert_eq!(*instance.data(), [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Instance<T> {
    machine: Machine,
    /// Of the engine's configuration.
    timeout: Option<Duration>,
    pre: InstancePre<T>,
    /// Memory for the next packet.
    spare: Option<Packet>,
    /// Free again for others with the instance.
    _cpu: Cpu,
}

impl<T> fmt::Debug for Instance<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("pre", &self.pre).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Instance<T> {
    /// Calls a program with up to five arguments, and gives its r0. Pointers among the arguments must lead into
    /// the arena: see [`Instance::context`].
    ///
    /// # Errors
    /// The program faulted, or reached a limit of the engine's [`Config`](crate::Config). A [`TrapCode::BadCall`] if the
    /// entry is another [`InstancePre`]'s.
    ///
    /// # Panics
    /// If there are more than five arguments.
    #[inline(always)]
    pub fn call(&mut self, entry: Entry, args: &[u64]) -> Result<u64, Trap> {
        assert!(args.len() <= 5, "a program has at most five arguments");
        self.machine.check_poison()?;
        match self.timeout {
            None => self.machine.run_program(entry.0, registers(args)),
            Some(_) => self.call_within(entry, args),
        }
    }

    /// As [`Instance::call`], with limits of its own and a token that cancels it. Where the engine's
    /// [`Config`](crate::Config) has a limit too, the smaller one counts.
    ///
    /// Neither costs anything in the program. A limit in time is enforced, and a cancellation takes effect, within a
    /// millisecond of the thread's CPU time; not while a host function runs, which can test
    /// [`Caller::check_interrupt`](crate::Caller::check_interrupt). If the call of a host function that itself calls an
    /// instance is to end, that inner call continues unless it has the token too.
    ///
    /// # Errors
    /// As [`Instance::call`]; [`TrapCode::Cancelled`] if the token is cancelled, before or during the call; and
    /// [`TrapCode::LimitUnavailable`], without having run the program, if the system refuses the thread that watches over
    /// limits in time and tokens, or instructions are limited and the engine has native code that does not count them.
    ///
    /// # Panics
    /// As [`Instance::call`].
    pub fn call_with(&mut self, entry: Entry, args: &[u64], options: &CallOptions) -> Result<u64, Trap> {
        assert!(args.len() <= 5, "a program has at most five arguments");
        self.machine.check_poison()?;
        self.run_with(entry, args, options)
    }

    #[inline(never)]
    fn call_within(&mut self, entry: Entry, args: &[u64]) -> Result<u64, Trap> {
        self.run_with(entry, args, &CallOptions::new())
    }

    fn run_with(&mut self, entry: Entry, args: &[u64], options: &CallOptions) -> Result<u64, Trap> {
        let timeout = [options.timeout, self.timeout].into_iter().flatten().min();
        let limits = watchdog::Limits {
            timeout,
            cpu_time: options.cpu_time,
            token: options.token.as_ref().map(CancelToken::flag),
        };
        if options.max_insns.is_some() && self.pre.inner.native.as_ref().is_some_and(|native| !native.counts()) {
            return Err(Trap::new(TrapCode::LimitUnavailable, NO_COUNT));
        }
        let run = |machine: &mut Machine| match options.max_insns {
            None => machine.run_program(entry.0, registers(args)),
            Some(limit) => machine.run_limited(entry.0, registers(args), limit),
        };
        if limits.is_none() {
            return run(&mut self.machine);
        }
        let interrupt = Arc::clone(self.machine.runtime().interrupt());
        let guard = watchdog::arm(&interrupt, limits)?;
        run(&mut self.machine).map_err(|trap| match (trap.code(), guard.reached()) {
            (TrapCode::Timeout, Some(Reason::Timeout)) => {
                trap.with_detail(format!("{:?}", timeout.unwrap_or_default()))
            }
            (TrapCode::Timeout, Some(Reason::CpuTime)) => {
                trap.with_detail(format!("{:?} of CPU time", options.cpu_time.unwrap_or_default()))
            }
            _ => trap,
        })
    }

    /// Memory in the arena that only this instance sees, filled with `bytes`: a context, or an argument that
    /// programs get a pointer to. It goes when the block is dropped.
    pub fn context(&self, bytes: &[u8]) -> Result<Block, Error> {
        let arena = self.pre.engine().arena();
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let spec = RegionSpec {
            owner: self.machine.runtime().view.owner(),
            ..RegionSpec::new("the context", RegionKind::Context, size)
        };
        let block = arena.alloc(spec)?;
        block.write(0, bytes);
        Ok(block)
    }

    /// Instructions that the last call executed. `None` where native code may have run that does not count them: it
    /// does with [`Config::max_insns`](crate::Config::max_insns) only. Of a call that trapped in native code, those
    /// before.
    pub fn insns_executed(&self) -> Option<u64> {
        let functions = self.pre.inner.image.functions().len() as u32;
        let native = self.pre.inner.native.as_ref();
        let counts = |native: &Arc<dyn Native>| native.counts() || (0..functions).all(|f| native.entry(f).is_none());
        native.is_none_or(counts).then(|| self.machine.insns_executed())
    }

    /// The embedder's data.
    pub fn data(&self) -> &T {
        self.machine.runtime().data.downcast_ref().expect("made with this type")
    }

    /// The embedder's data, to be changed.
    pub fn data_mut(&mut self) -> &mut T {
        self.machine.runtime_mut().data.downcast_mut().expect("made with this type")
    }

    /// Has `bpf_probe_read_user` and its relatives read this memory, as in the kernel that of the process at a probe:
    /// [`Segments`](crate::Segments), or what the embedder makes of a process or a core file. Without one they read the
    /// program's own memory.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use twinbpf::{Config, Engine, Linker, Object, Segments};
    /// # use twinbpf_isa::asm;
    /// // Reads eight bytes at 0x7f0000001000 and returns them.
    /// let text = "r1 = r10\nr1 += -8\nr2 = 8\nr3 = 0x7f0000001000 ll\ncall 112\nr0 = *(u64 *)(r10 - 8)\nexit";
    /// let object = Object::from_insns("read", &asm::parse(text)?)?;
    /// let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
    /// let mut instance = pre.instance(())?;
    /// let mut memory = Segments::new();
    /// memory.add(0x7f00_0000_1000, 42_u64.to_le_bytes());
    /// instance.set_target(Some(Arc::new(memory)));
    /// assert_eq!(instance.call(pre.program("main").expect("its name"), &[])?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_target(&mut self, memory: Option<Arc<dyn TargetMemory>>) {
        self.machine.runtime_mut().target = memory;
    }

    /// What the program learns of where it runs.
    #[cfg(feature = "hook")]
    pub(crate) fn set_attachment(&mut self, cookie: u64, address: u64) {
        self.machine.runtime_mut().attachment = twinbpf_vm::host::Attachment { cookie, address };
    }

    /// The machine, and memory for a packet.
    pub(crate) fn machine_and_packet(&mut self) -> (&mut Machine, &mut Option<Packet>) {
        (&mut self.machine, &mut self.spare)
    }

    /// The machine that runs it, for tools that trace it or look into it: not part of what is kept compatible.
    #[doc(hidden)]
    pub fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// What it was made of.
    pub fn pre(&self) -> &InstancePre<T> {
        &self.pre
    }
}

/// Why instructions of a call cannot be limited.
const NO_COUNT: &str = "native code of this engine does not count instructions; give the engine a Config::max_insns, or EngineKind::Interp";

/// Argument registers; those without an argument are 0.
#[inline(always)]
fn registers(args: &[u64]) -> [u64; 5] {
    std::array::from_fn(|index| args.get(index).copied().unwrap_or(0))
}
