//! Variants of linked programs: one for each instance, with its prologue; and companions, before them.

use std::sync::Arc;

use twinbpf_isa::{LowerFrameError, opcode};
use twinbpf_kernel::Target;
use twinbpf_loader::kernel::{Attaching, Fixup, KernelLinked, KernelProgram};
use twinbpf_loader::section::{SectionKind, Switch};

use twinbpf_vm::map::{MapKind, MapSpec};

use super::ProbeInstance;
use super::fetch::{self, KEPT_SIZES, NoCode};
use crate::code::code;
use crate::error::Error;
use crate::plan::{ObjectPlan, Trigger, wrong};

/// Whether prologues that may do without sleeping sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// All of them do.
    Always,
    /// Only those that have to.
    Never,
}

/// Whether the plan has prologues that do without sleeping.
pub(crate) fn may_do_without_sleep(plan: &ObjectPlan) -> bool {
    plan.programs.iter().any(|planned| match &planned.trigger {
        Trigger::Probe(all) => all.instances.iter().any(|instance| instance.fallback.is_some()),
        _ => false,
    })
}

/// Puts a program for each instance in the place of every program that has some, in the order of [`Instances::targets`](super::Instances::targets).
///
/// # Errors
/// A program's frame has no room for what a prologue leaves there, or the program is too long.
pub(crate) fn add_prologues(plan: &ObjectPlan, linked: &mut KernelLinked, sleep: Sleep) -> Result<(), Error> {
    for planned in &plan.programs {
        let Trigger::Probe(all) = &planned.trigger else { continue };
        let Some(at) = linked.programs.iter().position(|program| program.spec == planned.spec) else { continue };
        let program = linked.programs.remove(at);
        let kept = (!all.companion.is_empty()).then(|| add_kept(linked));
        let variant = |instance: &ProbeInstance| {
            let mut variant = program.clone();
            let prologue = instance.fallback.as_ref().filter(|_| sleep == Sleep::Never).unwrap_or(&instance.prologue);
            set_sleepable(&mut variant, prologue.sleeps);
            if matches!(instance.targets.first(), Some(Target::ProbeEvent { .. })) {
                variant.attaching = Attaching::ByEvents;
            }
            if prologue.frame > 0 {
                variant.lower_frame(prologue.frame)?;
            }
            let insns = prologue.insns();
            variant.splice(0, 0, &insns)?;
            name_kept(&mut variant, insns.len(), kept);
            Ok(variant)
        };
        let variants: Result<Vec<_>, LowerFrameError> = all.instances.iter().map(variant).collect();
        let variants = variants.map_err(|why| wrong(&plan.object, plan.spec(planned), why))?;
        let companion = kept.map(|kept| companion(&program, kept)).transpose();
        let companion = companion.map_err(|why| wrong(&plan.object, plan.spec(planned), why))?;
        linked.programs.splice(at..at, companion.into_iter().chain(variants));
    }
    Ok(())
}

/// Adds the map in which companions keep registers, and returns its index. Of calls that never end there are few: the oldest
/// go when it is full.
fn add_kept(linked: &mut KernelLinked) -> usize {
    const MOST: u32 = 16_384;
    let [key, value] = KEPT_SIZES;
    let spec = MapSpec::new("twinbpf_kept", MapKind::LruHash, key, value, MOST);
    linked.add_map(spec)
}

/// Puts the map's index where the code before `end` stands for it.
fn name_kept(program: &mut KernelProgram, end: usize, kept: Option<usize>) {
    let Some(kept) = kept else { return };
    for pc in 0..end {
        let raw = &mut program.insns[pc];
        if raw.opcode == opcode::LDDW && raw.src() == 1 {
            raw.imm = kept as i32;
            program.fixups.insert(pc, Fixup::Map(kept));
        }
    }
}

/// The companion of a program.
fn companion(program: &KernelProgram, kept: usize) -> Result<KernelProgram, NoCode> {
    let insns = code(&fetch::companion()?);
    let end = insns.len();
    let names = [&program.name, &program.section];
    let mut companion = KernelProgram {
        insns,
        functions: vec![(0, Arc::clone(&program.name))],
        ..KernelProgram::new(program.spec, names, program.attach.clone())
    };
    set_sleepable(&mut companion, false);
    name_kept(&mut companion, end, Some(kept));
    Ok(companion)
}

/// Loads the program as sleepable, or not: that depends on its section.
fn set_sleepable(program: &mut KernelProgram, sleeps: bool) {
    if let SectionKind::PerfProbe(probe) = &mut program.attach.kind {
        Arc::make_mut(probe).options.sleepable = if sleeps { Switch::Yes } else { Switch::No };
    }
}
