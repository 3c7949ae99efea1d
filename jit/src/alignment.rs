//! Function alignment: the offset from a cache line at which a function's loops are fetched best.
//!
//! x86-64 processors fetch code and predict jumps by lines of 64 bytes, one or two a cycle, and keep decoded instructions
//! by such lines, too, or by windows of 32. A loop runs faster the fewer of them it touches: a loop of four instructions
//! takes half as long again on Zen 4 if it crosses the end of a line. And on many of Intel's a jump that crosses or
//! ends a window is decoded anew each time (erratum "jump conditional code", 2019), which can double a small loop's
//! time. Compilers align loops and pad jumps; Cranelift does neither. But code can be moved as a whole, by 0 to 63 bytes:
//! this module finds the best distance. It searches for jumps only where blocks end, and guesses right nearly always; a
//! wrong guess costs time, never correctness.

use cranelift_codegen::CompiledCode;
use cranelift_codegen::isa::TargetIsa;
use smallvec::SmallVec;

/// Bytes of a line.
pub(crate) const LINE: usize = 64;
/// Bytes of a window.
const WINDOW: usize = 32;
/// Padding before functions (`int3`), which is never executed.
pub(crate) const PADDING: [u8; LINE] = [0xcc; LINE];
/// Distances are multiples of this.
const STEP: usize = 2;
/// Most blocks of a function that is aligned. With more, loops are many and no distance suits all.
const MAX_BLOCKS: usize = 256;
/// What one more line costs a small loop, what it costs a block, what a badly placed jump costs, and one more window.
const LOOP: u64 = 8;
const FETCH: u64 = 8;
const JUMP: u64 = 2;
const TOUCH: u64 = 1;
/// How much more a loop counts with a single exit, such as one with a known trip count.
const COUNTED: u64 = 4;
/// Bytes of a small loop.
const SMALL: usize = 128;
/// Bytes of an entry of a table of jumps, which has one for all values that are too large, too.
const ENTRY: usize = 4;
/// Iterations of a loop, and how much more likely it is to stay in one than to leave it.
const ITERATIONS: u64 = 8;
const STAYS: usize = 4;
/// What counts as one run of a function, and the most that counts.
const ONCE: u64 = 1 << 12;
const OFTEN: u64 = 1 << 32;

/// Whether this target's functions are moved, from a multiple of [`LINE`].
pub(crate) fn aligns(isa: &dyn TargetIsa) -> bool {
    isa.name() == "x64"
}

/// Bytes of padding before a function, fewer than [`LINE`].
pub(crate) fn lead(isa: &dyn TargetIsa, code: &CompiledCode) -> usize {
    if !aligns(isa) {
        return 0;
    }
    let bytes = code.code_buffer();
    let mut starts: Vec<usize> = code.bb_starts.iter().map(|start| *start as usize).collect();
    // Of blocks that are nothing but a jump, some are left out.
    starts.dedup();
    if starts.len() > MAX_BLOCKS || code.bb_edges.iter().all(|(from, to)| from < to) {
        return 0;
    }
    let blocks = Blocks::new(&starts, code);
    let runs = blocks.runs();
    let mut costs = [0_u64; LINE / STEP];
    for (block, runs) in runs.iter().enumerate().filter(|(block, _)| blocks.loops.iter().any(|inner| inner.has[*block]))
    {
        let (start, end) = blocks.range(block);
        let block = &bytes[start..end];
        for jump in Jumps::of(block).begins(block) {
            charge(&mut costs, (start + jump, end), WINDOW, |more| if more > 0 { JUMP * runs } else { 0 });
        }
        charge(&mut costs, (start, end - 1), WINDOW, |more| TOUCH * runs * more);
        charge(&mut costs, (start, end - 1), LINE, |more| FETCH * runs * more);
    }
    for Loop { head, has, exits } in &blocks.loops {
        let (first, last) = (has.iter().position(|has| *has), has.iter().rposition(|has| *has));
        let (start, end) = (blocks.range(first.unwrap_or(*head)).0, blocks.range(last.unwrap_or(*head)).1);
        let many = if *exits == 1 { COUNTED } else { 1 };
        if end - start <= SMALL {
            charge(&mut costs, (start, end - 1), LINE, |more| LOOP * many * runs[*head] * more);
        }
    }
    let best = costs.iter().enumerate().min_by_key(|(_, cost)| **cost);
    best.expect("there are distances").0 * STEP
}

/// Adds for each distance what the ends of units cost that lie between one byte and another.
fn charge(costs: &mut [u64], (from, to): (usize, usize), unit: usize, cost: impl Fn(u64) -> u64) {
    for (at, sum) in costs.iter_mut().enumerate() {
        let lead = at * STEP;
        *sum += cost(((to + lead) / unit - (from + lead) / unit) as u64);
    }
}

/// The jumps that a block ends with.
#[derive(Clone, Copy)]
struct Jumps {
    /// Where a conditional one ends, and where one that is none.
    conditional: Option<usize>,
    always: Option<usize>,
}

impl Jumps {
    fn of(block: &[u8]) -> Jumps {
        let is_conditional = |end: usize| end >= 6 && block[end - 6] == 0x0f && block[end - 5] & 0xf0 == 0x80;
        let mut end = block.len();
        let always = (end >= 5 && block[end - 5] == 0xe9 && !is_conditional(end)).then_some(end);
        end -= always.map_or(0, |_| 5);
        Jumps { conditional: is_conditional(end).then_some(end), always }
    }

    /// Where they begin. A compare before a conditional jump is fused with it.
    fn begins(self, block: &[u8]) -> impl Iterator<Item = usize> {
        let conditional = self.conditional.map(|end| end - 6 - compare(&block[..end - 6]));
        conditional.into_iter().chain(self.always.map(|end| end - 5))
    }

    /// Where they lead, from the start of the block.
    fn targets(self, block: &[u8]) -> impl Iterator<Item = i64> {
        self.conditional.into_iter().chain(self.always).map(|end| {
            let far: [u8; 4] = block[end - 4..end].try_into().expect("four bytes");
            end as i64 + i64::from(i32::from_le_bytes(far))
        })
    }
}

/// Whether a block seems to end with a return or a trap.
fn returns(block: &[u8]) -> bool {
    block.ends_with(&[0xc3]) || block.ends_with(&[0x0f, 0x0b])
}

/// Length of the compare or test at the end of some code, 0 if there seems to be none.
fn compare(code: &[u8]) -> usize {
    let at = |back: usize| code.len().checked_sub(back).map(|at| code[at]);
    let rex = |back| at(back).is_some_and(|byte| byte & 0xf0 == 0x40);
    let is = |back, opcodes: &[u8]| at(back).is_some_and(|byte| opcodes.contains(&byte));
    match () {
        () if rex(7) && is(6, &[0x81, 0xf7]) => 7,
        () if is(6, &[0x81, 0xf7]) => 6,
        () if rex(4) && is(3, &[0x83]) => 4,
        () if rex(3) && is(2, &[0x39, 0x3b, 0x85]) => 3,
        () if is(3, &[0x83]) => 3,
        () if is(2, &[0x39, 0x3b, 0x85]) => 2,
        () => 0,
    }
}

/// Blocks, of which there are few as a rule.
type List = SmallVec<[usize; 4]>;

/// A function's native code, by blocks.
struct Blocks<'a> {
    starts: &'a [usize],
    /// Where the code of each ends; its table, if it jumps by one, comes after.
    ends: Vec<usize>,
    nexts: Vec<List>,
    /// Each after its predecessors, but for back edges.
    order: Vec<usize>,
    backs: Vec<(usize, usize)>,
    loops: Vec<Loop>,
}

/// A loop.
struct Loop {
    head: usize,
    /// Whether each block belongs to it.
    has: Vec<bool>,
    /// Edges that leave it.
    exits: usize,
}

impl<'a> Blocks<'a> {
    fn new(starts: &'a [usize], code: &CompiledCode) -> Blocks<'a> {
        let bytes = code.code_buffer();
        let mut ends: Vec<usize> = starts[1..].iter().copied().chain([bytes.len()]).collect();
        let mut nexts = vec![List::new(); starts.len()];
        // Cranelift's own edges begin and end at blocks that it has left out, but where a table has the targets, it knows.
        let block = |start: usize| starts.binary_search(&start).ok();
        let mut tables = vec![false; starts.len()];
        for edges in code.bb_edges.chunk_by(|a, b| a.0 == b.0).filter(|edges| edges.len() > 2) {
            let Some(from) = block(edges[0].0 as usize) else { continue };
            tables[from] = true;
            ends[from] = ends[from].saturating_sub(ENTRY * edges.len()).max(starts[from] + 1);
            nexts[from].extend(edges.iter().filter_map(|(_, to)| block(*to as usize)));
        }
        let mut goes_on = vec![false; starts.len()];
        let away = code.bb_edges.iter().filter(|(from, to)| from != to);
        away.filter_map(|(from, _)| block(*from as usize)).for_each(|from| goes_on[from] = true);
        for from in (0..starts.len()).filter(|from| !tables[*from]) {
            let code = &bytes[starts[from]..ends[from]];
            let jumps = Jumps::of(code);
            let targets = jumps.targets(code).filter_map(|far| usize::try_from(starts[from] as i64 + far).ok());
            nexts[from].extend(targets.filter_map(block));
            if jumps.always.is_none() && (goes_on[from] || !returns(code)) && from + 1 < starts.len() {
                nexts[from].push(from + 1);
            }
        }
        let (order, backs) = visit(&nexts);
        let mut blocks = Blocks { starts, ends, nexts, order, backs, loops: Vec::new() };
        blocks.find_loops();
        blocks
    }

    fn find_loops(&mut self) {
        let mut preds = vec![List::new(); self.starts.len()];
        for (from, nexts) in self.nexts.iter().enumerate() {
            nexts.iter().for_each(|to| preds[*to].push(from));
        }
        self.backs.sort_unstable_by_key(|(_, head)| *head);
        for edges in self.backs.chunk_by(|a, b| a.1 == b.1) {
            let has = body(edges, &preds);
            let inside = (0..self.starts.len()).filter(|block| has[*block]);
            let exits = inside.flat_map(|block| &self.nexts[block]).filter(|next| !has[**next]).count();
            self.loops.push(Loop { head: edges[0].1, has, exits });
        }
    }

    /// Offsets of a block's first byte and of the one after its code.
    fn range(&self, block: usize) -> (usize, usize) {
        (self.starts[block], self.ends[block])
    }

    /// How often each block runs, as far as one can guess: loops run [`ITERATIONS`] times, edges that stay in a loop
    /// are [`STAYS`] times as likely as those that leave it, and all others as each other.
    fn runs(&self) -> Vec<u64> {
        let mut runs = vec![0_u64; self.starts.len()];
        runs[0] = ONCE;
        for block in &self.order {
            let repeats = if self.loops.iter().any(|inner| inner.head == *block) { ITERATIONS } else { 1 };
            runs[*block] = runs[*block].saturating_mul(repeats).min(OFTEN);
            let leaves = |to: usize| self.loops.iter().any(|inner| inner.has[*block] && !inner.has[to]);
            let shares: List = self.nexts[*block].iter().map(|to| if leaves(*to) { 1 } else { STAYS }).collect();
            let whole = shares.iter().sum::<usize>() as u64;
            for (to, share) in self.nexts[*block].iter().zip(shares) {
                if !self.backs.contains(&(*block, *to)) {
                    runs[*to] += runs[*block] * share as u64 / whole;
                }
            }
        }
        runs
    }
}

/// The blocks that control can come to, each after its predecessors, and the edges to one that is being visited,
/// depth first.
fn visit(nexts: &[List]) -> (Vec<usize>, Vec<(usize, usize)>) {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut states = vec![State::New; nexts.len()];
    let (mut order, mut backs) = (Vec::with_capacity(nexts.len()), Vec::new());
    let mut stack = vec![(0, 0)];
    states[0] = State::Open;
    while let Some((block, seen)) = stack.last_mut() {
        let Some(next) = nexts[*block].get(*seen).copied() else {
            states[*block] = State::Done;
            order.push(*block);
            stack.pop();
            continue;
        };
        *seen += 1;
        match states[next] {
            State::New => {
                states[next] = State::Open;
                stack.push((next, 0));
            }
            State::Open => backs.push((*block, next)),
            State::Done => {}
        }
    }
    order.reverse();
    (order, backs)
}

/// The blocks of the loop that these edges close: all that lead to them without passing its head.
fn body(edges: &[(usize, usize)], preds: &[List]) -> Vec<bool> {
    let mut inside = vec![false; preds.len()];
    inside[edges[0].1] = true;
    let mut work: Vec<usize> = edges.iter().map(|(from, _)| *from).collect();
    while let Some(block) = work.pop() {
        if !std::mem::replace(&mut inside[block], true) {
            work.extend(&preds[block]);
        }
    }
    inside
}
