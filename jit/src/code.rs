//! Native code of an image: what is compiled so far, and where.
//!
//! Every function has an address in the table from the start: that of a *bridge*, which runs it in the interpreter.
//! Compiling a program replaces its addresses; code that runs meanwhile sees the new ones at its next call. A program may
//! be compiled twice: for the first tier, then for good.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use twinbpf_vm::host::native::{Native, Site};
use twinbpf_vm::ident::ImageId;
use twinbpf_vm::image::{Image, Link};

use crate::bridge;
use crate::compile::{self, Compiled, Job, Module};
use crate::debug::{Symbol, SymbolLine, Tools};
use crate::emitted::{Check, Checker};
use crate::error::JitError;
use crate::limits::{self, Strategy, Tier};
use crate::listing;
use crate::lower::{Start, Unit};
use crate::memory::{CodePool, part};
use crate::opt::PassRun;
use crate::options::Options;
use crate::parallel::Threads;
use crate::settings::{self, Registers};
use crate::stage::{ANNOUNCING, InternalError, caught};

/// Programs that lie within so many instructions share a module, whose size is limited.
const WINDOW: u32 = 1 << 19;

/// See the module documentation.
pub struct Code {
    image: Arc<Image>,
    options: Options,
    tools: Tools,
    threads: Threads,
    checker: Checker,
    /// Where functions that are not compiled lead.
    bridge: u64,
    /// Native address of each function. The last element is for an image without functions.
    functions: Box<[AtomicU64]>,
    /// Which of them have code that stays.
    finals: Box<[AtomicBool]>,
    modules: RwLock<Modules>,
}

#[derive(Default)]
struct Modules {
    all: Vec<Module>,
    /// Flat pc and native address of loops, by pc.
    loops: Vec<(u32, u64)>,
    /// Functions that read registers besides their arguments.
    read_rest: HashSet<u32>,
}

impl Code {
    /// Nothing compiled yet.
    ///
    /// # Errors
    /// There can be no native code on this machine, or [`JitError::Untrusted`].
    pub fn new(image: Arc<Image>, options: Options) -> Result<Code, JitError> {
        if !options.suit(&image) {
            return Err(JitError::Untrusted);
        }
        let bridge = bridge::address()?;
        let functions = (0..=image.functions().len()).map(|_| AtomicU64::new(bridge)).collect();
        let finals = image.functions().iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Code {
            image,
            options,
            tools: Tools::default(),
            threads: Threads::default(),
            checker: Checker::default(),
            bridge,
            functions,
            finals,
            modules: RwLock::default(),
        })
    }

    /// Has these tools know of all that is compiled from now on.
    pub fn with_tools(self, tools: Tools) -> Code {
        Code { tools, ..self }
    }

    /// Has these threads compile what is large from now on.
    pub fn with_threads(self, threads: Threads) -> Code {
        Code { threads, ..self }
    }

    /// Has this check all that is compiled from now on, before anything can call it. What it rejects fails with
    /// [`JitError::Rejected`].
    pub fn with_check(self, check: Arc<Check>) -> Code {
        Code { checker: Checker(Some(check)), ..self }
    }

    /// The image it is of.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// What it is made for.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Compiles all functions of a program that are not yet.
    ///
    /// # Errors
    /// See [`JitError`]; the program then stays in the interpreter.
    pub fn compile_program(&self, program: usize) -> Result<(), JitError> {
        self.compile_program_while(program, &|| true)
    }

    /// The same, but stops as soon as `wanted`, called before each function, returns false.
    ///
    /// # Errors
    /// As [`Code::compile_program`], or [`JitError::Unwanted`].
    pub fn compile_program_while(&self, program: usize, wanted: &(dyn Fn() -> bool + Sync)) -> Result<(), JitError> {
        let units: Vec<Unit> = self.units(program).collect();
        if self.has(&units, Tier::Final) {
            return Ok(());
        }
        succeeded(self.make(&[&units], self.near(&units), Tier::Final, wanted)?)
    }

    /// Compiles all functions of a program that are not native yet, in a fraction of the time that [`Code::compile_program`]
    /// takes, which replaces this code later. Without an optimiser it stays.
    ///
    /// # Errors
    /// As [`Code::compile_program`].
    pub fn compile_first_tier(&self, program: usize) -> Result<(), JitError> {
        let units: Vec<Unit> = self.units(program).collect();
        if self.has(&units, Tier::First) {
            return Ok(());
        }
        let optimised = units.iter().any(|unit| self.strategy(unit.function) == Strategy::Optimised);
        let tier = if optimised { Tier::First } else { Tier::Final };
        succeeded(self.make(&[&units], self.near(&units), tier, &|| true)?)
    }

    /// Whether all units have code of this tier, or of a better one.
    fn has(&self, units: &[Unit], tier: Tier) -> bool {
        units.iter().all(|unit| match tier {
            Tier::First => self.is_compiled(unit.function),
            Tier::Final => self.is_final(unit.function),
        })
    }

    /// Instructions of a program.
    pub fn insns(&self, program: usize) -> u32 {
        self.units(program).map(|unit| settings::insns(&self.image, unit.function)).sum()
    }

    /// Compiles all programs that are not yet.
    ///
    /// # Errors
    /// As [`Code::compile_program`], for the first that fails.
    pub fn compile_all(&self) -> Result<(), JitError> {
        succeeded(self.compile_each()?)
    }

    /// Compiles all programs that are not yet, many of them into one piece of memory: sooner than one by one. Gives what
    /// is wrong with each, if something is.
    ///
    /// # Errors
    /// As [`Code::compile_program`], if there is no place for any.
    pub fn compile_each(&self) -> Result<Vec<Option<JitError>>, JitError> {
        self.each(Tier::Final)
    }

    /// The same for the first tier.
    ///
    /// # Errors
    /// As [`Code::compile_each`].
    pub fn compile_each_for_first_tier(&self) -> Result<Vec<Option<JitError>>, JitError> {
        self.each(Tier::First)
    }

    fn each(&self, tier: Tier) -> Result<Vec<Option<JitError>>, JitError> {
        let mut failures: Vec<Option<JitError>> = self.image.programs().iter().map(|_| None).collect();
        let missing = (0..failures.len()).map(|program| (program, self.units(program).collect::<Vec<Unit>>()));
        let missing = missing.filter(|(_, units)| !self.has(units, tier));
        let missing = missing.map(|(program, units)| (program, self.near(&units), units));
        let mut missing: Vec<(usize, u64, Vec<Unit>)> = missing.collect();
        missing.sort_by_key(|(_, near, _)| part(*near));
        let begin = |units: &[Unit]| self.image.functions()[units[0].function as usize].start / WINDOW;
        let end = |units: &[Unit]| self.image.functions()[units[units.len() - 1].function as usize].end / WINDOW;
        for programs in
            missing.chunk_by(|(_, here, one), (_, there, next)| begin(one) == end(next) && part(*here) == part(*there))
        {
            let units: Vec<&[Unit]> = programs.iter().map(|(_, _, units)| units.as_slice()).collect();
            for ((program, ..), failure) in programs.iter().zip(self.make(&units, programs[0].1, tier, &|| true)?) {
                failures[*program] = failure;
            }
        }
        Ok(failures)
    }

    /// Compiles an on-stack replacement entry of a function: at `pc`, a flat pc that something jumps back to.
    ///
    /// # Errors
    /// As [`Code::compile_program`].
    pub fn compile_loop(&self, pc: u32) -> Result<(), JitError> {
        if self.loop_entry(pc).is_some() {
            return Ok(());
        }
        let unit = Unit { function: self.image.function_at(pc as usize) as u32, start: Start::Loop(pc) };
        succeeded(self.make(&[&[unit]], self.near(&[unit]), Tier::Final, &|| true)?)
    }

    /// Bytes of native code.
    pub fn bytes(&self) -> u64 {
        let modules = self.modules.read().expect("no panic while held");
        let functions = modules.all.iter().flat_map(|module| &module.functions);
        functions.map(|function| u64::from(function.sites.len)).sum()
    }

    /// How a function, by its index in the image, is compiled.
    pub fn strategy(&self, function: u32) -> Strategy {
        limits::strategy(&self.image, function, self.options, Tier::Final)
    }

    /// Whether a function, by its index in the image, is native.
    pub fn is_compiled(&self, function: u32) -> bool {
        self.entry(function).is_some()
    }

    /// Compiles programs, given by their functions, or a single loop into one module close to an address, and makes it
    /// known. Gives what is wrong with each.
    fn make(
        &self,
        programs: &[&[Unit]],
        near: u64,
        tier: Tier,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<Option<JitError>>, JitError> {
        let job = Job { image: &self.image, options: self.options, threads: self.threads, tier, wanted };
        let (mut failures, module) = compile::compile(job, programs, &self.tools.pool(near)?)?;
        if let Some(mut module) = module {
            self.check(programs, &mut failures, &mut module);
            if !module.functions.is_empty() {
                self.add(module, tier)?;
            }
        }
        Ok(failures)
    }

    /// Takes programs out of a module of which the checker rejects a function. The others never call those.
    fn check(&self, programs: &[&[Unit]], failures: &mut [Option<JitError>], module: &mut Module) {
        for (function, why) in self.checker.check(&self.image, self.options, module) {
            let unit = function.map(|function| module.functions[function].unit);
            let rejects = |units: &[Unit]| unit.is_none_or(|unit| units.contains(&unit));
            for (units, failure) in programs.iter().zip(&mut *failures).filter(|(units, _)| rejects(units)) {
                let named = unit.unwrap_or(units[0]).function;
                let function = Arc::clone(&self.image.functions()[named as usize].name);
                failure.get_or_insert(JitError::Rejected { function, why: why.clone() });
            }
        }
        let failed: HashSet<u32> = programs
            .iter()
            .zip(failures)
            .filter(|(_, failure)| failure.is_some())
            .flat_map(|(units, _)| units.iter().map(|unit| unit.function))
            .collect();
        module.functions.retain(|function| !failed.contains(&function.unit.function));
    }

    /// Where most calls of host functions lead; where this library is if there are none.
    fn near(&self, units: &[Unit]) -> u64 {
        let functions = units.iter().map(|unit| &self.image.functions()[unit.function as usize]);
        let links = functions.flat_map(|function| &self.image.links()[function.start as usize..function.end as usize]);
        let callee = |link: &Link| match link {
            Link::Host(host) => {
                let host = &self.image.hosts()[*host as usize];
                Some(host.c().unwrap_or_else(|| host.native().0.code.addr() as u64))
            }
            _ => None,
        };
        CodePool::nearest(links.filter_map(callee))
    }

    /// The functions of a program.
    fn units(&self, program: usize) -> impl Iterator<Item = Unit> + use<> {
        let functions = self.image.functions();
        let first = functions.partition_point(|function| (function.program as usize) < program);
        let end = functions.partition_point(|function| function.program as usize <= program);
        (first as u32..end as u32).map(|function| Unit { function, start: Start::Entry })
    }

    /// Makes a module known. Addresses become visible when everything about them is.
    fn add(&self, module: Module, tier: Tier) -> Result<(), JitError> {
        let first = module.functions[0].unit.function;
        // What panics here drops the module, of which nothing is visible yet.
        let module = caught(
            |stage, why: &str| InternalError::new(&self.image, first, stage, why),
            |at| {
                at.set(ANNOUNCING);
                let mut module = module;
                self.announce(&mut module);
                Ok::<_, JitError>(module)
            },
        )?;
        let units: Vec<(Unit, u64, bool)> =
            module.functions.iter().map(|function| (function.unit, function.start, function.reads_rest)).collect();
        let mut modules = self.modules.write().expect("no panic while held");
        modules.all.push(module);
        for (Unit { function, start }, address, reads_rest) in units {
            match start {
                Start::Entry => self.publish(&mut modules, function, (address, reads_rest), tier),
                Start::Loop(pc) => {
                    let index = modules.loops.partition_point(|entry| entry.0 < pc);
                    modules.loops.insert(index, (pc, address));
                }
            }
        }
        Ok(())
    }

    /// Has calls of a function lead to new code, unless it has better.
    fn publish(&self, modules: &mut Modules, function: u32, (address, reads_rest): (u64, bool), tier: Tier) {
        let at = function as usize;
        if tier == Tier::First && self.finals[at].load(Ordering::Relaxed) {
            return;
        }
        match reads_rest {
            true => modules.read_rest.insert(function),
            false => modules.read_rest.remove(&function),
        };
        self.functions[at].store(address, Ordering::Release);
        self.finals[at].store(tier == Tier::Final, Ordering::Release);
    }

    /// Registers a module with debuggers and profilers.
    fn announce(&self, module: &mut Module) {
        let isa = settings::isa(self.options.opt, Registers::Backtracking, self.options.verify)
            .expect("the module was compiled with it");
        let symbols: Vec<Symbol> = module.functions.iter_mut().map(|function| self.symbol(function)).collect();
        module.announced = self.tools.announce(&*isa, &module.memory, &symbols);
    }

    /// A function as tools get to know it.
    fn symbol(&self, function: &mut Compiled) -> Symbol {
        let Compiled { unit, start, sites, unwind, .. } = function;
        let range = *start..*start + u64::from(sites.len);
        let mut symbol = Symbol { name: String::new(), range, lines: Vec::new(), unwind: unwind.take() };
        if self.tools.wants_names() {
            let name = &self.image.functions()[unit.function as usize].name;
            symbol.name = match unit.start {
                Start::Entry => format!("bpf_prog_{name}"),
                Start::Loop(pc) => format!("bpf_prog_{name}.loop{pc}"),
            };
        }
        if self.tools.wants_lines() {
            let line = |(off, pc): (u32, u32)| {
                let (program, pc) = self.image.locate(pc as usize);
                let line = self.image.programs()[program].line_at(pc)?;
                let address = *start + u64::from(off);
                Some(SymbolLine { address, file: Arc::clone(&line.file), line: line.line })
            };
            symbol.lines = sites.pcs().filter_map(line).collect();
            symbol.lines.dedup_by(|next, line| (&next.file, next.line) == (&line.file, line.line));
            // What makes the frame belongs to the first line.
            if let Some(first) = symbol.lines.first_mut() {
                first.address = *start;
            }
        }
        symbol
    }

    /// Native code of a function as text, after the BPF instructions it is made of and their C lines. Compiled for this
    /// purpose.
    ///
    /// # Errors
    /// As [`Code::compile_program`].
    pub fn disassemble(&self, function: u32) -> Result<Listing, JitError> {
        let (text, positions, passes) = compile::list(&self.image, function, self.options)?;
        Ok(Listing { text: listing::annotate(&self.image, function, (&text, &positions)), passes })
    }
}

/// The native code of a function in text.
///
/// ```
/// use twinbpf_jit::Listing;
///
/// /// How many places of a function the optimiser's passes changed.
/// fn changes(listing: &Listing) -> usize {
///     listing.passes.iter().map(|run| run.changes).sum()
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// Instructions, after the BPF instructions that they are made of.
    pub text: String,
    /// The runs of the optimiser's passes over the function, in order; nothing without the optimiser.
    pub passes: Vec<PassRun>,
}

/// The first failure, if there is one.
fn succeeded(failures: Vec<Option<JitError>>) -> Result<(), JitError> {
    failures.into_iter().flatten().next().map_or(Ok(()), Err)
}

// SAFETY: all addresses in the table and among loops are the bridge's, or those of modules that `compile` made of
// this image, for this arena, and that stay with `self`; the table was made with an element for each function.
#[expect(unsafe_code, reason = "says where code is that machines jump to")]
unsafe impl Native for Code {
    fn image_id(&self) -> ImageId {
        self.image.id()
    }

    fn entry(&self, function: u32) -> Option<u64> {
        let address = self.functions[function as usize].load(Ordering::Acquire);
        (address != self.bridge).then_some(address)
    }

    fn loop_entry(&self, pc: u32) -> Option<u64> {
        let modules = self.modules.read().expect("no panic while held");
        let index = modules.loops.binary_search_by_key(&pc, |entry| entry.0).ok()?;
        Some(modules.loops[index].1)
    }

    fn site(&self, address: u64) -> Option<Site> {
        let modules = self.modules.read().expect("no panic while held");
        let module = modules.all.iter().find(|module| module.memory.range().contains(&address));
        let Some(module) = module else { return bridge::site(address) };
        let index = module.functions.partition_point(|function| function.start <= address).checked_sub(1)?;
        let function = &module.functions[index];
        function.sites.at((address - function.start) as u32)
    }

    fn reads_rest(&self, function: u32) -> bool {
        self.modules.read().expect("no panic while held").read_rest.contains(&function)
    }

    fn is_final(&self, function: u32) -> bool {
        self.finals[function as usize].load(Ordering::Acquire)
    }

    fn report_hot(&self, _pc: u32) {}

    fn functions(&self) -> *const u64 {
        self.functions.as_ptr().cast()
    }

    fn counts(&self) -> bool {
        self.options.fuel
    }

    fn keeps_registers(&self) -> bool {
        self.options.keep_registers
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").field("image", &self.image).field("options", &self.options).finish_non_exhaustive()
    }
}
