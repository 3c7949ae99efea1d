//! Stores: one after the other, of bytes next to each other.

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, Inst, InstBuilder as _, MemFlagsData, Opcode, Value};

use super::super::super::ir::acts;
use super::access::Access;
use super::bytes::Byte;
use super::guard::{COST, Range, at};
use super::loads::integer;
use super::merging::Merging;

/// Stores of a run, at most.
const LONGEST: usize = 64;

/// Stores to bytes next to each other that one store can do, by their numbers in the run in ascending order of addresses.
struct Window {
    stores: Vec<usize>,
    off: i32,
    size: u8,
    what: What,
    /// Instructions that it saves.
    saves: usize,
}

/// What is stored.
#[derive(Clone, Copy)]
enum What {
    Const(u64),
    /// Bytes of a value from one on; `swapped` says that the highest comes first.
    Value {
        value: Value,
        byte: u8,
        swapped: bool,
    },
    /// Bytes that were loaded from next to each other.
    Loaded,
}

impl Merging<'_> {
    /// Merges stores of a block. Returns how many wide ones there are.
    pub(super) fn stores(&mut self, block: Block) -> usize {
        let mut runs = self.runs(block);
        let mut changes = 0;
        // A later run splits the block first, and leaves the earlier ones where they are.
        while let Some(run) = runs.pop() {
            let windows = self.windows(&run);
            let saves: usize = windows.iter().map(|window| window.saves).sum();
            if saves > if run[0].traps { COST } else { 0 } {
                changes += usize::from(self.widen(&run, &windows));
            }
        }
        changes
    }

    /// Runs of at least two stores to one address without anything between them that acts. Notes the bytes of values.
    fn runs(&mut self, block: Block) -> Vec<Vec<Access>> {
        let mut runs: Vec<Vec<Access>> = vec![Vec::new()];
        for inst in self.func.layout.block_insts(block) {
            self.origins.read(self.func, inst);
            let opcode = self.func.dfg.insts[inst].opcode();
            let run = runs.last_mut().expect("there is always one");
            match Access::of(self.func, inst).filter(|_| opcode.can_store()) {
                Some(access) => {
                    let same = |first: &Access| (first.addr, first.traps) == (access.addr, access.traps);
                    if run.len() < LONGEST && run.first().is_none_or(same) {
                        run.push(access);
                    } else {
                        runs.push(vec![access]);
                    }
                }
                None if acts(opcode) && opcode != Opcode::SequencePoint && !run.is_empty() => runs.push(Vec::new()),
                None => {}
            }
        }
        runs.retain(|run| run.len() > 1);
        runs
    }

    /// The windows of a run. None if some of its bytes are stored twice.
    fn windows(&self, run: &[Access]) -> Vec<Window> {
        let mut order: Vec<usize> = (0..run.len()).collect();
        order.sort_by_key(|store| run[*store].off);
        if order.windows(2).any(|pair| run[pair[0]].end() > run[pair[1]].off) {
            return Vec::new();
        }
        let mut windows = Vec::new();
        let mut from = 0;
        while from < order.len() {
            let window = [8, 4, 2].into_iter().find_map(|size| self.window(run, &order[from..], size));
            from += window.as_ref().map_or(1, |window| window.stores.len());
            windows.extend(window);
        }
        windows
    }

    /// The window of so many bytes that begins with the first of these stores.
    fn window(&self, run: &[Access], order: &[usize], size: u8) -> Option<Window> {
        let off = run[order[0]].off;
        let end = off + i32::from(size);
        let count = order.iter().take_while(|store| run[**store].end() <= end).count();
        let stores = &order[..count];
        let mut bytes = Vec::with_capacity(8);
        for store in stores {
            let Access { inst, off: start, size, .. } = run[*store];
            (start == off + bytes.len() as i32).then_some(())?;
            let value = self.func.dfg.inst_args(inst)[0];
            bytes.extend_from_slice(&self.origins.of(self.func, value)[..size.into()]);
        }
        if count < 2 || bytes.len() != usize::from(size) {
            return None;
        }
        let loaded = || self.origins.neighbours(&bytes).map(|_| What::Loaded);
        let what = constant(&bytes).or_else(|| self.part(&bytes)).or_else(loaded)?;
        let each = match what {
            What::Const(_) => 1,
            // Stores, and shifts or loads.
            What::Value { .. } | What::Loaded => 2,
        };
        Some(Window { stores: stores.to_vec(), off, size, what, saves: each * (count - 1) })
    }

    /// Bytes of one value, in ascending or descending order.
    fn part(&self, bytes: &[Byte]) -> Option<What> {
        let place = |byte: &Byte| match *byte {
            Byte::Of { value, byte } => Some((value, byte)),
            Byte::Const(_) | Byte::Loaded { .. } => None,
        };
        let (value, first) = place(&bytes[0])?;
        let (_, last) = place(bytes.last()?)?;
        let swapped = first > last;
        let lowest = first.min(last);
        let expected = |at: usize| lowest + if swapped { bytes.len() - 1 - at } else { at } as u8;
        let all = bytes.iter().enumerate().all(|(at, byte)| place(byte) == Some((value, expected(at))));
        let inside = u32::from(lowest) + bytes.len() as u32 <= self.func.dfg.value_type(value).bytes();
        (all && inside).then_some(What::Value { value, byte: lowest, swapped })
    }

    /// Does what a run does with wide stores, where it stays in one page. False if a trap site of its is not that of an access.
    fn widen(&mut self, run: &[Access], windows: &[Window]) -> bool {
        let flags = windows.iter().map(|window| self.flags(run, window)).collect::<Option<Vec<MemFlagsData>>>();
        let Some(flags) = flags else { return false };
        let last = run[run.len() - 1].inst;
        let values: Vec<Value> = windows.iter().map(|window| self.value(run, window, last)).collect();
        let place = if run[0].traps { self.guard_run(run) } else { last };
        // Of stores that trap or do not together, the first of the program comes first.
        for (number, access) in run.iter().enumerate() {
            let Some(at_window) = windows.iter().position(|window| window.stores.contains(&number)) else {
                let copy = self.func.dfg.clone_inst(access.inst);
                self.func.layout.insert_inst(copy, place);
                self.func.srclocs[copy] = self.func.srclocs[access.inst];
                continue;
            };
            let Window { stores, off, .. } = &windows[at_window];
            if stores.iter().min() == Some(&number) {
                let loc = self.func.srcloc(access.inst);
                at(self.func, place, loc).ins().store(flags[at_window], values[at_window], access.addr, *off);
            }
        }
        if !run[0].traps {
            run.iter().for_each(|access| self.func.layout.remove_inst(access.inst));
        }
        true
    }

    /// Moves the stores of a run to a cold block, for when they may be in two pages. Gives the end of the block for when they are not.
    fn guard_run(&mut self, run: &[Access]) -> Inst {
        let last = run[run.len() - 1].inst;
        let next = self.func.layout.next_inst(last).expect("a block ends with a branch");
        let start = run.iter().map(|access| access.off).min().expect("a run has stores");
        let end = run.iter().map(Access::end).max().expect("likewise");
        let guarded = self.guard(next, &[Range { addr: run[0].addr, start, end }], false);
        let cold = self.func.layout.last_inst(guarded.cold).expect("it jumps");
        for access in run {
            self.func.layout.remove_inst(access.inst);
            self.func.layout.insert_inst(access.inst, cold);
        }
        self.func.layout.last_inst(guarded.hot).expect("it jumps")
    }

    fn flags(&mut self, run: &[Access], window: &Window) -> Option<MemFlagsData> {
        let first = run[*window.stores.iter().min()?];
        self.wide_flags(&first, (first.off - window.off) as u8)
    }

    /// Computes what a window stores before an instruction.
    fn value(&mut self, run: &[Access], window: &Window, before: Inst) -> Value {
        let loc = self.func.srcloc(before);
        let ty = integer(window.size);
        match window.what {
            What::Const(bits) => at(self.func, before, loc).ins().iconst(ty, bits as i64),
            What::Value { value, byte, swapped } => {
                let from = self.func.dfg.value_type(value);
                let mut cursor = at(self.func, before, loc);
                let low = if byte > 0 { cursor.ins().ushr_imm_u(value, i64::from(8 * byte)) } else { value };
                let part = if from == ty { low } else { cursor.ins().ireduce(ty, low) };
                if swapped { cursor.ins().bswap(part) } else { part }
            }
            What::Loaded => {
                let mut all: Option<Value> = None;
                for store in &window.stores {
                    let Access { inst, off, size, .. } = run[*store];
                    let value = self.func.dfg.inst_args(inst)[0];
                    let from = self.func.dfg.value_type(value);
                    let mut cursor = at(self.func, before, loc);
                    let value = if from == I64 { value } else { cursor.ins().uextend(I64, value) };
                    let part = cursor.ins().band_imm_u(value, ((1_u64 << (8 * size)) - 1) as i64);
                    let part = cursor.ins().ishl_imm_u(part, i64::from(8 * (off - window.off)));
                    all = Some(all.map_or(part, |all| cursor.ins().bor(all, part)));
                }
                let all = all.expect("a window has stores");
                if ty == I64 { all } else { at(self.func, before, loc).ins().ireduce(ty, all) }
            }
        }
    }
}

fn constant(bytes: &[Byte]) -> Option<What> {
    let mut bits = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let Byte::Const(byte) = byte else { return None };
        bits |= u64::from(*byte) << (8 * at);
    }
    Some(What::Const(bits))
}
