//! Why native code cannot be made in a build without the feature `jit`.

/// Native code is wanted, and this build has no compiler.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "this build of twinbpf has no compiler: build it with the feature `jit`, or use EngineKind::Auto or EngineKind::Interp"
)]
pub(crate) struct CompileError;
