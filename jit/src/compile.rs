//! From a set of functions to code in memory: settings, contexts that are used again, one module.
//!
//! Functions are compiled first and placed afterwards, when the size of all is known. Placing goes through
//! cranelift-jit with the memory of [`crate::memory`].

use std::sync::{Arc, Mutex, OnceLock};

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, Signature};
use cranelift_codegen::isa::unwind::UnwindInfo;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::{CodegenError, CompiledCode};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Module as _, ModuleReloc, ModuleRelocTarget};
use twinbpf_vm::host::native::Site;
use twinbpf_vm::image::Image;
use twinbpf_vm::recover::with_stack;

use crate::alignment::{self, LINE, PADDING, lead};
use crate::debug::Announced;
use crate::error::JitError;
use crate::frame::fitting;
use crate::generate::Generator;
use crate::limits::{self, Strategy, Tier};
use crate::lower::{self, Input, RegisterLiveness, Scratch, Start, Unit};
use crate::memory::{CodeMemory, CodePool, check_relocs};
use crate::opt::PassRun;
use crate::options::{OptLevel, Options};
use crate::parallel::{Threads, share};
use crate::positions::Positions;
use crate::settings::{Registers, insns, isa};
use crate::stage::{GENERATION, InternalError, PLACING, Stages, TRANSLATION, caught, fault, mistake};
use crate::trap_sites::TrapSites;

/// One compiled function.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) unit: Unit,
    /// Address of its first instruction.
    pub(crate) start: u64,
    pub(crate) sites: TrapSites,
    /// It reads registers besides its arguments.
    pub(crate) reads_rest: bool,
    /// How to leave its frame.
    pub(crate) unwind: Option<UnwindInfo>,
}

/// Functions that were compiled together.
#[derive(Debug)]
pub(crate) struct Module {
    /// What tools know of it; gone before the code is.
    pub(crate) announced: Announced,
    /// By address.
    pub(crate) functions: Vec<Compiled>,
    pub(crate) memory: CodeMemory,
}

/// What is used again by the next compilation.
#[derive(Default)]
struct Workspace {
    context: Option<cranelift_codegen::Context>,
    scratch: Scratch,
    generator: Generator,
}

/// Native stack that compiling needs.
pub(crate) const STACK: usize = 1 << 20;

/// Instructions of a function, at most, whose workspace is kept: that of a million takes hundreds of megabytes.
const KEPT: u32 = 1 << 15;

/// Compiles a function in a workspace ([`in_workspace`]). After a mistake of the compiler it does so once more and verifies
/// after each stage, so that the error names the stage at fault rather than the one that stumbled over its result.
fn attempt<T>(
    image: &Image,
    function: u32,
    work: impl Fn(&mut Workspace, Stages<'_>) -> Result<T, JitError>,
) -> Result<T, JitError> {
    let fault = fault(&image.functions()[function as usize].name);
    let once = |each| {
        let wrong = |stage, why: &str| InternalError::new(image, function, stage, why);
        caught(wrong, |at| in_workspace(image, function, |workspace| work(workspace, Stages { at, each, fault })))
    };
    match once(cfg!(test)) {
        Err(JitError::Internal(first)) => match once(true) {
            Err(JitError::Internal(found)) => Err(JitError::Internal(found)),
            _ => Err(JitError::Internal(first)),
        },
        done => done,
    }
}

/// Does something in a workspace that is not in use. There are as many as there ever were compilations at once: threads
/// that come and go find them warm. One in which a compilation panicked is not used again.
fn in_workspace<T>(image: &Image, function: u32, work: impl FnOnce(&mut Workspace) -> T) -> T {
    static IDLE: Mutex<Vec<Box<Workspace>>> = Mutex::new(Vec::new());
    // Locked for good in a process that was forked at the wrong moment; it can do without.
    let idle = || IDLE.try_lock().ok();
    let mut workspace = idle().and_then(|mut idle| idle.pop()).unwrap_or_default();
    let result = work(&mut workspace);
    if insns(image, function) <= KEPT
        && let Some(mut idle) = idle()
    {
        idle.push(workspace);
    }
    result
}

/// A compiled function before its code is placed in memory.
pub(crate) struct UnplacedFunction {
    unit: Unit,
    pub(crate) code: Box<CompiledCode>,
    relocs: Vec<ModuleReloc>,
    sites: Vec<Site>,
    positions: Positions,
    /// Bytes of padding before it.
    lead: usize,
    reads_rest: bool,
}

impl AsRef<CompiledCode> for UnplacedFunction {
    fn as_ref(&self) -> &CompiledCode {
        &self.code
    }
}

/// Code to be made of an image.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) image: &'a Image,
    pub(crate) options: Options,
    pub(crate) threads: Threads,
    pub(crate) tier: Tier,
    /// Whether the code is still needed: called before each function.
    pub(crate) wanted: &'a (dyn Fn() -> bool + Sync),
}

/// Compiles programs, given by their functions, or a single loop into one module. Leaves out programs that fail, and
/// returns the error of each. No module if all failed.
pub(crate) fn compile(
    job: Job<'_>,
    programs: &[&[Unit]],
    pool: &Arc<CodePool>,
) -> Result<(Vec<Option<JitError>>, Option<Module>), JitError> {
    with_stack(STACK, || compile_here(job, programs, pool)).map_err(JitError::Stack)?
}

/// What [`compile`] does, with enough native stack.
fn compile_here(
    job: Job<'_>,
    programs: &[&[Unit]],
    pool: &Arc<CodePool>,
) -> Result<(Vec<Option<JitError>>, Option<Module>), JitError> {
    let isa = isa(job.options.opt, Registers::Backtracking, job.options.verify)?;
    let mut loose = Vec::with_capacity(programs.iter().map(|units| units.len()).sum());
    let each = together(job, programs).into_iter();
    let failures = each.map(|functions| functions.map(|functions| append(&mut loose, functions)).err()).collect();
    let Some(first) = loose.first().map(|function| function.unit.function) else { return Ok((failures, None)) };
    let fault = fault(&job.image.functions()[first as usize].name);
    let module = caught(
        |stage, why: &str| InternalError::new(job.image, first, stage, why),
        |at| {
            Stages { at, each: false, fault }.enter(PLACING);
            emit_module(isa, pool, loose, fault)
        },
    );
    Ok((failures, Some(module?)))
}

/// Adds a program to others. Its functions refer to each other by their place in it, from here on by that in all.
fn append(all: &mut Vec<UnplacedFunction>, mut program: Vec<UnplacedFunction>) {
    let before = all.len() as u32;
    for reloc in program.iter_mut().flat_map(|function| &mut function.relocs) {
        if let ModuleRelocTarget::User { namespace: 0, index } = &mut reloc.name {
            *index += before;
        }
    }
    all.append(&mut program);
}

/// Compiles programs, each given by all its functions in order, or a single loop.
fn together(job: Job<'_>, programs: &[&[Unit]]) -> Vec<Result<Vec<UnplacedFunction>, JitError>> {
    let Job { image, options, threads, tier, wanted } = job;
    let summaries: Vec<OnceLock<RegisterLiveness>> = programs.iter().map(|_| OnceLock::new()).collect();
    let units = programs
        .iter()
        .zip(&summaries)
        .flat_map(|(units, summary)| units.iter().map(move |unit| (*units, summary, *unit)));
    let units: Vec<(&[Unit], &OnceLock<RegisterLiveness>, Unit)> = units.collect();
    let sizes: Vec<usize> = units.iter().map(|(_, _, unit)| insns(image, unit.function) as usize).collect();
    let done = share(&sizes, threads, |item| {
        let (program, summary, unit) = units[item];
        if !wanted() {
            return Err(JitError::Unwanted);
        }
        let compile = |workspace: &mut Workspace, stages: Stages<'_>| {
            workspace.compile(image, (program, summary), unit, (options, tier), stages)
        };
        attempt(image, unit.function, compile)
    });
    let mut done = done.into_iter();
    // All of a program's are taken, also after one that failed.
    let of = |units: &&[Unit]| done.by_ref().take(units.len()).collect::<Vec<Result<UnplacedFunction, JitError>>>();
    programs.iter().map(of).map(|functions| functions.into_iter().collect()).collect()
}

impl Workspace {
    /// Compiles a function of a program; the first of these calls computes the program's summary.
    fn compile(
        &mut self,
        image: &Image,
        (units, summary): (&[Unit], &OnceLock<RegisterLiveness>),
        unit: Unit,
        (options, tier): (Options, Tier),
        stages: Stages<'_>,
    ) -> Result<UnplacedFunction, JitError> {
        let Workspace { context, scratch, generator } = self;
        let program = image.functions()[unit.function as usize].program;
        let summary = summary.get_or_init(|| RegisterLiveness::new(image, options, scratch.flow(), program));
        let context = context.get_or_insert_with(cranelift_codegen::Context::new);
        let index = |function: u32| {
            let index = function.wrapping_sub(units[0].function) as usize;
            (units.get(index) == Some(&Unit { function, start: Start::Entry })).then_some(index)
        };
        let strategy = limits::strategy(image, unit.function, options, tier);
        // Code of the first tier calls by the table, which leads to better code once that is there.
        let local = |function| strategy != Strategy::FirstTier && index(function).is_some();
        fitting(image, unit.function, (strategy, options), |options, isa, checked| {
            let (local, values) = (&local, None);
            let (listing, mutant) = (false, stages.fault);
            let input = Input { image, options, summary, local, isa, values, listing, checked, strategy, mutant };
            let function = one(input, unit, (scratch, context, generator), &index, stages);
            context.clear();
            function
        })
    }
}

/// Cranelift's text of a function, with marks for [`crate::listing`], what the marks mean, and the runs of passes. Its program is taken to be compiled as a whole.
pub(crate) fn list(
    image: &Image,
    function: u32,
    options: Options,
) -> Result<(String, Positions, Vec<PassRun>), JitError> {
    let work = || {
        attempt(image, function, |workspace, stages| {
            let Workspace { context, scratch, generator } = workspace;
            let program = image.functions()[function as usize].program;
            let summary = &RegisterLiveness::new(image, options, scratch.flow(), program);
            let context = context.get_or_insert_with(cranelift_codegen::Context::new);
            let unit = Unit { function, start: Start::Entry };
            let index = |function| Some(function as usize);
            let strategy = limits::strategy(image, function, options, Tier::Final);
            let loose = fitting(image, function, (strategy, options), |options, isa, checked| {
                let (local, values) = (&|_| true, None);
                let (listing, mutant) = (true, stages.fault);
                let input = Input { image, options, summary, local, isa, values, listing, checked, strategy, mutant };
                let loose = one(input, unit, (scratch, context, generator), &index, stages);
                context.clear();
                loose
            });
            let loose = loose?;
            Ok((loose.code.vcode.expect("a listing has text"), loose.positions, generator.take_runs()))
        })
    };
    with_stack(STACK, work).map_err(JitError::Stack)?
}

/// Compiles a function that is none of a program.
pub(crate) fn compile_one(build: impl FnOnce(&mut Function, &dyn TargetIsa) -> Vec<Site>) -> Result<Module, JitError> {
    with_stack(STACK, || compile_alone(build)).map_err(JitError::Stack)?
}

fn compile_alone(build: impl FnOnce(&mut Function, &dyn TargetIsa) -> Vec<Site>) -> Result<Module, JitError> {
    let wrong = |stage, why: &str| InternalError::of_runtime("bridge", stage, why);
    caught(wrong, |at| {
        let isa = isa(OptLevel::Speed, Registers::Backtracking, false)?;
        let mut context = cranelift_codegen::Context::new();
        let sites = build(&mut context.func, &*isa);
        at.set(GENERATION);
        if let Err(error) = context.compile(&*isa, &mut ControlPlane::default()) {
            return Err(wrong(at.get(), &format!("{:?}", error.inner)).into());
        }
        let code = Box::new(context.take_compiled_code().expect("just compiled"));
        let unit = Unit { function: u32::MAX, start: Start::Entry };
        at.set(PLACING);
        emit_module(
            isa,
            &CodePool::shared(CodePool::own_address())?,
            vec![UnplacedFunction {
                unit,
                code,
                relocs: Vec::new(),
                sites,
                positions: Positions::default(),
                lead: 0,
                reads_rest: false,
            }],
            "",
        )
    })
}

/// Compiles one function.
fn one(
    input: Input<'_>,
    unit: Unit,
    (scratch, context, generator): (&mut Scratch, &mut cranelift_codegen::Context, &mut Generator),
    index: &dyn Fn(u32) -> Option<usize>,
    stages: Stages<'_>,
) -> Result<UnplacedFunction, JitError> {
    let name = || Arc::clone(&input.image.functions()[unit.function as usize].name);
    context.set_disasm(input.listing);
    stages.enter(TRANSLATION);
    let sites = lower::lower(input, unit, scratch, &mut context.func);
    let mut sites = sites.ok_or_else(|| JitError::Entangled { function: name() })?;
    let (reads_rest, positions) = (scratch.reads_rest(), scratch.positions().clone());
    let code =
        generator.generate(context, input.isa, (input.options, input.strategy), (unit.function, &mut sites), stages);
    let code = code.map_err(|error| failed(input.image, unit.function, stages, &error))?;
    let relocs = code.buffer.relocs().iter();
    let relocs = relocs.map(|reloc| reloc_of(reloc, &context.func, index, unit)).collect();
    let lead = if input.options.opt == OptLevel::Speed { lead(input.isa, &code) } else { 0 };
    Ok(UnplacedFunction { unit, code, relocs, sites, positions, lead, reads_rest })
}

/// Cranelift's error as ours.
fn failed(image: &Image, function: u32, stages: Stages<'_>, error: &CodegenError) -> JitError {
    match mistake(error) {
        Some(why) => InternalError::new(image, function, stages.at.get(), why).into(),
        None => {
            let function = &image.functions()[function as usize];
            let program = Arc::clone(&image.programs()[function.program as usize].name);
            JitError::Codegen { program, function: Arc::clone(&function.name), why: error.to_string() }
        }
    }
}

/// A relocation with the callee's number in the module for its index in the image.
fn reloc_of(
    reloc: &cranelift_codegen::FinalizedMachReloc,
    func: &Function,
    index: &dyn Fn(u32) -> Option<usize>,
    unit: Unit,
) -> ModuleReloc {
    let mut reloc = ModuleReloc::from_mach_reloc(reloc, func, FuncId::from_u32(unit.function));
    if let ModuleRelocTarget::User { namespace: 0, index: function } = &mut reloc.name {
        *function = index(*function).expect("only functions of this module are called by name") as u32;
    }
    reloc
}

/// Puts compiled functions into memory.
fn emit_module(
    isa: OwnedTargetIsa,
    pool: &Arc<CodePool>,
    mut loose: Vec<UnplacedFunction>,
    _fault: &str,
) -> Result<Module, JitError> {
    let align = |code: &CompiledCode| alignment(&*isa, code);
    let bound = loose.iter().map(|function| function.code.code_buffer().len().next_multiple_of(64) + 64).sum();
    let memory = pool.module(bound)?;
    let aligns: Vec<u64> = loose.iter().map(|function| align(&function.code)).collect();
    let mut builder = JITBuilder::with_isa(isa.clone(), cranelift_module::default_libcall_names());
    builder.memory_provider(memory.provider());
    let mut module = JITModule::new(builder);
    let signature = lower::signature();
    let ids = declare(&mut module, &signature, loose.len())?;
    let leads: Vec<usize> = loose.iter().map(|function| function.lead).collect();
    for ((id, function), align) in ids.iter().zip(&mut loose).zip(aligns) {
        function.relocs.iter_mut().for_each(|reloc| shift(reloc, function.lead, &leads));
        let mut bytes = [&PADDING[..function.lead], function.code.code_buffer()].concat();
        #[cfg(feature = "faults")]
        crate::faults::after_emission(_fault, &mut bytes[function.lead..], &mut function.relocs);
        check_relocs(module.declarations(), *id, &function.relocs)?;
        if alignment::aligns(&*isa) {
            // No bytes of who had this memory before lie between functions.
            bytes.resize(bytes.len().next_multiple_of(LINE), PADDING[0]);
        }
        module.define_function_bytes(*id, align, &bytes, &function.relocs).map_err(Box::new)?;
    }
    module.finalize_definitions().map_err(Box::new)?;
    let written: Vec<*const u8> = ids.iter().map(|id| module.get_finalized_function(*id)).collect();
    let memory = memory.publish()?;
    let functions = loose.into_iter().zip(written).map(|(function, written)| Compiled {
        unit: function.unit,
        unwind: function.code.create_unwind_info(&*isa).ok().flatten(),
        start: memory.address_of(written) + function.lead as u64,
        sites: TrapSites::new(&function.code, function.sites, function.positions),
        reads_rest: function.reads_rest,
    });
    let mut functions: Vec<Compiled> = functions.collect();
    functions.sort_unstable_by_key(|function| function.start);
    Ok(Module { announced: Announced::default(), functions, memory })
}

/// Moves a relocation after the padding, and what it refers to likewise.
fn shift(reloc: &mut ModuleReloc, lead: usize, leads: &[usize]) {
    reloc.offset += lead as u32;
    if let ModuleRelocTarget::User { namespace: 0, index } = reloc.name {
        reloc.addend += leads[index as usize] as i64;
    }
}

fn alignment(isa: &dyn TargetIsa, code: &CompiledCode) -> u64 {
    let least = u64::from(code.buffer.alignment.max(isa.function_alignment().minimum)).max(isa.symbol_alignment());
    if alignment::aligns(isa) { least.max(LINE as u64) } else { least }
}

fn declare(module: &mut JITModule, signature: &Signature, count: usize) -> Result<Vec<FuncId>, JitError> {
    let ids = (0..count).map(|_| module.declare_anonymous_function(signature).map_err(Box::new));
    Ok(ids.collect::<Result<Vec<FuncId>, _>>()?)
}
