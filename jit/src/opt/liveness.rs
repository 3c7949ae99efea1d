//! Liveness: which values are live where a block starts. What only cold blocks use does not count.

use std::ops::Range;

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, Opcode, Value};
use cranelift_codegen::packed_option::PackedOption;

use super::ir::{destinations, each_use};

/// Words of a bit set.
type Word = u64;
/// Words of all sets, at most: 8 MiB.
const MAX_WORDS: usize = 1 << 20;
/// Walks over the blocks, at most. One for each level of loops, and two, find all.
const MAX_WALKS: u32 = 8;

/// The values that are live at the start of each block, as far as it is known after [`MAX_WALKS`]: no code may be wrong if one is missing.
#[derive(Default)]
pub(crate) struct Liveness {
    /// The block that defines each value, constants apart.
    homes: SecondaryMap<Value, PackedOption<Block>>,
    /// The last block that was seen to use each value.
    users: SecondaryMap<Value, PackedOption<Block>>,
    /// From 1, of values that a block uses and another defines; or 0.
    numbers: SecondaryMap<Value, u32>,
    /// How many of these there are.
    values: usize,
    /// Blocks, and values by index: uses of what another block defines, and these definitions.
    uses: Vec<(Block, usize)>,
    definitions: Vec<(Block, usize)>,
    /// Words of a set.
    words: usize,
    /// A set for each block, by number.
    live: Vec<Word>,
    /// Values that each block defines.
    defined: Vec<Word>,
}

impl Liveness {
    /// Computes it for a function without aliases. False if no more than `few` values live across blocks, or if the function
    /// is too large.
    pub(crate) fn compute(&mut self, func: &Function, few: u32) -> bool {
        self.find(func);
        let blocks = func.dfg.num_blocks();
        self.words = self.values.div_ceil(Word::BITS as usize);
        if self.values <= few as usize || blocks * self.words > MAX_WORDS {
            return false;
        }
        for (set, members) in [(&mut self.live, &self.uses), (&mut self.defined, &self.definitions)] {
            set.clear();
            set.resize(blocks * self.words, 0);
            for (block, index) in members {
                let (word, bit) = place(*index);
                set[block.as_u32() as usize * self.words + word] |= bit;
            }
        }
        for _ in 0..MAX_WALKS {
            if !self.walk(func) {
                break;
            }
        }
        true
    }

    /// Finds the values that live across blocks.
    fn find(&mut self, func: &Function) {
        self.homes.clear();
        self.homes.resize(func.dfg.num_values());
        for block in func.layout.blocks() {
            func.dfg.block_params(block).iter().for_each(|param| self.homes[*param] = block.into());
            for inst in func.layout.block_insts(block) {
                if func.dfg.insts[inst].opcode() != Opcode::Iconst {
                    func.dfg.inst_results(inst).iter().for_each(|result| self.homes[*result] = block.into());
                }
            }
        }
        self.users.clear();
        self.numbers.clear();
        self.values = 0;
        self.uses.clear();
        self.definitions.clear();
        for block in func.layout.blocks().filter(|block| !func.layout.is_cold(*block)) {
            for inst in func.layout.block_insts(block) {
                each_use(func, inst, |_, value| self.note(block, value));
            }
        }
    }

    /// Notes that a block uses a value.
    fn note(&mut self, block: Block, value: Value) {
        let Some(home) = self.homes[value].expand().filter(|home| *home != block) else { return };
        if self.users[value] == block.into() {
            return;
        }
        self.users[value] = block.into();
        if self.numbers[value] == 0 {
            self.definitions.push((home, self.values));
            self.values += 1;
            self.numbers[value] = self.values as u32;
        }
        self.uses.push((block, self.numbers[value] as usize - 1));
    }

    /// Marks what lives through a block because it is live after it. True if something was new.
    fn walk(&mut self, func: &Function) -> bool {
        let mut new = 0;
        let mut next = func.layout.last_block();
        while let Some(block) = next {
            next = func.layout.prev_block(block);
            if func.layout.is_cold(block) {
                continue;
            }
            let own = self.set(block);
            for call in destinations(func, block) {
                let to = self.set(call.block(&func.dfg.value_lists));
                // A block adds nothing to what is live at its own start.
                let Ok([live, after]) = self.live.get_disjoint_mut([own.clone(), to]) else { continue };
                for ((live, after), defined) in live.iter_mut().zip(after).zip(&self.defined[own.clone()]) {
                    let more = *after & !*defined & !*live;
                    *live |= more;
                    new |= more;
                }
            }
        }
        new != 0
    }

    /// Where the sets of a block lie.
    fn set(&self, block: Block) -> Range<usize> {
        let start = block.as_u32() as usize * self.words;
        start..start + self.words
    }

    /// How many values are live at the start of a block, its parameters among them.
    pub(crate) fn count(&self, func: &Function, block: Block) -> u32 {
        self.live[self.set(block)].iter().map(|word| word.count_ones()).sum::<u32>()
            + func.dfg.num_block_params(block) as u32
    }

    /// Whether a value is live at the start of a block that does not define it.
    pub(crate) fn is_live(&self, block: Block, value: Value) -> bool {
        let Some(index) = (self.numbers[value] as usize).checked_sub(1) else { return false };
        let (word, bit) = place(index);
        self.live[self.set(block)][word] & bit != 0
    }
}

/// Where a set has the value with an index.
fn place(index: usize) -> (usize, Word) {
    (index / Word::BITS as usize, 1 << (index % Word::BITS as usize))
}
