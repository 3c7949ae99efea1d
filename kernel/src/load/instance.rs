//! Several copies of one program, each with instructions of its own: what libbpf once called a preprocessor
//! (`bpf_program__set_prep`) and instances (`bpf_program__nth_fd`).
//!
//! As there: variants are asked for one after the other, each only after the one before is loaded; a variant may be
//! left out; the first that fails ends it. Unlike there: instances are owned, so that none is left behind closed, types
//! and lines follow the instructions, and the same program may be given other variants at any time.

use twinbpf_loader::kernel::KernelProgram;

use super::{Failure, LoadedProgram, Loading};

/// Loaded variants, by their numbers.
#[derive(Debug)]
pub struct Instances {
    programs: Vec<Option<LoadedProgram>>,
}

/// Why there is no instance of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoInstance {
    /// There are fewer.
    #[error("there is no instance {asked}: the program has {count}")]
    Beyond {
        /// The number.
        asked: usize,
        /// How many there are.
        count: usize,
    },
    /// Its variant was left out.
    #[error("instance {0} was left out")]
    Skipped(usize),
}

/// A variant that did not load; those before it are gone.
#[derive(Debug, thiserror::Error)]
#[error("instance {number}: {failure}")]
pub struct InstanceFailure {
    /// Its number.
    pub number: usize,
    /// Why.
    #[source]
    pub failure: Box<Failure>,
}

impl Instances {
    /// How many variants there were, those left out included.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Whether there was no variant.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// An instance by its number.
    ///
    /// # Errors
    /// There is none, or it was left out.
    pub fn get(&self, number: usize) -> Result<&LoadedProgram, NoInstance> {
        let count = self.programs.len();
        let slot = self.programs.get(number).ok_or(NoInstance::Beyond { asked: number, count })?;
        slot.as_ref().ok_or(NoInstance::Skipped(number))
    }

    /// Those that are there, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &LoadedProgram)> {
        self.programs.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }
}

impl Loading<'_> {
    /// Loads variants of a program in order; `None`, and a variant without instructions, is left out.
    ///
    /// # Errors
    /// The first variant that does not load. No instance is left then.
    pub fn instances(
        &self,
        variants: impl IntoIterator<Item = Option<KernelProgram>>,
    ) -> Result<Instances, InstanceFailure> {
        let mut programs = Vec::new();
        for (number, variant) in variants.into_iter().enumerate() {
            let loaded = variant.filter(|variant| !variant.insns.is_empty()).map(|variant| self.program(&variant));
            let loaded = loaded.transpose();
            programs.push(loaded.map_err(|failure| InstanceFailure { number, failure })?);
        }
        Ok(Instances { programs })
    }
}
