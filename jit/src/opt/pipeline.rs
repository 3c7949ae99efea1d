//! The pipeline: its passes in order, and how they run.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CodegenResult, Context};

use twinbpf_vm::host::native::Site;

use super::analysis::{Analyses, Analysis};
use super::pass::{Input, Pass, Phase};
use super::post::{
    AddressFolding, CodeHoisting, Dce, ExitSplitting, IncrementSinking, IvWidening, Licm, Payments, Scheduling,
    SequencePoints,
};
use super::pre::{AccessMerging, DemandedBits, IfConversion, SwitchRecovery};
use super::target_model::TargetModel;
use crate::stage::Stages;

/// What is known of a pass without running it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PassInfo {
    /// The name in options, statistics and errors.
    pub name: &'static str,
    /// What it does, after "it".
    pub summary: &'static str,
    /// When it runs.
    pub phase: Phase,
    /// Analyses that it needs.
    pub needs: Analyses,
    /// Analyses that are up to date after it has changed something.
    pub keeps: Analyses,
    /// Whether it is skipped in functions without loops.
    pub loops_only: bool,
    /// Why it has its place in the pipeline.
    pub place: &'static str,
}

/// A pass in the pipeline.
pub(crate) struct Row {
    pub(crate) info: PassInfo,
    pays: fn(&TargetModel) -> bool,
    new: fn() -> Box<dyn Run>,
}

impl Row {
    /// Runs the pass with fresh memory, whatever analyses it needs being up to date. Returns how many places it changed.
    #[cfg(test)]
    pub(crate) fn alone(&self, input: &mut Input<'_>) -> usize {
        (self.new)().run(input)
    }

    /// Whether the pass runs for a target.
    #[cfg(test)]
    pub(crate) fn pays(&self, target: &TargetModel) -> bool {
        (self.pays)(target)
    }
}

/// A pass as an object.
trait Run: Send {
    fn run(&mut self, input: &mut Input<'_>) -> usize;
}

impl<P: Pass> Run for P {
    fn run(&mut self, input: &mut Input<'_>) -> usize {
        Pass::run(self, input)
    }
}

const fn row<P: Pass>(place: &'static str) -> Row {
    let info = PassInfo {
        name: P::NAME,
        summary: P::SUMMARY,
        phase: P::PHASE,
        needs: P::NEEDS,
        keeps: P::KEEPS,
        loops_only: P::LOOPS_ONLY,
        place,
    };
    Row { info, pays: P::pays, new: || Box::<P>::default() }
}

/// All passes, in the order in which they run. Cranelift's optimiser comes between the two phases.
pub(crate) static PASSES: [Row; 14] = [
    row::<SwitchRecovery>("first, before if-conversion, which would take leaves off the tree of compares"),
    row::<IfConversion>("before the optimiser, which simplifies what the selects choose from"),
    row::<AccessMerging>(
        "after if-conversion, which merges blocks; the optimiser removes what only put bytes together",
    ),
    row::<DemandedBits>("last before the optimiser: if-conversion merges blocks and so removes parameters"),
    row::<SequencePoints>(
        "first after the optimiser, for which alone the points were: other passes need not skip them",
    ),
    row::<Payments>("before passes that know sums"),
    row::<CodeHoisting>("before scheduling, which orders what a block has: it puts what it moves at the end"),
    row::<Scheduling>(
        "before passes that rely on the order of a block, and on all blocks: registers run out without loops, too",
    ),
    row::<AddressFolding>("before LICM: what an access has in its offset needs no register across the loop"),
    row::<Licm>("before passes that work on what is left in a loop"),
    row::<IncrementSinking>("after LICM, which moves what the increment is made of"),
    row::<ExitSplitting>("after LICM, which leaves an exit edge with what it needs"),
    row::<IvWidening>("after LICM; the extensions that it makes useless are removed next"),
    row::<Dce>("last, of what other passes have made useless"),
];

impl PassInfo {
    /// All passes, in the order in which they run.
    pub fn all() -> &'static [PassInfo] {
        static ALL: LazyLock<Vec<PassInfo>> = LazyLock::new(|| PASSES.iter().map(|row| row.info).collect());
        &ALL
    }
}

/// A run of a pass over a function.
///
/// ```
/// use twinbpf_jit::PassRun;
///
/// fn line(run: &PassRun) -> String {
///     format!("{:<20} {:>5} {:?}", run.name, run.changes, run.time)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PassRun {
    /// Name of the pass.
    pub name: &'static str,
    /// Places that it changed.
    pub changes: usize,
    /// Time that it took, with the analyses that it needed.
    pub time: Duration,
}

/// A function that passes run over, and how it is compiled.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// Index in the image.
    pub(crate) function: u32,
    /// Passes that run.
    pub(crate) passes: PassSet,
    /// See [`Input::counted`].
    pub(crate) counted: bool,
    pub(crate) stages: Stages<'a>,
}

/// The passes, with memory that is used again for the next function.
pub(crate) struct Pipeline {
    passes: Vec<Box<dyn Run>>,
    analysis: Analysis,
    /// Runs over the current function, if its listing is wanted.
    runs: Vec<PassRun>,
}

impl Default for Pipeline {
    fn default() -> Pipeline {
        let passes = PASSES.iter().map(|row| (row.new)()).collect();
        Pipeline { passes, analysis: Analysis::default(), runs: Vec::new() }
    }
}

impl Pipeline {
    /// Runs the passes before Cranelift's optimiser.
    ///
    /// # Errors
    /// As [`Stages::pass`], and so for [`Pipeline::post`].
    pub(crate) fn pre(
        &mut self,
        context: &mut Context,
        isa: &dyn TargetIsa,
        subject: Subject<'_>,
        sites: &mut Vec<Site>,
    ) -> CodegenResult<()> {
        self.runs.clear();
        self.analysis.reset(Analyses::empty());
        self.phase(|info| info.phase == Phase::Pre, context, isa, subject, sites)
    }

    /// Runs the pass that makes less work for what comes after it than it takes itself, where nothing is optimised:
    /// if-conversion, as the register allocator's work grows with the square of the parameters of blocks.
    ///
    /// # Errors
    /// As [`Stages::pass`].
    pub(crate) fn without_optimiser(
        &mut self,
        context: &mut Context,
        isa: &dyn TargetIsa,
        subject: Subject<'_>,
        sites: &mut Vec<Site>,
    ) -> CodegenResult<()> {
        self.runs.clear();
        self.analysis.reset(Analyses::empty());
        self.phase(|info| info.name == IfConversion::NAME, context, isa, subject, sites)
    }

    /// Runs the passes after the optimiser, which has left its analyses in the context. Afterwards control-flow graph and
    /// dominator tree are up to date, and there are no aliases.
    pub(crate) fn post(
        &mut self,
        context: &mut Context,
        isa: &dyn TargetIsa,
        subject: Subject<'_>,
        sites: &mut Vec<Site>,
    ) -> CodegenResult<()> {
        self.analysis.reset(Analyses::FLOW | Analyses::RESOLVED);
        self.phase(|info| info.phase == Phase::Post, context, isa, subject, sites)?;
        self.analysis.require(Analyses::CFG | Analyses::DOMINATORS | Analyses::RESOLVED, context);
        Ok(())
    }

    /// The runs over the last function, if its listing was wanted.
    pub(crate) fn take_runs(&mut self) -> Vec<PassRun> {
        std::mem::take(&mut self.runs)
    }

    /// Runs the passes that `takes` chooses.
    fn phase(
        &mut self,
        takes: impl Fn(&PassInfo) -> bool,
        context: &mut Context,
        isa: &dyn TargetIsa,
        subject: Subject<'_>,
        sites: &mut Vec<Site>,
    ) -> CodegenResult<()> {
        let target = TargetModel::of(isa);
        for (at, (row, pass)) in PASSES.iter().zip(&mut self.passes).enumerate() {
            let loopless = || context.loop_analysis.loops().len() == 0;
            let skipped = row.info.loops_only && loopless() || !(row.pays)(target);
            if !takes(&row.info) || skipped || !subject.passes.runs(at, subject.function) {
                continue;
            }
            let start = context.want_disasm.then(Instant::now);
            let Subject { counted, stages, .. } = subject;
            let analysis = &mut self.analysis;
            let changes = stages.pass(row.info.name, (context, isa), |context| {
                analysis.require(row.info.needs, context);
                let changes = pass.run(&mut Input { context, analysis, target, counted, sites, mutant: stages.fault });
                if changes > 0 {
                    analysis.keep(row.info.keeps);
                }
                changes
            })?;
            if let Some(start) = start {
                self.runs.push(PassRun { name: row.info.name, changes, time: start.elapsed() });
            }
        }
        Ok(())
    }
}

/// The passes that run, of those that [`PassInfo::all`](super::PassInfo::all) lists. The default has all.
///
/// Its text is a list separated by commas, applied in order to the set of all passes: `-NAME` removes a pass, `+NAME` or `NAME`
/// adds it, `-all` and `all` do so with each.
///
/// ```
/// use twinbpf_jit::PassSet;
///
/// let set: PassSet = "-licm,-dce".parse()?;
/// assert_eq!(set.to_string(), "-licm,-dce");
/// # Ok::<(), twinbpf_jit::PassSetError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PassSet {
    removed: u32,
    /// Runs of passes after which no pass runs any more; see [`PassSet::bisect`].
    limit: Option<u64>,
}

const _: () = assert!(PASSES.len() <= u32::BITS as usize);

impl PassSet {
    /// Every pass, without a limit on changes.
    pub const ALL: PassSet = PassSet { removed: 0, limit: None };

    /// The same set, but only the first `count` runs of a pass over a function of an image take place. They are counted by
    /// function, then by pass, passes that are removed or skipped included, so that a count means the same in each
    /// compilation of an image.
    #[must_use]
    pub const fn bisect(self, count: Option<u64>) -> PassSet {
        PassSet { limit: count, ..self }
    }

    /// Whether a pass, by its position in the pipeline, runs over a function of the image.
    pub(crate) fn runs(self, pass: usize, function: u32) -> bool {
        let before = u64::from(function) * PASSES.len() as u64 + pass as u64;
        self.removed & 1 << pass == 0 && self.limit.is_none_or(|limit| before < limit)
    }
}

impl Default for PassSet {
    fn default() -> PassSet {
        PassSet::ALL
    }
}

/// The text of a [`PassSet`] names no pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no pass is called {name:?}; there are {}", names().join(", "))]
pub struct PassSetError {
    /// What was given.
    pub name: String,
}

fn names() -> Vec<&'static str> {
    PASSES.iter().map(|row| row.info.name).collect()
}

impl FromStr for PassSet {
    type Err = PassSetError;

    fn from_str(text: &str) -> Result<PassSet, PassSetError> {
        let mut set = PassSet::ALL;
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (adds, name) = match word.strip_prefix('-') {
                Some(name) => (false, name),
                None => (true, word.strip_prefix('+').unwrap_or(word)),
            };
            let found = PASSES.iter().position(|row| row.info.name == name).map(|at| 1 << at);
            let bits = found.or((name == "all").then_some(u32::MAX));
            let bits = bits.ok_or_else(|| PassSetError { name: name.to_owned() })?;
            set.removed = if adds { set.removed & !bits } else { set.removed | bits };
        }
        Ok(set)
    }
}

impl fmt::Display for PassSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let removed = PASSES.iter().enumerate().filter(|(at, _)| self.removed & 1 << at != 0);
        let removed: Vec<String> = removed.map(|(_, row)| format!("-{}", row.info.name)).collect();
        f.write_str(if removed.is_empty() { "all" } else { "" })?;
        f.write_str(&removed.join(","))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", {limit} runs"))
    }
}
