//! Analysis manager: the analyses that passes share, and which of them are up to date.

use bitflags::bitflags;
use cranelift_codegen::Context;

use super::ir::destinations;

bitflags! {
    /// A set of analyses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Analyses: u8 {
        /// How many edges lead to each block.
        const EDGES = 1 << 0;
        /// Cranelift's control-flow graph.
        const CFG = 1 << 1;
        /// Cranelift's dominator tree.
        const DOMINATORS = 1 << 2;
        /// Cranelift's loop analysis. Blocks that a pass adds are in no loop.
        const LOOPS = 1 << 3;
        /// No instruction has an alias as its operand.
        const RESOLVED = 1 << 4;
    }
}

impl Analyses {
    /// Cranelift's analyses of control flow.
    pub(crate) const FLOW: Analyses = Analyses::CFG.union(Analyses::DOMINATORS).union(Analyses::LOOPS);
}

/// The analyses of the function in work, those that are Cranelift's apart.
#[derive(Default)]
pub(crate) struct Analysis {
    /// How many edges lead to each block, by number.
    pub(crate) edges: Vec<u32>,
    valid: Analyses,
}

impl Analysis {
    /// A new function begins, or something outside of the pipeline changed it: only these are up to date.
    pub(crate) fn reset(&mut self, valid: Analyses) {
        self.valid = valid;
    }

    /// A pass has computed these itself.
    pub(crate) fn establish(&mut self, computed: Analyses) {
        self.valid |= computed;
    }

    /// A pass changed the function: only these are still up to date.
    pub(crate) fn keep(&mut self, kept: Analyses) {
        self.valid &= kept;
    }

    /// Computes what is missing.
    pub(crate) fn require(&mut self, needed: Analyses, context: &mut Context) {
        let mut missing = needed - self.valid;
        // Loops are found by the dominator tree.
        if missing.contains(Analyses::LOOPS) {
            missing |= Analyses::DOMINATORS - self.valid;
        }
        // Chains of aliases can be as long as the function, and passes resolve values many times.
        if missing.contains(Analyses::RESOLVED) {
            context.func.dfg.resolve_all_aliases();
        }
        if missing.contains(Analyses::EDGES) {
            self.count_edges(context);
        }
        if missing.contains(Analyses::DOMINATORS) {
            context.flowgraph();
            self.valid |= Analyses::CFG;
        } else if missing.contains(Analyses::CFG) {
            context.compute_cfg();
        }
        if missing.contains(Analyses::LOOPS) {
            context.compute_loop_analysis();
        }
        self.valid |= missing;
    }

    fn count_edges(&mut self, context: &Context) {
        let func = &context.func;
        self.edges.clear();
        self.edges.resize(func.dfg.num_blocks(), 0);
        for block in func.layout.blocks() {
            for call in destinations(func, block) {
                self.edges[call.block(&func.dfg.value_lists).as_u32() as usize] += 1;
            }
        }
    }
}
