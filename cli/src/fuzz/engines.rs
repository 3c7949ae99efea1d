//! Engines by their names on the command line.

use anyhow::{Context, Result};
use twinbpf::fuzzing::{Campaign, Changed, Engine, Plugin, Vm, jit_modes};
use twinbpf::interp::Driver;
use twinbpf_trace::KernelEngine;

use crate::args::{EnginesArgs, FuzzEngine, Peer};

/// A campaign of these engines; the interpreter is always the first, for it says which programs stray.
pub(crate) fn campaign(args: &EnginesArgs) -> Result<Campaign> {
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    let first = |engine: &&FuzzEngine| matches!(engine, FuzzEngine::Interp | FuzzEngine::Step);
    let order = args.engines.iter().filter(first).chain(args.engines.iter().filter(|engine| !first(engine)));
    if !args.engines.iter().any(|engine| first(&engine)) {
        engines.push(Box::new(Vm::interp(Driver::Threaded)?));
    }
    for engine in order {
        match engine {
            FuzzEngine::Interp => engines.push(Box::new(Vm::interp(Driver::Threaded)?)),
            FuzzEngine::Step => engines.push(Box::new(Vm::interp(Driver::Step)?)),
            FuzzEngine::Jit => engines.push(Box::new(Vm::jit(jit_modes().collect())?)),
            FuzzEngine::JitAll => {
                for mode in jit_modes() {
                    engines.push(Box::new(Vm::jit(vec![mode])?));
                }
            }
            FuzzEngine::Changed => engines.push(Box::new(Changed::new(Vm::interp(Driver::Threaded)?))),
        }
    }
    for peer in &args.against {
        match peer {
            Peer::Kernel => engines.push(Box::new(KernelEngine::new().context("--against kernel")?)),
            Peer::Plugin(command) => engines.push(Box::new(Plugin::new(command))),
        }
    }
    Ok(Campaign::new(engines))
}

/// The same as arguments of a command.
pub(crate) fn arguments(args: &EnginesArgs) -> Vec<String> {
    use clap::ValueEnum as _;
    let name = |engine: &FuzzEngine| engine.to_possible_value().map(|value| value.get_name().to_owned());
    let names: Vec<String> = args.engines.iter().filter_map(name).collect();
    let mut all = vec!["--engines".to_owned(), names.join(",")];
    for peer in &args.against {
        all.push("--against".to_owned());
        all.push(match peer {
            Peer::Kernel => "kernel".to_owned(),
            Peer::Plugin(command) => format!("plugin:{command}"),
        });
    }
    all
}
