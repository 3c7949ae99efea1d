//! A function whose accesses are being merged.

use cranelift_codegen::ir::{Block, Function, Inst};
use twinbpf_vm::host::native::Site;

use super::access::size;
use super::bytes::Origins;

/// Bytes of accesses that are merged with others, at most; wider ones are merged along with them.
const NARROW: u8 = 2;

/// Whether a function has accesses that could be merged.
pub(super) fn any_narrow(func: &Function) -> bool {
    func.layout.blocks().flat_map(|block| func.layout.block_insts(block)).any(|inst| is_narrow(func, inst))
}

/// Whether an instruction is an access of a few bytes.
fn is_narrow(func: &Function, inst: Inst) -> bool {
    size(func, inst).is_some_and(|size| size <= NARROW)
}

/// A function in work.
pub(super) struct Merging<'a> {
    pub(super) func: &'a mut Function,
    pub(super) sites: &'a mut Vec<Site>,
    pub(super) origins: &'a mut Origins,
    /// Whether the mistake [`MUTANT`](super::MUTANT) is switched on.
    pub(super) mutant: bool,
}

impl Merging<'_> {
    /// Transforms the blocks that have at least two narrow stores, or loads. Cold blocks stay as they are: in those of guards are the
    /// accesses of the program. Returns how many places changed.
    pub(super) fn blocks(&mut self, stores: bool, mut transform: impl FnMut(&mut Self, Block) -> usize) -> usize {
        let mut changes = 0;
        let mut next = self.func.layout.entry_block();
        while let Some(block) = next {
            next = self.func.layout.next_block(block);
            let insts = self.func.layout.block_insts(block);
            if self.func.layout.is_cold(block) {
                continue;
            }
            let wanted =
                |inst: &Inst| self.func.dfg.insts[*inst].opcode().can_store() == stores && is_narrow(self.func, *inst);
            if insts.filter(wanted).nth(1).is_some() {
                self.origins.start();
                changes += transform(self, block);
            }
        }
        changes
    }
}
