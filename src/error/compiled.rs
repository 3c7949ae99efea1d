//! Errors of shared libraries of compiled programs.

use std::path::PathBuf;
use std::sync::Arc;

use twinbpf_jit::aot::ArtifactError;

/// Why compiled programs cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompiledError {
    /// It cannot be loaded.
    #[error("cannot load {}: {why}; make it with `twinbpf compile OBJ -o x.o` and `cc -shared x.o -o x.so`", path.display())]
    Load {
        /// Path of the shared library.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// It is not what it should be.
    #[error("cannot use {}: {why}", path.display())]
    Artifact {
        /// Path of the shared library.
        path: PathBuf,
        /// Why the artifact does not fit.
        why: ArtifactError,
    },
    /// It was made of another object, or for other settings.
    #[error("{} does not fit {object}: {why}", path.display())]
    Unfit {
        /// Path of the shared library.
        path: PathBuf,
        /// Name of the object file.
        object: Arc<str>,
        /// What is different.
        why: ArtifactError,
    },
    /// It was made of another object.
    #[error("{} was not made of these bytes of {object} but of {made_of}; compile it again", path.display())]
    OtherBytes {
        /// Path of the shared library.
        path: PathBuf,
        /// Name of the object file.
        object: Arc<str>,
        /// Name of the object it was made of.
        made_of: String,
    },
    /// Its code fails verification.
    #[error("{}: native code of function {function} fails verification: {why}; compile the object again", path.display())]
    Rejected {
        /// Path of the shared library.
        path: PathBuf,
        /// Name of the function.
        function: Arc<str>,
        /// Address, instruction and reason.
        why: String,
    },
    /// A program was not compiled.
    #[error("{} has no program {program}; it has {}", path.display(), known.join(", "))]
    NoProgram {
        /// Path of the shared library.
        path: PathBuf,
        /// Name of the requested program.
        program: String,
        /// Programs it has.
        known: Vec<String>,
    },
}
