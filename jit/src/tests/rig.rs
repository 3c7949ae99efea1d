//! A program from text, run by the interpreter and by generated code.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, InstBuilder as _, MemFlagsData, Signature};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use twinbpf_isa::program::{Binding, Function, Program};
use twinbpf_isa::{CallKind, Groups, Insn, Policy, asm};
use twinbpf_vm::host::native::{Bridge, Context, Native as _, SERVICES, TailCall};
use twinbpf_vm::host::{Activation, HostFn, MapTable, Runtime};
use twinbpf_vm::image::{Image, Resolve, Target};
use twinbpf_vm::interp::{Limits, Machine};
use twinbpf_vm::map::MapOps;
use twinbpf_vm::mem::{Arena, Block, Bounds, RegionKind, RegionSpec, View};
use twinbpf_vm::trap::Trap;

use crate::lower::PARAMS;
use crate::{Code, Memory, Options, compile};

struct NoMaps;

impl MapTable for NoMaps {
    fn get(&self, _: u64) -> Option<Arc<dyn MapOps>> {
        None
    }
}

pub(super) struct Rig {
    pub(super) image: Arc<Image>,
    /// 4,096 bytes that `r1` points to.
    pub(super) memory: Block,
    stack: Block,
    /// Addresses that the last words of the memory hold.
    labels: Vec<u64>,
    /// What it was made of.
    source: (Program, Vec<(usize, usize)>),
    /// [`Rig::for_memory`].
    trusted: OnceCell<Box<Rig>>,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) r0: u64,
    pub(super) regs: [u64; 10],
    pub(super) executed: u64,
    /// A digest of the memory.
    pub(super) memory: u64,
}

pub(super) const BUDGET: u64 = 1_000_000;

impl Rig {
    /// Functions are what is called; externs are `sum` (five arguments) and `next` (one).
    pub(super) fn new(text: &str) -> Rig {
        Rig::with(program(text), &[])
    }

    pub(super) fn with(program: Program, labels: &[(usize, usize)]) -> Rig {
        Rig::over(Arena::new(1 << 26).unwrap(), program, labels)
    }

    /// The same program where code of this kind may run: native code without a sandbox needs a trusted arena.
    pub(super) fn for_memory(&self, memory: Memory) -> &Rig {
        match memory {
            Memory::Sandbox | Memory::Strict => self,
            Memory::Trusted => self.trusted.get_or_init(|| {
                // SAFETY: programs of these tests access the memory that they get.
                let arena = unsafe { Arena::trusted(1 << 26) }.unwrap();
                Box::new(Rig::over(arena, self.source.0.clone(), &self.source.1))
            }),
        }
    }

    fn over(arena: Arc<Arena>, program: Program, labels: &[(usize, usize)]) -> Rig {
        let source = (program.clone(), labels.to_vec());
        let policy = Policy { groups: Groups::ALL, ..Policy::default() };
        let program = program.validate(&policy, &|_| true).unwrap_or_else(|error| panic!("{error:#}"));
        let sum = |a: u64, b: u64, c: u64, d: u64, e: u64| a ^ b.rotate_left(1) ^ c.rotate_left(2) ^ d ^ e;
        let externs = [
            Target::Host(HostFn::typed::<(), _>("sum", sum)),
            Target::Host(HostFn::typed::<(), _>("next", |a: u64| a.wrapping_add(1))),
        ];
        let helper = |_| None;
        let resolve = Resolve { maps: &[], values: &[], externs: &externs, helper: &helper, labels, pointed: &[] };
        let image = Arc::new(Image::new(&arena, vec![program], resolve).unwrap());
        let memory = arena.alloc(RegionSpec::new("memory", RegionKind::Host, 4096)).unwrap();
        let spec = RegionSpec::new("stack", RegionKind::Host, 64 * image.frame_stride());
        let stack = arena.alloc(spec).unwrap();
        let labels = labels.iter().map(|(program, pc)| image.function_address(*program, *pc).unwrap()).collect();
        Rig { image, memory, stack, labels, source, trusted: OnceCell::new() }
    }

    fn registers(&self) -> [u64; 11] {
        let mut regs: [u64; 11] = std::array::from_fn(|reg| 0x1234_5678_9abc_def0 ^ (reg as u64) << 37 ^ reg as u64);
        regs[1] = self.memory.addr();
        regs
    }

    fn reset(&self) {
        self.memory.fill(0, 4096, 0);
        for at in 0..512 {
            self.memory.write(at * 8, &(u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
        }
        for (at, label) in (0..).zip(&self.labels) {
            self.memory.write(4096 - 8 * (at + 1), &label.to_le_bytes());
        }
    }

    fn digest(&self) -> u64 {
        let bytes = self.memory.to_vec(0, 4096);
        bytes
            .iter()
            .fold(0, |hash: u64, byte| (hash.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn interpret(&self) -> End {
        self.reset();
        let arena = self.image.arena();
        let view = match arena.is_trusted() {
            true => View::trusted(Arc::clone(arena), arena.new_owner()),
            false => View::new(Arc::clone(arena), arena.new_owner(), Bounds::Exact),
        };
        let runtime = Runtime::new(view, Arc::new(NoMaps), Box::new(std::io::sink()), Box::new(()));
        let limits = Limits { max_insns: Some(BUDGET), ..Limits::default() };
        let mut machine = Machine::new(Arc::clone(&self.image), runtime, limits).unwrap();
        let r0 = machine.run_with(0, self.registers()).unwrap_or_else(|trap| panic!("{trap:#}"));
        let regs = std::array::from_fn(|reg| machine.registers()[reg]);
        End { r0, regs, executed: machine.insns_executed(), memory: self.digest() }
    }

    pub(super) fn compile(&self, options: Options) -> Code {
        let image = &self.for_memory(options.memory).image;
        let code = Code::new(Arc::clone(image), options).unwrap();
        code.compile_all().unwrap_or_else(|error| panic!("{error}"));
        code
    }

    pub(super) fn run(&self, options: Options) -> End {
        let code = self.compile(options);
        self.for_memory(options.memory).enter(&code)
    }

    fn enter(&self, code: &Code) -> End {
        self.reset();
        let mut none = NoHost;
        let mut cx = Context::new(&raw mut none as *mut dyn Bridge);
        cx.regs = self.registers();
        cx.arena_base = self.image.arena().base();
        let fp = self.stack.addr() + u64::from(self.image.frame_stride()) - 64;
        cx.frame_limit = fp + 62 * u64::from(self.image.frame_stride());
        cx.remaining = BUDGET as i64;
        cx.functions = code.functions();
        cx.slots = self.image.function_address(0, 0).unwrap();
        cx.slot_count = self.image.functions().len() as u64;
        let interrupt = 0;
        cx.interrupt = &raw const interrupt;
        cx.services = &raw const SERVICES;
        let enter = trampoline();
        let args: [u64; PARAMS] = [0, fp, cx.regs[1], cx.regs[2], cx.regs[3], cx.regs[4]];
        // SAFETY: the trampoline passes the words on to a function that this module has compiled.
        let r0 = unsafe { enter(code.entry(0).expect("compiled"), &raw mut cx, args.as_ptr()) };
        let regs = std::array::from_fn(|reg| cx.regs[reg]);
        End { r0, regs, executed: BUDGET - cx.remaining as u64, memory: self.digest() }
    }
}

type Enter = unsafe extern "C" fn(u64, *mut Context, *const u64) -> u64;

/// `(code, cx, args)`: calls generated code. The first word of `args` is not used.
fn trampoline() -> Enter {
    let module = compile::compile_one(|func, isa| {
        let mut signature = Signature::new(isa.default_call_conv());
        signature.params.extend([AbiParam::new(I64); 3]);
        signature.returns.push(AbiParam::new(I64));
        func.signature = signature;
        let mut builder = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(func, &mut builder);
        let block = b.create_block();
        b.append_block_params_for_function_params(block);
        b.switch_to_block(block);
        b.seal_block(block);
        let [code, cx, args] = std::array::from_fn(|index| b.block_params(block)[index]);
        let mut words = [cx; PARAMS];
        for (index, word) in words.iter_mut().enumerate().skip(1) {
            *word = b.ins().load(I64, MemFlagsData::trusted(), args, index as i32 * 8);
        }
        let signature = b.import_signature(crate::lower::signature());
        let call = b.ins().call_indirect(signature, code, &words);
        let value = b.inst_results(call)[0];
        b.ins().return_(&[value]);
        b.finalize(isa.frontend_config());
        Vec::new()
    });
    let module = Box::leak(Box::new(module.unwrap()));
    // SAFETY: the function was made with exactly this signature, and is never freed.
    unsafe { std::mem::transmute::<usize, Enter>(module.functions[0].start as usize) }
}

struct NoHost;

impl Activation for NoHost {
    fn runtime(&mut self) -> &mut Runtime {
        unreachable!("no host function here needs it")
    }

    fn call(&mut self, _: u64, _: [u64; 5]) -> Result<u64, Trap> {
        unreachable!("no host function here calls back")
    }
}

impl Bridge for NoHost {
    fn tail_call(&mut self, _: u64, _: u32) -> Result<TailCall, Trap> {
        unreachable!("no maps here")
    }

    fn call_address(&mut self, _: u64) -> Result<u64, Trap> {
        unreachable!("only functions are called")
    }

    fn interpret(&mut self, _: u32) -> Result<u64, Trap> {
        unreachable!("all functions are compiled")
    }

    fn load_packet(&mut self, _: u32, _: usize) -> Result<Option<u64>, Trap> {
        unreachable!("no packets here")
    }

    fn resume(&mut self, _: u32) -> Result<u64, Trap> {
        unreachable!("the budget is large enough")
    }

    fn begin_walk(&mut self, _: u64) -> Result<Option<u64>, Trap> {
        unreachable!("no maps here")
    }

    fn advance_walk(&mut self, _: bool) -> Result<Option<u64>, Trap> {
        unreachable!("no maps here")
    }
}

pub(super) fn program(text: &str) -> Program {
    let assembled = asm::assemble(text).unwrap_or_else(|error| panic!("{error}"));
    let mut insns = assembled.insns;
    let (mut bindings, mut starts) = (BTreeMap::new(), BTreeSet::from([0]));
    for (pc, insn) in insns.iter_mut().enumerate() {
        match insn {
            Insn::Call { kind: CallKind::Local, imm, .. } => {
                starts.insert((pc as i32 + 1 + *imm) as usize);
            }
            Insn::Call { kind: CallKind::Extern, imm, .. } => {
                bindings.insert(pc, Binding::Extern(std::mem::take(imm) as usize));
            }
            Insn::LoadImm { kind: 4, imm, .. } => {
                let target = (pc as i32 + 1 + std::mem::take(imm)) as usize;
                starts.insert(target);
                bindings.insert(pc, Binding::Function(target));
            }
            _ => {}
        }
    }
    let functions = starts.iter().map(|&start| Function { name: format!("f{start}").into(), start, signature: None });
    Program {
        object: "t.bpf.o".into(),
        name: "f0".into(),
        section: "test".into(),
        functions: functions.collect(),
        lines: Vec::new(),
        stack_size: 512,
        insns,
        bindings,
    }
}
