//! Registration of generated code with debuggers, profilers and unwinders.
//!
//! | Tool | Means | Switched on by |
//! |---|---|---|
//! | `perf report` | `/tmp/perf-PID.map`, a line per function | [`Perf::Map`] |
//! | `perf inject --jit` | `jit-PID.dump` with code, C lines and times, which distinguish reused addresses | [`Perf::Dump`] |
//! | gdb, lldb | the GDB JIT interface: an ELF image in memory with symbols, frames and C lines | [`Tools::gdb`] |
//! | `backtrace`, exceptions, panics | `.eh_frame`, registered with the unwinder of the C library | [`Tools::unwind`] |
//!
//! What is off costs nothing. Frames for the unwinder are on by default: they take 1.2 us and 60 bytes for a module of one
//! function, and without them a panic or exception that meets a generated frame ends the process. The map takes
//! 0.7 us, the dump 2 us, debuggers 27 us.
//!
//! Not here: which instruction is at an address; [`crate`]'s sites know that.

mod elf;
mod jitdump;
mod lines;
mod perfmap;
mod sys;
mod unwind;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::UnwindInfo;

use crate::memory::{CodeMemory, CodePool, MemoryError};
use jitdump::Jitdump;
use perfmap::PerfMap;
use sys::{RegisteredFrames, RegisteredImage};

/// A generated function, for tools.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    /// How tools call it.
    pub(crate) name: String,
    /// Where it is executed.
    pub(crate) range: Range<u64>,
    /// C lines, sorted by address. Empty if unknown, or if [`Tools::wants_lines`] says no.
    pub(crate) lines: Vec<SymbolLine>,
    /// From `CompiledCode::create_unwind_info`. `None` if unknown.
    pub(crate) unwind: Option<UnwindInfo>,
}

/// From this address on, code belongs to this C line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SymbolLine {
    /// Where it begins.
    pub(crate) address: u64,
    /// File, as the object has it.
    pub(crate) file: Arc<str>,
    /// From 1.
    pub(crate) line: u32,
}

/// Which file `perf` reads.
///
/// ```
/// use twinbpf_jit::debug::Perf;
///
/// assert_eq!("jitdump".parse(), Ok(Perf::Dump));
/// assert_eq!(Perf::default(), Perf::Off);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Perf {
    /// No file: perf shows addresses without names.
    #[default]
    Off,
    /// `/tmp/perf-PID.map`, which gives names to functions.
    Map,
    /// `jit-PID.dump` in `$JITDUMPDIR` or the current directory.
    Dump,
}

impl std::str::FromStr for Perf {
    type Err = String;

    fn from_str(text: &str) -> Result<Perf, String> {
        match text {
            "off" => Ok(Perf::Off),
            "map" => Ok(Perf::Map),
            "jitdump" => Ok(Perf::Dump),
            _ => Err(format!("{text} is not one of off, map, jitdump")),
        }
    }
}

/// A file for `perf` that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}, which perf is to read: {source}", path.display())]
pub struct PerfError {
    path: PathBuf,
    source: io::Error,
}

/// The tools to which generated code is announced.
#[derive(Clone, Debug)]
pub struct Tools {
    perf: PerfFile,
    /// Whether debuggers are.
    pub gdb: bool,
    /// Whether the unwinder is.
    pub unwind: bool,
}

#[derive(Clone, Debug)]
enum PerfFile {
    Off,
    Map(Arc<PerfMap>),
    Dump(Arc<Jitdump>),
}

impl Default for Tools {
    /// The unwinder only.
    fn default() -> Tools {
        Tools { perf: PerfFile::Off, gdb: false, unwind: true }
    }
}

/// Registration of code with tools; dropping it unregisters the code. It must go before the code's memory does.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    _image: Option<RegisteredImage>,
    _frames: Option<RegisteredFrames>,
}

impl Tools {
    /// Opens the requested files. A process has one of each.
    pub fn new(perf: Perf, gdb: bool) -> Result<Tools, PerfError> {
        let perf = match perf {
            Perf::Off => PerfFile::Off,
            Perf::Map => PerfFile::Map(PerfMap::of_process()?),
            Perf::Dump => PerfFile::Dump(Jitdump::of_process()?),
        };
        Ok(Tools { perf, gdb, ..Tools::default() })
    }

    /// Where code goes of which these tools are to know, and which calls functions at such addresses.
    pub(crate) fn pool(&self, near: u64) -> Result<Arc<CodePool>, MemoryError> {
        if self.gdb { CodePool::breakable(near) } else { CodePool::shared(near) }
    }

    /// Whether a tool reads [`Symbol::name`].
    pub(crate) fn wants_names(&self) -> bool {
        self.gdb || !matches!(self.perf, PerfFile::Off)
    }

    /// Whether a tool reads [`Symbol::lines`].
    pub(crate) fn wants_lines(&self) -> bool {
        self.gdb || matches!(self.perf, PerfFile::Dump(_))
    }

    /// Registers published code with the tools. Files that cannot be written are logged: a run does not fail for them.
    pub(crate) fn announce(&self, isa: &dyn TargetIsa, code: &CodeMemory, symbols: &[Symbol]) -> Announced {
        let written = match &self.perf {
            PerfFile::Off => Ok(()),
            PerfFile::Map(map) => map.add(symbols),
            PerfFile::Dump(dump) => dump.add(code, symbols),
        };
        if let Err(error) = written {
            log::warn!("perf will not know generated code: {error}");
        }
        let image = || RegisteredImage::new(elf::image(isa, code.range(), symbols).into_boxed_slice());
        Announced {
            _image: self.gdb.then(image),
            _frames: self.unwind.then(|| RegisteredFrames::new(isa, symbols)).flatten(),
        }
    }
}

#[cfg(test)]
mod tests;
