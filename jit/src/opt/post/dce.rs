//! Dead-code elimination.
//!
//! **Why here.** LICM and induction-variable widening leave aliases, and instructions whose results nothing uses. Cranelift skips
//! those when it selects instructions, which takes longer than to remove them.
//!
//! **Before and after.**
//!
//! ```text
//! v2 = ireduce.i32 v1               →
//! v3 -> v4; v5 = iadd v3, v3              v5 = iadd v4, v4
//! ```
//!
//! **Cost.** Linear.
//!
//! **Safety.** Only instructions without side effects are removed.

use super::super::analysis::Analyses;
use super::super::pass::{Input, Pass, Phase};
use super::super::uses::Uses;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct Dce(Uses);

impl Pass for Dce {
    const NAME: &'static str = "dce";
    const SUMMARY: &'static str = "removes dead code and aliases";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        let changes = self.0.renew(&mut input.context.func);
        input.analysis.establish(Analyses::RESOLVED);
        changes
    }
}
