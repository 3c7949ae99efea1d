//! Random programs. Whatever validation accepts runs or traps, on both drivers alike, and never takes down the host.
//!
//! The generator asks the decoder which slots are instructions and validation what is wrong with a program: the
//! instruction it names is replaced until nothing is wrong. So neither knows a rule that this file repeats.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinbpf_vm::host::Packet;
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::interp::{Driver, Limits, Machine};
use twinbpf_vm::isa::{AluOp, CallKind, Groups, Insn, Mode, Operand, Policy, Raw, Reg, Width, asm, disasm};
use twinbpf_vm::mem::{Arena, Block, RegionKind, RegionSpec};
use twinbpf_vm::program::{Binding, Function, Program};
use twinbpf_vm::validate::Valid;

use crate::run;

/// Slots of a random program; the second half is a second function.
const SLOTS: usize = 64;
const MEMORY: usize = 96;
const LIMITS: Limits = Limits { max_insns: Some(3000), max_depth: 8, stack_bytes: 1 << 14 };

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A slot that decodes, with fields that are often meaningful.
    fn insn(&mut self) -> Insn {
        loop {
            let (dst, src) = (self.below(11) as u8, self.below(11) as u8);
            let off = match self.below(4) {
                0 => 0,
                1 => self.pick(&[1, 8, 16, 32, -1, -8]),
                2 => self.below(24) as i16 - 8,
                _ => -8 * self.below(65) as i16,
            };
            let imm = match self.below(4) {
                0 => 0,
                1 => self.pick(&[1, 16, 32, 64, 0x40, 0x50, 0xa0, 0xe1, 0xf1, 0x100, 0x110, 0x41]),
                2 => self.below(64) as i32 - 16,
                _ => self.pick(&[-1, i32::MAX, i32::MIN, 0xffff, 0x1234_5678, -128]),
            };
            let mut regs = src << 4 | dst;
            if self.below(4) == 0 {
                regs &= self.pick(&[0x0f, 0xf0, 0x00]);
            }
            let opcode = self.next() as u8;
            if let Ok(insn) = Insn::decode(Raw { opcode, regs, off, imm }) {
                return insn;
            }
        }
    }

    fn insns(&mut self) -> Vec<Insn> {
        let mut insns: Vec<Insn> = (0..SLOTS).map(|_| self.insn()).collect();
        for pc in 0..SLOTS - 1 {
            if let Insn::LoadImm { dst, imm, .. } = insns[pc] {
                insns[pc] = Insn::LoadImm { dst, kind: 0, imm };
                insns[pc + 1] = Insn::LoadImmHi { imm: imm >> 8 };
            }
        }
        insns
    }
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
        functions: vec![function("main", 0), function("second", SLOTS / 2)],
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
                let end = error.pc() + 1 == SLOTS / 2 || error.pc() + 1 == SLOTS;
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

/// A machine for a random program, and the memory its pointers point to.
struct Bench {
    machine: Machine,
    context: Block,
}

impl Bench {
    fn new(arena: &Arc<Arena>, programs: Vec<Valid<Program>>) -> Bench {
        let (externs, helper) = (run::externs(), |id| run::helper(id));
        let resolve = Resolve { maps: &[], values: &[], externs: &externs, helper: &helper, labels: &[], pointed: &[] };
        let image = Arc::new(Image::new(arena, programs, resolve).expect("an image"));
        let context = arena.alloc(RegionSpec::new("context", RegionKind::Context, MEMORY as u32)).expect("room");
        let mut machine = run::machine(arena, &image, Driver::Step, LIMITS);
        let packet: Vec<u8> = (0..MEMORY as u8).map(|byte| byte.wrapping_mul(37)).collect();
        machine.runtime().packet = Some(Packet::skb(arena, 0, &packet).expect("room"));
        Bench { machine, context }
    }

    /// Everything that can be seen of a run, as text.
    fn observe(&mut self, driver: Driver, seed: u64) -> String {
        let mut random = Random(seed);
        let bytes: Vec<u8> = (0..MEMORY).map(|_| random.next() as u8).collect();
        self.context.write(0, &bytes);
        self.machine.run(1, [u64::from(LIMITS.max_depth), 0, 0, 0, 0]).expect("wipes the frames");
        self.machine.set_driver(driver);
        let mut registers: [u64; 11] = std::array::from_fn(|_| random.next() >> random.below(64));
        for reg in [1, 2, 6, 8] {
            registers[reg] = self.context.addr() + 8 * random.below(MEMORY / 8) as u64;
        }
        let result = match self.machine.run_with(0, registers) {
            Ok(r0) => format!("{r0:#x}"),
            Err(trap) => format!("{trap:#}"),
        };
        let (registers, executed) = (self.machine.registers(), self.machine.insns_executed());
        format!("{result}\n{registers:x?}\n{executed} executed\n{:x?}", self.context.to_vec(0, MEMORY))
    }
}

/// Compares the drivers on this many random programs, with two inputs each.
pub(crate) fn check(programs: u64) {
    let arena = Arena::new(1 << 24).expect("address space");
    let (mut ended, mut executed) = (0, 0);
    for number in 0..programs {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number + 1));
        let program = repaired(random.insns());
        let text = disasm(&program.insns);
        let mut bench = Bench::new(&arena, vec![program, wipe()]);
        for seed in [number + 1, !number] {
            let step = bench.observe(Driver::Step, seed);
            let threaded = bench.observe(Driver::Threaded, seed);
            assert_eq!(step, threaded, "program {number}, seed {seed:#x}\n{text}");
            ended += usize::from(step.starts_with("0x"));
            executed += 1;
        }
    }
    // Neither all nor none of them trap, or the generator says nothing.
    assert!(ended * 20 > executed && ended < executed, "{ended} of {executed} ran to their end");
}
