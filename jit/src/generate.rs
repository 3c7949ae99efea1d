//! From Cranelift's IR to machine code of one function, without a place yet.
//!
//! `Context::compile` would do it in one go, but [`Polish`] belongs in between: behind the optimiser and in front of the
//! choice of machine instructions and registers.

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CodegenResult, CompiledCode, Context};
use twinbpf_vm::host::native::Site;

use crate::options::{OptLevel, Options};
use crate::polish::Polish;
use crate::stage::{GENERATION, OPTIMISER, Stages};
use crate::translate::CODES;

/// Memory that is used again for the next function.
#[derive(Default)]
pub(crate) struct Generator {
    polish: Polish,
    back_end: BackEnd,
}

/// Chooses instructions and registers. The memory of Cranelift's register allocator is in it, whose type has no public
/// name.
struct BackEnd(Box<Choose>);

type Choose = dyn FnMut(&Function, &DominatorTree, &dyn TargetIsa, bool) -> CodegenResult<Box<CompiledCode>> + Send;

impl Default for BackEnd {
    fn default() -> BackEnd {
        let mut registers = Default::default();
        BackEnd(Box::new(move |func, domtree, isa, text| {
            let code = isa.compile_function(func, domtree, &mut registers, text, &mut ControlPlane::default())?;
            // Large enough to be passed on in a box.
            Ok(Box::new(code.apply_params(&func.params)))
        }))
    }
}

impl Generator {
    /// Makes code of the function in the context, which has these sites.
    pub(crate) fn generate(
        &mut self,
        context: &mut Context,
        isa: &dyn TargetIsa,
        options: Options,
        sites: &[Site],
        stages: Stages<'_>,
    ) -> CodegenResult<Box<CompiledCode>> {
        let speed = options.opt == OptLevel::Speed;
        #[cfg(feature = "faults")]
        crate::faults::after_translation(stages.fault, &mut context.func);
        stages.leave(&context.func, isa)?;
        if speed {
            self.polish.before(context, isa, options.fuel, stages)?;
        }
        stages.pass(OPTIMISER, (context, isa), |context| context.optimize(isa, &mut ControlPlane::default()))??;
        if speed {
            self.polish.after(context, isa, sites.len() > CODES, stages)?;
            context.verify_if(isa)?;
        }
        #[cfg(feature = "faults")]
        crate::faults::after_passes(stages.fault, context);
        stages.enter(GENERATION);
        (self.back_end.0)(&context.func, &context.domtree, isa, context.want_disasm)
    }
}
