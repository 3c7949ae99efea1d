//! From an image to an object file.

use std::cell::Cell;

use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, Function, InstBuilder as _, MemFlagsData, Signature, UserExternalName,
    types::I64,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CompiledCode, Context, FinalizedRelocTarget};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, FuncId, Linkage, Module as _, ModuleError, ModuleReloc};
use cranelift_object::{ObjectBuilder, ObjectModule};
use twinbpf_vm::host::native::{MAX_FRAME, Site};
use twinbpf_vm::image::Image;
use twinbpf_vm::recover::with_stack;

use super::{Origin, SYMBOL, Target, TargetError, Values, blob, facts, target};
use crate::alignment::{self, LINE, PADDING};
use crate::compile::STACK;
use crate::context::reg_field;
use crate::frame::{self, Verdict};
use crate::generate::Generator;
use crate::limits::{self, Tier};
use crate::lower::{self, Input, RegisterLiveness, Scratch, Start, Unit};
use crate::options::{OptLevel, Options};
use crate::positions::Positions;
use crate::stage::{At, GENERATION, InternalError, Stages, TRANSLATION, caught, fault, mistake};
use crate::trap_sites::TrapSites;

/// Why there is no object file.
#[derive(Debug, thiserror::Error)]
pub enum AotError {
    /// No compiler for the target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A program cannot be a C function.
    #[error("program {name} cannot become a C function: its name is no C identifier, or not the only one of its kind")]
    Name {
        /// The program's name.
        name: String,
    },
    /// Computed jumps times labels exceed what is sensible.
    #[error("function {function} has too many computed jumps for native code")]
    Entangled {
        /// Name of the function.
        function: String,
    },
    /// The compiler makes a mistake.
    #[error(transparent)]
    Internal(#[from] Box<InternalError>),
    /// A function exceeds a limit of Cranelift.
    #[error("function {function}: {why}")]
    Codegen {
        /// Name of the function.
        function: String,
        /// What Cranelift says.
        why: String,
    },
    /// Each call would take too much native stack.
    #[error(
        "function {function} needs {bytes} bytes of native stack for each call, more than the limit of {MAX_FRAME}; split it"
    )]
    Frame {
        /// Name of the function.
        function: String,
        /// What it needs.
        bytes: u32,
    },
    /// The compiler needs more native stack than the thread has, and there is no memory for it.
    #[error("compiling: {0}")]
    Stack(std::io::Error),
    /// The code needs something that neither it nor the context has.
    #[error("function {function} refers to the undefined symbol {symbol}")]
    Undefined {
        /// Name of the function.
        function: String,
        /// What the code refers to.
        symbol: String,
    },
    /// The file cannot be put together.
    #[error("writing an object: {0}")]
    Write(String),
}

impl From<ModuleError> for AotError {
    fn from(error: ModuleError) -> AotError {
        AotError::Write(error.to_string())
    }
}

/// Compiles all programs of an image into a relocatable object file. The C function of a program has its name, with
/// `prefix` before it.
///
/// # Errors
/// See [`AotError`].
pub fn object(
    image: &Image,
    options: Options,
    target: &Target,
    origin: Origin<'_>,
    prefix: &str,
) -> Result<Vec<u8>, AotError> {
    with_stack(STACK, || object_here(image, options, target, origin, prefix)).map_err(AotError::Stack)?
}

/// What [`object`] does, with enough native stack.
fn object_here(
    image: &Image,
    options: Options,
    target: &Target,
    origin: Origin<'_>,
    prefix: &str,
) -> Result<Vec<u8>, AotError> {
    let isa = target.isa(options.opt, options.verify)?;
    let names = names(image, prefix)?;
    let libcalls = cranelift_module::default_libcall_names();
    // No unwind tables: Cranelift writes absolute addresses into them, which no shared library should have. All
    // functions have frame pointers.
    let mut module = ObjectModule::new(ObjectBuilder::new(isa.clone(), origin.object, libcalls)?);
    let values = Values::new(image);
    let plain = target.isa(OptLevel::None, options.verify)?;
    let at_function = Cell::new(0);
    // What panics is given up as a whole: nothing of the module is used then.
    let sites = caught(
        |stage, why: &str| InternalError::new(image, at_function.get(), stage, why),
        |at| {
            let sites = functions(&mut module, image, options, (&*isa, &*plain, &values), (at, &at_function))?;
            for (program, name) in names.iter().enumerate() {
                at_function.set(image.entry_function(program) as u32);
                at.set(GENERATION);
                entry(&mut module, image, program, name, &*isa)?;
            }
            Ok::<_, AotError>(sites)
        },
    )?;
    let mut known = facts::identity(image, options, origin, &values);
    known.extend(facts::remarks(options, origin, &target.triple(), &target::features(&*isa)));
    describe(&mut module, &facts::to_text(&known), &sites)?;
    module.finish().emit().map_err(|error| AotError::Write(error.to_string()))
}

/// Names of the C functions.
fn names(image: &Image, prefix: &str) -> Result<Vec<String>, AotError> {
    let mut names: Vec<String> = Vec::new();
    for program in image.programs() {
        let name = format!("{prefix}{}", program.name);
        let good = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
        if !good || name.starts_with(|first: char| first.is_ascii_digit()) || names.contains(&name) || name == SYMBOL {
            return Err(AotError::Name { name });
        }
        names.push(name);
    }
    Ok(names)
}

/// The functions of all programs, under local names and with their index in the image as number.
fn functions(
    module: &mut ObjectModule,
    image: &Image,
    options: Options,
    (isa, plain, values): (&dyn TargetIsa, &dyn TargetIsa, &Values),
    (at, at_function): (&At, &Cell<u32>),
) -> Result<Vec<TrapSites>, AotError> {
    let signature = lower::signature();
    for (index, function) in image.functions().iter().enumerate() {
        let id = module.declare_function(&format!("{}.{index}", function.name), Linkage::Local, &signature)?;
        assert_eq!(id.as_u32() as usize, index, "functions call each other by index");
    }
    let (mut scratch, mut context) = (Scratch::default(), Context::new());
    let mut generator = Generator::default();
    let mut sites = Vec::with_capacity(image.functions().len());
    let mut summary = RegisterLiveness::new(image, options, scratch.flow(), 0);
    let mut program = 0;
    for (index, function) in image.functions().iter().enumerate() {
        if program != function.program {
            program = function.program;
            summary = RegisterLiveness::new(image, options, scratch.flow(), program);
        }
        at_function.set(index as u32);
        let (summary, local, values) = (&summary, &|_| true, Some(values));
        let strategy = limits::strategy(image, index as u32, options, Tier::Final);
        let options = strategy.options(options);
        let isa = if options.opt == OptLevel::None { plain } else { isa };
        let (listing, checked, mutant) = (false, false, "");
        let input = Input { image, options, summary, local, isa, values, listing, checked, strategy, mutant };
        let unit = Unit { function: index as u32, start: Start::Entry };
        let stages = Stages { at, each: false, fault: fault(&function.name) };
        let (code, own) = fitting(input, unit, plain, (&mut scratch, &mut context, &mut generator), stages)?;
        define(module, FuncId::from_u32(index as u32), &code, &context.func, isa)?;
        if let Some(symbol) = foreign(&code) {
            return Err(AotError::Undefined { function: function.name.to_string(), symbol });
        }
        sites.push(TrapSites::new(&code, own, Positions::default()));
        module.clear_context(&mut context);
    }
    Ok(sites)
}

/// Compiles a function, which checks the limit of the native stack if its frame is large, and is not optimised if it is
/// too large then: for the target `plain`.
fn fitting<'a>(
    mut input: Input<'a>,
    unit: Unit,
    plain: &'a dyn TargetIsa,
    (scratch, context, generator): (&mut Scratch, &mut Context, &mut Generator),
    stages: Stages<'_>,
) -> Result<(Box<CompiledCode>, Vec<Site>), AotError> {
    let function = &input.image.functions()[unit.function as usize];
    let name = || function.name.to_string();
    let mut checked = frame::checks_at_once(function.end - function.start);
    loop {
        stages.enter(TRANSLATION);
        let sites = lower::lower(Input { checked, ..input }, unit, scratch, &mut context.func);
        let mut sites = sites.ok_or_else(|| AotError::Entangled { function: name() })?;
        let code = generator.generate(
            context,
            input.isa,
            (input.options, input.strategy),
            (unit.function, &mut sites),
            stages,
        );
        let code = code.map_err(|error| match mistake(&error) {
            Some(why) => InternalError::new(input.image, unit.function, stages.at.get(), why).into(),
            None => AotError::Codegen { function: name(), why: error.to_string() },
        })?;
        match frame::judge(&code, checked) {
            Verdict::Fits => return Ok((code, sites)),
            Verdict::Unchecked => checked = true,
            Verdict::TooLarge(_) if input.options.opt == OptLevel::Speed => {
                (input.options.opt, input.isa) = (OptLevel::None, plain);
            }
            Verdict::TooLarge(bytes) => return Err(AotError::Frame { function: name(), bytes }),
        }
        context.clear();
    }
}

/// Puts a function where its loops lie well.
fn define(
    module: &mut ObjectModule,
    id: FuncId,
    code: &CompiledCode,
    func: &Function,
    isa: &dyn TargetIsa,
) -> Result<(), AotError> {
    if alignment::aligns(isa) {
        let padding = module.declare_anonymous_function(&func.signature)?;
        module.define_function_bytes(padding, LINE as u64, &PADDING[..alignment::lead(isa, code)], &[])?;
    }
    let relocs = code.buffer.relocs().iter();
    let relocs: Vec<ModuleReloc> = relocs.map(|reloc| ModuleReloc::from_mach_reloc(reloc, func, id)).collect();
    Ok(module.define_function_bytes(id, u64::from(code.buffer.alignment), code.code_buffer(), &relocs)?)
}

/// Something that code refers to and that is no function of its module.
fn foreign(code: &CompiledCode) -> Option<String> {
    code.buffer.relocs().iter().find_map(|reloc| match &reloc.target {
        FinalizedRelocTarget::Func(_) | FinalizedRelocTarget::ExternalName(ExternalName::User(_)) => None,
        FinalizedRelocTarget::ExternalName(name) => Some(name.display(None).to_string()),
    })
}

/// `uint64_t NAME(struct twinbpf_context *)`: arguments and frame from the context.
fn entry(
    module: &mut ObjectModule,
    image: &Image,
    program: usize,
    name: &str,
    isa: &dyn TargetIsa,
) -> Result<(), AotError> {
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.push(AbiParam::new(I64));
    signature.returns.push(AbiParam::new(I64));
    let id = module.declare_function(name, Linkage::Export, &signature)?;
    let mut context = Context::new();
    context.func.signature = signature;
    let mut scratch = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut context.func, &mut scratch);
    let block = b.create_block();
    b.append_block_params_for_function_params(block);
    b.switch_to_block(block);
    b.seal_block(block);
    let cx = b.block_params(block)[0];
    let mut load = |reg: usize| b.ins().load(I64, MemFlagsData::trusted(), cx, reg_field(reg));
    let args: [_; lower::PARAMS] = [cx, load(10), load(1), load(2), load(3), load(4)];
    // Calls in the program pass theirs in its place, and the caller may call again.
    let last = load(5);
    let index = image.entry_function(program) as u32;
    let name = b.func.declare_imported_user_function(UserExternalName { namespace: 0, index });
    let signature = b.import_signature(lower::signature());
    let data = ExtFuncData { name: ExternalName::user(name), signature, colocated: true, patchable: false };
    let function = b.import_function(data);
    let call = b.ins().call(function, &args);
    let value = b.inst_results(call)[0];
    b.ins().store(MemFlagsData::trusted(), last, cx, reg_field(5));
    b.ins().return_(&[value]);
    b.finalize(isa.frontend_config());
    Ok(module.define_function(id, &mut context)?)
}

/// The symbol of the artifact's description.
fn describe(module: &mut ObjectModule, text: &str, sites: &[TrapSites]) -> Result<(), AotError> {
    // Weak: of several such objects in one C program, any may have it.
    let id = module.declare_data(SYMBOL, Linkage::Preemptible, false, false)?;
    let mut data = DataDescription::new();
    data.define(blob::write(text, sites).into());
    data.set_align(8);
    for index in 0..sites.len() {
        let function = module.declare_func_in_data(FuncId::from_u32(index as u32), &mut data);
        data.write_function_addr((blob::HEAD + blob::RECORD * index) as u32, function);
    }
    Ok(module.define_data(id, &data)?)
}
