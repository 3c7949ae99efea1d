//! [Positions](crate::positions) of what is lowered: source locations, trap sites, marks of listings.
//!
//! Generated code traps by faulting or by executing a trapping instruction; each place where it can is a *site*. Sites
//! are numbered in the order of emission, and carry their number modulo [`CODES`] as trap code.

use cranelift_codegen::ir::{DebugTag, Inst, InstBuilder as _, SourceLoc, TrapCode};
use twinbpf_vm::host::native::{Site, SiteKind};

use super::Translator;
use crate::trap_sites::CODES;

impl Translator<'_> {
    /// Goes on with the instruction at a flat pc.
    pub(super) fn at(&mut self, pc: u32) {
        self.pc = pc;
        let position = self.position();
        self.b.set_srcloc(SourceLoc::new(position));
    }

    /// The position of the instruction in work.
    fn position(&self) -> u32 {
        let positions = &self.inlining.positions;
        self.inside.map_or_else(|| positions.of(self.pc), |inside| positions.inside(inside.call, self.pc))
    }

    /// Marks what follows for a listing.
    pub(super) fn mark_here(&mut self) {
        if self.input.listing {
            let point = self.b.ins().sequence_point();
            self.mark(point);
        }
    }

    /// Marks a sequence point for a listing.
    pub(super) fn mark(&mut self, inst: Inst) {
        if self.input.listing {
            let position = self.position();
            self.b.func.debug_tags.set(inst, [DebugTag::User(position)]);
        }
    }

    /// Numbers a place that may trap.
    pub(super) fn site(&mut self, kind: SiteKind) -> TrapCode {
        let code = (self.sites.len() % CODES) as u8 + 1;
        self.sites.push(Site::new(self.position(), kind));
        TrapCode::unwrap_user(code)
    }
}
