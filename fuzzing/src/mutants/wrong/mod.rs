//! Wrong compilations, tried: a case is compiled with a mistake, verified, and run instruction by instruction under rules
//! that say of each whether it may do what it is about to do.
//!
//! The rules (`rules`) know nothing of the verifier's reasoning. They check addresses as they are when an instruction
//! runs; what both share is the table of what may be accessed and called.

mod rules;
mod step;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rules::Rules;
use twinbpf_jit::faults::made;
use twinbpf_jit::{Code, Emitted, Threads};
use twinbpf_vm::mem::MemError;

use crate::backend::JitMode;
use crate::backend::vm::{batch, run_case};
use crate::backend::world::World;
use crate::generate::Case;

pub use twinbpf_jit::faults::{Mistake, all};

/// Bytes reserved at the start of the arena, so that r10 is more than a margin away from its ends.
const FRONT: u32 = 3 << 20;

/// An instruction that was about to do what it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Address of the machine instruction.
    pub at: u64,
    /// Addresses of the functions that it was called by, the last first, and of those that have run before it.
    pub before: Vec<u64>,
    /// The instruction, in Intel's syntax, and what it was about to do.
    pub what: String,
}

/// What the verifier rejects.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Where the function is.
    pub range: Range<u64>,
    /// The verifier's reason for the rejection.
    pub why: String,
}

/// What became of a case.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// The mistake was made. Otherwise the case has not run.
    pub made: bool,
    /// Instructions of generated code that were checked, if it did nothing that it must not.
    pub steps: u64,
    /// What the verifier rejects.
    pub refused: Vec<Refused>,
    /// What the case did that it must not.
    pub stray: Option<Stray>,
}

impl Tried {
    /// What the verifier rejects: the function that strayed, or, if that is right, one that has called it
    /// or has left it wrong registers.
    pub fn verdict(&self) -> Option<&Refused> {
        let stray = self.stray.as_ref()?;
        let mut places = [stray.at].into_iter().chain(stray.before.iter().copied());
        places.find_map(|at| self.refused.iter().find(|refused| refused.range.contains(&at)))
    }
}

/// What was emitted, and what the verifier says of it.
#[derive(Debug, Default)]
struct Record {
    modules: Vec<Range<u64>>,
    functions: Vec<Range<u64>>,
    refused: Vec<Refused>,
}

impl Record {
    fn add(&mut self, emitted: &Emitted<'_>) {
        self.modules.push(emitted.base..emitted.base + emitted.code.len() as u64);
        let of = |index: usize| emitted.functions[index].range.clone();
        for rejected in twinbpf::verify::check(emitted).1 {
            let range = rejected.function.map_or(emitted.base..emitted.base, of);
            self.refused.push(Refused { range, why: rejected.why });
        }
        self.functions.extend(emitted.functions.iter().map(|function| function.range.clone()));
    }
}

/// Memory in which cases are tried.
#[derive(Debug)]
pub struct Trial {
    world: World,
}

impl Trial {
    /// # Errors
    /// There is no room for its memory.
    pub fn new() -> Result<Trial, MemError> {
        Ok(Trial { world: World::after_block(FRONT, false)? })
    }

    /// Compiles a case with a mistake, or none, and runs it if the mistake was made.
    ///
    /// # Errors
    /// It is refused, or does not end in time.
    pub fn run(&self, case: &Case, mode: JitMode, mistake: Option<&str>) -> Result<Tried, String> {
        let fault: Option<Arc<str>> = mistake.map(|name| format!("__fault_{name}").into());
        let cases = std::slice::from_ref(case);
        let mut batch = batch(cases, &mut Vec::new(), fault.as_ref());
        let batched = batch.batched.remove(0)?;
        let image = self.world.image(batch.programs, &batch.labels)?;
        let mut machine = self.world.machine(&image).map_err(|error| error.to_string())?;
        let record = Arc::new(Mutex::new(Record::default()));
        let (before, own) = (made(), Arc::clone(&record));
        let code = Code::new(Arc::clone(&image), mode.options()).map_err(|error| error.to_string())?;
        let code = code.with_threads(Threads::One).with_check(Arc::new(move |emitted| {
            own.lock().unwrap_or_else(PoisonError::into_inner).add(emitted);
            Vec::new()
        }));
        let failures = mode.compile(&code).map_err(|error| error.to_string())?;
        if let Some(failure) = failures.into_iter().flatten().next() {
            return Err(failure.to_string());
        }
        let Record { modules, functions, refused } =
            std::mem::take(&mut *record.lock().unwrap_or_else(PoisonError::into_inner));
        if mistake.is_some() && made() == before {
            return Ok(Tried::default());
        }
        machine.set_native(Some(Arc::new(code))).map_err(|error| error.to_string())?;
        let rules = Rules::new(twinbpf::verify::layout(&image, 0), image.arena().base(), functions);
        let (steps, stray) = step::watched(rules, &modules, || {
            run_case(&self.world, (&image, &mut machine), case, batched, mode.fuel, &mut |_| {});
        })?;
        Ok(Tried { made: true, steps, refused, stray })
    }
}
