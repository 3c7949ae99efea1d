//! Runs of programs: how they begin, which driver executes them, and callbacks inside them.

use std::sync::Arc;

use super::code::Code;
use super::event::bad_call;
use super::machine::{Context, Driver, Machine, NextRun, Running, Stop};
use super::state::POISON;
use crate::host::native::MAX_REENTRY;
use crate::host::{Activation, Runtime};
use crate::ident::ProgramId;
use crate::image::{Callee, Image};
use crate::recover;
use crate::trap::{Backtrace, CallSite, Trap, TrapCode};

/// Places of calls that a trap names.
const MAX_BACKTRACE: usize = 16;
/// Stands for no limit; large enough never to be used up, small enough to add to.
const UNLIMITED: i64 = i64::MAX / 4;

impl Machine {
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
            && let NextRun::Prepared(prepared) = self.next_run
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
            Running::Inside => self.native.get().is_some_and(|tier| tier.native.is_entered()),
        }
    }

    /// Runs a program with all registers given, except r10, which is its frame pointer.
    ///
    /// # Errors
    /// As [`Machine::run`].
    pub fn run_with(&mut self, program: usize, registers: [u64; 11]) -> Result<u64, Trap> {
        assert!(program < self.image.programs().len(), "program {program} of the image");
        let callee = self.image.entry_function(program);
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
        if let Some(tier) = self.native.get_mut() {
            tier.reset();
            tier.defer_sample(self.remaining);
        }
        self.s.trap = None;
        self.s.runtime.view.sync();
        self.next_run = NextRun::Reset;
    }

    /// Runs a function on an empty stack.
    fn start(&mut self, callee: usize, registers: [u64; 11]) -> Result<u64, Trap> {
        if !Arc::ptr_eq(self.s.runtime.view.arena(), self.image.arena()) {
            return Err(Trap::new(TrapCode::BadCall, "the instance has the runtime of an instance of another engine"));
        }
        self.invalidate();
        self.s.r[..11].copy_from_slice(&registers);
        let _unblocked = recover::unblock();
        let result = self.enter_and_run(callee, self.image.functions()[callee].start as usize);
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
        self.with_image(|machine, image| {
            let function = &image.functions()[callee];
            let base = machine.frames.len();
            machine.push_frame(function, site)?;
            machine.drive(image, function.start as usize, base)
        })
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
            Err(Stop { pc, trap }) => {
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
                machine.with_image(|machine, image| machine.guarded(&image.hosts()[host as usize], &args))
            }
            None => Err(bad_call(function)),
        })
    }
}
