//! Native code in a build without the feature `jit`: there is none.

use std::sync::Arc;

use twinbpf_isa::program::Program;
use twinbpf_vm::host::native::Native;
use twinbpf_vm::image::Image;

use crate::config::EngineKind;
use crate::engine::Engine;
use crate::error::CompileError;

/// No function is too much work for a compiler that is not there.
pub(crate) fn exceeding(_: &Engine, _: &Program) -> Vec<String> {
    Vec::new()
}

/// Does something that need not be kept from compiling.
#[cfg(feature = "hook")]
pub(crate) fn without_compiling<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// What the machines of an image get besides the interpreter.
///
/// # Errors
/// The engine is configured for native code only.
pub(crate) fn native(engine: &Engine, _: &Arc<Image>) -> Result<Option<Arc<dyn Native>>, CompileError> {
    match engine.config().engine {
        EngineKind::Jit => Err(CompileError),
        EngineKind::Auto | EngineKind::Interp => Ok(None),
    }
}
