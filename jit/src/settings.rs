//! Settings of Cranelift: the target, the register allocator, verification.

use std::sync::OnceLock;

use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable as _};
use twinbpf_vm::image::Image;

use crate::error::JitError;
use crate::limits::Strategy;
use crate::options::OptLevel;

/// Instructions of a function.
pub(crate) fn insns(image: &Image, function: u32) -> u32 {
    let function = &image.functions()[function as usize];
    function.end - function.start
}

/// How registers are allocated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registers {
    /// As well as can be.
    Backtracking,
    /// With a quarter less work for the compiler as a whole. Each value that does not stay in a register has a place of its
    /// own in the frame.
    OnePass,
}

/// Instructions of a function whose registers are allocated in one pass, at most: its frame should fit in the 4 KiB that a
/// machine has for each call.
const ONE_PASS: u32 = 256;

impl Registers {
    pub(crate) fn of(image: &Image, function: u32, strategy: Strategy) -> Registers {
        let small = insns(image, function) <= ONE_PASS;
        if matches!(strategy, Strategy::Plain | Strategy::FirstTier) && small {
            Registers::OnePass
        } else {
            Registers::Backtracking
        }
    }
}

/// The target for these options, made once.
pub(crate) fn isa(opt: OptLevel, registers: Registers, verify: bool) -> Result<OwnedTargetIsa, JitError> {
    static ISAS: [OnceLock<Result<OwnedTargetIsa, String>>; 8] = [const { OnceLock::new() }; 8];
    let choices = [opt == OptLevel::Speed, registers == Registers::OnePass, verify];
    let isa = ISAS[choices.into_iter().fold(0, |index, choice| index * 2 + usize::from(choice))].get_or_init(|| {
        let builder = cranelift_native::builder().map_err(str::to_owned)?;
        builder.finish(flags(opt, registers, verify, false)).map_err(|error| error.to_string())
    });
    isa.clone().map_err(JitError::Host)
}

/// Cranelift's settings. Tail calls on x86-64 need frame pointers, and so do backtraces.
pub(crate) fn flags(opt: OptLevel, registers: Registers, verify: bool, pic: bool) -> settings::Flags {
    let mut flags = settings::builder();
    let level = match opt {
        OptLevel::None => "none",
        OptLevel::Speed => "speed",
    };
    let registers = match registers {
        Registers::Backtracking => "backtracking",
        Registers::OnePass => "single_pass",
    };
    let verify = if verify { "true" } else { "false" };
    let all = [
        ("opt_level", level),
        ("regalloc_algorithm", registers),
        ("enable_verifier", verify),
        ("regalloc_checker", verify),
        ("preserve_frame_pointers", "true"),
        ("unwind_info", "true"),
        // Where blocks begin, for `lead`.
        ("machine_code_cfg_info", if opt == OptLevel::Speed { "true" } else { "false" }),
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        ("is_pic", if pic { "true" } else { "false" }),
    ];
    for (name, value) in all {
        flags.set(name, value).expect("settings of this version");
    }
    settings::Flags::new(flags)
}
