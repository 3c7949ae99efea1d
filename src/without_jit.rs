//! Native code in a build without the feature `jit`: there is none.

use std::sync::Arc;

use twinbpf_isa::program::Program;
use twinbpf_loader::Object;
use twinbpf_vm::host::native::Native;
use twinbpf_vm::image::Image;
use twinbpf_vm::map::MapSpec;

use crate::config::EngineKind;
use crate::engine::Engine;

/// Native code is wanted, and this build has no compiler.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "this build of twinbpf has no compiler: build it with the feature `jit`, or use EngineKind::Auto or EngineKind::Interp"
)]
pub(crate) struct CompileError;

/// What an instance was made of, besides its image.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) object: Arc<str>,
}

impl Source {
    pub(crate) fn new(object: &Object, _: &[MapSpec]) -> Source {
        Source { object: Arc::clone(&object.name) }
    }
}

/// No function is too much work for a compiler that is not there.
pub(crate) fn exceeding(_: &Engine, _: &Program) -> Vec<String> {
    Vec::new()
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
