//! From Cranelift's IR to machine code of one function, without a place yet.
//!
//! `Context::compile` would do it in one go, but our passes ([`Pipeline`]) run in between: before Cranelift's optimiser, and after it
//! before instruction selection.

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CodegenResult, CompiledCode, Context};
use twinbpf_vm::host::native::Site;

use crate::limits::Strategy;
use crate::opt::PassRun;
use crate::opt::pipeline::{Pipeline, Subject};
use crate::options::{OptLevel, Options};
use crate::stage::{GENERATION, OPTIMISER, Stages};

/// Blocks of a function, at most, in which if-conversion takes longer than it saves where nothing is optimised.
const MANY: usize = 256;

/// Memory that is used again for the next function.
#[derive(Default)]
pub(crate) struct Generator {
    pipeline: Pipeline,
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

/// What the optimiser does at least, but to find parameters that are one value: lowering makes hardly any.
fn prepare(context: &mut Context, isa: &dyn TargetIsa) -> CodegenResult<()> {
    context.flowgraph();
    context.eliminate_unreachable_code(isa)?;
    context.func.dfg.resolve_all_aliases();
    context.verify_if(isa)
}

impl Generator {
    /// Makes code of the function in the context, which is this one of the image and has these sites.
    pub(crate) fn generate(
        &mut self,
        context: &mut Context,
        isa: &dyn TargetIsa,
        (options, strategy): (Options, Strategy),
        (function, sites): (u32, &mut Vec<Site>),
        stages: Stages<'_>,
    ) -> CodegenResult<Box<CompiledCode>> {
        let speed = options.opt == OptLevel::Speed;
        let (passes, counted) = (options.passes, options.fuel);
        let subject = Subject { function, passes, counted, stages };
        #[cfg(feature = "faults")]
        crate::faults::after_translation(stages.fault, &mut context.func);
        stages.leave(&context.func, isa)?;
        if speed {
            self.pipeline.pre(context, isa, subject, sites)?;
        } else if matches!(strategy, Strategy::Plain | Strategy::FirstTier) && context.func.dfg.num_blocks() > MANY {
            self.pipeline.without_optimiser(context, isa, subject, sites)?;
        }
        stages.pass(OPTIMISER, (context, isa), |context| match speed {
            true => context.optimize(isa, &mut ControlPlane::default()),
            false => prepare(context, isa),
        })??;
        if speed {
            self.pipeline.post(context, isa, subject, sites)?;
            context.verify_if(isa)?;
        }
        #[cfg(feature = "faults")]
        crate::faults::after_passes(stages.fault, context);
        stages.enter(GENERATION);
        (self.back_end.0)(&context.func, &context.domtree, isa, context.want_disasm)
    }

    /// What the passes did to the last function, if its listing was wanted.
    pub(crate) fn take_runs(&mut self) -> Vec<PassRun> {
        self.pipeline.take_runs()
    }
}
