//! Native code of an instance's programs: all of it at once, or what is hot, compiled in the background.
//!
//! Machines say where they spend their time ([`Native::report_hot`]). A program that is named gets code of the first tier, which is
//! soon there: made by the thread that names it where it is small, in the background otherwise, and inside hooks and child
//! processes. When it is named again and again the optimiser compiles it in the background. A loop that is still named then, or
//! that hands over in code of the first tier, gets an on-stack replacement entry, for the frame that executes it. Machines see
//! new code at their next call, or at the next turn of such a loop. What cannot be compiled stays in the code that it has, and
//! the log says why.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use twinbpf_isa::program::Program;
use twinbpf_jit::debug::Tools;
use twinbpf_jit::limits;
use twinbpf_jit::{Code, JitError, Memory, Options, Threads};
use twinbpf_vm::host::native::{Native, Site};
use twinbpf_vm::ident::ImageId;
use twinbpf_vm::image::Image;
use twinbpf_vm::process::PerProcess;

use crate::background::guarded;
use crate::config::{EngineKind, Isolation};
use crate::engine::Engine;
use crate::verify;

/// How often a unit is named before it counts as hot: optimising it takes as long as some ten thousand interpreted
/// instructions.
const HOT: u32 = 16;
/// Stands for the count of a unit that is being compiled, or has been.
const STARTED: u32 = u32::MAX;
/// Stands for the count of a unit that cannot be compiled.
const FAILED: u32 = STARTED - 1;
/// Instructions of a program, at most, that the thread which names it compiles for the first tier: some 150 us.
const SMALL: u32 = 256;

thread_local! {
    /// This thread must not compile now.
    static ELSEWHERE: Cell<bool> = const { Cell::new(false) };
}

/// Does something without compiling in this thread: inside a function of the process that may be any, which finds floating-point
/// state and locks as they were.
#[cfg(feature = "hook")]
pub(crate) fn without_compiling<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ELSEWHERE.set(self.0);
        }
    }
    let _restore = Restore(ELSEWHERE.replace(true));
    work()
}

/// How an engine compiles.
pub(crate) fn options(engine: &Engine) -> Options {
    let config = engine.config();
    let memory = match (engine.is_trusted(), config.isolation) {
        (true, _) => Memory::Trusted,
        (false, Isolation::Strict) => Memory::Strict,
        (false, Isolation::Sandbox) => Memory::Sandbox,
    };
    Options {
        memory,
        fuel: config.max_insns.is_some(),
        opt: config.opt_level,
        limits: config.compile_limits,
        passes: config.passes,
        ..Options::default()
    }
}

/// Says of each function of a program that exceeds [`Config::compile_limits`] what it gets.
pub(crate) fn exceeding(engine: &Engine, program: &Program) -> Vec<String> {
    let options = options(engine);
    let ends = program.functions.iter().skip(1).map(|next| next.start).chain([program.insns.len()]);
    let functions = program.functions.iter().zip(ends);
    let exceeding = functions.filter_map(|(function, end)| {
        let excess = limits::excess(&program.insns[function.start..end], options)?;
        Some(format!("{}: program {}, function {}: {excess}", program.object, program.name, function.name))
    });
    exceeding.collect()
}

/// Whether an engine verifies its code.
pub(crate) fn verifies(engine: &Engine) -> bool {
    engine.config().verify_native && !engine.is_trusted()
}

/// Has code verified if the engine does so.
///
/// # Errors
/// There is no verifier for this machine.
fn checked(engine: &Engine, code: Code) -> Result<Code, JitError> {
    if !verifies(engine) {
        return Ok(code);
    }
    verify::available()?;
    Ok(code.with_check(Arc::new(|emitted| verify::check(emitted).1)))
}

/// The native code that the instances of an image get, if their engine runs native code.
///
/// # Errors
/// The engine is configured for native code only, and something cannot be compiled; or it cannot be announced to
/// `perf`.
pub(crate) fn native(engine: &Engine, image: &Arc<Image>) -> Result<Option<Arc<dyn Native>>, JitError> {
    let config = engine.config();
    let options = options(engine);
    let threads = |several| if config.parallel_compilation { several } else { Threads::One };
    match config.engine {
        EngineKind::Interp => Ok(None),
        EngineKind::Jit => {
            let code = Code::new(Arc::clone(image), options)?.with_tools(Tools::new(config.perf, config.gdb)?);
            let code = checked(engine, code.with_threads(threads(Threads::All)))?;
            code.compile_all()?;
            Ok(Some(Arc::new(code)))
        }
        EngineKind::Auto => match Code::new(Arc::clone(image), options).and_then(|code| checked(engine, code)) {
            Ok(code) => {
                let code = code.with_tools(Tools::new(config.perf, config.gdb)?).with_threads(threads(Threads::Spare));
                Ok(Some(Tiered::new(engine, code)))
            }
            Err(error) => {
                log::info!("{error}");
                Ok(None)
            }
        },
    }
}

/// Code that grows where machines are busy.
#[derive(Debug)]
struct Tiered {
    code: Code,
    engine: Engine,
    /// How often each unit was named, in this process: what another was to compile is not compiled here.
    named: PerProcess<Mutex<HashMap<Unit, u32>>>,
    /// There in the process that made this.
    home: PerProcess<()>,
    this: Weak<Tiered>,
}

/// What is compiled at a time: a program for the first tier or for good, or by its flat pc a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unit {
    FirstTier(usize),
    Program(usize),
    Loop(u32),
}

impl Tiered {
    fn new(engine: &Engine, code: Code) -> Arc<Tiered> {
        let engine = engine.clone();
        let home = PerProcess::new();
        home.get();
        Arc::new_cyclic(|this| Tiered { code, engine, named: PerProcess::new(), home, this: Weak::clone(this) })
    }

    /// Has a unit compiled once it is named for the time `hot`.
    fn name(&self, unit: Unit, hot: u32) {
        if ELSEWHERE.get() && !self.engine.config().parallel_compilation {
            // There is no thread but this, which may be anywhere; others that run the program name it, too.
            return;
        }
        let mut named = self.named.get().lock().unwrap_or_else(PoisonError::into_inner);
        let times = named.entry(unit).or_default();
        if *times >= FAILED {
            return;
        }
        *times += 1;
        if *times >= hot {
            *times = STARTED;
            drop(named);
            self.start(unit, hot == 1);
        }
    }

    /// Compiles a unit, here if it is small and wanted soon and nothing speaks against it, otherwise in the background unless the
    /// code is dropped before.
    fn start(&self, unit: Unit, soon: bool) {
        let this = Weak::clone(&self.this);
        let compile = move || {
            if let Some(this) = this.upgrade() {
                this.compile(unit);
            }
        };
        let parallel = self.engine.config().parallel_compilation;
        // A child process may have been forked while another thread had a lock of the compiler.
        let here = self.home.existing().is_some() && !ELSEWHERE.get();
        if !parallel || soon && here && self.code.insns(self.program(unit)) <= SMALL {
            guarded(compile);
        } else {
            self.engine.background().run(compile);
        }
    }

    /// The program that a unit is of.
    fn program(&self, unit: Unit) -> usize {
        let image = self.code.image();
        match unit {
            Unit::FirstTier(program) | Unit::Program(program) => program,
            Unit::Loop(pc) => image.functions()[image.function_at(pc as usize)].program as usize,
        }
    }

    /// Stops optimising a program once this job is the last owner of the code.
    fn compile(self: &Arc<Tiered>, unit: Unit) {
        let wanted = || Arc::strong_count(self) > 1;
        let result = match unit {
            Unit::FirstTier(program) => self.code.compile_first_tier(program),
            Unit::Program(program) => self.code.compile_program_while(program, &wanted),
            Unit::Loop(pc) => self.code.compile_loop(pc),
        };
        let Err(error) = result else { return };
        if matches!(error, JitError::Unwanted) {
            return;
        }
        self.named.get().lock().unwrap_or_else(PoisonError::into_inner).insert(unit, FAILED);
        let program = self.program(unit);
        let image = self.code.image();
        let location = image.location(image.entry(program));
        let stays = match unit {
            Unit::FirstTier(_) => "has no code of the first tier",
            Unit::Program(_) | Unit::Loop(_) if self.code.is_compiled(image.entry_function(program) as u32) => {
                "stays in the code that it has"
            }
            Unit::Program(_) | Unit::Loop(_) => "stays in the interpreter",
        };
        log::warn!("{}: program {} {stays}: {error}", location.object, location.program);
    }
}

// SAFETY: passes on what its code says.
#[expect(unsafe_code, reason = "says where code is that machines jump to")]
unsafe impl Native for Tiered {
    fn image_id(&self) -> ImageId {
        self.code.image_id()
    }

    fn entry(&self, function: u32) -> Option<u64> {
        self.code.entry(function)
    }

    fn loop_entry(&self, pc: u32) -> Option<u64> {
        self.code.loop_entry(pc)
    }

    fn site(&self, address: u64) -> Option<Site> {
        self.code.site(address)
    }

    fn is_final(&self, function: u32) -> bool {
        self.code.is_final(function)
    }

    fn want_loop(&self, pc: u32) -> bool {
        self.name(Unit::Loop(pc), 1);
        let named = self.named.get().lock().unwrap_or_else(PoisonError::into_inner);
        named.get(&Unit::Loop(pc)) != Some(&FAILED)
    }

    fn report_hot(&self, pc: u32) {
        let image = self.code.image();
        let index = image.function_at(pc as usize);
        let function = &image.functions()[index];
        let (native, stays) = (self.code.is_compiled(index as u32), self.code.is_final(index as u32));
        if !native {
            self.name(Unit::FirstTier(function.program as usize), 1);
        }
        if !stays {
            self.name(Unit::Program(function.program as usize), HOT);
        }
        if native && pc != function.start {
            self.name(Unit::Loop(pc), HOT);
        }
    }

    fn functions(&self) -> *const u64 {
        self.code.functions()
    }

    fn reads_rest(&self, function: u32) -> bool {
        self.code.reads_rest(function)
    }

    fn counts(&self) -> bool {
        self.code.counts()
    }

    fn keeps_registers(&self) -> bool {
        self.code.keeps_registers()
    }
}
