//! The modes of native code.

use twinbpf_jit::{Memory, OptLevel};

/// A way to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitMode {
    /// Addresses.
    pub memory: Memory,
    /// Effort.
    pub opt: OptLevel,
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
        let opt = match self.opt {
            OptLevel::None => "none",
            OptLevel::Speed => "speed",
        };
        [memory, opt, if self.fuel { "fuel" } else { "no-fuel" }]
    }
}

/// All ways to compile.
pub fn jit_modes() -> impl Iterator<Item = JitMode> {
    let memories = [Memory::Sandbox, Memory::Strict, Memory::Trusted];
    let each = |memory| {
        [OptLevel::None, OptLevel::Speed]
            .into_iter()
            .flat_map(move |opt| [false, true].map(|fuel| JitMode { memory, opt, fuel }))
    };
    memories.into_iter().flat_map(each)
}
