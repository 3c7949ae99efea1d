//! Access merging: accesses to neighbouring bytes become one access of 2, 4 or 8 bytes.
//!
//! **Why here.** BPF has no unaligned access that clang may use, so a `memcpy` of a word is eight loads, seven shifts and seven ors.
//! Cranelift does not merge accesses, since each may trap by itself.
//!
//! **Before and after.** Loads ([`loads`]; stores are in [`stores`]):
//!
//! ```text
//! v2 = uload8.i64 v1                      v9 = band v1, 0xfff
//! v3 = uload8.i64 v1+1                    brif v9 > 0x1000 - 4, block2 (cold), block1
//! v4 = ishl v3, 8                   →     block1: v2 = uload32 v1
//! v5 = bor v2, v4                         block2: uload8 v1, uload8 v1+1, ...
//! ...                                             jump block1
//! ```
//!
//! Bytes are taken in either order; a `bswap` makes the value of big-endian ones. Guards are shared by all groups of bytes between two
//! writes to memory, if they have a base in common: `guard::COST` says what one costs.
//!
//! **Cost.** Linear; blocks without narrow accesses are left out.
//!
//! **Safety.** Traps stay where they are. Memory is accessible by pages. An access within a page traps if and only if all of its bytes
//! do, and then the first of them in program order does; the access is at its place, with its trap site. Where an access may leave its page
//! the cold block makes the accesses of the program in their order: loads to see whether one traps, before the wide load; stores in
//! place of the wide one. No write to memory, call or trap lies between the bytes of a load, and nothing that acts at all between those of a
//! store.

mod access;
mod bytes;
mod guard;
mod loads;
mod merging;
mod stores;

use super::super::analysis::Analyses;
use super::super::pass::{Input, Pass, Phase};
use super::super::target_model::TargetModel;
use bytes::Origins;
use merging::{Merging, any_narrow};

/// The mutant whose guard takes what begins in the last bytes of a page for an access within it.
pub(crate) const MUTANT: &str = "merged_access_leaves_its_page";

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct AccessMerging {
    origins: Origins,
}

impl Pass for AccessMerging {
    const NAME: &'static str = "access-merging";
    const SUMMARY: &'static str = "makes one access of 2, 4 or 8 bytes of accesses to neighbouring bytes";
    const PHASE: Phase = Phase::Pre;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::empty();

    fn pays(target: &TargetModel) -> bool {
        target.unaligned
    }

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        if !any_narrow(&input.context.func) {
            return 0;
        }
        // Most functions end above, so that this is not in `NEEDS`.
        input.analysis.require(Analyses::RESOLVED, input.context);
        let mut merging = Merging {
            func: &mut input.context.func,
            sites: input.sites,
            origins: &mut self.origins,
            mutant: input.mutant == MUTANT,
        };
        // Bytes that are copied are put together for their store, and then found by their loads.
        merging.blocks(true, Merging::stores) + merging.blocks(false, Merging::loads)
    }
}
