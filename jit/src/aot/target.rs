//! Machines that code can be made for.

use cranelift_codegen::isa::{self, LookupError, OwnedTargetIsa};
use target_lexicon::{Architecture, BinaryFormat, Endianness, Triple};

use crate::options::OptLevel;
use crate::settings::{self, Registers};

/// Architectures there is a compiler for.
const SUPPORTED: &str = "x86_64, aarch64, riscv64";

/// Why there is no compiler for a target.
///
/// ```
/// use twinbpf_jit::aot::{Cpu, Target, TargetError};
///
/// let error = Target::new(Some("s390x"), Cpu::Baseline).expect_err("it is big-endian");
/// assert!(matches!(error, TargetError::BigEndian { .. }));
/// ```
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It is no target triple.
    #[error("target {text}: {why}; write it as aarch64-unknown-linux-gnu, or just one of {SUPPORTED}")]
    Syntax {
        /// The triple as the user wrote it.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Programs and C code would disagree about every number in memory.
    #[error(
        "target {target} is big-endian and takes no little-endian BPF code: programs and the C code around them would \
         read each other's numbers with their bytes reversed; targets are {SUPPORTED}"
    )]
    BigEndian {
        /// Triple of the target.
        target: String,
    },
    /// No compiler for this architecture, or no ELF there.
    #[error("there is no compiler for target {target}: targets are {SUPPORTED}, with ELF objects")]
    Unsupported {
        /// Triple of the target.
        target: String,
    },
    /// The compiler was left out.
    #[error("this build compiles for its own machine only; target {target} needs one with `--features cross`")]
    Disabled {
        /// Triple of the target.
        target: String,
    },
    /// The CPU of this machine does not belong to the target.
    #[error("the CPU of this machine is none of target {target}: leave out either of them")]
    NotNative {
        /// Triple of the target.
        target: String,
    },
    /// Cranelift knows nothing of this machine.
    #[error("no compiler for this machine: {0}")]
    Host(String),
}

/// Which instructions code may use.
///
/// ```
/// use twinbpf_jit::aot::{Cpu, Target};
///
/// assert!(Target::new(None, Cpu::Native).is_ok());
/// assert_eq!(Cpu::default(), Cpu::Baseline);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cpu {
    /// Those that every CPU of the architecture has.
    #[default]
    Baseline,
    /// Those of the CPU this runs on.
    Native,
}

/// A machine to compile for.
///
/// ```
/// use twinbpf_jit::aot::{Cpu, Target};
///
/// let arm = Target::new(Some("aarch64"), Cpu::Baseline)?;
/// assert_eq!(arm.triple(), "aarch64-unknown-linux-gnu");
/// # Ok::<(), twinbpf_jit::aot::TargetError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    triple: Triple,
    cpu: Cpu,
}

impl Target {
    /// A target by its triple, or by its architecture alone, which then means Linux; this machine if there is none.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn new(triple: Option<&str>, cpu: Cpu) -> Result<Target, TargetError> {
        let host = Triple::host();
        let triple = match triple {
            Some(text) => parse(text)?,
            None => host.clone(),
        };
        let target = triple.to_string();
        if triple.endianness() == Ok(Endianness::Big) {
            return Err(TargetError::BigEndian { target });
        }
        if triple.binary_format != BinaryFormat::Elf || name(&triple).is_none() {
            return Err(TargetError::Unsupported { target });
        }
        if cpu == Cpu::Native && triple.architecture != host.architecture {
            return Err(TargetError::NotNative { target });
        }
        Ok(Target { triple, cpu })
    }

    /// As a triple.
    pub fn triple(&self) -> String {
        self.triple.to_string()
    }

    pub(super) fn isa(&self, opt: OptLevel, verify: bool) -> Result<OwnedTargetIsa, TargetError> {
        let target = self.triple();
        let mut builder = match isa::lookup(self.triple.clone()) {
            Ok(builder) => builder,
            Err(LookupError::SupportDisabled) => return Err(TargetError::Disabled { target }),
            Err(LookupError::Unsupported) => return Err(TargetError::Unsupported { target }),
        };
        if self.cpu == Cpu::Native {
            cranelift_native::infer_native_flags(&mut builder).map_err(|why| TargetError::Host(why.to_owned()))?;
        }
        let isa = builder.finish(settings::flags(opt, Registers::Backtracking, verify, true));
        isa.map_err(|why| TargetError::Host(why.to_string()))
    }
}

fn parse(text: &str) -> Result<Triple, TargetError> {
    let syntax = |why: String| TargetError::Syntax { text: text.to_owned(), why };
    let full = if text.contains('-') { text.to_owned() } else { format!("{text}-unknown-linux-gnu") };
    full.parse().map_err(|error: target_lexicon::ParseError| syntax(error.to_string()))
}

/// What an architecture is called, whatever its variant.
pub(super) fn name(triple: &Triple) -> Option<&'static str> {
    match triple.architecture {
        Architecture::X86_64 | Architecture::X86_64h => Some("x86_64"),
        Architecture::Aarch64(_) => Some("aarch64"),
        Architecture::Riscv64(_) => Some("riscv64"),
        _ => None,
    }
}

/// Names of the instruction set extensions that code for a target may use.
pub(super) fn features(isa: &dyn isa::TargetIsa) -> Vec<&'static str> {
    let on = isa.isa_flags().into_iter().filter(|flag| flag.as_bool() == Some(true));
    on.map(|flag| flag.name).collect()
}

/// Extensions that this machine lacks.
pub(super) fn missing(wanted: &str) -> Result<Vec<String>, TargetError> {
    let isa = Target::new(None, Cpu::Native)?.isa(OptLevel::None, false)?;
    let have = features(&*isa);
    Ok(wanted.split_whitespace().filter(|name| !have.contains(name)).map(str::to_owned).collect())
}
