//! A machine: one thread's registers, stack and runtime, and the runs on it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::code::Code;
use super::event::{Frame, bad_call};
use super::handlers::{Threaded, takes_no_stack};
use super::native_tier::{FastPath, NativeTier, PreparedRun};
use super::room::Spare;
use super::state::{MAX_LOOPS, State};
use super::trace::Tracer;
use crate::host::{Activation, Runtime};
use crate::ident::ProgramId;
use crate::image::{Callee, FrameSizes, Image};
use crate::mem::{MemError, RegionKind, RegionSpec};
use crate::recover;
use crate::trap::{Backtrace, CallSite, Trap, TrapCode};

/// Values of registers that a program may not rely on. As pointers they are in no sandbox.
pub(super) const POISON: [u64; 11] = {
    let mut poison = [0xdead_dead_dead_de00; 11];
    let mut index = 0;
    while index < poison.len() {
        poison[index] |= index as u64;
        index += 1;
    }
    poison
};

/// The most that [`Limits::max_depth`] can be: native code has 4 KiB of stack for each call, 1 GiB for all of them.
pub const MAX_DEPTH: u32 = 1 << 18;
/// Callbacks inside callbacks, as long as there is native stack.
const MAX_REENTRY: u32 = 128;
/// Places of calls that a trap names.
const MAX_BACKTRACE: usize = 16;
/// Stands for no limit; large enough never to be used up, small enough to add to.
const UNLIMITED: i64 = i64::MAX / 4;

/// What one run may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions; `None` for no limit. Wall-clock time is limited through [`Runtime::interrupt`].
    pub max_insns: Option<u64>,
    /// Functions that have not returned, the entry function included; at most [`MAX_DEPTH`].
    pub max_depth: u32,
    /// Bytes of all frames together.
    pub stack_bytes: u32,
}

impl Default for Limits {
    /// No instruction limit, 1,024 calls, 1 MiB of stack.
    fn default() -> Limits {
        Limits { max_insns: None, max_depth: 1024, stack_bytes: 1 << 20 }
    }
}

/// Which driver executes programs. The results are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// One instruction at a time.
    Step,
    /// Instructions jump to their successors; the step driver takes over when the budget runs low.
    Threaded,
}

impl Default for Driver {
    /// The threaded driver in optimised builds.
    fn default() -> Driver {
        if cfg!(debug_assertions) { Driver::Step } else { Driver::Threaded }
    }
}

/// Whether generated code of a machine is running, or has called a host function, and waits for no answer of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    No,
    Yes,
    /// While the thread is in native code: a prepared run does not set this when it begins.
    Inside,
}

/// Where a run stopped, and why.
pub(super) type Stop = (usize, Trap);

/// What a driver works from.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) image: &'a Image,
    pub(super) code: &'a Code,
}

/// See the module documentation.
///
/// After a trap, also after a panic in a host function, it can be used again: every run starts with an empty
/// stack, and the machine's own state is complete before a host function is entered.
pub struct Machine {
    pub(super) s: State,
    /// Of the interpreter's functions; those of generated code lie between them, see `native`.
    pub(super) frames: Vec<Frame>,
    /// Functions that have not returned, those of generated code included.
    pub(super) depth: u32,
    pub(super) limits: Limits,
    pub(super) tracer: Option<Tracer>,
    /// Instructions left.
    pub(super) remaining: i64,
    pub(super) stack_used: u32,
    pub(super) tail_calls: u32,
    /// pc of the innermost call of a host function.
    pub(super) site: usize,
    /// Run state is not as [`Machine::reset`] leaves it.
    pub(super) dirty: bool,
    /// None while it is dirty.
    pub(super) prepared: Option<PreparedRun>,
    /// Copied from the arena, to read it without a pointer chase.
    poisoned: Arc<AtomicBool>,
    pub(super) running: Running,
    /// Of programs that are compiled.
    pub(super) fast_paths: Vec<Option<FastPath>>,
    pub(super) native: Option<Box<NativeTier>>,
    pub(super) image: Arc<Image>,
    driver: Driver,
    /// Of a machine without some of the superinstructions; others share the image's.
    pub(super) threaded_code: Option<Arc<Threaded>>,
    pub(super) budget: i64,
    pub(super) reentry: u32,
    pub(super) spare: Spare,
}

impl Machine {
    /// A machine for the programs of `image`, with a stack of its own in the image's arena.
    ///
    /// # Errors
    /// The arena has no room for the stack.
    pub fn new(image: Arc<Image>, runtime: Runtime, limits: Limits) -> Result<Machine, MemError> {
        let limits = Limits { max_depth: limits.max_depth.min(MAX_DEPTH), ..limits };
        assert!(Arc::ptr_eq(image.arena(), runtime.view.arena()), "one arena for programs and runtime");
        let FrameSizes { smallest, largest } = image.frame_sizes();
        // Functions without a frame are limited by depth only.
        let frames = limits.stack_bytes.checked_div(smallest).unwrap_or(u32::MAX).clamp(1, limits.max_depth.max(1));
        let spec = RegionSpec {
            stride: image.frame_stride(),
            count: frames,
            owner: runtime.view.owner(),
            ..RegionSpec::new("stack frame", RegionKind::Stack, largest.max(1))
        };
        let (stack, arena_base) = (image.arena().alloc(spec)?, image.arena().base());
        let poisoned = Arc::clone(image.arena().poisoned());
        let (r, trap) = ([0; 16], None);
        let trusted = image.arena().is_trusted();
        let s = State { r, fuel: 0, loops: MAX_LOOPS, live_stack: 0, arena_base, trusted, trap, runtime, stack };
        let mut machine = Machine {
            s,
            frames: Vec::new(),
            depth: 0,
            limits,
            tracer: None,
            remaining: 0,
            stack_used: 0,
            tail_calls: 0,
            site: 0,
            dirty: true,
            prepared: None,
            poisoned,
            running: Running::No,
            fast_paths: Vec::new(),
            native: None,
            image,
            driver: Driver::Step,
            threaded_code: None,
            budget: 0,
            reentry: 0,
            spare: Spare::default(),
        };
        machine.set_driver(Driver::default());
        Ok(machine)
    }

    /// The image it runs.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Whether a run makes sense.
    ///
    /// # Errors
    /// The trap of every run in an arena that is poisoned.
    #[inline(always)]
    pub fn check_poison(&self) -> Result<(), Trap> {
        if self.poisoned.load(Ordering::Relaxed) { Err(poisoned()) } else { Ok(()) }
    }

    /// What host functions see.
    pub fn runtime(&self) -> &Runtime {
        &self.s.runtime
    }

    /// The same, to be changed.
    pub fn runtime_mut(&mut self) -> &mut Runtime {
        &mut self.s.runtime
    }

    /// Changes the limits of later runs. The stack stays as long as it was made: depth and bytes can only shrink.
    pub fn set_limits(&mut self, limits: Limits) {
        let max_depth = limits.max_depth.min(self.s.stack.region().spec.count);
        self.limits = Limits { max_depth, ..limits };
        self.reconfigure();
    }

    /// Chooses the driver of later runs. A tracer always has the step driver, and so has a build in which
    /// handlers of the threaded one take stack.
    pub fn set_driver(&mut self, driver: Driver) {
        static NO_STACK: OnceLock<bool> = OnceLock::new();
        self.driver = match driver {
            Driver::Threaded if !NO_STACK.get_or_init(|| takes_no_stack(&mut self.s)) => Driver::Step,
            Driver::Threaded | Driver::Step => driver,
        };
    }

    /// Has `tracer` called before every instruction of later runs.
    pub fn set_tracer(&mut self, tracer: Option<Tracer>) {
        self.tracer = tracer;
        self.reconfigure();
    }

    /// r0 to r10 as the last run left them. Compiled code stores them only if it was made for that
    /// ([`Native::keeps_registers`](crate::host::native::Native::keeps_registers)).
    pub fn registers(&self) -> [u64; 11] {
        std::array::from_fn(|index| self.s.r[index])
    }

    /// Instructions that the last run executed. Those of compiled code count if it counts them.
    pub fn insns_executed(&self) -> u64 {
        (self.budget - self.remaining) as u64
    }

    /// Runs the program with this index with up to five arguments; other registers start with values that show.
    ///
    /// # Errors
    /// The trap that ended it, `exit` included.
    ///
    /// # Panics
    /// If the image has no such program.
    pub fn run(&mut self, program: usize, args: [u64; 5]) -> Result<u64, Trap> {
        self.run_program(self.image.program_id(program), args)
    }

    /// As [`Machine::run`], by the program's identity.
    ///
    /// # Errors
    /// As [`Machine::run`], and a [`TrapCode::BadCall`] for a program of another image.
    #[inline(always)]
    pub fn run_program(&mut self, program: ProgramId, args: [u64; 5]) -> Result<u64, Trap> {
        // Checked first: it is a call, across which no other value is live yet.
        if let Some(idle) = recover::idle()
            && let Some(prepared) = self.prepared
            && prepared.program == program
            && prepared.entry_point.knows(self)
        {
            return self.run_compiled(idle, prepared.entry_point, &args);
        }
        self.run_args(program, args)
    }

    /// As [`Machine::run`], with at most so many instructions; with fewer, where the machine's limits say so. Code that
    /// does not count instructions is not limited.
    ///
    /// # Errors
    /// As [`Machine::run_program`].
    pub fn run_limited(&mut self, program: ProgramId, args: [u64; 5], max_insns: u64) -> Result<u64, Trap> {
        let own = self.limits.max_insns;
        self.limits.max_insns = Some(own.map_or(max_insns, |own| own.min(max_insns)));
        self.invalidate();
        let result = self.run_args(program, args);
        self.limits.max_insns = own;
        self.invalidate();
        result
    }

    #[inline(never)]
    fn run_args(&mut self, program: ProgramId, args: [u64; 5]) -> Result<u64, Trap> {
        let program = self.image.index_of(program).ok_or_else(foreign_program)?;
        if let Some(Some(fast_path)) = self.fast_paths.get(program) {
            return self.prepare_and_run(program, *fast_path, &args);
        }
        let mut registers = POISON;
        registers[1..6].copy_from_slice(&args);
        self.run_with(program, registers)
    }

    /// Whether the machine is waiting for generated code.
    fn is_running(&self) -> bool {
        match self.running {
            Running::No => false,
            Running::Yes => true,
            Running::Inside => self.native.as_ref().is_some_and(|tier| tier.native.is_entered()),
        }
    }

    /// Runs a program with all registers given, except r10, which is its frame pointer.
    ///
    /// # Errors
    /// As [`Machine::run`].
    pub fn run_with(&mut self, program: usize, registers: [u64; 11]) -> Result<u64, Trap> {
        assert!(program < self.image.programs().len(), "program {program} of the image");
        let callee = self.image.function_at(self.image.entry(program));
        self.find_fast_path(program, callee);
        self.reset();
        self.with_room(|machine| machine.start(callee, registers))
    }

    /// Empties the stack and fills the budget.
    pub(super) fn reset(&mut self) {
        self.frames.clear();
        self.running = Running::No;
        (self.depth, self.stack_used, self.tail_calls, self.reentry, self.site) = (0, 0, 0, 0, 0);
        let limit = self.limits.max_insns.and_then(|limit| i64::try_from(limit).ok());
        self.budget = limit.map_or(UNLIMITED, |limit| limit.min(UNLIMITED));
        self.remaining = self.budget;
        if let Some(tier) = &mut self.native {
            tier.reset();
            tier.defer_sample(self.remaining);
        }
        self.s.trap = None;
        self.s.runtime.view.sync();
        self.dirty = false;
    }

    /// Runs a function on an empty stack.
    fn start(&mut self, callee: usize, registers: [u64; 11]) -> Result<u64, Trap> {
        if !Arc::ptr_eq(self.s.runtime.view.arena(), self.image.arena()) {
            return Err(Trap::new(TrapCode::BadCall, "the instance has the runtime of an instance of another engine"));
        }
        self.invalidate();
        self.s.r[..11].copy_from_slice(&registers);
        let _unblocked = recover::unblock();
        let result = self.enter_and_run(callee, self.site);
        self.s.runtime.abandon();
        result
    }

    /// Runs a function whose arguments are in registers until it returns.
    pub(super) fn enter_and_run(&mut self, callee: usize, site: usize) -> Result<u64, Trap> {
        if let Some(code) = self.compiled(callee as u32) {
            let value = self.call_compiled(callee, code, site)?;
            self.take_registers();
            return Ok(value);
        }
        let image = Arc::clone(&self.image);
        let function = &image.functions()[callee];
        let base = self.frames.len();
        self.push_frame(function, site)?;
        self.drive(&image, function.start as usize, base)
    }

    /// Runs from `pc` until the frame above `base` returns.
    pub(super) fn drive(&mut self, image: &Image, pc: usize, base: usize) -> Result<u64, Trap> {
        let cx = Context { image, code: image.translation(Code::new) };
        let result = match self.driver {
            Driver::Threaded if self.tracer.is_none() => self.threaded(cx, pc, base),
            Driver::Threaded | Driver::Step => self.step(cx, pc, base),
        };
        match result {
            Ok(()) => Ok(self.s.r[0]),
            Err((pc, trap)) => {
                let trap = match trap.location() {
                    Some(_) => trap,
                    None => trap.at(image.location(pc), self.backtrace(image)),
                };
                self.unwind(base);
                Err(trap)
            }
        }
    }

    /// Takes frames away until `depth` are left.
    pub(super) fn unwind(&mut self, depth: usize) {
        while self.frames.len() > depth {
            self.pop_frame();
        }
    }

    /// Where the functions that have not returned were called. Of many places the innermost and the outermost.
    pub(super) fn backtrace(&self, image: &Image) -> Backtrace {
        let mut runs: Vec<(usize, u32)> = Vec::new();
        for site in self.call_sites() {
            match runs.last_mut() {
                Some((last, times)) if *last == site => *times += 1,
                _ => runs.push((site, 1)),
            }
        }
        let omitted = match runs.len() > MAX_BACKTRACE {
            true => runs.drain(MAX_BACKTRACE - 1..runs.len() - 1).map(|(_, times)| times).sum(),
            false => 0,
        };
        let sites = runs.into_iter().map(|(site, times)| CallSite { location: image.location(site), times }).collect();
        Backtrace { sites, omitted }
    }

    /// A host function that calls back a host function: there is no instruction that would count, so that a
    /// loop of such calls ended at no limit.
    fn charge(&mut self) -> Result<(), Trap> {
        if self.depth == 0 {
            return Ok(());
        }
        self.check_interrupt()?;
        if self.remaining == 0 {
            return Err(self.out_of_insns());
        }
        self.remaining -= 1;
        Ok(())
    }

    /// A call from a host function into the program: like a call instruction for what is above it on the stack,
    /// and without effect on the registers of what is below.
    fn callback(&mut self, callee: u32, args: [u64; 5]) -> Result<u64, Trap> {
        // Generated code of a short callback is hardly ever where a signal finds the thread: the host function around it
        // is. So every host function that calls back ends when the run is to end.
        self.check_interrupt()?;
        if self.reentry >= MAX_REENTRY {
            let detail = format!("more than {MAX_REENTRY} host functions call back inside each other");
            return Err(Trap::new(TrapCode::CallDepth, detail));
        }
        self.reentry += 1;
        let registers = self.s.r;
        self.s.r[..11].copy_from_slice(&POISON);
        self.s.r[1..6].copy_from_slice(&args);
        let result = self.enter_and_run(callee as usize, self.site);
        self.s.r = registers;
        self.reentry -= 1;
        result
    }
}

#[cold]
fn poisoned() -> Trap {
    Trap::new(TrapCode::Poisoned, "a fault inside a C function has left it in an unknown state; make another engine")
}

#[cold]
fn foreign_program() -> Trap {
    let detail = "the program is of another image; find it by name in what the instance was made of";
    Trap::new(TrapCode::BadCall, detail)
}

impl Activation for Machine {
    /// # Panics
    /// If a host function has put the runtime of a trusted machine in its place, which would let this machine's program
    /// access any memory.
    fn runtime(&mut self) -> &mut Runtime {
        assert!(self.s.may_be_trusted(), "the runtime of a trusted machine in one that is not");
        &mut self.s.runtime
    }

    /// Also works between runs, as a run of its own.
    fn call(&mut self, function: u64, args: [u64; 5]) -> Result<u64, Trap> {
        if self.is_running() {
            return self.for_compiled(|machine| machine.call(function, args));
        }
        self.with_room(|machine| match machine.image.callee(function) {
            Some(Callee::Function(callee)) if machine.depth == 0 => {
                machine.reset();
                let mut registers = POISON;
                registers[1..6].copy_from_slice(&args);
                machine.start(callee as usize, registers)
            }
            Some(Callee::Function(callee)) => machine.callback(callee, args),
            Some(Callee::Host(host)) => {
                machine.charge()?;
                let image = Arc::clone(&machine.image);
                machine.guarded(&image.hosts()[host as usize], &args)
            }
            None => Err(bad_call(function)),
        })
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("image", &self.image).field("limits", &self.limits).finish_non_exhaustive()
    }
}
