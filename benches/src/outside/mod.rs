//! Workloads from outside: programs that the optimiser was not written for.
//!
//! Some are written from public specifications (`corpus/outside`), some are C of other projects, compiled where it can be
//! had, some are real BPF programs with maps and packets. [`sets`](crate::sets) divides them, and alone gives them out.

use twinbpf::{Engine, Object, PassSet};

use crate::peers::twinbpf::{Mode, instantiate_in};
use crate::peers::{Runner, native, wasmtime};
use crate::workload::{WORKLOADS, Workload, corpus_object};

mod inputs;
pub(crate) mod real;
pub(crate) mod selftests;
mod third_party;
mod written;

use real::Real;
use third_party::ThirdParty;
use written::Written;

/// Bytes of a frame, as much as any of them needs.
pub const FRAME: u32 = 16384;

/// Bytes that one may use: many trusted arenas share the low 4 GiB.
const MEMORY: u64 = 64 << 20;

/// One of them.
#[derive(Clone, Copy)]
pub struct Outside {
    /// Its name in the sets.
    pub name: &'static str,
    source: Source,
}

/// Where it is from.
#[derive(Clone, Copy)]
enum Source {
    Written(&'static Written),
    ThirdParty(&'static ThirdParty),
    Real(&'static Real),
    Selftest,
    /// Not from outside: what the optimiser was written for.
    First(&'static Workload),
}

/// The workloads of `corpus/bench`, to be measured in the same ways.
pub(crate) fn first() -> Vec<Outside> {
    WORKLOADS.iter().map(|it| Outside { name: it.name, source: Source::First(it) }).collect()
}

/// All of them, whatever set they are in.
pub(crate) fn all() -> Vec<Outside> {
    let written = written::WRITTEN.iter().map(|it| Outside { name: it.name, source: Source::Written(it) });
    let third_party =
        third_party::THIRD_PARTY.iter().map(|it| Outside { name: it.name, source: Source::ThirdParty(it) });
    let real = real::REAL.iter().map(|it| Outside { name: it.name, source: Source::Real(it) });
    let selftest = Outside { name: selftests::NAME, source: Source::Selftest };
    written.chain(third_party).chain(real).chain([selftest]).collect()
}

impl Outside {
    /// What each run must return.
    pub fn expected(&self) -> u64 {
        match self.source {
            Source::Written(it) => it.expected,
            Source::ThirdParty(it) => it.expected,
            Source::Real(it) => it.expected(),
            Source::Selftest => selftests::expected(),
            Source::First(it) => it.expected(),
        }
    }

    /// The object; the error says why there is none.
    pub fn object(&self) -> Result<Object, String> {
        match self.source {
            Source::Written(it) => it.object(),
            Source::ThirdParty(it) => it.object(),
            Source::Real(it) => it.object(),
            Source::Selftest => selftests::object(),
            Source::First(it) => corpus_object(&format!("bench/{}.bpf.o", it.name)),
        }
    }

    /// Makes it ready in an engine of its own, with these of the optimiser's passes.
    pub fn run_in(&self, mode: Mode, passes: PassSet) -> Result<Runner, String> {
        let (object, engine) = (self.object()?, engine(mode, passes)?);
        match self.source {
            Source::Written(it) => over(&object, &engine, &it.block()),
            Source::ThirdParty(it) => over(&object, &engine, &it.block()),
            Source::Real(it) => it.run_in(&object, &engine),
            Source::Selftest => selftests::run_in(&object, &engine),
            Source::First(it) => over(&object, &engine, &it.block()),
        }
    }

    /// Whether it can be compiled for other machines, too.
    pub fn is_plain_c(&self) -> bool {
        !matches!(self.source, Source::Real(_) | Source::Selftest | Source::First(_))
    }

    /// The same C as native code, compiled with these flags.
    pub fn native(&self, flags: &[&str]) -> Result<Runner, String> {
        native::over(&self.source()?, flags)
    }

    /// The same C as WebAssembly, with an instruction budget or without.
    pub fn wasm(&self, fuel: bool) -> Result<Runner, String> {
        wasmtime::over(&self.source()?, fuel)
    }

    fn source(&self) -> Result<native::Source, String> {
        match self.source {
            Source::Written(it) => Ok(native::Source { path: it.path(), flags: Vec::new(), block: it.block() }),
            Source::ThirdParty(it) => it.source(),
            Source::Real(_) | Source::Selftest => Err("it needs maps and packets".to_owned()),
            Source::First(_) => Err("the bench `run` has it".to_owned()),
        }
    }
}

/// An engine for them.
pub fn engine(mode: Mode, passes: PassSet) -> Result<Engine, String> {
    mode.engine_with(mode.config().frame_size(FRAME).memory_limit(MEMORY).passes(passes))
        .map_err(|error| error.to_string())
}

/// The program `prog` of an object over a block.
fn over(object: &Object, engine: &Engine, block: &[u8]) -> Result<Runner, String> {
    let pre = instantiate_in(object, engine)?;
    let entry = pre.program("prog").ok_or("no program `prog`")?;
    let mut instance = pre.instance(()).map_err(|error| error.to_string())?;
    let block = instance.context(block).map_err(|error| error.to_string())?;
    Ok(Box::new(move || instance.call(entry, &[block.addr()]).map_err(|trap| trap.to_string())))
}

#[cfg(test)]
mod der_reference;
#[cfg(test)]
mod references;
#[cfg(test)]
mod tests;
