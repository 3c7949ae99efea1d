//! Several instances of one program in the kernel. The next is requested only after the one before is loaded; the first
//! failure ends it. Types and lines follow the instructions.

use twinbpf_loader::Instances;
use twinbpf_loader::kernel::KernelProgram;

use super::{Failure, LoadedProgram, Loading};

/// A variant that did not load; those before it are gone.
#[derive(Debug, thiserror::Error)]
#[error("instance {number}: {failure}")]
#[non_exhaustive]
pub struct InstanceFailure {
    /// Number of the instance, from 0.
    pub number: usize,
    /// Error of loading its program.
    #[source]
    pub failure: Box<Failure>,
}

impl Loading<'_> {
    /// Loads variants of a program in order; `None`, and a variant without instructions, is left out.
    ///
    /// # Errors
    /// The first variant that does not load. No instance is left then.
    pub fn instances(
        &self,
        variants: impl IntoIterator<Item = Option<KernelProgram>>,
    ) -> Result<Instances<LoadedProgram>, InstanceFailure> {
        let load = |(number, variant): (usize, Option<KernelProgram>)| {
            let loaded = variant.filter(|variant| !variant.insns.is_empty()).map(|variant| self.program(&variant));
            loaded.transpose().map_err(|failure| InstanceFailure { number, failure })
        };
        variants.into_iter().enumerate().map(load).collect()
    }
}
