//! Wrong compilations on purpose: mistakes that a translator, a pass, a register allocator or an emitter could make, for
//! tests of the verifier of machine code. A function that is called `__fault_NAME` is compiled with the mistake of that
//! name.
//!
//! Each changes the function in one of three places (`Stage`). What a mistake changes is valid IR or decodable code: no
//! check of Cranelift's notices it.

mod address;
mod calls;
mod code;
mod context;
mod edit;

use std::cell::Cell;

use cranelift_codegen::Context;
use cranelift_codegen::ir::Function;
use cranelift_module::ModuleReloc;

/// A mistake that a build with the feature `faults` makes on request.
#[derive(Clone, Copy, Debug)]
pub struct Mistake {
    /// What it is called.
    pub name: &'static str,
    /// What the compiler does wrong.
    pub what: &'static str,
    /// Stage of the compiler that has the bug.
    pub(crate) stage: Stage,
}

/// Changes IR; whether there was something to change.
pub(crate) type Ir = fn(&mut Function) -> bool;

/// Changes machine code before it has its place, and its relocations.
pub(crate) type Bytes = fn(&mut [u8], &mut [ModuleReloc]) -> bool;

/// Where a mistake is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// By the translator.
    Translated(Ir),
    /// By the last pass, after the optimiser.
    Passed(Ir),
    /// By the register allocator or the emitter.
    Emitted(Bytes),
}

const fn translated(name: &'static str, what: &'static str, change: Ir) -> Mistake {
    Mistake { name, what, stage: Stage::Translated(change) }
}

const fn passed(name: &'static str, what: &'static str, change: Ir) -> Mistake {
    Mistake { name, what, stage: Stage::Passed(change) }
}

const fn emitted(name: &'static str, what: &'static str, change: Bytes) -> Mistake {
    Mistake { name, what, stage: Stage::Emitted(change) }
}

impl Mistake {
    /// Where it is made, in a word.
    pub fn stage(&self) -> &'static str {
        match self.stage {
            Stage::Translated(_) => "translated",
            Stage::Passed(_) => "passed",
            Stage::Emitted(_) => "emitted",
        }
    }
}

/// Every mistake that this build can make.
pub fn all() -> impl Iterator<Item = &'static Mistake> {
    [address::ALL, calls::ALL, context::ALL, code::ALL].into_iter().flatten()
}

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// How many mistakes this thread has made.
pub fn made() -> u64 {
    MADE.get()
}

fn find(fault: &str) -> Option<&'static Mistake> {
    all().find(|mistake| mistake.name == fault)
}

fn count(changed: bool) -> bool {
    MADE.set(MADE.get() + u64::from(changed));
    changed
}

/// After the translator.
pub(crate) fn after_translation(fault: &str, func: &mut Function) {
    if let Some(Mistake { stage: Stage::Translated(change), .. }) = find(fault) {
        func.dfg.resolve_all_aliases();
        count(change(func));
    }
}

/// After the last pass.
pub(crate) fn after_passes(fault: &str, context: &mut Context) {
    if let Some(Mistake { stage: Stage::Passed(change), .. }) = find(fault) {
        context.func.dfg.resolve_all_aliases();
        if count(change(&mut context.func)) {
            context.flowgraph();
        }
    }
}

/// After the emitter.
pub(crate) fn after_emission(fault: &str, code: &mut [u8], relocs: &mut [ModuleReloc]) {
    if let Some(Mistake { stage: Stage::Emitted(change), .. }) = find(fault) {
        count(change(code, relocs));
    }
}
