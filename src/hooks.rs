//! Programs at functions of this process.
//!
//! A hook has an instance for each of its CPU numbers, and a call takes one that is free for as long as the program runs, so
//! that values of per-CPU maps are never shared, also where a signal handler calls a hooked function during a program.
//! A call never waits: where none is free it runs no program, which is counted.
#![expect(unsafe_code, reason = "callbacks of hooks")]

mod callback;
mod context;
mod sections;
mod slots;

use std::fmt;
use std::num::NonZero;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, PoisonError};

use twinbpf_hook::{Function, Hook, Point};
use twinbpf_loader::{Object, ProgramSpec};
use twinbpf_vm::host::TargetMemory;
use twinbpf_vm::trap::Trap;

use crate::error::{Cause, Error};
use crate::instance::{Entry, InstancePre};
use callback::{Attached, Counts, code_for_fast_path};
use context::{Context, ContextReads};
use slots::Slots;

/// A program that runs where functions of this process begin or return, until this is dropped. Its context is the
/// kernel's `struct pt_regs` of x86-64, as for a uprobe.
///
/// ```no_run
/// # fn report(hook: twinbpf::ProgramHook) {
/// println!("{}: {} calls skipped, {} traps", hook.program(), hook.skipped(), hook.traps());
/// if let Some(trap) = hook.first_trap() {
///     println!("{trap:#}");
/// }
/// # }
/// ```
pub struct ProgramHook {
    // Before the hooks: nothing counts on a probe that is no longer there.
    _users: Vec<Semaphore>,
    hooks: Vec<Hook>,
    counts: Arc<Counts>,
    program: Arc<str>,
}

impl fmt::Debug for ProgramHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramHook").field("program", &self.program).finish_non_exhaustive()
    }
}

/// The instances in which programs run at functions: they share maps, globals and CPU numbers of one [`InstancePre`]. A
/// clone is the same.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use twinbpf::hook::{Module, Point};
/// # use twinbpf::{Config, Engine, HookOptions, Linker, Object, OwnMemory};
/// let object = Object::open("calls.bpf.o", &std::fs::read("calls.bpf.o")?)?;
/// let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
/// let hooks = pre.hooks(&HookOptions::new().memory(Arc::new(OwnMemory::new())), |_| ())?;
/// let functions = Module::find("libc.so.6")?.functions("mem*");
/// let entry = pre.program("count").expect("the object has it");
/// // SAFETY: the C library's functions follow the calling convention.
/// let hook = unsafe { hooks.attach(entry, &functions, Point::Entry) }?;
/// # drop(hook);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hooks<T> {
    pre: InstancePre<T>,
    slots: Arc<Slots<T>>,
    breakpoints: bool,
}

impl<T> Clone for Hooks<T> {
    fn clone(&self) -> Hooks<T> {
        Hooks { pre: self.pre.clone(), slots: Arc::clone(&self.slots), breakpoints: self.breakpoints }
    }
}

impl<T> fmt::Debug for Hooks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("pre", &self.pre).field("slots", &self.slots.len()).finish()
    }
}

/// How programs run at functions.
///
/// ```
/// use std::sync::Arc;
/// use twinbpf::{HookOptions, OwnMemory};
///
/// let options = HookOptions::new().slots(8).memory(Arc::new(OwnMemory::new()));
/// # drop(options);
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct HookOptions {
    slots: u32,
    memory: Option<Arc<dyn TargetMemory>>,
    breakpoints: bool,
}

impl fmt::Debug for HookOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HookOptions { slots, memory, breakpoints } = self;
        let mut text = f.debug_struct("HookOptions");
        text.field("slots", slots).field("memory", &memory.is_some()).field("breakpoints", breakpoints).finish()
    }
}

impl HookOptions {
    /// A slot for each thread that the process has when the slots are made, and one more, at least as many as the machine has
    /// CPUs and at most 64; where the object has per-CPU maps not more than the engine has CPU numbers
    /// ([`Config::cpus`](crate::Config::cpus)). No memory but the program's own.
    pub fn new() -> HookOptions {
        HookOptions::default()
    }

    /// How many calls can run the program at the same time. A call beyond runs none, which is counted. Each takes a CPU
    /// number where the object has per-CPU maps.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> HookOptions {
        self.slots = slots;
        self
    }

    /// What `bpf_probe_read_user` and its relatives read: [`OwnMemory`] for what a uprobe would.
    #[must_use]
    pub fn memory(mut self, memory: Arc<dyn TargetMemory>) -> HookOptions {
        self.memory = Some(memory);
        self
    }

    /// Whether functions may be hooked by a breakpoint where a jump does not fit in ([`Function::or_breakpoint`]).
    #[must_use]
    pub fn breakpoints(mut self, breakpoints: bool) -> HookOptions {
        self.breakpoints = breakpoints;
        self
    }
}

/// The memory of this process, all of it, for programs that read what arguments point to. Addresses that are not
/// mapped are errors of the helper, not faults.
///
/// ```
/// use twinbpf::{OwnMemory, TargetMemory};
///
/// let text = *b"abc";
/// let mut bytes = [0; 3];
/// assert_eq!(OwnMemory::new().read(text.as_ptr().addr() as u64, &mut bytes), 3);
/// assert_eq!(bytes, text);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnMemory(());

impl OwnMemory {
    /// Lets programs read whatever this process has.
    pub fn new() -> OwnMemory {
        OwnMemory(())
    }
}

impl TargetMemory for OwnMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        twinbpf_hook::read_memory(address, bytes)
    }
}

impl<T: Send + 'static> InstancePre<T> {
    /// Instances for programs at functions, with the embedder's data by `data` for each slot.
    ///
    /// # Errors
    ///
    /// As [`InstancePre::instance`].
    pub fn hooks(&self, options: &HookOptions, data: impl Fn(u32) -> T) -> Result<Hooks<T>, Error> {
        let count = if options.slots == 0 { self.slots_for_threads() } else { options.slots };
        let make = |index| {
            let mut instance = self.instance(data(index))?;
            instance.set_target(options.memory.clone());
            let context = Context::new(&instance)?;
            Ok((instance, context))
        };
        let instances: Result<Vec<_>, Error> = (0..count.max(1)).map(make).collect();
        let slots = Arc::new(Slots::new(instances?));
        Ok(Hooks { pre: self.clone(), slots, breakpoints: options.breakpoints })
    }

    /// See [`HookOptions::new`]. A thread that loses its processor in a program keeps its slot: each has one of its own.
    fn slots_for_threads(&self) -> u32 {
        const MOST: usize = 64;
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        let wanted = (cpus.max(threads) + 1).min(MOST) as u32;
        if self.has_per_cpu_maps() { wanted.min(self.engine().config().cpus) } else { wanted }
    }
}

impl<T: Send + 'static> Hooks<T> {
    /// Runs a program where these functions begin or return.
    ///
    /// # Errors
    ///
    /// A function cannot be hooked, or the entry is another [`InstancePre`]'s.
    ///
    /// # Safety
    ///
    /// As [`Hook::attach`]; what the program can do, by host functions, can be done in the place of these functions.
    pub unsafe fn attach(&self, entry: Entry, functions: &[Function], point: Point) -> Result<ProgramHook, Error> {
        // SAFETY: the caller promises.
        unsafe { self.attach_with_cookie(entry, functions, point, 0) }
    }

    /// As [`Hooks::attach`], with what `bpf_get_attach_cookie` returns in these calls.
    ///
    /// # Errors
    ///
    /// As [`Hooks::attach`].
    ///
    /// # Safety
    ///
    /// As [`Hooks::attach`].
    pub unsafe fn attach_with_cookie(
        &self,
        entry: Entry,
        functions: &[Function],
        point: Point,
        cookie: u64,
    ) -> Result<ProgramHook, Error> {
        // SAFETY: the caller promises.
        unsafe { self.attach_to(entry, &[Target { functions: functions.to_vec(), point, cookie, semaphore: None }]) }
    }

    /// The function as the options have it hooked.
    fn allowed(&self, function: &Function) -> Function {
        if self.breakpoints { function.or_breakpoint() } else { function.clone() }
    }

    /// Attaches to all targets, or to none.
    ///
    /// # Safety
    ///
    /// As [`Hooks::attach`].
    unsafe fn attach_to(&self, entry: Entry, targets: &[Target]) -> Result<ProgramHook, Error> {
        let name: Arc<str> = self.pre.name_of(entry).ok_or(Cause::Foreign)?.into();
        let program = self.pre.index_of(entry).ok_or(Cause::Foreign)?;
        let counts = Arc::new(Counts::default());
        let context = self.pre.instructions(entry).map_or(ContextReads::ALL, ContextReads::of);
        let code = code_for_fast_path(&self.pre, entry);
        let mut hooks = Vec::new();
        for target in targets {
            let (slots, counts, cookie) = (Arc::clone(&self.slots), Arc::clone(&counts), target.cookie);
            let callback = Attached { slots, entry, program, counts, context, cookie, code }.callback(&self.pre);
            let functions: Vec<Function> = target.functions.iter().map(|function| self.allowed(function)).collect();
            // SAFETY: the caller promises.
            hooks.push(unsafe { Hook::attach(&functions, target.point, &callback) }?);
        }
        let users = targets.iter().filter_map(|target| target.semaphore.map(Semaphore::raise)).collect();
        Ok(ProgramHook { _users: users, hooks, counts, program: name })
    }

    /// Runs a program at a static probe (USDT) of a file that this process has loaded, wherever its notes say that the probe
    /// is. `cookie` is what `bpf_usdt_cookie` returns. The counter of the probe's users is raised meanwhile.
    ///
    /// # Errors
    ///
    /// There is no such probe; an instruction cannot be hooked, or arguments are in no form that is known; the object has no
    /// maps of `usdt.bpf.h`.
    ///
    /// # Safety
    ///
    /// As [`Hooks::attach`].
    pub unsafe fn attach_usdt(
        &self,
        entry: Entry,
        file: &str,
        provider: &str,
        name: &str,
        cookie: u64,
    ) -> Result<ProgramHook, Error> {
        let targets = sections::static_probe(&self.pre, (file, provider, name), cookie)
            .map_err(|why| Cause::HookSection { section: format!("usdt/{file}:{provider}:{name}"), why })?;
        // SAFETY: the caller promises.
        unsafe { self.attach_to(entry, &targets) }
    }

    /// Attaches all programs of the object whose sections name functions of this process: `uprobe/FILE:FUNC[+OFFSET]`,
    /// `uretprobe/FILE:FUNC`, `.multi` ones with patterns, and `usdt/FILE:PROVIDER:NAME`. `FILE` is a path, or the last part
    /// of one, of a file that the process has loaded.
    ///
    /// # Errors
    ///
    /// As [`Hooks::attach`] and [`Hooks::attach_usdt`]; a section whose file is not loaded, or that names no function; an
    /// object without such programs.
    ///
    /// # Safety
    ///
    /// As [`Hooks::attach`].
    pub unsafe fn attach_sections(&self, object: &Object) -> Result<Vec<ProgramHook>, Error> {
        let mut hooks = Vec::new();
        for program in &object.programs {
            // SAFETY: the caller promises.
            hooks.extend(unsafe { self.attach_section(program) }?);
        }
        let none = || Cause::HookSection { section: object.name.to_string(), why: sections::NONE.to_owned() };
        if hooks.is_empty() { Err(none().into()) } else { Ok(hooks) }
    }

    /// Attaches one program by its section, as [`Hooks::attach_sections`]; nothing where the section is of another kind.
    ///
    /// # Errors
    ///
    /// As [`Hooks::attach_sections`].
    ///
    /// # Safety
    ///
    /// As [`Hooks::attach`].
    pub unsafe fn attach_section(&self, program: &ProgramSpec) -> Result<Option<ProgramHook>, Error> {
        let Some(targets) = sections::targets(self, &program.section, &program.attach.kind) else {
            return Ok(None);
        };
        let Some(entry) = self.pre.program(&program.name) else { return Ok(None) };
        let targets = targets.map_err(|why| Cause::HookSection { section: program.section.to_string(), why })?;
        // SAFETY: the caller promises.
        unsafe { self.attach_to(entry, &targets) }.map(Some)
    }
}

/// Where a program runs.
struct Target {
    functions: Vec<Function>,
    point: Point,
    cookie: u64,
    /// Address of the counter of a static probe's users.
    semaphore: Option<u64>,
}

/// One more user of a static probe, which may prepare its arguments only where there is one.
struct Semaphore(u64);

impl Semaphore {
    fn raise(address: u64) -> Semaphore {
        Semaphore::of(address).fetch_add(1, Ordering::Relaxed);
        Semaphore(address)
    }

    fn of(address: u64) -> &'static AtomicU16 {
        // SAFETY: the file has it for this, and callers of `attach_usdt` promise that it stays loaded.
        unsafe { AtomicU16::from_ptr(std::ptr::with_exposed_provenance_mut(address as usize)) }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        Semaphore::of(self.0).fetch_sub(1, Ordering::Relaxed);
    }
}

impl ProgramHook {
    /// The name of the program.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Calls that ran no program: those that the program's own host functions made, those in signal handlers that
    /// interrupt it, and those without a free slot.
    pub fn skipped(&self) -> u64 {
        self.hooks.iter().map(Hook::skipped).sum::<u64>() + self.counts.skipped.load(Ordering::Relaxed)
    }

    /// Returns that were not seen, as too many were pending.
    pub fn lost_returns(&self) -> u64 {
        self.hooks.iter().map(Hook::lost_returns).sum()
    }

    /// Runs that ended in a trap.
    pub fn traps(&self) -> u64 {
        self.counts.traps.load(Ordering::Relaxed)
    }

    /// The first of these.
    pub fn first_trap(&self) -> Option<Trap> {
        self.counts.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Detaches. See [`Hook::detach`].
    ///
    /// # Errors
    ///
    /// The code of a function could not be changed back.
    pub fn detach(self) -> Result<(), Error> {
        // All of them, and the first error.
        let results: Vec<_> = self.hooks.into_iter().map(Hook::detach).collect();
        results.into_iter().collect::<Result<(), _>>().map_err(Error::from)
    }
}
