//! What the native tier of a machine holds: compiled code, its activations, and when the interpreter takes samples.

use std::fmt;
use std::sync::Arc;

use crate::host::native::Native;
use crate::host::native_runtime::{EntryPoint, MAX_ACTIVATIONS, NativeRuntime, Setup};
use crate::ident::ProgramId;
use crate::image::Image;

/// Instructions of the interpreter between two samples of where it loops.
const SAMPLE_INSNS: i64 = 1 << 12;
/// Calls between two samples of what it calls; a prime, so that a pattern of calls does not hide some.
pub(super) const SAMPLE_CALLS: u32 = 13;
/// Turns of loops in code that is not final before it hands over: as long as it takes to compile a small loop.
const TURNS: i32 = 1 << 14;
/// No sample is ever due.
pub(super) const NEVER: i64 = i64::MIN / 4;

/// The native tier of a machine, if it has one.
#[derive(Debug, Default)]
pub(super) struct Tier(Option<Box<NativeTier>>);

impl Tier {
    pub(super) fn new(tier: Option<NativeTier>) -> Tier {
        Tier(tier.map(Box::new))
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&NativeTier> {
        self.0.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self) -> Option<&mut NativeTier> {
        self.0.as_deref_mut()
    }

    /// Of a machine whose compiled code runs or has just ended: no run takes the tier away.
    #[inline]
    pub(super) fn running(&mut self) -> &mut NativeTier {
        self.0.as_mut().expect("compiled code that runs has a tier")
    }
}

/// Compiled code of a machine's image, and its activations that have not returned.
pub(super) struct NativeTier {
    pub(super) native: NativeRuntime,
    pub(super) usage: Usage,
    /// It counts instructions.
    pub(super) counts: bool,
    pub(super) interpreted: Interpreted,
    /// Base of the innermost activation.
    pub(super) current: Base,
    /// Activations that have called the machine and wait for it.
    pub(super) waiting: Vec<NativeActivation>,
    pub(super) calls_to_sample: u32,
    /// Turns of loops in code that is not final before it hands over.
    pub(super) turns: i32,
    /// A sample is due when so many instructions are left.
    pub(super) next_sample: i64,
}

/// How far runs may use compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// Not at all: there is a tracer, or a limit of instructions that the code does not count.
    Never,
    /// Where the interpreter enters it, which prepares everything.
    FromInterpreter,
    /// Also as a run by itself: nothing but the machine's limits says what that may do.
    WholeRuns,
}

/// What interpreted code is to compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interpreted {
    /// Calls and loops enter compiled code where there is some.
    Enters,
    /// It finishes what compiled code has given up, without entering any.
    Finishes,
}

/// Activations of a tier at some time.
#[derive(Clone, Copy)]
pub(super) struct Activations {
    interpreted: Interpreted,
    current: Base,
    waiting: usize,
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
    /// pc of the call that entered it, or [`NO_SITE`](super::frame::NO_SITE); of the first, where its program begins.
    pub(super) site: usize,
}

/// An activation that waits for the machine.
#[derive(Clone, Copy)]
pub(super) struct NativeActivation {
    pub(super) base: Base,
    /// Frame pointer of the native function that called.
    pub(super) fp: u64,
    /// pc of the call in whose place that runs an inlined function, which has no native frame.
    pub(super) inlined_at: Option<u32>,
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
            usage: Usage::Never,
            counts: false,
            interpreted: Interpreted::Enters,
            current: Base::default(),
            waiting: Vec::new(),
            calls_to_sample: SAMPLE_CALLS,
            turns: TURNS,
            next_sample: NEVER,
        })
    }

    /// Makes it as it is between runs.
    pub(super) fn reset(&mut self) {
        (self.interpreted, self.current) = (Interpreted::Enters, Base::default());
        self.waiting.clear();
    }

    /// Whether interpreted code may enter compiled code now.
    pub(super) fn may_be_entered(&self) -> bool {
        let used = self.usage != Usage::Never && self.interpreted == Interpreted::Enters;
        used && self.waiting.len() < MAX_ACTIVATIONS
    }

    pub(super) fn activations(&self) -> Activations {
        Activations { interpreted: self.interpreted, current: self.current, waiting: self.waiting.len() }
    }

    /// Forgets activations that have begun since.
    pub(super) fn restore(&mut self, activations: Activations) {
        (self.interpreted, self.current) = (activations.interpreted, activations.current);
        self.waiting.truncate(activations.waiting);
    }

    /// The next sample is due [`SAMPLE_INSNS`] later.
    pub(super) fn defer_sample(&mut self, remaining: i64) {
        self.next_sample = if self.usage == Usage::Never { NEVER } else { remaining - SAMPLE_INSNS };
    }
}

impl fmt::Debug for NativeTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.native.fmt(f)
    }
}
