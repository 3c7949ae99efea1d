//! Where the machine runs compiled code instead of interpreting, and where that comes back to it.
//!
//! A *segment* is a stretch of the call stack that is generated code, entered by the machine. Its functions have
//! no [`Frame`](super::event::Frame); how many they are is known from r10 when the code calls out, and where they are
//! from the native stack. Functions that the interpreter runs for generated code lie on top of its segment.

use std::fmt;
use std::sync::Arc;

use super::event::{NO_SITE, Next, bad_call};
use super::machine::{Context, Limits, Machine, POISON, Running};
use crate::host::native::{Bridge, Native, TailCall};
use crate::host::resident::{Code, Resident, Setup, Way, enter, enter_again, enter_first};
use crate::ident::ProgramId;
use crate::image::{Callee, Function, Image};
use crate::recover::{self, Abort, Ended, Idle};
use crate::trap::Trap;

/// Segments inside each other, beyond which functions are interpreted: each takes native stack, unlike calls inside
/// one engine.
const MAX_SEGMENTS: usize = 64;
/// Instructions of the interpreter between two samples of where it loops.
const SAMPLE_INSNS: i64 = 1 << 14;
/// Calls between two samples of what it calls; odd, so that a pattern of calls does not hide some.
const SAMPLE_CALLS: u32 = 61;
/// No sample is ever due.
const NEVER: i64 = i64::MIN / 4;

/// Compiled code of a machine's image, and the segments of it that have not returned.
pub(super) struct Home {
    pub(super) resident: Resident,
    /// Nothing but the machine's limits says what a run of compiled code may do.
    plain: bool,
    /// It counts instructions.
    counts: bool,
    /// Runs may use compiled code at all.
    usable: bool,
    /// Interpreted code is not to enter compiled code: it finishes what that has given up.
    finishing: bool,
    /// Where the innermost segment begins.
    pub(super) current: Base,
    /// Segments that have called the machine and wait for it.
    pub(super) waiting: Vec<Segment>,
    calls_to_sample: u32,
    /// A sample is due when so many instructions are left.
    pub(super) next_sample: i64,
}

/// The way into an entry function that can be run with nothing to prepare.
#[derive(Clone, Copy)]
pub(super) struct Shortcut {
    way: Way,
    /// It reads registers besides its arguments.
    reads_rest: bool,
}

/// A program whose next run needs nothing but its way in.
#[derive(Clone, Copy)]
pub(super) struct Ready {
    pub(super) program: ProgramId,
    pub(super) way: Way,
}

/// What is below a segment.
#[derive(Clone, Copy, Default)]
pub(super) struct Base {
    /// Frames of the interpreter.
    pub(super) frames: usize,
    /// Functions that have not returned.
    pub(super) depth: u32,
    /// pc of the call that entered it, or [`NO_SITE`].
    pub(super) site: usize,
}

/// A segment that waits for the machine.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) base: Base,
    /// Frame pointer of the native function that called.
    pub(super) fp: u64,
}

/// What a panic must not change.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    frames: usize,
    depth: u32,
    stack_used: u32,
    reentry: u32,
    running: Running,
    home: Option<(bool, Base, usize)>,
}

impl Home {
    fn new(code: Arc<dyn Native>, image: &Image, max_depth: u32) -> std::io::Result<Home> {
        let setup = Setup {
            arena_base: image.arena().base(),
            hosts: image.hosts().iter().map(|host| host.native().0).collect(),
            slots: image.first_slot(),
            slot_count: image.functions().len() as u64,
            max_depth,
        };
        let resident = Resident::new(code, setup)?;
        Ok(Home {
            resident,
            plain: false,
            counts: false,
            usable: false,
            finishing: false,
            current: Base::default(),
            waiting: Vec::new(),
            calls_to_sample: SAMPLE_CALLS,
            next_sample: NEVER,
        })
    }

    /// Makes it as it is between runs.
    pub(super) fn reset(&mut self) {
        (self.finishing, self.current) = (false, Base::default());
        self.waiting.clear();
    }

    /// The next sample is due in a while.
    pub(super) fn put_off(&mut self, remaining: i64) {
        self.next_sample = if self.usable { remaining - SAMPLE_INSNS } else { NEVER };
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resident.fmt(f)
    }
}

/// Entering compiled code.
impl Machine {
    /// Has later runs use this code of the image wherever it is compiled. Code that does not count instructions is
    /// not used while those are limited, and none while there is a tracer.
    ///
    /// # Errors
    /// The system has no memory for a native stack, or the code is of another image.
    pub fn set_native(&mut self, code: Option<Arc<dyn Native>>) -> std::io::Result<()> {
        if let Some(code) = &code
            && code.image_id() != self.image.id()
        {
            let why = "native code of another image than the machine's; compile this one";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
        }
        let max_depth = self.s.stack.region().spec.count;
        let home = match code {
            Some(code) if recover::AVAILABLE => Some(Home::new(code, &self.image, max_depth)?),
            Some(_) | None => None,
        };
        self.native = home.map(Box::new);
        self.settle();
        Ok(())
    }

    /// Prepares what is the same for all runs, after a change.
    pub(super) fn settle(&mut self) {
        self.soil();
        self.shortcuts.clear();
        let Some(home) = &mut self.native else { return };
        let Limits { max_insns, max_depth, stack_bytes } = self.limits;
        let same = self.image.frame_sizes().same();
        let bytes = same.and_then(|size| stack_bytes.checked_div(size)).unwrap_or(u32::MAX);
        let frames = max_depth.min(self.s.stack.region().spec.count).min(bytes);
        let code = home.resident.code();
        home.counts = code.counts();
        home.usable = self.tracer.is_none() && (max_insns.is_none() || home.counts);
        home.plain = home.usable && !code.keeps_registers() && same.is_some() && frames > 0;
        self.shortcuts.resize(self.image.programs().len(), None);
        let context = home.resident.context();
        context.frame_limit = frames.checked_sub(1).map_or(0, |deepest| self.s.frame_pointer(deepest));
        context.stack_limit = stack_bytes;
    }

    /// A run that needs nothing prepared. Everything else that may happen is for other functions, so that this one keeps
    /// nothing for them.
    #[inline(always)]
    pub(super) fn run_compiled(&mut self, idle: Idle, way: Way, args: &[u64; 5]) -> Result<u64, Trap> {
        match enter_first(self, idle, way, args) {
            Ok(value) if self.s.runtime.holds() => Ok(self.let_go(value)),
            Ok(value) => Ok(value),
            Err(ended) => Err(self.end_early(ended)),
        }
    }

    #[cold]
    #[inline(never)]
    fn end_early(&mut self, ended: Ended) -> Trap {
        let abort = self.native.as_ref().expect("code has a home").resident.why(ended);
        self.end(*abort)
    }

    /// A run that is to be prepared, and maybe prepares the next.
    pub(super) fn prepare_and_run(&mut self, program: usize, shortcut: Shortcut, args: &[u64; 5]) -> Result<u64, Trap> {
        let Shortcut { way, reads_rest } = shortcut;
        let counts = self.prepare();
        let program = self.image.program_id(program);
        self.ready = (!reads_rest && !counts).then_some(Ready { program, way });
        self.running = Running::Yes;
        let result = enter(self, way, args);
        self.running = if self.ready.is_some() { Running::Inside } else { Running::No };
        self.take_remaining();
        result.map(|value| self.let_go(value)).map_err(|abort| self.end(*abort))
    }

    #[cold]
    #[inline(never)]
    fn let_go(&mut self, value: u64) -> u64 {
        self.s.runtime.abandon();
        value
    }

    /// What most runs find as the run before has left it. True if they are given their budget anew.
    fn prepare(&mut self) -> bool {
        if self.dirty {
            self.reset();
        }
        let home = self.native.as_mut().expect("code has a home");
        home.resident.watch(self.s.runtime.interrupt());
        let context = home.resident.context();
        context.regs = POISON;
        context.remaining = self.budget;
        home.counts
    }

    /// After a run of compiled code: how many instructions it has left.
    fn take_remaining(&mut self) {
        let home = self.native.as_mut().expect("nobody takes it away in a run");
        if home.counts {
            self.remaining = home.resident.context().remaining;
        }
    }

    /// Later runs have to be prepared.
    pub(super) fn soil(&mut self) {
        (self.dirty, self.ready) = (true, None);
    }

    fn end(&mut self, abort: Abort) -> Trap {
        self.soil();
        let image = Arc::clone(&self.image);
        let trap = self.trap_of(&image, abort);
        self.s.runtime.abandon();
        trap
    }

    /// Finds out whether later runs of a program have a shortcut.
    pub(super) fn find_shortcut(&mut self, program: usize, callee: usize) {
        let fp = self.s.frame_pointer(0);
        if let Some(home) = &mut self.native
            && home.plain
            && let Some(code) = home.resident.entry(callee as u32)
        {
            let reads_rest = home.resident.code().reads_rest(callee as u32);
            self.shortcuts[program] = Some(Shortcut { way: home.resident.way(code, fp), reads_rest });
        }
    }

    /// Code of a function, if it is to be used now.
    pub(super) fn compiled(&mut self, function: u32) -> Option<Code> {
        let home = self.native.as_mut()?;
        if !home.usable || home.finishing || home.waiting.len() >= MAX_SEGMENTS {
            return None;
        }
        if let Some(code) = home.resident.entry(function) {
            return Some(code);
        }
        home.calls_to_sample -= 1;
        if home.calls_to_sample == 0 {
            home.calls_to_sample = SAMPLE_CALLS;
            home.resident.code().heat(self.image.functions()[function as usize].start);
        }
        None
    }

    /// Calls compiled code with the interpreter's registers, and gives r0.
    pub(super) fn call_compiled(&mut self, callee: usize, code: Code, site: usize) -> Result<u64, Trap> {
        let function = &self.image.functions()[callee];
        self.room(function)?;
        let base = Base { frames: self.frames.len(), depth: self.depth, site };
        self.segment(code, base, self.stack_used + function.stack_size)
    }

    /// After the entry function of a run has returned from compiled code: its registers.
    pub(super) fn take_registers(&mut self) {
        if let Some(home) = &mut self.native
            && home.resident.code().keeps_registers()
        {
            self.s.r[..10].copy_from_slice(&home.resident.context().regs[..10]);
        }
    }

    /// Runs generated code on top of `base` until it returns.
    fn segment(&mut self, code: Code, base: Base, stack_used: u32) -> Result<u64, Trap> {
        self.soil();
        let (mark, loops, site) = (self.mark(), self.s.loops, self.site);
        let fp = self.s.frame_pointer(base.depth);
        let home = self.native.as_mut().expect("code has a home");
        home.resident.watch(self.s.runtime.interrupt());
        let context = home.resident.context();
        context.regs.copy_from_slice(&self.s.r[..11]);
        (context.loops, context.remaining, context.stack_used) = (loops.into(), self.remaining, stack_used);
        let args = [1, 2, 3, 4, 5].map(|index: usize| self.s.r[index]);
        home.current = base;
        let (way, nested) = (home.resident.way(code, fp), !home.waiting.is_empty());
        self.running = Running::Yes;
        let result = match nested {
            true => enter_again(self, way, &args),
            false => enter(self, way, &args),
        };
        let result = result.map_err(|abort| {
            let image = Arc::clone(&self.image);
            self.trap_of(&image, *abort)
        });
        self.restore(mark);
        (self.s.loops, self.site) = (loops, site);
        self.take_remaining();
        match self.depth {
            0 => self.s.r[10] = fp,
            _ => self.point_at_frame(),
        }
        self.s.runtime.view.sync();
        result
    }

    /// The interpreter is at a loop header with `remaining` below the next sample: tells so, and if there is code
    /// from there on, has that finish the function.
    pub(super) fn sample(&mut self, cx: Context<'_>, pc: usize, base: usize) -> Result<Option<Next>, Trap> {
        let Some(home) = &mut self.native else { return Ok(None) };
        home.put_off(self.remaining);
        if !home.usable || home.finishing || home.waiting.len() >= MAX_SEGMENTS {
            return Ok(None);
        }
        let code = match home.resident.loop_entry(pc as u32) {
            Some(code) => code,
            None => {
                home.resident.code().heat(pc as u32);
                return Ok(None);
            }
        };
        let below = Base { frames: self.frames.len(), depth: self.depth - 1, site: NO_SITE };
        self.s.r[0] = self.segment(code, below, self.stack_used)?;
        self.take_registers();
        self.leave(cx, base).map(Some)
    }

    /// [`Home::next_sample`], if there is one.
    pub(super) fn next_sample(&self) -> i64 {
        self.native.as_ref().map_or(NEVER, |home| home.next_sample)
    }
}

/// Being called by compiled code.
impl Machine {
    /// Does some work for generated code that has called the machine, as if the interpreter were where it is.
    pub(super) fn for_compiled<R>(&mut self, work: impl FnOnce(&mut Machine) -> R) -> R {
        self.soil();
        let registers = self.s.r;
        let mark = self.mark();
        let stride = u64::from(self.s.stack.region().spec.stride);
        let (first, site, same) = (self.s.frame_pointer(0), self.site, self.image.frame_sizes().same());
        let home = self.native.as_mut().expect("generated code has a home");
        let (base, counts) = (home.current, home.counts);
        let context = home.resident.context();
        let (fp, frame, pc) = (context.exit_fp, context.exit_frame, context.exit_pc);
        self.depth = ((frame - first) / stride) as u32 + 1;
        self.stack_used = same.map_or(context.stack_used, |size| self.depth * size);
        self.site = pc as usize;
        if counts {
            self.remaining = context.remaining;
        }
        home.waiting.push(Segment { base, fp });
        self.running = Running::No;
        self.s.runtime.view.sync();
        let result = work(self);
        self.restore(mark);
        self.s.r = registers;
        self.site = site;
        let context = self.native.as_mut().expect("nobody takes it away in a run").resident.context();
        context.remaining = self.remaining;
        // Who has called may do so again, or fault.
        (context.exit_fp, context.exit_frame, context.exit_pc) = (fp, frame, pc);
        result
    }

    /// Interprets from `pc` in the frame that generated code is in, which counts already, with its registers.
    fn interpret_frame(&mut self, function: &Function, pc: usize, loops: Option<u32>) -> Result<u64, Trap> {
        let image = Arc::clone(&self.image);
        self.depth -= 1;
        self.stack_used = self.stack_used.saturating_sub(function.stack_size);
        self.load_registers();
        let base = self.frames.len();
        self.push_frame(function, NO_SITE)?;
        if let Some(loops) = loops {
            self.s.loops = loops;
        }
        let value = self.drive(&image, pc, base)?;
        let home = self.native.as_mut().expect("generated code has a home");
        home.resident.context().regs[..10].copy_from_slice(&self.s.r[..10]);
        Ok(value)
    }

    fn load_registers(&mut self) {
        let home = self.native.as_mut().expect("generated code has a home");
        self.s.r[..10].copy_from_slice(&home.resident.context().regs[..10]);
    }

    pub(super) fn mark(&self) -> Mark {
        let home = self.native.as_ref();
        let home = home.map(|home| (home.finishing, home.current, home.waiting.len()));
        let (frames, depth, stack_used, reentry) = (self.frames.len(), self.depth, self.stack_used, self.reentry);
        Mark { frames, depth, stack_used, reentry, running: self.running, home }
    }

    /// Takes away what has come on the stack since.
    pub(super) fn restore(&mut self, mark: Mark) {
        self.unwind(mark.frames);
        (self.depth, self.stack_used, self.reentry) = (mark.depth, mark.stack_used, mark.reentry);
        self.running = mark.running;
        if let (Some(home), Some((finishing, current, waiting))) = (&mut self.native, mark.home) {
            (home.finishing, home.current) = (finishing, current);
            home.waiting.truncate(waiting);
        }
    }

    pub(super) fn check_interrupt(&self) -> Result<(), Trap> {
        if self.s.interrupted() { Err(self.s.interruption()) } else { Ok(()) }
    }
}

impl Bridge for Machine {
    fn tail_call(&mut self, map: u64, index: u32) -> Result<TailCall, Trap> {
        self.soil();
        self.check_interrupt()?;
        let callee = match self.tail_target(map, index) {
            Ok(callee) => callee,
            Err(errno) => return Ok(TailCall::Failed(errno.to_r0())),
        };
        let new = &self.image.functions()[callee];
        let home = self.native.as_mut().expect("generated code has a home");
        let context = home.resident.context();
        let old = &self.image.functions()[self.image.function_at(context.exit_pc as usize)];
        let below = context.stack_used.saturating_sub(old.stack_size);
        let used = below.saturating_add(new.stack_size);
        if old.stack_size != new.stack_size && used > self.limits.stack_bytes {
            (self.depth, self.stack_used) = (0, below);
            return Err(self.room(new).expect_err("no room"));
        }
        self.tail_calls += 1;
        context.stack_used = used;
        context.regs = POISON;
        context.target = callee as u32;
        Ok(TailCall::Code(home.resident.address(callee as u32)))
    }

    fn call_address(&mut self, address: u64) -> Result<u64, Trap> {
        self.check_interrupt()?;
        let callee = self.image.callee(address).ok_or_else(|| bad_call(address))?;
        self.for_compiled(|machine| {
            machine.load_registers();
            match callee {
                Callee::Function(callee) => machine.enter_and_run(callee as usize, machine.site),
                Callee::Host(host) => {
                    let r = &machine.s.r;
                    let args = [r[1], r[2], r[3], r[4], r[5]];
                    let image = Arc::clone(&machine.image);
                    let value = machine.guarded(&image.hosts()[host as usize], &args)?;
                    machine.check_interrupt().map(|()| value)
                }
            }
        })
    }

    fn interpret(&mut self, function: u32) -> Result<u64, Trap> {
        let image = Arc::clone(&self.image);
        let function = &image.functions()[function as usize];
        self.for_compiled(|machine| machine.interpret_frame(function, function.start as usize, None))
    }

    fn load_packet(&mut self, off: u32, bytes: usize) -> Result<Option<u64>, Trap> {
        self.check_interrupt()?;
        self.packet_bytes(off, bytes)
    }

    fn resume(&mut self, pc: u32) -> Result<u64, Trap> {
        let image = Arc::clone(&self.image);
        let function = &image.functions()[image.function_at(pc as usize)];
        self.for_compiled(|machine| {
            let home = machine.native.as_mut().expect("generated code has a home");
            home.finishing = true;
            let loops = home.resident.context().loops as u32;
            machine.interpret_frame(function, pc as usize, Some(loops))
        })
    }
}
