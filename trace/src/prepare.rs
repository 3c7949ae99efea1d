//! An object in the kernel: linked, with the code of the session added to its programs, and loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinbpf_isa::SpliceError;
use twinbpf_kernel::load::LoadOptions;
use twinbpf_kernel::probe::{Feature, has};
use twinbpf_kernel::{Loaded, Target};
use twinbpf_loader::kernel::{Attaching, KernelLinked, KernelOptions};

use crate::arguments::variants::{self, Sleep};
use crate::error::Error;
use crate::loss::Losses;
use crate::options::Options;
use crate::plan::{ObjectPlan, Trigger};
use crate::start_flag::StartFlag;
use crate::target::decides;
use crate::verdicts::{Ruling, Verdicts};

/// An object in the kernel.
pub(crate) struct Prepared {
    pub(crate) linked: KernelLinked,
    pub(crate) loaded: Loaded,
    pub(crate) losses: Losses,
    pub(crate) verdicts: Option<Verdicts>,
    pub(crate) start_flag: Option<StartFlag>,
    /// Index of the map that programs print to.
    pub(crate) output: Option<usize>,
}

/// Links and loads the object's programs, with a start flag and code that counts what they lose. Where they do not load with
/// that, they are loaded without it.
///
/// # Errors
/// A program is too long for the code that prints.
pub(crate) fn prepare(
    plan: &ObjectPlan,
    programs: Vec<usize>,
    options: &Options,
    ruling: Ruling<'_>,
    warnings: &mut Vec<String>,
) -> Result<Prepared, Error> {
    let (kernel, linking) = options.kernel.for_loading();
    let linking = KernelOptions { programs: Some(programs), output: true, ..linking };
    let object = &plan.object.name;
    let too_long = |cause: SpliceError| Error::TooLong { object: Arc::clone(object), cause };
    let attempt = |add: bool, sleep: Sleep| {
        let mut linked = plan.object.link_kernel(&*kernel, &linking);
        // Whatever the section says: without a link, a table would outlive a session that is killed.
        if plan.tables().next().is_some() && has(Feature::StructOpsLink) {
            linked.struct_ops.iter_mut().flatten().for_each(|table| table.link = true);
        }
        let output = linked.add_output(options.output_bytes).map_err(too_long)?;
        let counters = if add { linked.count_dropped().map_err(too_long)? } else { None };
        variants::add_prologues(plan, &mut linked, sleep)?;
        let verdicts = ruling.apply(plan, &mut linked)?;
        let attached = without_own_check(plan, verdicts.as_ref());
        let start_flag = if add { StartFlag::add(&mut linked, &attached).map_err(too_long)? } else { None };
        // The kernels that had such links first limited them to a thread where a process was meant.
        if add && options.pid.is_none() && has(Feature::UprobeMulti) {
            share_links(plan, &mut linked);
        }
        let losses = Losses::new(object, &linked, counters);
        let given = ruling.given(verdicts.as_ref());
        let loaded = twinbpf_kernel::load(&plan.object, &linked, &LoadOptions { given, ..LoadOptions::default() });
        Ok::<_, Error>(Prepared { linked, loaded, losses, verdicts, start_flag, output })
    };
    let fits = |prepared: &Result<Prepared, Error>| {
        prepared.as_ref().is_ok_and(|prepared| prepared.loaded.failures.is_empty())
    };
    let (mut sleep, mut prepared) = (Sleep::Always, attempt(options.count_loss, Sleep::Always));
    if !fits(&prepared) && variants::may_do_without_sleep(plan) {
        let without = attempt(options.count_loss, Sleep::Never);
        if fits(&without) {
            sleep = Sleep::Never;
            prepared = without;
            warnings.push(format!(
                "{object}: the kernel does not let a program of it sleep: arguments in memory that is not there yet are \
                 not read; sleepable=no; in the section accepts that"
            ));
        }
    }
    let failed = match prepared {
        Ok(prepared) if !options.count_loss || !prepared.has_additions() || prepared.loaded.failures.is_empty() => {
            return Ok(prepared);
        }
        Ok(prepared) => {
            let why = prepared.loaded.failures.first().map(|failure| failure.to_string()).unwrap_or_default();
            // The first line; the verifier's log follows it.
            format!("the kernel refuses the session's code in them: {}", why.lines().next().unwrap_or_default())
        }
        Err(_) => "a program is too long for the session's code in it".to_owned(),
    };
    let prepared = attempt(false, sleep)?;
    // Otherwise the failures say all.
    if prepared.loaded.failures.is_empty() {
        warnings.push(format!(
            "{object}: its programs are attached after BEGIN, and what they lose is not counted: {failed}"
        ));
    }
    Ok(prepared)
}

impl Prepared {
    /// Whether programs have code that they load without.
    fn has_additions(&self) -> bool {
        self.start_flag.is_some() || !self.losses.is_empty()
    }
}

/// Loads programs at several instructions of user space for one link to all: the kernel waits a tenth of a second for each
/// event that is closed.
fn share_links(plan: &ObjectPlan, linked: &mut KernelLinked) {
    for planned in &plan.programs {
        let Trigger::Kernel { targets } = &planned.trigger else { continue };
        if targets.iter().filter(|target| matches!(target, Target::Uprobe { .. })).count() > 1 {
            let program = linked.programs.iter_mut().find(|program| program.spec == planned.spec);
            program.into_iter().for_each(|program| program.attaching = Attaching::ByOneLink);
        }
    }
}

/// The programs that attachments run, by index in the object, but for those with a check of their own; and whether all that
/// watch the event depend on what one returns.
fn without_own_check(plan: &ObjectPlan, verdicts: Option<&Verdicts>) -> BTreeMap<usize, bool> {
    let judged = |program: usize| verdicts.is_some_and(|verdicts| verdicts.begin_later(program));
    let attached = plan.programs.iter().filter(|planned| !judged(planned.spec));
    let attached = attached.filter_map(|planned| {
        let mut targets = planned.trigger.attachments(0).map(|(target, _)| target).peekable();
        targets.peek()?;
        Some((planned.spec, targets.any(decides)))
    });
    attached.collect()
}
