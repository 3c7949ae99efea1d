//! Vectorised copies: copies of adjacent words in a loop become copies of 16 bytes.
//!
//! **Why here.** BPF copies at most eight bytes at a time, and Cranelift does not vectorise.
//!
//! **Before and after.** Where both addresses are multiples of 16 at run time; otherwise the words are copied one by one:
//!
//! ```text
//! v2 = load.i64 v0; store v2, v1          v9 = load.i8x16 v0
//! v3 = load.i64 v0+8; store v3, v1+8 →    store v9, v1
//! ```
//!
//! **Cost.** Linear; a block of at least [`MIN_WORDS`] words is copied once.
//!
//! **Safety.** An aligned access of 16 bytes lies in one page, so it faults as a whole, as the first of the two would. Aligned
//! copies overlap each other as a whole or not at all, so loading both words before the first store changes nothing.

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::types::{I8X16, I64};
use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::super::analysis::Analyses;
use super::super::analysis::uses::Uses;
use super::super::ir::{acts, constant, maker};
use super::super::pass::{Input, Pass, Phase};
use super::super::target_model::TargetModel;

/// Bytes of a word.
const WORD: i64 = 8;
/// Bytes of a pair.
const PAIR: i64 = 16;
/// Words that are copied by one block at least. With fewer, the look at the addresses costs what it saves.
const MIN_WORDS: usize = 4;

/// An address as a value and what is added to it.
type Place = (Value, i64);

/// A load and the store of what it loaded.
#[derive(Clone, Copy)]
struct Copy {
    load: Inst,
    store: Inst,
    from: Place,
    to: Place,
}

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct VectorCopies;

impl Pass for VectorCopies {
    const NAME: &'static str = "vector-copies";
    const SUMMARY: &'static str = "copies adjacent words 16 bytes at a time";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::LOOPS.union(Analyses::USES).union(Analyses::RESOLVED);
    const KEEPS: Analyses = Analyses::LOOPS.union(Analyses::USES).union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn pays(target: &TargetModel) -> bool {
        target.vector_copies
    }

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(input.context, &input.analysis.uses)
    }
}

/// Returns how many blocks of copies are replaced.
fn run(context: &mut Context, uses: &Uses) -> usize {
    let Context { func, loop_analysis, .. } = context;
    let mut replaced = 0;
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        if loop_analysis.innermost_loop(block).is_none() {
            continue;
        }
        let copies = copies(func, block);
        if copies.len() >= MIN_WORDS
            && alike(&copies)
            && copies.iter().all(|copy| uses.once(func.dfg.first_result(copy.load)))
        {
            replace(func, block, &copies);
            replaced += 1;
        }
    }
    replaced
}

/// The first copies of a block with nothing between them that others could notice, an even number.
fn copies(func: &Function, block: Block) -> Vec<Copy> {
    let (mut found, mut open) = (Vec::new(), None);
    for inst in func.layout.block_insts(block) {
        match func.dfg.insts[inst] {
            InstructionData::Load { opcode: Opcode::Load, arg, offset, .. }
                if open.is_none() && func.dfg.value_type(func.dfg.first_result(inst)) == I64 =>
            {
                open = Some((inst, place(func, arg, offset.into())));
            }
            InstructionData::Store { opcode: Opcode::Store, args: [value, addr], offset, .. }
                if open.is_some_and(|(load, _)| func.dfg.first_result(load) == value) =>
            {
                let (load, from) = open.take().expect("looked at just now");
                found.push(Copy { load, store: inst, from, to: place(func, addr, offset.into()) });
            }
            data if quiet(data.opcode()) => {}
            _ if found.len() >= MIN_WORDS => break,
            _ => {
                found.clear();
                open = None;
            }
        }
    }
    found.truncate(found.len() / 2 * 2);
    found
}

/// Whether an instruction may stand between copies: it will stand before them.
fn quiet(opcode: Opcode) -> bool {
    opcode == Opcode::SequencePoint || !acts(opcode)
}

/// Splits an address.
fn place(func: &Function, addr: Value, off: i32) -> Place {
    let (mut value, mut sum) = (func.dfg.resolve_aliases(addr), i64::from(off));
    while let Some(InstructionData::Binary { opcode, args }) = maker(func, value).map(|inst| func.dfg.insts[inst]) {
        let Some(term) = constant(func, args[1]) else { break };
        sum = match opcode {
            Opcode::Iadd => sum.wrapping_add(term),
            Opcode::Isub => sum.wrapping_sub(term),
            _ => break,
        };
        value = func.dfg.resolve_aliases(args[0]);
    }
    (value, sum)
}

/// Whether each pair is adjacent, and all of them are aligned if the first is.
fn alike(copies: &[Copy]) -> bool {
    let (from, to) = (copies[0].from, copies[0].to);
    let behind = |a: Place, b: Place| a.0 == b.0 && a.1.checked_add(WORD) == Some(b.1);
    let even = |a: Place, b: Place| a.0 == b.0 && a.1.wrapping_sub(b.1) % PAIR == 0;
    let one = from.0 != to.0 || even(from, to);
    let pair = |pair: &[Copy]| {
        behind(pair[0].from, pair[1].from)
            && behind(pair[0].to, pair[1].to)
            && even(from, pair[0].from)
            && even(to, pair[0].to)
    };
    one && copies.chunks_exact(2).all(pair)
}

fn replace(func: &mut Function, block: Block, copies: &[Copy]) {
    let [fast, slow, tail] = [(); 3].map(|()| func.dfg.make_block());
    func.layout.insert_block_after(tail, block);
    func.layout.insert_block_after(slow, block);
    func.layout.insert_block_after(fast, block);
    func.layout.set_cold(slow);
    let last = copies.last().expect("there are copies").store;
    while let Some(inst) = func.layout.next_inst(last) {
        func.layout.remove_inst(inst);
        func.layout.append_inst(inst, tail);
    }
    for copy in copies {
        for inst in [copy.load, copy.store] {
            func.layout.remove_inst(inst);
            func.layout.append_inst(inst, slow);
        }
    }
    let none: [BlockArg; 0] = [];
    FuncCursor::new(func).at_bottom(slow).ins().jump(tail, &none);
    let mut cursor = FuncCursor::new(func).at_bottom(block);
    cursor.use_srcloc(copies[0].load);
    let (from, to) = (copies[0].from, copies[0].to);
    let mut bits = rest(&mut cursor, to);
    if from.0 != to.0 {
        let more = rest(&mut cursor, from);
        bits = cursor.ins().bor(bits, more);
    }
    let bits = cursor.ins().band_imm_u(bits, PAIR - 1);
    cursor.ins().brif(bits, slow, &none, fast, &none);
    let mut cursor = FuncCursor::new(func).at_bottom(fast);
    for copy in copies.iter().step_by(2) {
        let InstructionData::Load { arg, flags, offset, .. } = cursor.func.dfg.insts[copy.load] else {
            unreachable!("a copy loads")
        };
        let flags = cursor.func.dfg.mem_flags[flags];
        cursor.use_srcloc(copy.load);
        let value = cursor.ins().load(I8X16, flags, arg, offset);
        let InstructionData::Store { args, flags, offset, .. } = cursor.func.dfg.insts[copy.store] else {
            unreachable!("a copy stores")
        };
        let flags = cursor.func.dfg.mem_flags[flags];
        cursor.use_srcloc(copy.store);
        cursor.ins().store(flags, value, args[1], offset);
    }
    cursor.ins().jump(tail, &none);
}

/// A value with the low bits of an address.
fn rest(cursor: &mut FuncCursor<'_>, (value, term): Place) -> Value {
    if term % PAIR == 0 { value } else { cursor.ins().iadd_imm_s(value, term % PAIR) }
}
