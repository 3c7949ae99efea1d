//! A function whose accesses are being merged.

use cranelift_codegen::ir::{Block, Function, Opcode};
use twinbpf_vm::host::native::Site;

use super::bytes::Origins;

/// A function in work.
pub(super) struct Merging<'a> {
    pub(super) func: &'a mut Function,
    pub(super) sites: &'a mut Vec<Site>,
    pub(super) origins: &'a mut Origins,
    /// Whether the mistake [`MUTANT`](super::MUTANT) is switched on.
    pub(super) mutant: bool,
}

impl Merging<'_> {
    /// Transforms the blocks that have at least two instructions of a kind. Returns how many places changed.
    pub(super) fn blocks(
        &mut self,
        kind: impl Fn(Opcode) -> bool,
        mut transform: impl FnMut(&mut Self, Block) -> usize,
    ) -> usize {
        let mut changes = 0;
        let mut next = self.func.layout.entry_block();
        while let Some(block) = next {
            next = self.func.layout.next_block(block);
            let insts = self.func.layout.block_insts(block);
            if insts.filter(|inst| kind(self.func.dfg.insts[*inst].opcode())).nth(1).is_some() {
                self.origins.start(self.func);
                changes += transform(self, block);
            }
        }
        changes
    }
}
