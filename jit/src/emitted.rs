//! Machine code in its place, for who checks it before anything can call it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use twinbpf_vm::image::Image;

use crate::compile::Module;
use crate::lower::Start;
use crate::lower::effects::successors;
use crate::options::Options;

/// A module as placed in memory, after relocation.
#[derive(Debug)]
pub struct Emitted<'a> {
    /// What it was made of.
    pub image: &'a Image,
    /// What it was made for.
    pub options: Options,
    /// Words of the table of values in the context, for code that was compiled ahead of time.
    pub values: usize,
    /// Address of the first byte.
    pub base: u64,
    /// All bytes, padding included.
    pub code: &'a [u8],
    /// Functions by address.
    pub functions: Vec<EmittedFunction>,
}

/// A function of [`Emitted`].
#[derive(Clone, Debug)]
pub struct EmittedFunction {
    /// Index in the image.
    pub function: u32,
    /// Flat pc at which it starts, if that is not the BPF function's first: an on-stack replacement entry.
    pub loop_pc: Option<u32>,
    /// Addresses of its instructions, jump tables and constants. Control enters at the first.
    pub range: Range<u64>,
}

/// Why a checker rejects a function.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Index in [`Emitted::functions`]; nothing if it is the module as a whole.
    pub function: Option<usize>,
    /// Address, instruction and reason.
    pub why: String,
}

/// Checks what was compiled before anything can call it. Gives what is rejected.
pub type Check = dyn Fn(&Emitted<'_>) -> Vec<Rejected> + Send + Sync;

/// A [`Check`] that may be missing.
#[derive(Clone, Default)]
pub(crate) struct Checker(pub(crate) Option<Arc<Check>>);

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Checker").field(&self.0.is_some()).finish()
    }
}

impl Checker {
    /// What is rejected of a module: by function of the image, or by nothing for all of them, and why.
    pub(crate) fn check(&self, image: &Image, options: Options, module: &Module) -> Vec<(Option<usize>, String)> {
        let Some(check) = &self.0 else { return Vec::new() };
        let code = module.memory.to_vec();
        let functions = module.functions.iter().map(|function| EmittedFunction {
            function: function.unit.function,
            loop_pc: match function.unit.start {
                Start::Entry => None,
                Start::Loop(pc) => Some(pc),
            },
            range: function.start..function.start + u64::from(function.sites.len),
        });
        let functions = functions.collect();
        let emitted = Emitted { image, options, values: 0, base: module.memory.range().start, code: &code, functions };
        check(&emitted).into_iter().map(|rejected| (rejected.function, rejected.why)).collect()
    }
}

/// Flat pcs that something jumps back to: what [`Code::compile_loop`](crate::Code::compile_loop) is for.
pub fn loop_headers(image: &Image) -> Vec<u32> {
    let all = image.insns().iter().zip(image.links()).enumerate();
    let backwards = all.filter_map(|(pc, (insn, link))| {
        let pc = pc as u32;
        successors(*insn, *link, pc).target().filter(|to| *to <= pc)
    });
    let mut headers: Vec<u32> = backwards.collect();
    headers.sort_unstable();
    headers.dedup();
    headers
}
