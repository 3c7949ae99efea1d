//! A machine: one thread's registers, stack and runtime, and the runs on it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::code::Code;
use super::frame::Frame;
use super::handlers::{Threaded, takes_no_stack};
use super::spare::Spare;
use super::state::{MAX_LOOPS, State};
use super::tier::{FastPath, PreparedRun, Tier};
use super::trace::Tracer;
use crate::host::Runtime;
use crate::image::{FrameSizes, Image};
use crate::mem::{MemError, RegionKind, RegionSpec};
use crate::recover::Ended;
use crate::trap::{Trap, TrapCode};

/// The most that [`Limits::max_depth`] can be: native code has 4 KiB of stack for each call, 1 GiB for all of them.
pub const MAX_DEPTH: u32 = 1 << 18;

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

/// What the next run finds of the one before.
#[derive(Clone, Copy)]
pub(super) enum NextRun {
    /// Run state that is not as [`Machine::reset`] leaves it.
    Dirty,
    /// Run state that is, but for registers and budget.
    Reset,
    /// The same, and this program needs nothing else.
    Prepared(PreparedRun),
}

/// Where a run stopped, and why.
pub(super) struct Stop {
    pub(super) pc: usize,
    pub(super) trap: Trap,
}

impl Stop {
    /// For `map_err`: a trap of the instruction at this flat pc.
    pub(super) fn at(pc: usize) -> impl Fn(Trap) -> Stop {
        move |trap| Stop { pc, trap }
    }
}

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
    pub(super) next_run: NextRun,
    /// A run by [`Machine::run_short`] has, and its trap is still to be made.
    pub(super) trapped: Option<Ended>,
    /// Copied from the arena, to read it without a pointer chase.
    poisoned: Arc<AtomicBool>,
    pub(super) running: Running,
    /// Of programs that are compiled.
    pub(super) fast_paths: Vec<Option<FastPath>>,
    pub(super) native: Tier,
    pub(super) image: Arc<Image>,
    /// The same, for the next that works with both image and machine: to count references takes longer than a short callback.
    second_image: Option<Arc<Image>>,
    pub(super) driver: Driver,
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
        let state_image = Arc::clone(&image);
        let s = State {
            r,
            fuel: 0,
            loops: MAX_LOOPS,
            live_stack: 0,
            arena_base,
            trusted,
            trap,
            runtime,
            stack,
            image: state_image,
        };
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
            next_run: NextRun::Dirty,
            trapped: None,
            poisoned,
            running: Running::No,
            fast_paths: Vec::new(),
            native: Tier::default(),
            image,
            second_image: None,
            driver: Driver::Step,
            threaded_code: None,
            budget: 0,
            reentry: 0,
            spare: Spare::default(),
        };
        machine.set_driver(Driver::default());
        Ok(machine)
    }

    /// Does work with the image.
    pub(super) fn with_image<R>(&mut self, work: impl FnOnce(&mut Machine, &Image) -> R) -> R {
        let image = self.second_image.take().unwrap_or_else(|| Arc::clone(&self.image));
        let result = work(self, &image);
        self.second_image = Some(image);
        result
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
        if self.is_poisoned() { Err(poisoned()) } else { Ok(()) }
    }

    #[inline(always)]
    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
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
}

#[cold]
fn poisoned() -> Trap {
    Trap::new(TrapCode::Poisoned, "a fault inside a C function has left it in an unknown state; make another engine")
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("image", &self.image).field("limits", &self.limits).finish_non_exhaustive()
    }
}
