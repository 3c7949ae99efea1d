//! Limits of compilation: estimates the work that a function makes, and chooses the compiler for it.
//!
//! The time that Cranelift's optimiser and register allocator take grows with the square of the blocks, and more where
//! loops are nested. So the work is estimated before a function is compiled, and where it is too much, the function gets
//! baseline code, which takes time in proportion to its length.

use std::fmt;

use twinbpf_isa::Insn;
use twinbpf_vm::image::Image;

use crate::options::{CompileLimits, OptLevel, Options};

/// How a function is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// With all optimisations.
    Optimised,
    /// Without the optimiser, as for [`OptLevel::None`], or because the function is too long for it.
    Plain,
    /// The same, to be replaced by optimised code: where loops have taken many turns they hand over.
    FirstTier,
    /// Without the optimiser, and with registers in memory between blocks: the function exceeds [`CompileLimits`].
    Baseline,
}

impl Strategy {
    /// The options of a function that is compiled so.
    pub(crate) fn options(self, options: Options) -> Options {
        match self {
            Strategy::Plain | Strategy::FirstTier | Strategy::Baseline => Options { opt: OptLevel::None, ..options },
            Strategy::Optimised => options,
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::Optimised => "optimised",
            Strategy::Plain => "not optimised",
            Strategy::FirstTier => "first tier",
            Strategy::Baseline => "baseline",
        })
    }
}

/// What code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// To be there soon, until better code replaces it.
    First,
    /// To stay as long as the image.
    Final,
}

/// Functions this short are never too much work at the default limit, whatever is in them.
const SHORT: usize = 384;

/// So many atomic operations, whose registers are fixed, are as much work for the register allocator as a block.
const ATOMICS: u64 = 64;

/// By how much the square of a loop's instructions is divided. Cranelift's optimiser computes what only the successors of a block
/// use in each of them, so a chain of sums over loads moves after the branch at the end of a loop, and all that was
/// loaded is live there. The register allocator takes the square of these values to spill them.
const LONG: u64 = 16;

/// By how much the square of a function's instructions is divided to get the optimiser's work. Cranelift looks values up in hash tables
/// by 32 bits of their hashes, which are too few for very many: a quarter of a million stores take 2 s, a million a minute.
const MANY: u64 = 1 << 12;

/// A function that exceeds [`CompileLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    work: Work,
    limit: u64,
    /// How it is compiled.
    strategy: Strategy,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { insns, blocks, depth, .. } = self.work;
        let (work, limit) = (self.work.total(), self.limit);
        if self.strategy == Strategy::Plain {
            let work = self.work.optimiser();
            return write!(
                f,
                "{insns} instructions are {work} units of work for the optimiser, more than the limit of {limit}: compiled \
                 without the optimiser (--compile-limit, Config::compile_limits)"
            );
        }
        write!(f, "{insns} instructions in {blocks} blocks")?;
        if depth > 0 {
            write!(f, ", loops {depth} deep,")?;
        }
        write!(
            f,
            " are {work} units of work for the compiler, more than the limit of {limit}: compiled as baseline code, without \
             the optimiser and with registers in memory between blocks (--compile-limit, Config::compile_limits)"
        )
    }
}

/// How a function of an image is compiled.
pub(crate) fn strategy(image: &Image, function: u32, options: Options, tier: Tier) -> Strategy {
    let function = &image.functions()[function as usize];
    let insns = &image.insns()[function.start as usize..function.end as usize];
    match (excess(insns, options), options.opt, tier) {
        (Some(excess), ..) => excess.strategy,
        (None, OptLevel::Speed, Tier::Final) => Strategy::Optimised,
        (None, OptLevel::Speed, Tier::First) => Strategy::FirstTier,
        (None, OptLevel::None, _) => Strategy::Plain,
    }
}

/// What of a function with these instructions is too much, if something is.
pub fn excess(insns: &[Insn], options: Options) -> Option<Excess> {
    let limit = options.limits.work;
    let short = insns.len() <= SHORT && limit >= CompileLimits::default().work;
    if limit == u64::MAX || short {
        return None;
    }
    let work = Work::of(insns, options.fuel);
    let optimiser = if options.opt == OptLevel::Speed { work.optimiser() } else { 0 };
    let strategy = match (work.total(), optimiser) {
        (total, _) if total > limit => Strategy::Baseline,
        (_, optimiser) if optimiser > limit => Strategy::Plain,
        _ => return None,
    };
    Some(Excess { work, limit, strategy })
}

/// What makes the compiler work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    insns: u64,
    blocks: u64,
    /// Loops in each other, at most.
    depth: u64,
    /// Instructions of the longest loop.
    longest: u64,
    /// Number of computed jumps.
    computed: u64,
}

impl Work {
    fn of(insns: &[Insn], fuel: bool) -> Work {
        let mut starts = vec![false; insns.len() + 1];
        // Where the last jump back to each instruction is.
        let mut latches = vec![0; insns.len() + 1];
        let (mut computed, mut atomics) = (0, 0);
        for (pc, insn) in insns.iter().enumerate() {
            let target = match *insn {
                Insn::Branch { off, .. } | Insn::MayGoto { off } | Insn::Goto { off } => Some(i64::from(off)),
                Insn::Gotol { off } => Some(i64::from(off)),
                _ => None,
            };
            let target = target.map(|off| usize::try_from(pc as i64 + 1 + off).unwrap_or(0).min(insns.len()));
            if let Some(target) = target {
                starts[target] = true;
                if target <= pc {
                    latches[target] = pc + 1;
                }
            }
            computed += u64::from(matches!(insn, Insn::Gotox { .. }));
            atomics += u64::from(matches!(insn, Insn::Atomic { .. }));
            let calls = matches!(insn, Insn::Callx { .. }) || fuel && matches!(insn, Insn::Call { .. });
            starts[pc + 1] |= target.is_some() || calls || matches!(insn, Insn::Exit | Insn::Gotox { .. });
        }
        starts[0] = true;
        let blocks = atomics / ATOMICS + starts[..insns.len()].iter().filter(|start| **start).count() as u64;
        // By how much the depth of loops changes at each instruction.
        let mut changes = vec![0_i64; insns.len() + 1];
        let mut longest = 0;
        for (header, latch) in latches.into_iter().enumerate().filter(|(_, latch)| *latch > 0) {
            changes[header] += 1;
            changes[latch] -= 1;
            longest = longest.max(latch - header);
        }
        let (mut now, mut depth) = (0, 0);
        for change in changes {
            now += change;
            depth = depth.max(now);
        }
        Work { insns: insns.len() as u64, blocks, depth: depth as u64, longest: longest as u64, computed }
    }

    /// What of it the optimiser makes, at least.
    fn optimiser(self) -> u64 {
        self.insns.saturating_mul(self.insns) / MANY
    }

    fn total(self) -> u64 {
        let Work { insns, blocks, depth, longest, computed } = self;
        let jumps = computed.saturating_mul(blocks).saturating_mul(512);
        let around = longest.saturating_mul(longest) / LONG;
        (insns.saturating_mul(blocks).saturating_mul(16 + depth) / 16).saturating_add(jumps).max(around)
    }
}

/// How much a function can grow and is still no more work than its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    work: Work,
    limit: u64,
}

impl Room {
    pub(crate) fn of(insns: &[Insn], options: Options) -> Room {
        Room { work: Work::of(insns, options.fuel), limit: options.limits.work }
    }

    /// Adds so many instructions and blocks, if that is not too much.
    pub(crate) fn take(&mut self, insns: u64, blocks: u64) -> bool {
        let work = Work { insns: self.work.insns + insns, blocks: self.work.blocks + blocks, ..self.work };
        let fits = work.total() <= self.limit;
        if fits {
            self.work = work;
        }
        fits
    }
}

/// Estimates the work of compiling a function, in the units of [`CompileLimits`].
pub fn work(insns: &[Insn], fuel: bool) -> u64 {
    Work::of(insns, fuel).total()
}
