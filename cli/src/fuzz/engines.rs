//! Engines by their names on the command line.

use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use twinbpf_fuzzing::KernelEngine;
use twinbpf_fuzzing::{Agreement, Campaign, Changed, Engine, JitMode, Plugin, Vm, jit_modes};
use twinbpf_vm::interp::Driver;

use super::{qemu, remote};
use crate::args::{EnginesArgs, FuzzEngine, ModeWord, Peer};

/// A campaign of these engines; the interpreter is always the first, for it says which programs stray.
pub(crate) fn campaign(args: &EnginesArgs) -> Result<Campaign> {
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    if !args.engines.iter().any(is_first) {
        engines.push(Box::new(Vm::interp(Driver::Threaded)?));
    }
    engines.extend(all(args)?);
    Ok(Campaign::new(engines))
}

fn is_first(engine: &FuzzEngine) -> bool {
    matches!(engine, FuzzEngine::Interp | FuzzEngine::Step)
}

/// These engines and no other, interpreters first.
pub(super) fn all(args: &EnginesArgs) -> Result<Vec<Box<dyn Engine>>> {
    anyhow::ensure!(args.mutant.is_none() || twinbpf_fuzzing::FAULTS, "this build has no mutants");
    let jit = |modes| -> Result<Box<dyn Engine>> {
        let vm = Vm::jit(modes)?;
        Ok(Box::new(match &args.mutant {
            Some(mutant) => vm.with_compiler_mutant(mutant),
            None => vm,
        }))
    };
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    let others = args.engines.iter().filter(|engine| !is_first(engine));
    for engine in args.engines.iter().filter(|engine| is_first(engine)).chain(others) {
        match engine {
            FuzzEngine::Interp => engines.push(Box::new(Vm::interp(Driver::Threaded)?)),
            FuzzEngine::Step => engines.push(Box::new(Vm::interp(Driver::Step)?)),
            FuzzEngine::Jit => engines.push(jit(modes(&args.modes))?),
            FuzzEngine::JitAll => {
                for mode in modes(&args.modes) {
                    engines.push(jit(vec![mode])?);
                }
            }
            FuzzEngine::Changed => engines.push(Box::new(Changed::new(Vm::interp(Driver::Threaded)?))),
            FuzzEngine::None => {}
        }
    }
    for peer in &args.against {
        match peer {
            Peer::Kernel => engines.push(Box::new(KernelEngine::new().context("--against kernel")?)),
            Peer::KernelInterp => {
                engines.push(Box::new(KernelEngine::interpreter().context("--against kernel-interp")?));
            }
            Peer::Qemu(kernel) => engines.extend(qemu::engines(kernel)?),
            Peer::Worker(words) => engines.extend(worker(words)?),
            Peer::Plugin(command) => engines.push(Box::new(Plugin::new(command))),
        }
    }
    Ok(engines)
}

/// The modes that words choose.
fn modes(chosen: &[ModeWord]) -> Vec<JitMode> {
    let chosen = value_names(chosen);
    let mut modes: Vec<JitMode> = jit_modes().collect();
    for kind in 0..3 {
        let chosen: Vec<&String> =
            chosen.iter().filter(|name| jit_modes().any(|mode| mode.words()[kind] == **name)).collect();
        modes.retain(|mode| chosen.is_empty() || chosen.iter().any(|name| *name == mode.words()[kind]));
    }
    modes
}

/// Names of the engines, for which they are made; workers are named by how to reach them.
pub(super) fn names(args: &EnginesArgs) -> Result<Vec<String>> {
    let remote = |peer: &&Peer| matches!(peer, Peer::Qemu(_) | Peer::Worker(_));
    let against = args.against.iter().filter(|peer| !remote(peer)).cloned().collect();
    let mut names = campaign(&EnginesArgs { against, ..args.clone() })?.engines();
    names.extend(args.against.iter().filter(remote).map(Peer::to_string));
    Ok(names)
}

/// The machine and the verifier of the running kernel.
pub(super) fn agreement() -> Result<Agreement> {
    let kernel = KernelEngine::new().context("--agreement needs the running kernel")?;
    Ok(Agreement::new(Box::new(kernel))?)
}

/// The engines of a worker that a command reaches.
fn worker(words: &str) -> Result<Vec<Box<dyn Engine>>> {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    remote::engines(Box::new(move || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }))
}

/// The same as arguments of a command.
pub(crate) fn arguments(args: &EnginesArgs) -> Vec<String> {
    let mut all = vec!["--engines".to_owned(), value_names(&args.engines).join(",")];
    if !args.modes.is_empty() {
        all.extend(["--modes".to_owned(), value_names(&args.modes).join(",")]);
    }
    if let Some(mutant) = &args.mutant {
        all.extend(["--mutant".to_owned(), mutant.clone()]);
    }
    for peer in &args.against {
        all.push("--against".to_owned());
        all.push(peer.to_string());
    }
    all
}

/// Values as they are on the command line.
pub(super) fn value_names(values: &[impl ValueEnum]) -> Vec<String> {
    values.iter().filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned())).collect()
}
