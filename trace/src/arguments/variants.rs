//! Variants of linked programs: one for each instance, with its prologue.

use std::sync::Arc;

use twinbpf_loader::kernel::{KernelLinked, KernelProgram, LowerFrameError};
use twinbpf_loader::section::{SectionKind, Switch};

use super::ProbeInstance;
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

/// Puts a program for each instance in the place of every program that has some.
///
/// # Errors
/// A program's frame has no room for what a prologue leaves there, or the program is too long.
pub(crate) fn add_prologues(plan: &ObjectPlan, linked: &mut KernelLinked, sleep: Sleep) -> Result<(), Error> {
    for planned in &plan.programs {
        let Trigger::Probe(all) = &planned.trigger else { continue };
        let Some(at) = linked.programs.iter().position(|program| program.spec == planned.spec) else { continue };
        let program = linked.programs.remove(at);
        let variant = |instance: &ProbeInstance| {
            let mut variant = program.clone();
            let prologue = instance.fallback.as_ref().filter(|_| sleep == Sleep::Never).unwrap_or(&instance.prologue);
            set_sleepable(&mut variant, prologue.sleeps);
            if prologue.frame > 0 {
                variant.lower_frame(prologue.frame)?;
            }
            variant.splice(0, 0, &prologue.insns())?;
            Ok(variant)
        };
        let variants: Result<Vec<_>, LowerFrameError> = all.instances.iter().map(variant).collect();
        let variants = variants.map_err(|why| wrong(&plan.object, plan.spec(planned), why))?;
        linked.programs.splice(at..at, variants);
    }
    Ok(())
}

/// Loads the program as sleepable, or not: that depends on its section.
fn set_sleepable(program: &mut KernelProgram, sleeps: bool) {
    if let SectionKind::PerfProbe(probe) = &mut program.attach.kind {
        Arc::make_mut(probe).options.sleepable = if sleeps { Switch::Yes } else { Switch::No };
    }
}
