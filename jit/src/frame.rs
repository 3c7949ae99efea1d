//! Bounds on the native stack that one call takes.
//!
//! A machine has [`CALL_FRAME`] bytes for each call that may be, so calls of functions whose frame fits in these check
//! nothing. A function with a larger frame compares where its frame is with
//! [`Context::native_limit`](twinbpf_vm::host::native::Context::native_limit) when it is entered, and below that has the
//! interpreter run it: a load, a compare and a branch for each call of a large function. There is no native code with a frame of
//! more than [`MAX_FRAME`] bytes.

use std::sync::Arc;

use cranelift_codegen::CompiledCode;
use cranelift_codegen::isa::TargetIsa;
use twinbpf_vm::host::native::{CALL_FRAME, MAX_FRAME};
use twinbpf_vm::image::Image;

use crate::error::JitError;
use crate::limits::Strategy;
use crate::options::{OptLevel, Options};
use crate::settings::{Registers, insns, isa};

/// Instructions of a function that is likely to have a large frame: it compares without being compiled twice.
const LARGE: u32 = 2048;
/// Return address and saved frame pointer.
const ENTRY: u32 = 16;

/// What becomes of compiled code because of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It can be used.
    Fits,
    /// It must check the limit first.
    Unchecked,
    /// It takes so many bytes, which is too much.
    TooLarge(u32),
}

/// Whether a function of so many instructions checks the limit without having to.
pub(crate) fn checks_at_once(insns: u32) -> bool {
    insns >= LARGE
}

/// Bytes of native stack that a call takes.
pub(crate) fn bytes(code: &CompiledCode) -> u32 {
    let layout = code.buffer.frame_layout().expect("Cranelift tells the layout of every frame");
    layout.frame_to_fp_offset.saturating_add(ENTRY)
}

/// Whether code can be used that does or does not check the limit.
pub(crate) fn judge(code: &CompiledCode, checked: bool) -> Verdict {
    match bytes(code) {
        bytes if bytes > MAX_FRAME => Verdict::TooLarge(bytes),
        bytes if bytes > CALL_FRAME && !checked => Verdict::Unchecked,
        _ => Verdict::Fits,
    }
}

/// Compiles a function with other settings until its frame is not too large. `make` gets options, the target, and whether the
/// code has to check the limit of the native stack.
pub(crate) fn fitting<T: AsRef<CompiledCode>>(
    image: &Image,
    function: u32,
    (strategy, options): (Strategy, Options),
    mut make: impl FnMut(Options, &dyn TargetIsa, bool) -> Result<T, JitError>,
) -> Result<T, JitError> {
    let mut options = strategy.options(options);
    let mut registers = Registers::of(image, function, strategy);
    let mut checked = checks_at_once(insns(image, function));
    loop {
        let code = make(options, &*isa(options.opt, registers, options.verify)?, checked)?;
        match judge(code.as_ref(), checked) {
            Verdict::Fits => return Ok(code),
            Verdict::Unchecked => checked = true,
            Verdict::TooLarge(_) if registers == Registers::OnePass => registers = Registers::Backtracking,
            // The optimiser keeps values for later that could be computed again.
            Verdict::TooLarge(_) if options.opt == OptLevel::Speed => options.opt = OptLevel::None,
            Verdict::TooLarge(bytes) => {
                let function = &image.functions()[function as usize];
                let program = Arc::clone(&image.programs()[function.program as usize].name);
                return Err(JitError::Frame { program, function: Arc::clone(&function.name), bytes });
            }
        }
    }
}
