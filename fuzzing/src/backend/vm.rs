//! The engines of this process: the interpreter with each driver, native code in each mode.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use twinbpf_isa::program::{Binding, Program};
use twinbpf_isa::validate::Valid;
use twinbpf_isa::{Insn, Policy};
use twinbpf_jit::{Code, Memory, Threads};
use twinbpf_vm::helper;
use twinbpf_vm::image::Image;
use twinbpf_vm::interp::{Driver, Limits, Machine};
use twinbpf_vm::mem::MemError;

use super::Engine;
use super::modes::{JitMode, TURNS, jit_modes};
use super::outcome::{End, Outcome, Ran, not_compiled};
use super::watch::{Doubt, Watch};
use super::world::{ENOUGH, LIMITS, World};
use crate::generate::world::{ARRAY, ARRAY_LEN, EXTERNS, LABELS, MAPS, STATE, STATE_SIZE, TABLE, VALUE};
use crate::generate::{Case, Uses};

/// Whether engines can make mistakes on purpose ([`Vm::with_compiler_mutant`]).
pub const FAULTS: bool = cfg!(feature = "faults");

/// Bytes before the memory of a witness.
const WITNESS: u32 = 0x1_5a30;

/// What runs the programs of a world.
#[derive(Clone, Debug)]
enum How {
    Interp(Driver),
    /// Modes, and which of them has its turn.
    Jit(Vec<JitMode>, usize),
}

/// An engine of this process.
#[derive(Debug)]
pub struct Vm {
    how: How,
    sandbox: Rc<World>,
    trusted: Option<Rc<World>>,
    watch: Option<Arc<Mutex<Watch>>>,
    doubts: Vec<Option<Doubt>>,
    /// What functions are called, to have the compiler make a mistake ([`Vm::with_compiler_mutant`]).
    fault: Option<Arc<str>>,
    /// Memory of programs that are gone.
    spare: Vec<Vec<Insn>>,
}

impl Vm {
    /// The interpreter.
    ///
    /// # Errors
    /// There is no room for its memory.
    pub fn interp(driver: Driver) -> Result<Vm, MemError> {
        Vm::new(How::Interp(driver), None)
    }

    /// The interpreter with a tracer that checks what programs do ([`Vm::doubts`]).
    ///
    /// # Errors
    /// There is no room for its memory.
    pub fn watched() -> Result<Vm, MemError> {
        let vm = Vm::interp(Driver::Step)?;
        Ok(Vm { watch: Some(Arc::default()), ..vm })
    }

    /// With a mistake of the compiler: `panic_STAGE`, or one of [`crate::mutants::seeded::COMPILER`]; or with one of this engine, which
    /// ends the process: `die` at a program with an atomic operation, `die_together` at two of a batch, and that only in
    /// strict modes that count. It does nothing without the feature `faults`.
    pub fn with_compiler_mutant(self, name: &str) -> Vm {
        Vm { fault: Some(format!("__fault_{name}").into()), ..self }
    }

    /// Of each case of the last batch, the worst that was seen of its runs, if they were watched.
    pub fn doubts(&self) -> &[Option<Doubt>] {
        &self.doubts
    }

    fn new(how: How, trusted: Option<Rc<World>>) -> Result<Vm, MemError> {
        Ok(Vm::of(how, Rc::new(World::new(false)?), trusted))
    }

    fn of(how: How, sandbox: Rc<World>, trusted: Option<Rc<World>>) -> Vm {
        Vm { how, sandbox, trusted, watch: None, doubts: Vec::new(), fault: None, spare: Vec::new() }
    }

    /// The interpreter, and native code in all modes that sandbox, in the same memory: what programs see of addresses is
    /// the same.
    ///
    /// # Errors
    /// There is no room for their memory.
    pub(crate) fn pair() -> Result<[Vm; 2], MemError> {
        let world = Rc::new(World::new(false)?);
        let modes = jit_modes().filter(|mode| mode.memory != Memory::Trusted).collect();
        let vm = |how| Vm::of(how, Rc::clone(&world), None);
        Ok([How::Interp(Driver::Threaded), How::Jit(modes, 0)].map(vm))
    }

    /// The interpreter with everything somewhere else, so that what programs see of addresses differs.
    ///
    /// # Errors
    /// There is no room for its memory.
    pub(crate) fn witness() -> Result<Vm, MemError> {
        let world = World::after_block(WITNESS, false)?;
        Ok(Vm::of(How::Interp(Driver::Threaded), Rc::new(world), None))
    }

    /// Native code in these modes; each batch of cases is compiled in one of them, in turns.
    ///
    /// # Errors
    /// There is no room for its memory.
    pub fn jit(modes: Vec<JitMode>) -> Result<Vm, MemError> {
        let trusted = modes.iter().any(|mode| mode.memory == Memory::Trusted);
        let trusted = trusted.then(|| World::new(true).map(Rc::new)).transpose()?;
        Vm::new(How::Jit(modes, 0), trusted)
    }
}

/// A case among the programs of a batch.
#[derive(Clone, Copy)]
pub(crate) struct BatchedCase {
    /// Index of its first program.
    first: usize,
    uses: Uses,
}

/// The programs of cases, one after another, and where those of each are.
pub(crate) struct Batch {
    pub(crate) programs: Vec<Valid<Program>>,
    pub(crate) batched: Vec<Result<BatchedCase, String>>,
    /// Targets of `gotox`, by program.
    pub(crate) labels: Vec<(usize, usize)>,
}

/// Validates cases. What is refused is left out.
pub(crate) fn batch(cases: &[Case], spare: &mut Vec<Vec<Insn>>, fault: Option<&Arc<str>>) -> Batch {
    let (programs, batched) = (Vec::with_capacity(cases.len()), Vec::with_capacity(cases.len()));
    let mut batch = Batch { programs, batched, labels: Vec::new() };
    for case in cases {
        let first = batch.programs.len();
        let batched = append(case, &mut batch.programs, spare, fault);
        match &batched {
            Ok(uses) if uses.table => batch.labels.extend(case.labels().map(|pc| (first, pc))),
            Ok(_) => {}
            Err(_) => batch.programs.truncate(first),
        }
        batch.batched.push(batched.map(|uses| BatchedCase { first, uses }));
    }
    batch
}

/// Validates a case and appends its programs. Gives the maps that it uses.
fn append(
    case: &Case,
    programs: &mut Vec<Valid<Program>>,
    spare: &mut Vec<Vec<Insn>>,
    fault: Option<&Arc<str>>,
) -> Result<Uses, String> {
    let (policy, mut uses) = (Policy::default(), Uses::default());
    for mut program in case.programs_in(spare) {
        if let Some(fault) = fault {
            program.functions.iter_mut().for_each(|function| function.name = Arc::clone(fault));
        }
        let program = program.validate(&policy, &helper::exists).map_err(|error| error.to_string())?;
        for binding in program.bindings.values() {
            let fits = match *binding {
                Binding::Map(map) => {
                    uses.map(map);
                    map < MAPS
                }
                Binding::MapValue { map, off } => {
                    uses.map(map);
                    match map {
                        STATE => off < STATE_SIZE as u32,
                        ARRAY => off < ARRAY_LEN * VALUE as u32,
                        TABLE => off < LABELS as u32 * 8,
                        _ => false,
                    }
                }
                Binding::Function(_) => true,
                Binding::Extern(index) => index < EXTERNS.len(),
            };
            fits.then_some(()).ok_or_else(|| "it names a map or function that does not exist".to_owned())?;
        }
        programs.push(program);
    }
    Ok(uses)
}

impl Vm {
    /// What a batch gets: world, driver, mode.
    fn turn(&self) -> (Rc<World>, Driver, Option<JitMode>) {
        match &self.how {
            How::Interp(driver) => (Rc::clone(&self.sandbox), *driver, None),
            How::Jit(modes, turn) => {
                let mode = modes[*turn];
                let trusted = self.trusted.as_ref().filter(|_| mode.memory == Memory::Trusted);
                (Rc::clone(trusted.unwrap_or(&self.sandbox)), Driver::default(), Some(mode))
            }
        }
    }

    /// Ends the process, if a mutant wants that.
    fn die(&self, cases: &[Case], mode: Option<JitMode>) {
        let wanted = match self.fault.as_deref().filter(|_| FAULTS) {
            Some("__fault_die") => 1,
            Some("__fault_die_together") if mode.is_some_and(|mode| mode.memory == Memory::Strict && mode.fuel) => 2,
            _ => return,
        };
        let atomic = |case: &&Case| case.main.iter().any(|insn| matches!(insn, Insn::Atomic { .. }));
        if cases.iter().filter(atomic).count() >= wanted {
            std::process::abort();
        }
    }

    /// An error is that of all cases.
    fn run_batch(&mut self, cases: &[Case]) -> Result<Vec<Ran>, Ran> {
        let (world, driver, mode) = self.turn();
        self.doubts = vec![None; cases.len()];
        let Batch { programs, batched, labels } = batch(cases, &mut self.spare, self.fault.as_ref());
        if programs.is_empty() {
            return Ok(batched.into_iter().map(|batched| Ran::Refused(batched.err().expect("no programs"))).collect());
        }
        self.die(cases, mode);
        let image = world.image(programs, &labels).map_err(Ran::Refused)?;
        let mut machine = world.machine(&image).map_err(|error| Ran::Refused(error.to_string()))?;
        machine.set_driver(driver);
        machine.set_tracer(self.watch.as_ref().map(|watch| Watch::tracer(watch, &image)));
        let mut compiled = Vec::new();
        // Code may rely on the programs that slots have when it is made.
        let tails = cases.iter().zip(&batched).find(|(case, _)| !case.tails.is_empty());
        if let Some((case, Ok(batched))) = tails {
            world.link(case, batched.first);
        }
        if let Some(mode) = mode {
            let code = Code::new(Arc::clone(&image), mode.options()).map_err(|error| not_compiled(&error))?;
            // There is a process for each processor.
            let mut code = code.with_threads(Threads::One);
            if mode.memory != Memory::Trusted && cfg!(target_arch = "x86_64") {
                code = code.with_check(Arc::new(|emitted| twinbpf::verify::check(emitted).1));
            }
            compiled = mode.compile(&code).map_err(|error| not_compiled(&error))?;
            machine.set_native(Some(Arc::new(code))).map_err(|error| Ran::Refused(error.to_string()))?;
            machine.hand_over_after(TURNS);
        }
        let counts = mode.is_none_or(|mode| mode.fuel);
        let mut all = Vec::with_capacity(cases.len());
        for ((case, batched), doubts) in cases.iter().zip(batched).zip(&mut self.doubts) {
            let ran = batched.map_err(Ran::Refused).and_then(|batched| {
                match compiled
                    .get(batched.first..batched.first + 1 + case.tails.len())
                    .and_then(|all| all.iter().flatten().next())
                {
                    Some(error) => Err(not_compiled(error)),
                    None => {
                        let watch = self.watch.as_deref();
                        Ok(run_case(&world, (&image, &mut machine), case, batched, counts, &mut |begins| {
                            watched(watch, begins, doubts);
                        }))
                    }
                }
            });
            all.push(ran.map_or_else(|ran| ran, Ran::Ended));
        }
        drop(machine);
        let programs = Arc::into_inner(image).map_or_else(Vec::new, Image::into_programs);
        self.spare.extend(programs.into_iter().map(|program| program.into_inner().insns));
        Ok(all)
    }
}

/// Tells the watcher that a run begins, or gets what it found.
fn watched(watch: Option<&Mutex<Watch>>, begins: bool, doubts: &mut Option<Doubt>) {
    let Some(watch) = watch else { return };
    let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    if begins {
        watch.begin();
    } else {
        *doubts = (*doubts).max(watch.found());
    }
}

/// `around` is called before and after each run.
pub(crate) fn run_case(
    world: &World,
    (image, machine): (&Image, &mut Machine),
    case: &Case,
    BatchedCase { first, uses }: BatchedCase,
    counts: bool,
    around: &mut dyn FnMut(bool),
) -> Vec<Option<Outcome>> {
    if uses.table {
        world.block(TABLE).fill(0, LABELS * 8, 0);
        let labels = case.labels().filter_map(|pc| image.function_address(first, pc));
        labels.enumerate().for_each(|(at, label)| world.block(TABLE).write(at as u32 * 8, &label.to_le_bytes()));
    }
    if uses.jumps {
        world.link(case, first);
    }
    let mut limit = None;
    let mut outcomes = Vec::with_capacity(case.inputs.len());
    for input in &case.inputs {
        if input.limit.is_some() && !counts {
            outcomes.push(None);
            continue;
        }
        let wanted = counts.then(|| input.limit.unwrap_or(ENOUGH));
        if limit != Some(wanted) {
            machine.set_limits(Limits { max_insns: wanted, ..LIMITS });
            limit = Some(wanted);
        }
        world.reset(input, uses);
        around(true);
        let (end, finished) = match machine.run(first, [world.context.addr(), 0, 0, 0, 0]) {
            Ok(r0) => (End::Returned(r0), true),
            Err(trap) => (End::Trapped(trap.code(), trap.location().map(|location| location.pc)), false),
        };
        around(false);
        // Native code that faults does not say how far it has come.
        let executed = (counts && finished).then(|| machine.insns_executed());
        outcomes.push(Some(world.observe(end, executed, uses)));
    }
    outcomes
}

impl Engine for Vm {
    fn name(&self) -> String {
        match &self.how {
            How::Interp(Driver::Step) => "interp(step)".to_owned(),
            How::Interp(Driver::Threaded) => "interp".to_owned(),
            How::Jit(modes, turn) => {
                let [memory, strategy, _] = modes[*turn].words();
                let counted = if modes[*turn].fuel { ",fuel" } else { "" };
                format!("jit({memory},{strategy}{counted})")
            }
        }
    }

    fn take_turn(&mut self, turn: u64) {
        if let How::Jit(modes, at) = &mut self.how {
            *at = (turn % modes.len() as u64) as usize;
        }
    }

    fn run(&mut self, cases: &[Case]) -> Vec<Ran> {
        self.run_batch(cases).unwrap_or_else(|ran| vec![ran; cases.len()])
    }
}
