//! Lowering of BPF instructions to Cranelift's IR (CLIF), one function of an image at a time.
//!
//! This is the second statement of what instructions mean; the first is the interpreter. The two share no code, so that a
//! misreading in one shows as a difference.
//!
//! [`flow`] finds basic blocks and threads jumps, [`effects`] gives the registers that instructions read and write,
//! [`register_liveness`] those that functions read. BPF registers are SSA variables ([`subregisters`]); [`stack_slots`]
//! and [`forward`] keep words of the frame in registers. [`alu`], [`memory`], [`control`], [`call`] and [`c_calls`] each
//! lower one class of instructions; [`callbacks`], [`iter_num`], [`inner_maps`] and [`tail_jump`] lower calls of some helpers. [`fuel`] counts
//! instructions, [`inlining`] chooses calls in whose place [`inlined`] lowers the callee, [`first_tier`] counts the turns of
//! loops, [`stack`] checks for native stack, [`sites`] says where code is of which instruction.

mod alu;
mod baseline;
mod c_calls;
mod call;
mod callbacks;
mod constants;
mod control;
pub mod effects;
mod first_tier;
mod flags;
mod flow;
pub(crate) mod forward;
mod fuel;
mod inlined;
pub(crate) mod inlining;
mod inner_maps;
mod intrinsics;
mod iter_num;
mod memory;
mod register_liveness;
mod sites;
mod stack;
pub(crate) mod stack_slots;
mod subregisters;
mod tail_jump;

use std::collections::HashMap;

use cranelift_codegen::ir::immediates::Offset32;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{
    AbiParam, Block, FuncRef, Function, InstBuilder as _, MemFlagsData, SigRef, Signature, Type, Value,
};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_codegen::packed_option::PackedOption;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use twinbpf_isa::Insn;
use twinbpf_vm::host::native::Site;
use twinbpf_vm::image::Image;

use crate::aot::Values;
use crate::context::{field, reg_field};
use crate::limits::Strategy;
use crate::options::{Memory, OptLevel, Options};
use crate::positions::Positions;
use alu::Guard;
use constants::Constants;
use effects::{ALL, Successors};
use flags::{constant, trusted};
use flow::Flow;
pub(crate) use flow::UNROLLING_MUTANT;
use fuel::Cold;
pub(crate) use fuel::MUTANT as WORDS_MUTANT;
use inlined::Inside;
use inlining::Inlining;
pub use intrinsics::IntrinsicInfo;
use memory::Pointers;
pub(crate) use register_liveness::RegisterLiveness;
use stack_slots::StackSlots;
use subregisters::Subregisters;

/// Mutants of lowering, by name.
pub const MUTANTS: [&str; 6] = [
    inlining::CALLEE_REGISTERS,
    inlining::UNPAID,
    UNROLLING_MUTANT,
    forward::MUTANT,
    stack_slots::MUTANT,
    WORDS_MUTANT,
];

/// Values that registers hold when nothing put one there, as in the interpreter: `0xdeaddeaddeadde00 | n`.
fn poison(reg: usize) -> i64 {
    (0xdead_dead_dead_de00_u64 | reg as u64) as i64
}

/// Where a native function begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the BPF function's first instruction.
    Entry,
    /// At this flat pc, with registers from [`Context::regs`](twinbpf_vm::host::native::Context::regs).
    Loop(u32),
}

/// A native function to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Index in the image.
    pub(crate) function: u32,
    pub(crate) start: Start,
}

/// What translation works from.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) image: &'a Image,
    pub(crate) options: Options,
    pub(crate) summary: &'a RegisterLiveness,
    /// Whether a function of the image, by index, is in the same module and can be called by name.
    pub(crate) local: &'a dyn Fn(u32) -> bool,
    pub(crate) isa: &'a dyn TargetIsa,
    /// Numbers that code takes from the context, since it runs in another process.
    pub(crate) values: Option<&'a Values>,
    /// Marks code with the pcs it is of ([`crate::listing`]).
    pub(crate) listing: bool,
    /// Compares the stack pointer with the limit of the native stack when it is entered ([`crate::frame`]).
    pub(crate) checked: bool,
    /// [`Strategy::Baseline`] makes baseline code ([`baseline`]); options are then those without the optimiser.
    pub(crate) strategy: Strategy,
    /// The mutant of the compiler that is wanted: [`fault`](crate::stage::fault) of the function's name.
    pub(crate) mutant: &'a str,
}

impl Input<'_> {
    fn baseline(&self) -> bool {
        self.strategy == Strategy::Baseline
    }
}

/// Memory that is used again for the next function.
#[derive(Default)]
pub(crate) struct Scratch {
    builder: FunctionBuilderContext,
    flow: Flow,
    inlining: Inlining,
    slots: StackSlots,
    variables: Vec<Variable>,
    blocks: Vec<PackedOption<Block>>,
    pending: Vec<u32>,
    callees: HashMap<u32, FuncRef>,
    constants: Constants,
}

impl Scratch {
    /// Whether the function that was translated last reads registers besides its arguments before it writes them.
    pub(crate) fn reads_rest(&self) -> bool {
        self.flow.live(self.flow.entry()) & !effects::ARGS != 0
    }

    pub(crate) fn flow(&mut self) -> &mut Flow {
        &mut self.flow
    }

    /// What source locations and sites of the function mean that was translated last.
    pub(crate) fn positions(&self) -> &Positions {
        &self.inlining.positions
    }
}

/// Arguments of every generated function: `(cx, r10, r1, r2, r3, r4)`, as many as go in registers on x86-64. A callee finds its
/// r5 in [`Context::regs`](twinbpf_vm::host::native::Context::regs).
pub(crate) const PARAMS: usize = 6;

/// The signature of every generated function, which gives r0.
pub(crate) fn signature() -> Signature {
    let mut signature = Signature::new(CallConv::Tail);
    signature.params.extend([AbiParam::new(I64); PARAMS]);
    signature.returns.push(AbiParam::new(I64));
    signature
}

/// Translation of one function in progress.
struct Translator<'a> {
    input: Input<'a>,
    b: FunctionBuilder<'a>,
    /// Of the function, or of the callee that is lowered in place of a call.
    flow: &'a Flow,
    inlining: &'a Inlining,
    inside: Option<Inside>,
    slots: &'a StackSlots,
    /// One for each word.
    variables: &'a mut Vec<Variable>,
    blocks: &'a mut Vec<PackedOption<Block>>,
    /// Edges to each block that are not there yet.
    pending: &'a mut Vec<u32>,
    callees: &'a mut HashMap<u32, FuncRef>,
    regs: [Variable; 10],
    subregs: Subregisters,
    /// Of baseline code.
    frame: Option<baseline::Frame>,
    pointers: Pointers,
    guards: Vec<Guard>,
    /// Words of the frame that are no variables.
    stored: forward::Frame,
    /// r10 of callees, once the current block has checked that there is room for their frame.
    callee_frame: Option<Value>,
    constants: &'a mut Constants,
    /// Instructions left, with fuel.
    fuel: Variable,
    /// Iterations left for `may_goto`.
    loops: Variable,
    cx: Value,
    fp: Value,
    /// Address of the arena, where the mode needs it.
    arena: Option<Value>,
    /// Its upper half, likewise.
    arena_half: Option<Value>,
    /// What r1 to r5 hold after a call.
    poison: [Option<Value>; 5],
    /// Signatures of C functions by number of parameters.
    c_signatures: [Option<SigRef>; 8],
    signature: Option<SigRef>,
    sites: Vec<Site>,
    cold: Cold,
    /// The block in work.
    block: u32,
    /// Flat pc of the instruction in work.
    pc: u32,
}

/// Translates a function into `func`, which is empty. Gives its sites, or nothing if it is too entangled.
pub(crate) fn lower(input: Input<'_>, unit: Unit, scratch: &mut Scratch, func: &mut Function) -> Option<Vec<Site>> {
    let image = input.image;
    let entry = match unit.start {
        Start::Entry => image.functions()[unit.function as usize].start,
        Start::Loop(pc) => pc,
    };
    let Scratch { builder, flow, inlining, slots, variables, blocks, pending, callees, constants } = scratch;
    if !analyse(input, (unit.function, entry), (flow, inlining), slots) {
        return None;
    }
    func.signature = signature();
    let mut b = FunctionBuilder::new(func, builder);
    callees.clear();
    let first = b.create_block();
    create_blocks(&mut b, flow, blocks, pending);
    b.append_block_params_for_function_params(first);
    b.switch_to_block(first);
    b.seal_block(first);
    let regs = std::array::from_fn(|_| b.declare_var(I64));
    let (fuel, loops) = (b.declare_var(I64), b.declare_var(I64));
    variables.clear();
    variables.extend(slots.types().map(|ty| b.declare_var(ty)));
    let (cx, fp) = (b.block_params(first)[0], b.block_params(first)[1]);
    let mut t = Translator {
        input,
        b,
        flow,
        inlining,
        inside: None,
        slots,
        variables,
        blocks,
        pending,
        callees,
        regs,
        subregs: Subregisters::default(),
        frame: None,
        pointers: Pointers::default(),
        guards: Vec::new(),
        stored: forward::Frame::default(),
        callee_frame: None,
        constants,
        fuel,
        loops,
        cx,
        fp,
        arena: None,
        arena_half: None,
        poison: [None; 5],
        c_signatures: [None; 8],
        signature: None,
        sites: Vec::new(),
        cold: Cold::of(flow),
        block: flow.entry(),
        pc: entry,
    };
    t.enter(unit.start, first);
    for block in 0..t.flow.len() {
        t.block(block);
    }
    t.fill_cold(first);
    t.b.finalize(input.isa.frontend_config());
    Some(t.sites)
}

/// Finds blocks and what is known of them. False if the function is too entangled.
fn analyse(
    input: Input<'_>,
    (function, entry): (u32, u32),
    (flow, inlining): (&mut Flow, &mut Inlining),
    slots: &mut StackSlots,
) -> bool {
    let image = input.image;
    inlining.choose(input, function);
    let longest = if input.baseline() { baseline::BLOCK } else { u32::MAX };
    if !flow.build(image, (function, entry), input.options.fuel, longest, &inlining.calls) {
        return false;
    }
    if input.options.opt == OptLevel::Speed {
        flow.thread(image);
        flow.unroll(input);
    }
    flow.liveness(image, &input.summary.of(image, input.options));
    if input.options.fuel {
        flow.distances(image);
    }
    if input.strategy == Strategy::FirstTier {
        flow.find_outer(input.options.fuel);
    }
    slots.clear();
    if !input.baseline() {
        slots.build(&input, flow);
    }
    true
}

/// A block for each that is reachable, and the edges to it that are to come.
fn create_blocks(
    b: &mut FunctionBuilder<'_>,
    flow: &Flow,
    blocks: &mut Vec<PackedOption<Block>>,
    pending: &mut Vec<u32>,
) {
    pending.clear();
    pending.extend((0..flow.len()).map(|block| flow.preds(block)));
    blocks.clear();
    blocks.extend(pending.iter().map(|preds| PackedOption::from((*preds > 0).then(|| b.create_block()))));
}

impl Translator<'_> {
    /// The entry block, before the first: registers get their values.
    fn enter(&mut self, start: Start, first: Block) {
        self.at(self.pc);
        let entry = self.flow.entry();
        let live = self.flow.live(entry);
        if self.input.baseline() {
            self.make_frame();
        }
        for reg in 0..10 {
            let argument = (1..5).contains(&reg) && start == Start::Entry;
            let value = if argument {
                self.b.block_params(first)[reg + 1]
            } else if live & 1 << reg != 0 {
                self.load_cx(I64, trusted(), reg_field(reg))
            } else if self.input.baseline() {
                // The interpreter gets all.
                self.b.ins().iconst(I64, poison(reg))
            } else {
                continue;
            };
            self.def_reg(reg, value);
        }
        if self.flow.loops || self.input.baseline() {
            let loops = match start {
                Start::Entry => self.b.ins().iconst(I64, i64::from(control::MAX_LOOPS)),
                Start::Loop(_) => self.load_cx(I64, trusted(), field!(loops)),
            };
            self.def_loops(loops);
        }
        if self.input.options.fuel {
            self.reload_fuel();
        }
        if self.input.options.memory != Memory::Trusted {
            self.load_arena();
        }
        if self.flow.calls_out_only() {
            self.leave_frame();
        }
        if self.input.checked {
            self.check_stack();
        }
        if (self.flow.calls || self.flow.inlines()) && !self.input.baseline() {
            for reg in 1..6 {
                self.poison[reg - 1] = Some(self.b.ins().iconst(I64, poison(reg)));
            }
        }
        self.load_words(entry);
        if self.input.baseline() {
            self.dispatch(entry);
            self.constants.start(None);
        } else {
            let block = self.target(entry);
            let jump = self.b.ins().jump(block, &[]);
            self.constants.start((self.input.options.opt == OptLevel::Speed).then_some(jump));
        }
        self.linked(entry);
    }

    fn block(&mut self, block: u32) {
        let Some(native) = self.blocks[block as usize].expand() else { return };
        self.b.switch_to_block(native);
        self.begin(true);
        self.block = block;
        self.subregs = Subregisters::default();
        self.pointers.forget();
        self.guards.clear();
        self.stored.forget();
        self.callee_frame = None;
        self.constants.start_block();
        self.at(self.flow.range(block).start);
        self.mark_here();
        if self.flow.counts_turns(block) {
            self.count_turn(block);
        }
        if self.input.options.fuel {
            self.charge(block);
        }
        self.instructions();
    }

    /// Translates the instructions of the block in work.
    fn instructions(&mut self) {
        for pc in self.flow.range(self.block) {
            self.at(pc);
            let insn = self.input.image.insns()[pc as usize];
            self.materialize_for(insn);
            if self.insn(insn) {
                return;
            }
        }
        self.materialize_live();
        // Calls have paid already.
        if self.flow.successors(self.input.image, self.pc) != Successors::Call {
            self.pay_due();
        }
        self.jump_on();
    }

    /// Materializes pending values before the instruction's successors, which other paths may also reach.
    fn materialize_for(&mut self, insn: Insn) {
        match self.flow.successors(self.input.image, self.pc) {
            Successors::FallThrough if matches!(insn, Insn::LoadPacket { .. }) => self.materialize(ALL),
            Successors::Call => self.materialize(ALL),
            Successors::FallThrough | Successors::Exit => {}
            Successors::Branch(_) | Successors::Jump(_) | Successors::Computed => self.materialize_live(),
        }
    }

    /// Translates an instruction. True if it ends the block.
    fn insn(&mut self, insn: Insn) -> bool {
        match insn {
            Insn::Alu { width, op, dst, src } => self.alu(width, op, dst, src),
            Insn::Endian { order, bits, dst } => self.endian(order, bits, dst),
            Insn::LoadImm { dst, .. } => self.load_imm(dst),
            Insn::LoadImmHi { .. } => {}
            Insn::Load { size, signed, dst, base, off } => self.load(size, signed, dst, (base, off)),
            Insn::Store { size, base, off, src } => self.store(size, (base, off), src),
            Insn::Atomic { width, op, base, off, src } => self.atomic(width, op, (base, off), src),
            Insn::LoadAcquire { size, dst, base, off } => self.load_acquire(size, dst, (base, off)),
            Insn::StoreRelease { size, base, off, src } => self.store_release(size, (base, off), src),
            Insn::LoadPacket { size, src, imm } => self.load_packet(size, src, imm),
            Insn::Branch { width, cond, dst, src, .. } => return self.branch((width, cond), dst, src),
            Insn::Goto { .. } | Insn::Gotol { .. } => return self.goto(),
            Insn::Gotox { dst } => return self.gotox(dst),
            Insn::MayGoto { .. } => return self.may_goto(),
            Insn::Call { .. } => return self.call(),
            Insn::Callx { dst } => return self.callx(dst),
            Insn::AddrSpaceCast { dst, src, imm } => self.cast(dst, src, imm),
            Insn::Exit => return self.exit(),
        }
        false
    }

    /// The native block of a block that is about to be jumped to. Say [`Translator::linked`] when that is done.
    fn target(&mut self, block: u32) -> Block {
        self.blocks[block as usize].expand().expect("successors of reachable blocks are reachable")
    }

    /// Notes that an edge to a block is there. When all are, the block is sealed.
    fn linked(&mut self, block: u32) {
        let pending = &mut self.pending[block as usize];
        *pending -= 1;
        if *pending == 0 {
            let block = self.target(block);
            self.b.seal_block(block);
        }
    }

    /// A block without a BPF block of its own after the current one, with all its predecessors in place.
    fn continue_in(&mut self, block: Block) {
        self.b.switch_to_block(block);
        self.b.seal_block(block);
        self.begin(false);
    }

    fn load_cx(&mut self, ty: Type, flags: MemFlagsData, off: impl Into<Offset32>) -> Value {
        let cx = self.cx;
        self.b.ins().load(ty, flags, cx, off)
    }

    fn store_cx(&mut self, value: Value, off: impl Into<Offset32>) {
        let cx = self.cx;
        self.b.ins().store(trusted(), value, cx, off);
    }
}
