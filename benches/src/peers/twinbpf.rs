//! twinbpf as an embedder gets it, without optional limits.
#![expect(unsafe_code, reason = "programs of the benches are trusted")]

use twinbpf::{Config, Engine, EngineKind, Entry, Error, Instance, InstancePre, Linker, Object, OptLevel};

use super::Runner;
use crate::workload::{Workload, corpus_object};

/// What runs the program, and what it checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The interpreter: exact bounds.
    Interpreter,
    /// Compiled, in the sandbox, instructions counted.
    Fuel,
    /// Compiled, in the sandbox.
    Sandbox,
    /// Compiled, raw addresses.
    Trusted,
    /// The same without the optimiser.
    Plain,
    /// The default: interpreted until it is hot.
    Auto,
}

/// More instructions than any run needs.
const BUDGET: u64 = 1 << 60;

impl Mode {
    /// How to configure an engine for it.
    pub fn config(self) -> Config {
        let jit = Config::new().engine(EngineKind::Jit);
        match self {
            Mode::Interpreter => Config::new().engine(EngineKind::Interp),
            Mode::Fuel => jit.max_insns(BUDGET),
            Mode::Sandbox | Mode::Trusted => jit,
            Mode::Plain => jit.opt_level(OptLevel::None),
            Mode::Auto => Config::new().engine(EngineKind::Auto),
        }
    }

    /// An engine for it.
    ///
    /// # Errors
    /// There is no room for its arena.
    pub fn engine(self) -> Result<Engine, Error> {
        self.engine_with(self.config())
    }

    /// The same with another configuration, which is as trusted as the mode.
    ///
    /// # Errors
    /// There is no room for its arena.
    pub fn engine_with(self, config: Config) -> Result<Engine, Error> {
        match self {
            // SAFETY: the programs are those of the corpus and the benches, which access their own memory.
            Mode::Trusted | Mode::Plain => unsafe { Engine::new_trusted(config) },
            Mode::Interpreter | Mode::Fuel | Mode::Sandbox | Mode::Auto => Engine::new(config),
        }
    }
}

/// A workload, its block as the context.
pub fn workload(workload: &Workload, mode: Mode) -> Result<Runner, String> {
    let (mut instance, entry) = instance(&format!("bench/{}.bpf.o", workload.name), "prog", mode)?;
    let block = instance.context(&workload.block()).map_err(|error| error.to_string())?;
    Ok(Box::new(move || instance.call(entry, &[block.addr()]).map_err(|trap| trap.to_string())))
}

/// An object of the corpus and one of its programs. Programs can call `bench_add`, `bpf_skb_set_tunnel_key`,
/// which does nothing, and what is in the C library.
pub fn instance(object: &str, program: &str, mode: Mode) -> Result<(Instance<()>, Entry), String> {
    let pre = instantiate(&corpus_object(object)?, mode)?;
    let entry = pre.program(program).ok_or_else(|| format!("no program `{program}`"))?;
    Ok((pre.instance(()).map_err(|error| error.to_string())?, entry))
}

/// The same of any object, all of its programs, in an engine of its own.
pub fn instantiate(object: &Object, mode: Mode) -> Result<InstancePre<()>, String> {
    instantiate_in(object, &mode.engine().map_err(|error| error.to_string())?)
}

/// The same in this engine.
pub fn instantiate_in(object: &Object, engine: &Engine) -> Result<InstancePre<()>, String> {
    let mut linker = Linker::<()>::new(engine);
    linker.func("bench_add", u64::wrapping_add);
    // The machine has no tunnels.
    linker.func("bpf_skb_set_tunnel_key", |_: u64, _: u64, _: u64, _: u64| 0_u64);
    // SAFETY: the programs of the benches call functions of it by their prototypes.
    unsafe { linker.library("libc.so.6") }.map_err(|error| error.to_string())?;
    linker.instantiate_pre(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WORKLOADS;

    #[test]
    fn every_workload_returns_what_its_reference_does() {
        for mode in [Mode::Interpreter, Mode::Fuel, Mode::Sandbox, Mode::Trusted, Mode::Plain, Mode::Auto] {
            for subject in WORKLOADS {
                let mut run = workload(subject, mode).unwrap_or_else(|error| panic!("{}: {error}", subject.name));
                for _ in 0..2 {
                    assert_eq!(run.run().as_ref(), Ok(&subject.expected()), "{} {mode:?}", subject.name);
                }
            }
        }
    }
}
