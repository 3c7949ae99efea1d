//! Dead-code elimination.
//!
//! **Why here.** LICM and induction-variable widening leave aliases, and instructions whose results nothing uses. Cranelift would
//! skip those when it selects instructions, but passes that count users would be misled.
//!
//! **Before and after.**
//!
//! ```text
//! v2 = ireduce.i32 v1               →
//! v3 -> v4; v5 = iadd v3, v3              v5 = iadd v4, v4
//! ```
//!
//! **Cost.** Linear. Establishes the users of all values, too.
//!
//! **Safety.** Only instructions without side effects are removed.

use super::super::analysis::Analyses;
use super::super::pass::{Input, Pass, Phase};

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct Dce;

impl Pass for Dce {
    const NAME: &'static str = "dce";
    const SUMMARY: &'static str = "removes dead code and aliases";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::USES).union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        let changes = input.analysis.uses.renew(&mut input.context.func);
        input.analysis.establish(Analyses::USES | Analyses::RESOLVED);
        changes
    }
}
