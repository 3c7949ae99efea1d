//! The stages of a compilation. What goes wrong in one of them, a panic or code that a verifier rejects, becomes an
//! [`InternalError`] that names it.

use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CodegenError, CodegenResult, Context, verify_function};
use twinbpf_vm::image::Image;
use twinbpf_vm::trap::panic_words;

/// A mistake of the compiler, found while it compiled a function. A compiler's panic also runs the panic hook of the
/// process, which as a rule prints it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "program {program}, function {function}: internal compiler error in stage {stage}: {why}; please report it with the object"
)]
pub struct InternalError {
    /// Name of the program that was compiled.
    pub program: Arc<str>,
    /// The function of it.
    pub function: Arc<str>,
    /// `translation`, a pass, `optimiser`, `code generation`, `placing`, ...
    pub stage: &'static str,
    /// What the verifier says, or the message of the panic.
    pub why: String,
}

/// The stage that a compilation is in. It starts with [`TRANSLATION`].
pub(crate) type At = Cell<&'static str>;

pub(crate) const TRANSLATION: &str = "translation";
pub(crate) const OPTIMISER: &str = "optimiser";
pub(crate) const GENERATION: &str = "code generation";
pub(crate) const PLACING: &str = "placing";
pub(crate) const ANNOUNCING: &str = "announcing";

/// How the stages of one function's compilation run.
#[derive(Clone, Copy)]
pub(crate) struct Stages<'a> {
    pub(crate) at: &'a At,
    /// Verifies the IR after each stage, to find the one that breaks it.
    pub(crate) each: bool,
    /// What goes wrong on purpose: [`fault`] of the function's name.
    pub(crate) fault: &'a str,
}

impl Stages<'_> {
    /// A stage begins.
    pub(crate) fn enter(&self, name: &'static str) {
        self.at.set(name);
        if let Some(stage) = self.fault.strip_prefix("panic_")
            && stage == name.replace([' ', '-'], "_")
        {
            panic!("{name} fails on purpose");
        }
    }

    /// Verifies what the stage made, if each is verified.
    pub(crate) fn leave(&self, func: &Function, isa: &dyn TargetIsa) -> CodegenResult<()> {
        if self.each {
            verify_function(func, isa)?;
        }
        Ok(())
    }

    /// Runs a pass over the IR.
    pub(crate) fn pass<T>(
        &self,
        name: &'static str,
        (context, isa): (&mut Context, &dyn TargetIsa),
        work: impl FnOnce(&mut Context) -> T,
    ) -> CodegenResult<T> {
        self.enter(name);
        let result = work(context);
        self.leave(&context.func, isa)?;
        Ok(result)
    }
}

/// What the compiler does wrong in a function with this name, for tests of what finds such mistakes: `__fault_panic_STAGE`
/// has a stage panic, `__fault_NAME` is a mutant of the compiler. Without the feature `faults` no name is special.
pub(crate) fn fault(name: &str) -> &str {
    match cfg!(any(test, feature = "faults")) {
        true => name.strip_prefix("__fault_").unwrap_or(""),
        false => "",
    }
}

/// An error of the compiler, in words, if it is a mistake; a limit is none.
pub(crate) fn mistake(error: &CodegenError) -> Option<String> {
    match error {
        CodegenError::Verifier(errors) => {
            let more = errors.0.len().saturating_sub(1);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            Some(errors.0.first().map_or_else(String::new, |first| format!("{first}{more}")))
        }
        CodegenError::Regalloc(errors) => Some(format!("registers are wrong: {errors:?}")),
        CodegenError::Unsupported(what) => Some(format!("no instruction for {what}")),
        error @ CodegenError::RegisterMappingError(_) => Some(error.to_string()),
        CodegenError::ImplLimitExceeded | CodegenError::CodeTooLarge => None,
    }
}

impl InternalError {
    /// In a function of an image.
    pub(crate) fn new(image: &Image, function: u32, stage: &'static str, why: impl Display) -> Box<InternalError> {
        let function = &image.functions()[function as usize];
        let program = &image.programs()[function.program as usize].name;
        let (program, function) = (Arc::clone(program), Arc::clone(&function.name));
        Box::new(InternalError { program, function, stage, why: why.to_string() })
    }

    /// In code that belongs to no program.
    pub(crate) fn of_runtime(function: &str, stage: &'static str, why: impl Display) -> Box<InternalError> {
        Box::new(InternalError { program: "(runtime)".into(), function: function.into(), stage, why: why.to_string() })
    }
}

/// Does a part of a compilation; a panic in it becomes the error that `wrong` makes of the stage and the panic's message.
/// What the part worked on must not be used again after a panic.
pub(crate) fn caught<T, E: From<Box<InternalError>>>(
    wrong: impl FnOnce(&'static str, &str) -> Box<InternalError>,
    work: impl FnOnce(&At) -> Result<T, E>,
) -> Result<T, E> {
    let at = At::new(TRANSLATION);
    catch_unwind(AssertUnwindSafe(|| work(&at))).unwrap_or_else(|panic| {
        let words = panic_words(&*panic).unwrap_or("without a message");
        Err(wrong(at.get(), &format!("panic: {words}")).into())
    })
}
