//! Trap sites: from an address in emitted code to the BPF instruction.

use cranelift_codegen::CompiledCode;
use cranelift_codegen::ir::SourceLoc;
use twinbpf_vm::host::native::{Site, SiteKind};

use crate::positions::Positions;

/// Number of different trap codes; sites that share one are distinguished by their position.
pub(crate) const CODES: usize = 250;

/// Of one function. Offsets count from its first byte; sites have [positions](Positions) in place of pcs.
#[derive(Debug)]
pub(crate) struct TrapSites {
    /// Bytes of the function.
    pub(crate) len: u32,
    pub(crate) sites: Box<[Site]>,
    /// Offset of each trapping instruction, and the number of its site modulo [`CODES`], in order.
    pub(crate) traps: Box<[(u32, u8)]>,
    /// Offset from which on code is of the instruction at a position, in order.
    pub(crate) pcs: Box<[(u32, u32)]>,
    pub(crate) positions: Positions,
}

impl TrapSites {
    pub(crate) fn new(code: &CompiledCode, sites: Vec<Site>, positions: Positions) -> TrapSites {
        let traps = code.buffer.traps().iter();
        let mut traps: Box<[(u32, u8)]> = traps.map(|trap| (trap.offset, trap.code.as_raw().get() - 1)).collect();
        if !traps.is_sorted() {
            traps.sort_unstable();
        }
        let known = code.buffer.get_srclocs_sorted().iter().filter(|range| range.loc != SourceLoc::default());
        let pcs = known.map(|range| (range.start, range.loc.bits())).collect();
        TrapSites { len: code.code_buffer().len() as u32, sites: sites.into(), traps, pcs, positions }
    }

    /// What can trap at an offset. An instruction that Cranelift joined from several may have lost its pc, so
    /// of the sites that share a code it is the one next to where the code around is.
    fn trap(&self, off: u32) -> Option<Site> {
        let index = self.traps.binary_search_by_key(&off, |trap| trap.0).ok()?;
        let first = usize::from(self.traps[index].1);
        let candidates = self.sites.iter().skip(first).step_by(CODES);
        let position = self.position(off);
        candidates.min_by_key(|site| position.map_or(0, |position| site.pc.abs_diff(position))).copied()
    }

    /// The position of the instruction that the code at an offset is of.
    fn position(&self, off: u32) -> Option<u32> {
        let index = self.pcs.partition_point(|(start, _)| *start <= off).max(1) - 1;
        self.pcs.get(index).map(|(_, position)| *position)
    }

    /// Offset from which on code is of the instruction at a flat pc, in order.
    pub(crate) fn pcs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.pcs.iter().map(|(off, position)| (*off, self.positions.resolve(*position).0))
    }

    /// What is at an offset: something that can trap, else the call around it.
    pub(crate) fn at(&self, off: u32) -> Option<Site> {
        let call = || Some(Site::new(self.position(off.checked_sub(1)?)?, SiteKind::Call));
        let site = self.trap(off).or_else(call)?;
        let (pc, inlined_at) = self.positions.resolve(site.pc);
        Some(Site { pc, inlined_at, ..site })
    }
}
