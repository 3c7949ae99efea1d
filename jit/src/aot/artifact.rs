//! Cached artifacts: code that was compiled ahead of time and is loaded, as a machine uses it.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use twinbpf_vm::host::native::{Native, Site};
use twinbpf_vm::ident::ImageId;
use twinbpf_vm::image::Image;
use twinbpf_vm::recover::CodeRange;

use super::blob::Record;
use super::facts::{self, Difference, Fact, Origin};
use super::{TargetError, Values, blob, target};
use crate::options::Options;
use crate::trap_sites::TrapSites;

/// Why loaded code cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The symbol's contents are no artifact of this version.
    #[error("its symbol {symbol} is none of twinbpf's", symbol = super::SYMBOL)]
    Foreign,
    /// Made by another version.
    #[error("its format is version {version}, and only {known} can be loaded; compile the object again", known = blob::VERSION)]
    Version {
        /// Version of the artifact's format.
        version: u32,
    },
    /// The description is not what was written.
    #[error("its description is damaged; compile the object again")]
    Damaged,
    /// It was made of or for something else.
    #[error("{0}")]
    Different(Difference),
    /// It is for trusted programs, the image's arena is not.
    #[error("code with raw pointers needs an engine for trusted programs; make it with Engine::new_trusted")]
    Untrusted,
    /// It uses instructions that this CPU lacks.
    #[error("it needs a CPU with {}; compile the object without --cpu native", .features.join(", "))]
    Cpu {
        /// What is missing.
        features: Vec<String>,
    },
    /// This machine is unknown.
    #[error(transparent)]
    Host(#[from] TargetError),
}

/// The description of compiled code, read but not yet compared with anything.
pub struct Artifact {
    facts: Vec<Fact>,
    functions: Vec<Function>,
    bytes: Vec<u8>,
    /// What keeps the code in memory.
    _library: Box<dyn Any + Send + Sync>,
}

struct Function {
    record: Record,
    sites: OnceLock<Option<TrapSites>>,
}

impl Artifact {
    /// Reads the bytes at [`SYMBOL`](super::SYMBOL) in a loaded library, as long as they say they are. `library` is
    /// dropped when the code is no longer used.
    ///
    /// # Errors
    /// [`ArtifactError::Foreign`], [`ArtifactError::Version`], [`ArtifactError::Damaged`].
    ///
    /// # Safety
    /// The addresses in the bytes, if they are a description, are those of the functions that it describes, and stay so
    /// until `library` is dropped: a library that this crate's object file was linked into, unchanged.
    #[expect(unsafe_code, reason = "says where code is that a library brought")]
    pub unsafe fn new(bytes: Vec<u8>, library: Box<dyn Any + Send + Sync>) -> Result<Arc<Artifact>, ArtifactError> {
        Artifact::len(&bytes)?;
        let (text, records) = blob::read(&bytes).ok_or(ArtifactError::Damaged)?;
        let facts = facts::from_text(text);
        let functions = records.into_iter().map(|record| Function { record, sites: OnceLock::new() }).collect();
        Ok(Arc::new(Artifact { facts, functions, bytes, _library: library }))
    }

    /// Number of bytes at the symbol, from the first [`Artifact::HEAD`] of them.
    ///
    /// # Errors
    /// [`ArtifactError::Foreign`], [`ArtifactError::Version`].
    pub fn len(head: &[u8]) -> Result<usize, ArtifactError> {
        match blob::head(head) {
            Some((blob::VERSION, len)) => Ok(len),
            Some((version, _)) => Err(ArtifactError::Version { version }),
            None => Err(ArtifactError::Foreign),
        }
    }

    /// Bytes that say how many there are.
    pub const HEAD: usize = blob::HEAD;

    /// Whether it was made of an object whose bytes have this digest.
    pub fn is_of(&self, digest: u128) -> bool {
        facts::find(&self.facts, "bytes") == Some(format!("{digest:032x}").as_str())
    }

    /// File name of the object it was made of.
    pub fn object(&self) -> &str {
        facts::find(&self.facts, "object").unwrap_or("an object")
    }

    /// Addresses of the code of each function of the image, by index.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let records = self.functions.iter().map(|function| &function.record);
        records.map(|record| record.address..record.address.saturating_add(record.len.into()))
    }

    /// Programs in it, in order.
    pub fn programs(&self) -> Vec<&str> {
        let programs = self.facts.iter().filter(|(key, _)| key.starts_with("program "));
        programs.map(|(_, name)| name.as_str()).collect()
    }

    /// The code of an image, if it was made of the same and for the same.
    ///
    /// # Errors
    /// [`ArtifactError::Different`], [`ArtifactError::Cpu`], [`ArtifactError::Untrusted`].
    #[expect(unsafe_code, reason = "says where code is that a library brought")]
    pub fn code(
        self: &Arc<Artifact>,
        image: &Image,
        options: Options,
        origin: Origin<'_>,
    ) -> Result<Arc<dyn Native>, ArtifactError> {
        if !options.suit(image) {
            return Err(ArtifactError::Untrusted);
        }
        let values = Values::new(image);
        let here = facts::identity(image, options, origin, &values);
        facts::compare(&self.facts, &here).map_err(ArtifactError::Different)?;
        let features = target::missing(facts::find(&self.facts, "cpu").unwrap_or(""))?;
        if !features.is_empty() {
            return Err(ArtifactError::Cpu { features });
        }
        if self.functions.len() != image.functions().len() {
            return Err(ArtifactError::Damaged);
        }
        let start = self.functions.iter().map(|function| function.record.address).min().unwrap_or(0);
        let end = self
            .functions
            .iter()
            .map(|function| function.record.address.saturating_add(function.record.len.into()))
            .max()
            .unwrap_or(0);
        // One more, for an image without functions.
        let addresses = self.functions.iter().map(|function| function.record.address).chain([0]).collect();
        let mut order: Box<[u32]> = (0..self.functions.len() as u32).collect();
        order.sort_unstable_by_key(|function| self.functions[*function as usize].record.address);
        Ok(Arc::new(LoadedArtifact {
            kept: Arc::clone(self),
            image: image.id(),
            addresses,
            values: values.resolve(image),
            order,
            counts: facts::find(&self.facts, "fuel") == Some("yes"),
            // SAFETY: the caller of `new` promised that the functions are generated; what lies between them is, too.
            _range: unsafe { CodeRange::new(start, end - start) },
        }))
    }

    fn sites<'a>(&self, function: &'a Function) -> Option<&'a TrapSites> {
        let read = || blob::read_table(self.bytes.get(function.record.table as usize..)?, function.record.len);
        function.sites.get_or_init(read).as_ref()
    }
}

impl fmt::Debug for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Artifact").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Artifact code in use, as the code of an image.
#[derive(Debug)]
struct LoadedArtifact {
    kept: Arc<Artifact>,
    /// What it is the code of.
    image: ImageId,
    /// Of functions, by index.
    addresses: Box<[u64]>,
    /// What the code loads by index.
    values: Box<[u64]>,
    /// Indices of functions, by address.
    order: Box<[u32]>,
    counts: bool,
    _range: CodeRange,
}

// SAFETY: the caller of `new` promised that the functions are where the description says, and stay with `kept`; it was
// compared with the image, which has as many functions, and all that code depends on is the same.
#[expect(unsafe_code, reason = "says where code is that a library brought")]
unsafe impl Native for LoadedArtifact {
    fn image_id(&self) -> ImageId {
        self.image
    }

    fn entry(&self, function: u32) -> Option<u64> {
        Some(self.addresses[function as usize])
    }

    fn loop_entry(&self, _pc: u32) -> Option<u64> {
        None
    }

    fn site(&self, address: u64) -> Option<Site> {
        let functions = &self.kept.functions;
        let index = self.order.partition_point(|function| functions[*function as usize].record.address <= address);
        let function = &functions[self.order[index.checked_sub(1)?] as usize];
        let off = u32::try_from(address - function.record.address).ok().filter(|off| *off <= function.record.len)?;
        self.kept.sites(function)?.at(off)
    }

    fn report_hot(&self, _pc: u32) {}

    fn functions(&self) -> *const u64 {
        self.addresses.as_ptr()
    }

    fn values(&self) -> *const u64 {
        self.values.as_ptr()
    }

    fn counts(&self) -> bool {
        self.counts
    }

    fn keeps_registers(&self) -> bool {
        false
    }
}
