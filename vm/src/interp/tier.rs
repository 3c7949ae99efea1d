//! What the native tier of a machine holds: compiled code, its activations, and when the interpreter takes samples.

use std::fmt;
use std::sync::Arc;

use crate::host::native::Native;
use crate::host::native_runtime::{EntryPoint, NativeRuntime, Setup};
use crate::ident::ProgramId;
use crate::image::Image;

/// Instructions of the interpreter between two samples of where it loops.
const SAMPLE_INSNS: i64 = 1 << 14;
/// Calls between two samples of what it calls; odd, so that a pattern of calls does not hide some.
pub(super) const SAMPLE_CALLS: u32 = 61;
/// No sample is ever due.
pub(super) const NEVER: i64 = i64::MIN / 4;

/// Compiled code of a machine's image, and its activations that have not returned.
pub(super) struct NativeTier {
    pub(super) native: NativeRuntime,
    /// Nothing but the machine's limits says what a run of compiled code may do.
    pub(super) plain: bool,
    /// It counts instructions.
    pub(super) counts: bool,
    /// Runs may use compiled code at all.
    pub(super) usable: bool,
    /// Interpreted code is not to enter compiled code: it finishes what that has given up.
    pub(super) finishing: bool,
    /// Base of the innermost activation.
    pub(super) current: Base,
    /// Activations that have called the machine and wait for it.
    pub(super) waiting: Vec<NativeActivation>,
    pub(super) calls_to_sample: u32,
    /// A sample is due when so many instructions are left.
    pub(super) next_sample: i64,
}

/// Entry of a program that needs no preparation but a reset of registers and budget.
#[derive(Clone, Copy)]
pub(super) struct FastPath {
    pub(super) entry_point: EntryPoint,
    /// It reads registers besides its arguments.
    pub(super) reads_rest: bool,
}

/// A program whose next run needs no preparation at all.
#[derive(Clone, Copy)]
pub(super) struct PreparedRun {
    pub(super) program: ProgramId,
    pub(super) entry_point: EntryPoint,
}

/// The stack below an activation.
#[derive(Clone, Copy, Default)]
pub(super) struct Base {
    /// Frames of the interpreter.
    pub(super) frames: usize,
    /// Functions that have not returned.
    pub(super) depth: u32,
    /// pc of the call that entered it, or [`NO_SITE`](super::frame::NO_SITE).
    pub(super) site: usize,
}

/// An activation that waits for the machine.
#[derive(Clone, Copy)]
pub(super) struct NativeActivation {
    pub(super) base: Base,
    /// Frame pointer of the native function that called.
    pub(super) fp: u64,
}

impl NativeTier {
    pub(super) fn new(code: Arc<dyn Native>, image: &Image, max_depth: u32) -> std::io::Result<NativeTier> {
        let setup = Setup {
            arena_base: image.arena().base(),
            hosts: image.hosts().iter().map(|host| host.native().0).collect(),
            slots: image.first_slot(),
            slot_count: image.functions().len() as u64,
            max_depth,
        };
        let native = NativeRuntime::new(code, setup)?;
        Ok(NativeTier {
            native,
            plain: false,
            counts: false,
            usable: false,
            finishing: false,
            current: Base::default(),
            waiting: Vec::new(),
            calls_to_sample: SAMPLE_CALLS,
            next_sample: NEVER,
        })
    }

    /// Makes it as it is between runs.
    pub(super) fn reset(&mut self) {
        (self.finishing, self.current) = (false, Base::default());
        self.waiting.clear();
    }

    /// The next sample is due [`SAMPLE_INSNS`] later.
    pub(super) fn defer_sample(&mut self, remaining: i64) {
        self.next_sample = if self.usable { remaining - SAMPLE_INSNS } else { NEVER };
    }
}

impl fmt::Debug for NativeTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.native.fmt(f)
    }
}
