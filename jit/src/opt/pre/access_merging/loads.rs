//! Loads: values that are put together from loaded bytes.

use cranelift_codegen::cursor::FuncCursor;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{Block, Function, Inst, InstBuilder as _, MemFlagsData, Opcode, Type, Value};
use smallvec::SmallVec;

use super::access::Access;
use super::bytes::{Byte, Load, Neighbours};
use super::guard::{COST, Range, at};
use super::merging::Merging;

/// Bytes from the first to the last that one guard covers, at most: the more they are, the more often they are in two pages.
const SPAN: i32 = 256;

/// A value that is put together from loaded bytes.
struct Group {
    root: Inst,
    from: Neighbours,
    /// Zero bytes below them in the value.
    shift: u8,
}

impl Group {
    fn first(&self) -> u32 {
        self.from.loads[0]
    }

    fn last(&self) -> u32 {
        self.from.loads[self.from.loads.len() - 1]
    }
}

/// Groups that one guard is for.
struct Cluster {
    groups: Vec<Group>,
    ranges: SmallVec<[Range; 2]>,
    last: u32,
}

impl Merging<'_> {
    /// Merges loads of a block. Returns how many wide ones there are.
    pub(super) fn loads(&mut self, block: Block) -> usize {
        let mut roots = Vec::new();
        for inst in self.func.layout.block_insts(block) {
            self.origins.read(self.func, inst);
            if self.func.dfg.insts[inst].opcode() == Opcode::Bor {
                roots.push(inst);
            }
        }
        let (guarded, free): (Vec<Group>, Vec<Group>) =
            self.groups(&roots).into_iter().partition(|group| self.load(group.first()).access.traps);
        let mut changes = 0;
        // A later cluster splits the block first, and leaves the earlier ones where they are.
        for cluster in self.clusters(guarded).into_iter().rev() {
            let saved: usize = cluster.groups.iter().map(|group| 3 * (group.from.loads.len() - 1)).sum();
            if saved > COST * cluster.ranges.len() {
                self.probe(&cluster);
                changes += cluster.groups.iter().filter(|group| self.merge(group)).count();
            }
        }
        changes + free.iter().filter(|group| self.merge(group)).count()
    }

    fn load(&self, number: u32) -> Load {
        self.origins.loads[number as usize]
    }

    /// The groups, in the order of their first loads. No load is in two.
    fn groups(&self, roots: &[Inst]) -> Vec<Group> {
        let mut taken = vec![false; self.origins.loads.len()];
        let mut groups = Vec::new();
        // What is put together of parts comes after the parts.
        for root in roots.iter().rev() {
            if let Some(group) = self.group(*root)
                && !group.from.loads.iter().any(|load| taken[*load as usize])
            {
                group.from.loads.iter().for_each(|load| taken[*load as usize] = true);
                groups.push(group);
            }
        }
        groups.sort_by_key(Group::first);
        groups
    }

    /// The group that a value is put together from.
    fn group(&self, root: Inst) -> Option<Group> {
        let value = self.func.dfg.first_result(root);
        let bytes = &self.origins.of(self.func, value)[..self.func.dfg.value_type(value).bytes() as usize];
        let some = |byte: &Byte| *byte != Byte::Const(0);
        let (start, end) = (bytes.iter().position(some)?, bytes.iter().rposition(some)? + 1);
        matches!(end - start, 2 | 4 | 8).then_some(())?;
        let from = self.origins.neighbours(&bytes[start..end])?;
        Some(Group { root, from, shift: start as u8 })
    }

    /// Puts groups together that one guard can be for: no write is between them, and all addresses are known before the first load.
    fn clusters(&self, groups: Vec<Group>) -> Vec<Cluster> {
        let mut clusters: Vec<Cluster> = Vec::new();
        for group in groups {
            let range = self.range(&group);
            let last = group.last();
            if let Some(cluster) = clusters.last_mut()
                && let Some(ranges) = self.joined(cluster, &group, range)
            {
                cluster.ranges = ranges;
                cluster.last = cluster.last.max(last);
                cluster.groups.push(group);
                continue;
            }
            let overlaps = clusters.last().is_some_and(|cluster| group.first() <= cluster.last);
            let start = self.load(group.first()).access.inst;
            if !overlaps && self.known(group.first()..=last, start) {
                clusters.push(Cluster { groups: vec![group], ranges: SmallVec::from_slice(&[range]), last });
            }
        }
        clusters
    }

    fn range(&self, group: &Group) -> Range {
        let addr = self.load(group.first()).access.addr;
        Range { addr, start: group.from.off, end: group.from.off + i32::from(group.from.size) }
    }

    /// The ranges of a cluster with one more group, if it can have that.
    fn joined(&self, cluster: &Cluster, group: &Group, range: Range) -> Option<SmallVec<[Range; 2]>> {
        let first = cluster.groups[0].first();
        let start = self.load(first);
        let mut ranges = cluster.ranges.clone();
        match ranges.iter_mut().find(|known| known.addr == range.addr) {
            Some(known) => {
                (known.start, known.end) = (known.start.min(range.start), known.end.max(range.end));
                (known.end - known.start <= SPAN).then_some(())?;
            }
            // Bytes at another address have a guard of their own, unless they are loaded in between.
            None if group.first() <= cluster.last => ranges.push(range),
            None => return None,
        }
        let same = self.load(group.first()).epoch == start.epoch;
        let known = same && self.known(cluster.last.max(first)..=group.last(), start.access.inst);
        known.then_some(ranges)
    }

    /// Whether all that may trap in a range of loads has an address that is, or can be, known before an instruction.
    fn known(&self, range: std::ops::RangeInclusive<u32>, before: Inst) -> bool {
        let all = range.map(|load| self.load(load).access);
        all.filter(|access| access.traps).all(|access| self.reaches(&access, before))
    }

    /// Inserts the guard of a cluster, with its cold block: all loads that may trap, in the order of the program.
    fn probe(&mut self, cluster: &Cluster) {
        let first = cluster.groups[0].first();
        let start = self.load(first).access.inst;
        let all: Vec<Access> = (first..=cluster.last).map(|load| self.load(load).access).collect();
        let probes = || all.iter().filter(|access| access.traps);
        for access in probes() {
            self.make_available(access.addr, start);
        }
        let guarded = self.guard(start, &cluster.ranges, true);
        let end = self.func.layout.last_inst(guarded.cold).expect("it jumps");
        for access in probes() {
            let flags = self.flags_of(access.inst);
            let loc = self.func.srcloc(access.inst);
            load(at(self.func, end, loc), flags, access.size, access.addr, access.off);
        }
    }

    /// Makes one load of those of a group. False if there is no room for its flags.
    fn merge(&mut self, group: &Group) -> bool {
        let first = self.load(group.first()).access;
        let lead = (first.off - group.from.off) as u8;
        let Some(flags) = self.wide_flags(&first, lead) else { return false };
        let loc = self.func.srcloc(first.inst);
        let wide = load(at(self.func, first.inst, loc), flags, group.from.size, first.addr, group.from.off);
        // What else uses a single byte gets it from there; mostly nothing does.
        for number in &group.from.loads {
            let Access { inst, off, size, .. } = self.load(*number).access;
            let loc = self.func.srcloc(inst);
            let mut cursor = at(self.func, inst, loc);
            let low = cursor.ins().ushr_imm_u(wide, i64::from(8 * (off - group.from.off)));
            let part = cursor.ins().band_imm_u(low, ((1_u64 << (8 * size)) - 1) as i64);
            replace(self.func, inst, part);
        }
        let ty = self.func.dfg.value_type(self.func.dfg.first_result(group.root));
        let loc = self.func.srcloc(group.root);
        let mut cursor = at(self.func, group.root, loc);
        let mut value = wide;
        if group.from.swapped {
            let narrow =
                if group.from.size == 8 { value } else { cursor.ins().ireduce(integer(group.from.size), value) };
            let swapped = cursor.ins().bswap(narrow);
            value = if group.from.size == 8 { swapped } else { cursor.ins().uextend(I64, swapped) };
        }
        if group.shift > 0 {
            value = cursor.ins().ishl_imm_u(value, i64::from(8 * group.shift));
        }
        if ty != I64 {
            value = cursor.ins().ireduce(ty, value);
        }
        replace(self.func, group.root, value);
        true
    }
}

/// The type of integers of so many bytes.
pub(super) fn integer(size: u8) -> Type {
    match size {
        1 => I8,
        2 => I16,
        4 => I32,
        _ => I64,
    }
}

/// Inserts a load with zeros in the upper bytes.
fn load(mut cursor: FuncCursor<'_>, flags: MemFlagsData, size: u8, addr: Value, off: i32) -> Value {
    let ins = cursor.ins();
    match size {
        1 => ins.uload8(I64, flags, addr, off),
        2 => ins.uload16(I64, flags, addr, off),
        4 => ins.uload32(flags, addr, off),
        _ => ins.load(I64, flags, addr, off),
    }
}

/// Replaces an instruction by a value.
fn replace(func: &mut Function, inst: Inst, value: Value) {
    let old = func.dfg.first_result(inst);
    func.dfg.detach_inst_results(inst);
    func.dfg.change_to_alias(old, value);
    func.layout.remove_inst(inst);
}
