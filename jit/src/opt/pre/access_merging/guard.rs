//! Guards: whether wide accesses stay in their page. Trap sites of wide accesses.

use std::cmp::Ordering;

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{
    Block, Function, Inst, InstBuilder as _, MemFlagsData, SourceLoc, TrapCode, Value, ValueDef,
};
use twinbpf_vm::host::native::{Site, SiteKind};

use super::super::super::ir::acts;
use super::access::Access;
use super::merging::Merging;
use crate::trap_sites::CODES;

/// Memory is accessible or not by pages of at least so many bytes.
const PAGE: i32 = 4096;
/// Instructions of a guard: address, offset in the page, compare and branch, and what it makes registers and the fetcher do.
pub(super) const COST: usize = 5;
/// Steps from an address to what it is computed from, at most, for it to be computed earlier.
const DEPTH: u32 = 8;
/// Instructions of the program within which two trap sites have different codes, see `sequence_points`.
const NEAR: u32 = 128;

/// Bytes at offsets from `start` to `end` from an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) addr: Value,
    pub(super) start: i32,
    pub(super) end: i32,
}

impl Merging<'_> {
    /// Inserts a branch before an instruction: to a new cold block if one of the ranges may have a part in a second page, to the other block
    /// otherwise. The instruction begins a new block, the third that this gives.
    pub(super) fn guard(&mut self, before: Inst, ranges: &[Range], direct: bool) -> Guarded {
        let limit = |range: &Range| i64::from(PAGE - (range.end - range.start)) + if self.mutant { 8 } else { 0 };
        let func = &mut *self.func;
        let block = func.layout.inst_block(before).expect("it is in the layout");
        let cold = func.dfg.make_block();
        let rest = func.dfg.make_block();
        let hot = if direct { rest } else { func.dfg.make_block() };
        func.layout.split_block(rest, before);
        if !direct {
            func.layout.insert_block_after(hot, block);
        }
        func.layout.append_block(cold);
        func.layout.set_cold(cold);
        let loc = func.srcloc(before);
        let mut cursor = FuncCursor::new(func).with_srcloc(loc).at_bottom(block);
        let crossings = ranges.iter().map(|range| {
            let low = cursor.ins().ireduce(I32, range.addr);
            let start = cursor.ins().iadd_imm_s(low, i64::from(range.start));
            let inside = cursor.ins().band_imm_u(start, i64::from(PAGE - 1));
            cursor.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, inside, limit(range))
        });
        let crossings: Vec<Value> = crossings.collect();
        let mut crossings = crossings.into_iter();
        let first = crossings.next().expect("a guard has ranges");
        let crosses = crossings.fold(first, |all, crosses| cursor.ins().bor(all, crosses));
        cursor.ins().brif(crosses, cold, &[], hot, &[]);
        FuncCursor::new(cursor.func).with_srcloc(loc).at_bottom(cold).ins().jump(rest, &[]);
        if !direct {
            FuncCursor::new(cursor.func).with_srcloc(loc).at_bottom(hot).ins().jump(rest, &[]);
        }
        Guarded { cold, hot }
    }

    /// Flags of a wide access that traps where a narrow one of its bytes does, which is `lead` bytes after its start. `None` if the trap site
    /// is not one of an access.
    pub(super) fn wide_flags(&mut self, narrow: &Access, lead: u8) -> Option<MemFlagsData> {
        let flags = self.flags_of(narrow.inst);
        let Some(code) = flags.trap_code().filter(|_| lead > 0) else { return Some(flags) };
        let pc = self.func.srcloc(narrow.inst).bits();
        let first = usize::from(code.as_raw().get()) - 1;
        let sharing = self.sites.iter().skip(first).step_by(CODES);
        let site = *sharing.min_by_key(|site| site.pc.abs_diff(pc))?;
        let code = self.new_site(Site::new(site.pc, leading(site.kind, lead)?));
        Some(flags.with_trap_code(Some(code)))
    }

    /// The flags of an access.
    pub(super) fn flags_of(&self, access: Inst) -> MemFlagsData {
        let flags = self.func.dfg.insts[access].memflags().expect("it accesses memory");
        self.func.dfg.mem_flags[flags]
    }

    /// Adds a trap site. No site nearby has its code.
    fn new_site(&mut self, site: Site) -> TrapCode {
        let taken = |sites: &[Site]| {
            let mut sharing = sites.iter().skip(sites.len() % CODES).step_by(CODES);
            sharing.any(|other| other.pc.abs_diff(site.pc) < NEAR)
        };
        // A place in the list that no code has. As many sites as there are codes are never all this near.
        for _ in 0..CODES {
            if !taken(self.sites) {
                break;
            }
            self.sites.push(Site::new(u32::MAX, SiteKind::Call));
        }
        let code = (self.sites.len() % CODES) as u8 + 1;
        self.sites.push(site);
        TrapCode::unwrap_user(code)
    }

    /// Whether a value is known before an instruction, or can be if what it is computed from moves there.
    pub(super) fn is_available(&self, value: Value, before: Inst, depth: u32) -> bool {
        let func = &*self.func;
        let Some(inst) = later(func, value, before) else { return true };
        depth > 0
            && !acts(func.dfg.insts[inst].opcode())
            && func.dfg.inst_args(inst).iter().all(|arg| self.is_available(*arg, before, depth - 1))
    }

    /// Makes an address known before an instruction.
    pub(super) fn make_available(&mut self, value: Value, before: Inst) {
        let Some(inst) = later(self.func, value, before) else { return };
        for arg in self.func.dfg.inst_args(inst).to_vec() {
            self.make_available(arg, before);
        }
        self.func.layout.remove_inst(inst);
        self.func.layout.insert_inst(inst, before);
    }

    /// Whether the address of an access is, or can be, known before an instruction.
    pub(super) fn reaches(&self, access: &Access, before: Inst) -> bool {
        self.is_available(access.addr, before, DEPTH)
    }
}

/// What [`Merging::guard`] made.
pub(super) struct Guarded {
    /// Where accesses may leave their page.
    pub(super) cold: Block,
    /// Where they do not.
    pub(super) hot: Block,
}

/// The instruction that defines a value in the block of another one, at or after it.
fn later(func: &Function, value: Value, before: Inst) -> Option<Inst> {
    let ValueDef::Result(inst, _) = func.dfg.value_def(func.dfg.resolve_aliases(value)) else { return None };
    let same = func.layout.inst_block(inst) == func.layout.inst_block(before);
    (same && func.layout.pp_cmp(inst, before) != Ordering::Less).then_some(inst)
}

fn leading(kind: SiteKind, lead: u8) -> Option<SiteKind> {
    match kind {
        SiteKind::Access { base, off, size, write, .. } => Some(SiteKind::Access { base, off, size, write, lead }),
        _ => None,
    }
}

/// A source location that instructions get.
pub(super) fn at(func: &mut Function, inst: Inst, loc: SourceLoc) -> FuncCursor<'_> {
    FuncCursor::new(func).with_srcloc(loc).at_inst(inst)
}
