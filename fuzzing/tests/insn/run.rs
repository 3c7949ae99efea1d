//! Runs a case on the interpreter and compares everything: registers, memory, result or trap.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use twinbpf_isa::Insn;
use twinbpf_isa::program::Program;
use twinbpf_isa::validate::Valid;
use twinbpf_vm::host::{HostFn, MapTable, Packet, Runtime};
use twinbpf_vm::image::{Image, Resolve, Target};
use twinbpf_vm::interp::{Driver, Limits, Machine};
use twinbpf_vm::map::MapOps;
use twinbpf_vm::mem::{Arena, Block, Bounds, MemError, RegionKind, RegionSpec, View};
use twinbpf_vm::trap::Trap;

use crate::build::{self, DUMP, EXTERNS};
use crate::case::{Expect, Input, Run, State};

/// No case has maps.
struct NoMaps;

impl MapTable for NoMaps {
    fn get(&self, _: u64) -> Option<Arc<dyn MapOps>> {
        None
    }
}

/// No case executes so many instructions: 8 million turns of a loop that `may_goto` ends are the most.
const FAR: u64 = 100_000_000;

/// What a program did.
pub(crate) struct Outcome {
    pub(crate) result: Result<u64, Trap>,
    pub(crate) regs: [u64; 10],
    pub(crate) mem: Vec<u8>,
    /// Address of the memory of the case.
    addr: u64,
    pub(crate) insns: u64,
}

impl Outcome {
    /// Of a run that this process has not made.
    pub(crate) fn foreign(addr: u64, r0: u64, regs: [u64; 10], mem: Vec<u8>) -> Outcome {
        Outcome { result: Ok(r0), regs, mem, addr, insns: 0 }
    }
}

/// Runs a validated case with both drivers. `body` are the pcs of its body. On failure, what differs.
pub(crate) fn check(
    arena: &Arc<Arena>,
    program: &Valid<Program>,
    body: &Range<usize>,
    run: &Run,
) -> Result<(), String> {
    let (externs, helper) = (externs(), |id| helper(id));
    let resolve = Resolve { maps: &[], values: &[], externs: &externs, helper: &helper, labels: &[], pointed: &[] };
    let image = Image::new(arena, vec![program.clone()], resolve).map_err(|error| error.to_string())?;
    let image = Arc::new(image);
    let context = context(arena, &run.input);
    for driver in [Driver::Step, Driver::Threaded] {
        let mut machine = machine(arena, &image, driver, limits(program, body, run), Reach::Exact);
        let outcome = execute(&mut machine, 0, &context, &run.input);
        compare(&outcome, body, run).map_err(|what| format!("{driver:?}: {what}"))?;
    }
    Ok(())
}

pub(crate) fn externs() -> Vec<Target> {
    let sum = |a: u64, b: u64, c: u64, d: u64, e: u64| {
        [b, c, d, e].iter().zip(2..).fold(a, |sum, (value, times)| sum.wrapping_add(value.wrapping_mul(times)))
    };
    let target = |name: &str| match name {
        "sum" => Target::Host(HostFn::typed::<(), _>("sum", sum)),
        "s32" => Target::Host(HostFn::typed::<(), _>("s32", |value: i32| value)),
        "u8" => Target::Host(HostFn::typed::<(), _>("u8", |value: u8| value)),
        "one" => Target::Host(HostFn::typed::<(), _>("one", || 1u64)),
        "two" => Target::Host(HostFn::typed::<(), _>("two", || 2u64)),
        _ => Target::Unresolved(name.into()),
    };
    EXTERNS.map(target).into()
}

pub(crate) fn helper(id: u32) -> Option<HostFn> {
    match id {
        1 => Some(HostFn::typed::<(), _>("first", || 1111u64)),
        2 => Some(HostFn::typed::<(), _>("second", || 2222u64)),
        _ => None,
    }
}

/// The limit on instructions is for the body; around it the prologue runs, and if it ends, the epilogue.
pub(crate) fn limits(program: &Program, body: &Range<usize>, run: &Run) -> Limits {
    let slots = |slots: &[Insn]| slots.iter().filter(|insn| !matches!(insn, Insn::LoadImmHi { .. })).count() as u64;
    let prologue = slots(&program.insns[..body.start]);
    let end = program.functions.get(1).map_or(program.insns.len(), |function| function.start);
    let epilogue = match run.expect {
        Expect::State(_) => slots(&program.insns[body.end..end]),
        Expect::Trap { .. } | Expect::Reject(_) => 0,
    };
    Limits {
        max_insns: Some(run.input.insns.map_or(FAR, |insns| prologue + insns + epilogue)),
        max_depth: run.input.depth.unwrap_or(64),
        stack_bytes: 64 * 512,
    }
}

/// What the interpreter lets programs access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Exact,
    Arena,
    /// Any address, as trusted programs may. Needs a trusted arena.
    Any,
}

pub(crate) fn machine(arena: &Arc<Arena>, image: &Arc<Image>, driver: Driver, limits: Limits, reach: Reach) -> Machine {
    let view = |bounds| View::new(Arc::clone(arena), arena.new_owner(), bounds);
    let view = match reach {
        Reach::Exact => view(Bounds::Exact),
        Reach::Arena => view(Bounds::Arena),
        Reach::Any => View::trusted(Arc::clone(arena), arena.new_owner()),
    };
    let runtime = Runtime::new(view, Arc::new(NoMaps), Box::new(io::sink()), Box::new(()));
    let mut machine = Machine::new(Arc::clone(image), runtime, limits).expect("room for a stack");
    machine.set_driver(driver);
    machine
}

/// An arena for cases and random programs of trusted code.
pub(crate) fn trusted_arena(limit: u64) -> Result<Arc<Arena>, MemError> {
    // SAFETY: cases say where they stray, and go where nothing is; random programs run there if the interpreter, with
    // exact bounds, has seen that they stay in their memory.
    unsafe { Arena::trusted(limit) }
}

/// The block that the program of a run gets.
pub(crate) fn context(arena: &Arc<Arena>, input: &Input) -> Block {
    let size = u32::try_from(DUMP + input.mem.len()).expect("a small case");
    arena.alloc(RegionSpec::new("context", RegionKind::Context, size)).expect("room in the arena")
}

/// Fills the block and runs a program of the machine's image on it.
pub(crate) fn execute(machine: &mut Machine, program: usize, context: &Block, input: &Input) -> Outcome {
    let addr = context.addr() + DUMP as u64;
    for reg in 0..10 {
        context.write(reg * 8, &build::initial(input, reg as usize, addr).to_le_bytes());
    }
    context.write(DUMP as u32, &input.mem);
    let packet = input.packet.then(|| {
        let owner = machine.runtime().view.owner();
        Packet::skb(context.arena(), owner, &input.mem).expect("room for a packet")
    });
    machine.runtime_mut().packet = packet;
    let result = machine.run(program, [context.addr(), 0, 0, 0, 0]);
    let dump = context.to_vec(0, DUMP);
    let regs =
        std::array::from_fn(|reg| u64::from_le_bytes(dump[reg * 8..reg * 8 + 8].try_into().expect("eight bytes")));
    let mem = context.to_vec(DUMP as u32, input.mem.len());
    Outcome { result, regs, mem, addr, insns: machine.insns_executed() }
}

/// Compares with what the run says. On failure, what differs.
pub(crate) fn compare(outcome: &Outcome, body: &Range<usize>, run: &Run) -> Result<(), String> {
    let mem = match (&run.expect, &outcome.result) {
        (Expect::State(state), Ok(r0)) => {
            registers(outcome, *r0, state, &run.input)?;
            &state.mem
        }
        (Expect::State(_), Err(trap)) => return Err(format!("{trap:#}")),
        (Expect::Trap { name, .. }, Ok(_)) => return Err(format!("ran to its end, expected the trap {name}")),
        (Expect::Trap { name, at, mem }, Err(trap)) => {
            let pc = trap.location().map(|location| location.pc);
            if *name != format!("{:?}", trap.code()) || at.is_some_and(|at| pc != Some(body.start + at)) {
                return Err(format!("expected the trap {name} at {at:?}, body at {body:?}: {trap:#}"));
            }
            mem
        }
        (Expect::Reject(_), _) => return Err("was not rejected".to_owned()),
    };
    let expected = mem.as_ref().unwrap_or(&run.input.mem);
    if outcome.mem == *expected { Ok(()) } else { Err(format!("memory {:02x?}, not {expected:02x?}", outcome.mem)) }
}

fn registers(outcome: &Outcome, r0: u64, state: &State, input: &Input) -> Result<(), String> {
    let resolve = |value| build::resolve(value, outcome.addr);
    if let Some(value) = state.ret {
        let expected = resolve(value);
        return if r0 == expected { Ok(()) } else { Err(format!("result {r0:#x}, not {expected:#x}")) };
    }
    for (reg, &found) in outcome.regs.iter().enumerate() {
        let named = state.regs.iter().find(|(named, _)| *named == reg);
        let expected = match named {
            Some((_, value)) => resolve(*value),
            None if state.lost && (1..=5).contains(&reg) => continue,
            None => build::initial(input, reg, outcome.addr),
        };
        if found != expected {
            return Err(format!("r{reg} is {found:#x}, not {expected:#x}"));
        }
    }
    Ok(())
}
