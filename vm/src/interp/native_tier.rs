//! The native tier: transitions between the interpreter and compiled code, in both directions.
//!
//! A *native activation* is a contiguous part of the call stack that is compiled code, entered by the machine. Its
//! functions have no [`Frame`](super::frame::Frame): r10 at a call out of the code gives their number, and the native
//! stack their return addresses. Functions that the interpreter runs for compiled code are on top of its activation.

use std::sync::Arc;

use super::event::{Next, bad_call};
use super::frame::NO_SITE;
use super::machine::{Context, Limits, Machine, NextRun, Running};
use super::state::POISON;
use super::tier::{
    Activations, Base, FastPath, Interpreted, NEVER, NativeActivation, NativeTier, PreparedRun, SAMPLE_CALLS, Tier,
    Usage,
};
use crate::host::native::{Bridge, Native, TailCall};
use crate::host::native_runtime::{Code, EntryPoint, enter, enter_again, enter_first};
use crate::image::Callee;
use crate::recover::{self, Abort, Ended, Idle};
use crate::trap::Trap;

/// State of the machine's stack, to be restored after a nested run, also after a panic.
#[derive(Clone, Copy)]
pub(super) struct Checkpoint {
    frames: usize,
    depth: u32,
    stack_used: u32,
    reentry: u32,
    running: Running,
    activations: Option<Activations>,
}

/// Entering compiled code.
impl Machine {
    /// Lets later runs use compiled code: under a limit of instructions only code that counts them, with a tracer none.
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
        let tier = match code {
            Some(code) if recover::AVAILABLE => Some(NativeTier::new(code, &self.image, max_depth)?),
            Some(_) | None => None,
        };
        self.native = Tier::new(tier);
        self.reconfigure();
        Ok(())
    }

    /// Has loops in code that is not final hand over after so many turns: for tests. Native code is set already.
    #[doc(hidden)]
    pub fn hand_over_after(&mut self, turns: i32) {
        if let Some(tier) = self.native.get_mut() {
            tier.turns = turns;
        }
    }

    /// Recomputes what is the same for all runs, after a change of code, limits or tracer.
    pub(super) fn reconfigure(&mut self) {
        self.invalidate();
        self.fast_paths.clear();
        let Some(tier) = self.native.get_mut() else { return };
        let Limits { max_insns, max_depth, stack_bytes } = self.limits;
        let same = self.image.frame_sizes().same();
        let bytes = same.and_then(|size| stack_bytes.checked_div(size)).unwrap_or(u32::MAX);
        let frames = max_depth.min(self.s.stack.region().spec.count).min(bytes);
        let code = tier.native.code();
        tier.counts = code.counts();
        let usable = self.tracer.is_none() && (max_insns.is_none() || tier.counts);
        let whole = !code.keeps_registers() && same.is_some() && frames > 0;
        tier.usage = match (usable, whole) {
            (false, _) => Usage::Never,
            (true, false) => Usage::FromInterpreter,
            (true, true) => Usage::WholeRuns,
        };
        self.fast_paths.resize(self.image.programs().len(), None);
        let context = tier.native.context();
        context.frame_limit = frames.checked_sub(1).map_or(0, |deepest| self.s.frame_pointer(deepest));
        context.stack_limit = stack_bytes;
        context.frame_bytes = self.s.stack.region().spec.element_size.into();
    }

    /// A run that needs no preparation. Other functions handle the rest, so that this one saves no registers for it.
    #[inline(always)]
    pub(super) fn run_compiled(&mut self, idle: Idle, entry_point: EntryPoint, args: &[u64; 5]) -> Result<u64, Trap> {
        match enter_first(self, idle, entry_point, self.budget, args) {
            Ok(value) => {
                self.remaining = entry_point.remaining();
                if self.s.runtime.holds() { Ok(self.release(value)) } else { Ok(value) }
            }
            Err(ended) => Err(self.end_early(ended)),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn end_early(&mut self, ended: Ended) -> Trap {
        let abort = self.native.running().native.why(ended);
        self.take_remaining();
        self.end(*abort)
    }

    /// A run that is to be prepared, and maybe prepares the next.
    pub(super) fn prepare_and_run(
        &mut self,
        program: usize,
        fast_path: FastPath,
        args: &[u64; 5],
    ) -> Result<u64, Trap> {
        let FastPath { entry_point, reads_rest } = fast_path;
        self.prepare();
        // Where it is until it is at an instruction; runs that this one prepares are of the same program.
        self.native.running().current.site = self.image.entry(program);
        let program = self.image.program_id(program);
        if !reads_rest {
            self.next_run = NextRun::Prepared(PreparedRun { program, entry_point });
        }
        self.running = Running::Yes;
        let result = enter(self, entry_point, args);
        self.running = match self.next_run {
            NextRun::Prepared(_) => Running::Inside,
            NextRun::Reset | NextRun::Dirty => Running::No,
        };
        self.take_remaining();
        result.map(|value| self.release(value)).map_err(|abort| self.end(*abort))
    }

    #[cold]
    #[inline(never)]
    fn release(&mut self, value: u64) -> u64 {
        self.s.runtime.abandon();
        value
    }

    /// What most runs find as the run before has left it.
    fn prepare(&mut self) {
        match self.next_run {
            NextRun::Dirty => self.reset(),
            NextRun::Reset | NextRun::Prepared(_) => self.next_run = NextRun::Reset,
        }
        let tier = self.native.running();
        tier.native.watch(self.s.runtime.interrupt());
        let (cpu, turns) = (self.s.runtime.cpu(), tier.turns);
        let context = tier.native.context();
        (context.cpu, context.reentry, context.turns, context.tail_calls) = (cpu, 0, turns, 0);
        context.regs = POISON;
        context.remaining = self.budget;
    }

    /// After a run of compiled code: how many instructions it has left.
    fn take_remaining(&mut self) {
        let tier = self.native.running();
        if tier.counts {
            self.remaining = tier.native.context().remaining;
        }
    }

    /// Invalidates what the last run has prepared.
    pub(super) fn invalidate(&mut self) {
        self.next_run = NextRun::Dirty;
    }

    fn end(&mut self, abort: Abort) -> Trap {
        self.invalidate();
        let trap = self.with_image(|machine, image| machine.trap_of(image, abort));
        self.s.runtime.abandon();
        trap
    }

    /// Caches the fast path of a program if it has one.
    pub(super) fn find_fast_path(&mut self, program: usize, callee: usize) {
        let fp = self.s.frame_pointer(0);
        if let Some(tier) = self.native.get_mut()
            && tier.usage == Usage::WholeRuns
            && tier.native.code().is_final(callee as u32)
            && let Some(code) = tier.native.entry(callee as u32)
        {
            let reads_rest = tier.native.code().reads_rest(callee as u32);
            self.fast_paths[program] = Some(FastPath { entry_point: tier.native.entry_point(code, fp), reads_rest });
        }
    }

    /// Code of a function, if it is to be used now.
    pub(super) fn compiled(&mut self, function: u32) -> Option<Code> {
        let tier = self.native.get_mut()?;
        if !tier.may_be_entered() {
            return None;
        }
        let code = tier.native.entry(function);
        if code.is_some() && tier.native.code().is_final(function) {
            return code;
        }
        tier.calls_to_sample -= 1;
        if tier.calls_to_sample == 0 {
            tier.calls_to_sample = SAMPLE_CALLS;
            tier.native.code().report_hot(self.image.functions()[function as usize].start);
        }
        code
    }

    /// Calls compiled code with the interpreter's registers, and gives r0.
    pub(super) fn call_compiled(&mut self, callee: usize, code: Code, site: usize) -> Result<u64, Trap> {
        let function = &self.image.functions()[callee];
        self.room(function)?;
        let base = Base { frames: self.frames.len(), depth: self.depth, site };
        self.activation(code, base, self.stack_used + function.stack_size)
    }

    /// After the entry function of a run has returned from compiled code: its registers.
    pub(super) fn take_registers(&mut self) {
        if let Some(tier) = self.native.get_mut()
            && tier.native.code().keeps_registers()
        {
            self.s.r[..10].copy_from_slice(&tier.native.context().regs[..10]);
        }
    }

    /// Runs generated code on top of `base` until it returns.
    fn activation(&mut self, code: Code, base: Base, stack_used: u32) -> Result<u64, Trap> {
        self.invalidate();
        let (checkpoint, loops, site) = (self.checkpoint(), self.s.loops, self.site);
        let fp = self.s.frame_pointer(base.depth);
        let tier = self.native.running();
        tier.native.watch(self.s.runtime.interrupt());
        let (cpu, turns) = (self.s.runtime.cpu(), tier.turns);
        let context = tier.native.context();
        (context.cpu, context.reentry, context.turns) = (cpu, self.reentry, turns);
        context.tail_calls = self.tail_calls;
        context.regs.copy_from_slice(&self.s.r[..11]);
        (context.loops, context.remaining, context.stack_used) = (loops.into(), self.remaining, stack_used);
        let args = [1, 2, 3, 4, 5].map(|index: usize| self.s.r[index]);
        tier.current = base;
        let (entry_point, nested) = (tier.native.entry_point(code, fp), !tier.waiting.is_empty());
        self.running = Running::Yes;
        let result = match nested {
            true => enter_again(self, entry_point, &args),
            false => enter(self, entry_point, &args),
        };
        let result = result.map_err(|abort| self.with_image(|machine, image| machine.trap_of(image, *abort)));
        self.restore(checkpoint);
        (self.s.loops, self.site) = (loops, site);
        self.tail_calls = self.native.running().native.context().tail_calls;
        self.take_remaining();
        match self.depth {
            0 => self.s.r[10] = fp,
            _ => self.point_at_frame(),
        }
        self.s.runtime.view.sync();
        result
    }

    /// The interpreter is at a loop header with `remaining` below the next sample: if the loop has code (OSR entry),
    /// lets it finish the function, otherwise reports the loop as hot.
    pub(super) fn sample(&mut self, cx: Context<'_>, pc: usize, base: usize) -> Result<Option<Next>, Trap> {
        let Some(tier) = self.native.get_mut() else { return Ok(None) };
        tier.defer_sample(self.remaining);
        if !tier.may_be_entered() {
            return Ok(None);
        }
        let code = match tier.native.loop_entry(pc as u32) {
            Some(code) => code,
            None => {
                tier.native.code().report_hot(pc as u32);
                return Ok(None);
            }
        };
        let below = Base { frames: self.frames.len(), depth: self.depth - 1, site: NO_SITE };
        self.s.r[0] = self.activation(code, below, self.stack_used)?;
        self.take_registers();
        self.leave(cx, base).map(Some)
    }

    /// [`NativeTier::next_sample`], if there is one.
    pub(super) fn next_sample(&self) -> i64 {
        self.native.get().map_or(NEVER, |tier| tier.next_sample)
    }
}

/// Calls from compiled code.
impl Machine {
    /// Does work for generated code that has called the machine, as if the interpreter were at its position.
    pub(super) fn for_compiled<R>(&mut self, work: impl FnOnce(&mut Machine) -> R) -> R {
        self.invalidate();
        let registers = self.s.r;
        let checkpoint = self.checkpoint();
        let stride = u64::from(self.s.stack.region().spec.stride);
        let (first, site, same) = (self.s.frame_pointer(0), self.site, self.image.frame_sizes().same());
        let tier = self.native.running();
        let (base, counts) = (tier.current, tier.counts);
        let context = tier.native.context();
        let (fp, frame, pc, reentry) = (context.exit_fp, context.exit_frame, context.exit_pc, context.reentry);
        (self.reentry, self.tail_calls) = (reentry, context.tail_calls);
        self.depth = ((frame - first) / stride) as u32 + 1;
        self.stack_used = same.map_or(context.stack_used, |size| self.depth * size);
        self.site = pc as usize;
        if counts {
            self.remaining = context.remaining;
        }
        tier.waiting.push(NativeActivation { base, fp, inlined_at: None });
        self.running = Running::No;
        self.s.runtime.view.sync();
        let result = work(self);
        self.restore(checkpoint);
        self.s.r = registers;
        self.site = site;
        let context = self.native.running().native.context();
        (context.remaining, context.tail_calls) = (self.remaining, self.tail_calls);
        // The caller may call again, or fault.
        (context.exit_fp, context.exit_frame, context.exit_pc, context.reentry) = (fp, frame, pc, reentry);
        result
    }

    /// Has a function use the stack bytes of the frame that generated code leaves by a tail call.
    fn replace_frame(&mut self, callee: usize) -> Result<(), Trap> {
        let new = &self.image.functions()[callee];
        let context = self.native.running().native.context();
        let old = &self.image.functions()[self.image.function_at(context.exit_pc as usize)];
        let below = context.stack_used.saturating_sub(old.stack_size);
        let used = below.saturating_add(new.stack_size);
        if old.stack_size != new.stack_size && used > self.limits.stack_bytes {
            (self.depth, self.stack_used) = (0, below);
            return Err(self.room(new).expect_err("no room"));
        }
        context.stack_used = used;
        Ok(())
    }

    /// Interprets from `pc` in the frame that generated code is in, which counts already, with its registers.
    fn interpret_frame(&mut self, pc: usize, loops: Option<u32>) -> Result<u64, Trap> {
        self.with_image(|machine, image| {
            let function = &image.functions()[image.function_at(pc)];
            machine.depth -= 1;
            machine.stack_used = machine.stack_used.saturating_sub(function.stack_size);
            machine.load_registers();
            let base = machine.frames.len();
            machine.push_frame(function, NO_SITE)?;
            if let Some(loops) = loops {
                machine.s.loops = loops;
            }
            let value = machine.drive(image, pc, base)?;
            let tier = machine.native.running();
            tier.native.context().regs[..10].copy_from_slice(&machine.s.r[..10]);
            Ok(value)
        })
    }

    /// Continues with the loop that generated code is at in better code, if there is some: in its frame, which counts already.
    fn enter_loop(&mut self, pc: u32, loops: u32) -> Result<Option<u64>, Trap> {
        let tier = self.native.running();
        if !tier.native.code().want_loop(pc) {
            // From now on loops stay in the code that there is.
            tier.turns = i32::MAX;
        }
        let Some(code) = tier.native.loop_entry(pc).filter(|_| tier.may_be_entered()) else { return Ok(None) };
        self.load_registers();
        let outer = std::mem::replace(&mut self.s.loops, loops);
        let below = Base { frames: self.frames.len(), depth: self.depth - 1, site: NO_SITE };
        let value = self.activation(code, below, self.stack_used);
        self.s.loops = outer;
        value.map(Some)
    }

    fn load_registers(&mut self) {
        let tier = self.native.running();
        self.s.r[..10].copy_from_slice(&tier.native.context().regs[..10]);
    }

    pub(super) fn checkpoint(&self) -> Checkpoint {
        let activations = self.native.get().map(NativeTier::activations);
        let (frames, depth, stack_used, reentry) = (self.frames.len(), self.depth, self.stack_used, self.reentry);
        Checkpoint { frames, depth, stack_used, reentry, running: self.running, activations }
    }

    /// Pops what was pushed since.
    pub(super) fn restore(&mut self, checkpoint: Checkpoint) {
        self.unwind(checkpoint.frames);
        (self.depth, self.stack_used, self.reentry) = (checkpoint.depth, checkpoint.stack_used, checkpoint.reentry);
        self.running = checkpoint.running;
        if let (Some(tier), Some(activations)) = (self.native.get_mut(), checkpoint.activations) {
            tier.restore(activations);
        }
    }

    pub(super) fn check_interrupt(&self) -> Result<(), Trap> {
        if self.s.interrupted() { Err(self.s.interruption()) } else { Ok(()) }
    }
}

impl Bridge for Machine {
    fn tail_call(&mut self, map: u64, index: u32) -> Result<TailCall, Trap> {
        self.invalidate();
        self.check_interrupt()?;
        self.tail_calls = self.native.running().native.context().tail_calls;
        let callee = match self.tail_target(map, index) {
            Ok(callee) => callee,
            Err(errno) => return Ok(TailCall::Failed(errno.to_r0())),
        };
        if self.image.frame_sizes().same().is_none() {
            self.replace_frame(callee)?;
        }
        let tail_calls = self.tail_calls + 1;
        let tier = self.native.running();
        let context = tier.native.context();
        (context.regs, context.tail_calls) = (POISON, tail_calls);
        context.target = callee as u32;
        Ok(TailCall::Code(tier.native.address(callee as u32)))
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
                    let value =
                        machine.with_image(|machine, image| machine.guarded(&image.hosts()[host as usize], &args))?;
                    machine.check_interrupt().map(|()| value)
                }
            }
        })
    }

    fn interpret(&mut self, function: u32) -> Result<u64, Trap> {
        let start = self.image.functions()[function as usize].start as usize;
        self.for_compiled(|machine| machine.interpret_frame(start, None))
    }

    fn load_packet(&mut self, off: u32, bytes: usize) -> Result<Option<u64>, Trap> {
        self.check_interrupt()?;
        self.packet_bytes(off, bytes)
    }

    fn resume(&mut self, pc: u32) -> Result<u64, Trap> {
        self.for_compiled(|machine| {
            let tier = machine.native.running();
            let turns = tier.turns;
            let context = tier.native.context();
            let (loops, handed_over) = (context.loops as u32, context.turns < 0);
            context.turns = turns;
            if !handed_over {
                tier.interpreted = Interpreted::Finishes;
            } else if let Some(value) = machine.enter_loop(pc, loops)? {
                return Ok(value);
            }
            machine.interpret_frame(pc as usize, Some(loops))
        })
    }

    fn begin_walk(&mut self, map: u64) -> Result<Option<u64>, Trap> {
        self.check_interrupt()?;
        let depth = self.native.running().native.context().reentry;
        Ok(self.s.runtime.begin_walk(map, depth))
    }

    fn advance_walk(&mut self, stop: bool) -> Result<Option<u64>, Trap> {
        // As for a host function that calls back.
        self.check_interrupt()?;
        let depth = self.native.running().native.context().reentry;
        Ok(self.s.runtime.advance_walk(depth, stop))
    }
}
