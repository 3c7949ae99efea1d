//! Random programs. Whatever validation accepts runs or traps, on every engine alike, and never takes down the host.
//!
//! A prologue loads the registers from memory, so that native code can have any.
//!
//! Validation says what is wrong with a program: the instruction it names is replaced until nothing is wrong. So this file
//! repeats no rule of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinbpf_fuzzing::generate::{Choices, any_insns};
use twinbpf_isa::program::{Binding, Function, Program};
use twinbpf_isa::validate::Valid;
use twinbpf_isa::{AluOp, CallKind, Groups, Insn, Mode, Operand, Policy, Reg, Width, asm, disasm};
use twinbpf_vm::host::Packet;
use twinbpf_vm::host::native::Native;
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::interp::{Driver, Limits, Machine};
use twinbpf_vm::mem::{Arena, Block, RegionKind, RegionSpec};
use twinbpf_vm::trap::TrapCode;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::modes;
use crate::run::{self, Reach};
use crate::support::low_halves;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use twinbpf_fuzzing::{JitMode, jit_modes};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use twinbpf_jit::{Code, Memory};

/// Random slots of a program; the second half is a second function.
const SLOTS: usize = 64;
/// Slots before them.
const PROLOGUE: usize = 10;
/// Bytes of the context after the registers.
const MEMORY: usize = 96;
const REGISTERS: usize = 80;
const LIMITS: Limits = Limits { max_insns: Some(3000), max_depth: 8, stack_bytes: 1 << 14 };

/// Loads r0 to r9 from the context.
fn prologue() -> Vec<Insn> {
    let load = |reg: &usize| format!("r{reg} = *(u64 *)(r1 + {})\n", reg * 8);
    let text: String = [0, 2, 3, 4, 5, 6, 7, 8, 9, 1].iter().map(load).collect();
    let insns = asm::parse(&text).expect("assembles");
    assert_eq!(insns.len(), PROLOGUE);
    insns
}

/// Something harmless in place of an instruction that validation refuses.
fn harmless() -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Add, dst: Reg::R0, src: Operand::Imm(1) }
}

fn program(insns: Vec<Insn>) -> Program {
    let calls = insns.iter().enumerate();
    let externs = calls.filter(|(_, insn)| matches!(insn, Insn::Call { kind: CallKind::Extern, .. }));
    let bindings: BTreeMap<usize, Binding> = externs.map(|(pc, _)| (pc, Binding::Extern(pc % 6))).collect();
    let function = |name: &str, start| Function { name: name.into(), start, signature: None };
    Program {
        object: "random".into(),
        name: "main".into(),
        section: ".text".into(),
        insns,
        bindings,
        functions: vec![function("main", 0), function("second", PROLOGUE + SLOTS / 2)],
        lines: Vec::new(),
        stack_size: 512,
    }
}

/// The program with what validation names replaced, one instruction at a time.
fn repaired(mut insns: Vec<Insn>) -> Valid<Program> {
    let policy = Policy { groups: Groups::ALL, mode: Mode::Rfc };
    loop {
        match program(insns.clone()).validate(&policy, &|_| true) {
            Ok(valid) => return valid,
            Err(error) => {
                let end = [SLOTS / 2, SLOTS].map(|slots| PROLOGUE + slots).contains(&(error.pc() + 1));
                assert!(insns[error.pc()] != Insn::Exit, "{error:#}");
                insns[error.pc()] = if end { Insn::Exit } else { harmless() };
            }
        }
    }
}

/// A program that clears the frames of all calls that may be active, and so what earlier runs left in them.
fn wipe() -> Valid<Program> {
    let clear: String = (1..=64).map(|slot| format!("*(u64 *)(r10 - {}) = 0\n", slot * 8)).collect();
    let text = format!("again: {clear} r1 += -1\n if r1 == 0 goto +1\n call again\n exit");
    let mut program = program(asm::parse(&text).expect("assembles"));
    program.functions.truncate(1);
    program.validate(&Policy::default(), &|_| false).expect("valid")
}

/// A random program, machines for it, and the memory its pointers point to.
struct Bench {
    image: Arc<Image>,
    /// With exact bounds, and with others.
    machines: [Machine; 2],
    context: Block,
}

/// Index of [`Bench::machines`].
const EXACT: usize = 0;
const OTHER: usize = 1;

/// What can be seen of a run.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// The trap's, if it is one.
    code: Option<TrapCode>,
    result: String,
    /// Of a program that ran to its end.
    registers: Option<[u64; 10]>,
    memory: Vec<u8>,
    /// Where it is counted: native code that faults does not say how far it has come.
    executed: Option<u64>,
}

impl Bench {
    fn new(arena: &Arc<Arena>, other: Reach, program: &Valid<Program>) -> Bench {
        let (externs, helper) = (run::externs(), |id| run::helper(id));
        let resolve = Resolve { maps: &[], values: &[], externs: &externs, helper: &helper, labels: &[], pointed: &[] };
        let image = Arc::new(Image::new(arena, vec![program.clone(), wipe()], resolve).expect("an image"));
        let size = (REGISTERS + MEMORY) as u32;
        let context = arena.alloc(RegionSpec::new("context", RegionKind::Context, size)).expect("room");
        let machine = |reach| {
            let mut machine = run::machine(arena, &image, Driver::Step, LIMITS, reach);
            let packet: Vec<u8> = (0..MEMORY as u8).map(|byte| byte.wrapping_mul(37)).collect();
            machine.runtime_mut().packet = Some(Packet::skb(arena, 0, &packet).expect("room"));
            machine
        };
        Bench { machines: [Reach::Exact, other].map(machine), image, context }
    }

    /// Registers and memory as the seed has it.
    fn prepare(&self, seed: u64) {
        let mut choices = Choices::from_seed(seed);
        let bytes: Vec<u8> = (0..MEMORY).map(|_| choices.word() as u8).collect();
        self.context.write(REGISTERS as u32, &bytes);
        let mut registers: [u64; 10] = std::array::from_fn(|_| choices.word() >> choices.below(64));
        for reg in [1, 2, 6, 8] {
            registers[reg] = self.context.addr() + (REGISTERS + 8 * choices.below(MEMORY / 8)) as u64;
        }
        for (reg, value) in registers.iter().enumerate() {
            self.context.write(reg as u32 * 8, &value.to_le_bytes());
        }
    }

    /// Runs it with this input, and this code if any.
    fn observe(&mut self, which: usize, driver: Driver, native: Option<Arc<dyn Native>>, seed: u64) -> Seen {
        self.prepare(seed);
        let counts = native.as_ref().is_none_or(|native| native.counts());
        let machine = &mut self.machines[which];
        machine.run(1, [u64::from(LIMITS.max_depth), 0, 0, 0, 0]).expect("wipes the frames");
        machine.set_driver(driver);
        machine.set_native(native).expect("a native stack");
        machine.set_limits(Limits { max_insns: LIMITS.max_insns.filter(|_| counts), ..LIMITS });
        let result = machine.run(0, [self.context.addr(), 0, 0, 0, 0]);
        let (code, registers) = match &result {
            Ok(_) => (None, Some(std::array::from_fn(|reg| machine.registers()[reg]))),
            Err(trap) => (Some(trap.code()), None),
        };
        let result = match result {
            Ok(r0) => format!("{r0:#x}"),
            Err(trap) => low_halves(&format!("{trap:#}")),
        };
        let counted = counts && matches!(code, None | Some(TrapCode::OutOfInsns));
        let executed = counted.then(|| machine.insns_executed());
        machine.set_native(None).expect("nothing to be made");
        machine.set_limits(LIMITS);
        Seen { code, result, registers, memory: self.context.to_vec(REGISTERS as u32, MEMORY), executed }
    }
}

/// A program by its number.
fn numbered(number: u64) -> Valid<Program> {
    let mut insns = prologue();
    insns.extend(any_insns(&mut Choices::from_seed(number), SLOTS));
    repaired(insns)
}

/// Compares the drivers on this many random programs, with two inputs each.
pub(crate) fn check(programs: u64) {
    let arena = Arena::new(1 << 24).expect("address space");
    let (mut ended, mut executed) = (0, 0);
    for number in 0..programs {
        let program = numbered(number);
        let text = disasm(&program.insns);
        let mut bench = Bench::new(&arena, Reach::Arena, &program);
        for seed in [number + 1, !number] {
            let step = bench.observe(EXACT, Driver::Step, None, seed);
            let threaded = bench.observe(EXACT, Driver::Threaded, None, seed);
            assert_eq!(step, threaded, "program {number}, seed {seed:#x}\n{text}");
            ended += usize::from(step.code.is_none());
            executed += 1;
        }
    }
    // Neither all nor none of them trap, or the generator says nothing.
    assert!(ended * 20 > executed && ended < executed, "{ended} of {executed} ran to their end");
}

/// Compares native code of every mode with the interpreter.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn check_native(programs: u64) {
    let (trusted, masked): (Vec<JitMode>, Vec<JitMode>) = jit_modes().partition(|mode| mode.memory == Memory::Trusted);
    let (arena, low) = (Arena::new(1 << 24), run::trusted_arena(1 << 24));
    let (arena, low) = (arena.expect("address space"), low.expect("address space"));
    for number in 0..programs {
        let program = numbered(number);
        for (arena, reach, modes) in [(&arena, Reach::Arena, &masked), (&low, Reach::Any, &trusted)] {
            let mut bench = Bench::new(arena, reach, &program);
            let compile = |mode: &JitMode| (*mode, Arc::new(modes::compile(*mode, &bench.image, 0..1)));
            let codes: Vec<_> = modes.iter().map(compile).collect();
            for seed in [number + 1, !number] {
                bench.compare(&codes, reach, seed).unwrap_or_else(|what| {
                    panic!("program {number}, seed {seed:#x}, {what}\n{}", disasm(&program.insns))
                });
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Bench {
    fn compare(&mut self, codes: &[(JitMode, Arc<Code>)], reach: Reach, seed: u64) -> Result<(), String> {
        let exact = self.observe(EXACT, Driver::Step, None, seed);
        let strays = matches!(exact.code, Some(TrapCode::OutOfBounds | TrapCode::ReadOnly));
        if strays && reach == Reach::Any {
            // It could take down the test.
            return Ok(());
        }
        let other = self.observe(OTHER, Driver::Step, None, seed);
        for (mode, code) in codes {
            let (which, wanted) = match mode.memory {
                Memory::Strict if strays => continue,
                Memory::Strict => (EXACT, &exact),
                Memory::Sandbox | Memory::Trusted => (OTHER, &other),
            };
            // Code that counts nothing has to come to its end.
            if !mode.fuel && wanted.code == Some(TrapCode::OutOfInsns) {
                continue;
            }
            let mut found = self.observe(which, Driver::Step, Some(Arc::clone(code) as _), seed);
            found.executed = found.executed.or(wanted.executed);
            if found != *wanted {
                return Err(format!("{mode:?}: {found:x?}\nwhile the interpreter has {wanted:x?}"));
            }
        }
        Ok(())
    }
}
