//! Compilation modes of native code that the fuzzer compares.

use twinbpf_jit::{Code, CompileLimits, JitError, Memory, OptLevel, Options, Strategy, loop_headers};

/// Turns of loops in code of the first tier before it hands over.
pub(super) const TURNS: i32 = 2;

/// How a program is executed: strategy, memory mode and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitMode {
    /// How out-of-arena addresses are handled.
    pub memory: Memory,
    /// Optimised, plain, first-tier or baseline compilation.
    pub strategy: Strategy,
    /// Whether instructions are counted.
    pub fuel: bool,
}

impl JitMode {
    /// A word for each of its three sides.
    pub fn words(self) -> [&'static str; 3] {
        let memory = match self.memory {
            Memory::Sandbox => "sandbox",
            Memory::Strict => "strict",
            Memory::Trusted => "trusted",
        };
        let strategy = match self.strategy {
            Strategy::Optimised => "speed",
            Strategy::Plain => "none",
            Strategy::FirstTier => "first",
            Strategy::Baseline => "baseline",
        };
        [memory, strategy, if self.fuel { "fuel" } else { "no-fuel" }]
    }

    /// What has all functions compiled so, with Cranelift's verifiers on.
    pub fn options(self) -> Options {
        let (opt, limits) = match self.strategy {
            Strategy::Optimised | Strategy::FirstTier => (OptLevel::Speed, CompileLimits::NONE),
            Strategy::Plain => (OptLevel::None, CompileLimits::NONE),
            Strategy::Baseline => (OptLevel::None, CompileLimits::NONE.work(0)),
        };
        Options { memory: self.memory, fuel: self.fuel, opt, limits, verify: true, ..Options::default() }
    }

    /// Compiles all programs so, each with its error; for the first tier also the loops that it hands over to.
    ///
    /// # Errors
    /// There is no place for any.
    pub fn compile(self, code: &Code) -> Result<Vec<Option<JitError>>, JitError> {
        if self.strategy != Strategy::FirstTier {
            return code.compile_each();
        }
        let failures = code.compile_each_for_first_tier()?;
        loop_headers(code.image()).into_iter().try_for_each(|pc| code.compile_loop(pc))?;
        Ok(failures)
    }
}

/// All execution modes.
pub fn jit_modes() -> impl Iterator<Item = JitMode> {
    let memories = [Memory::Sandbox, Memory::Strict, Memory::Trusted];
    let strategies = [Strategy::Plain, Strategy::Optimised, Strategy::Baseline, Strategy::FirstTier];
    let strategies_of = move |memory| strategies.into_iter().map(move |strategy| (memory, strategy));
    let both = |(memory, strategy)| [false, true].map(|fuel| JitMode { memory, strategy, fuel });
    memories.into_iter().flat_map(strategies_of).flat_map(both)
}
