//! A program from text in every kind of native code, and host functions that need native stack.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;

#[cfg(target_arch = "x86_64")]
use twinbpf_fuzzing::verify::{self, Verdict};
use twinbpf_isa::program::{Binding, Function, Program, Signature, ValType};
use twinbpf_isa::{CallKind, Groups, Insn, Policy, asm};
use twinbpf_jit::{Code, CompileLimits, Memory, OptLevel, Options, PassSet};
use twinbpf_vm::host::native::Native;
use twinbpf_vm::host::{Activation, Caller, HostFn, Runtime};
use twinbpf_vm::image::{Image, Resolve, Target};
use twinbpf_vm::interp::{Driver, Limits, Machine};
use twinbpf_vm::map::Maps;
use twinbpf_vm::mem::{Arena, Bounds, View};
use twinbpf_vm::recover::{self, Form};
use twinbpf_vm::trap::{Trap, TrapCode};

/// What native code is made of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// None.
    None,
    /// All of it.
    All(Options),
    /// On-stack replacement entries only: functions stay in the interpreter.
    Loops(Options),
}

impl Mode {
    pub(crate) fn is_trusted(self) -> bool {
        matches!(self, Mode::All(Options { memory: Memory::Trusted, .. }))
    }
}

pub(crate) const SPEED: Options = Options {
    memory: Memory::Sandbox,
    fuel: false,
    keep_registers: false,
    opt: OptLevel::Speed,
    verify: false,
    limits: CompileLimits::NONE,
    passes: PassSet::ALL,
};

/// Every kind of native code.
pub(crate) fn modes() -> Vec<Mode> {
    let mut modes = Vec::new();
    for memory in [Memory::Sandbox, Memory::Strict, Memory::Trusted] {
        for (opt, fuel) in [(OptLevel::Speed, false), (OptLevel::Speed, true), (OptLevel::None, false)] {
            modes.push(Mode::All(Options { memory, fuel, opt, ..SPEED }));
        }
    }
    modes.push(Mode::Loops(SPEED));
    modes.push(Mode::Loops(Options { fuel: true, ..SPEED }));
    modes.retain(|_| recover::AVAILABLE);
    modes
}

/// Bytes that a host function finds, whatever calls it, but for some that it needs to get there.
const PROMISED: usize = 248 << 10;

/// Uses so many bytes of native stack.
fn deep(bytes: usize) -> u64 {
    let here = 0u8;
    down_to(black_box(&raw const here) as usize - bytes)
}

#[inline(never)]
fn down_to(address: usize) -> u64 {
    let bytes = [1u8; 512];
    let here = black_box(&bytes);
    let below = if here.as_ptr() as usize > address { down_to(address) } else { 0 };
    below + u64::from(black_box(here)[0])
}

extern "C" fn deep_in_c(x: u64) -> u64 {
    black_box(deep(PROMISED));
    x.wrapping_mul(3)
}

/// Calls a function of the program by its address, which it has been given.
extern "C" fn back_from_c(function: extern "C" fn(u64, u64) -> u64, x: u64, y: u64) -> u64 {
    black_box(deep(16 << 10));
    function(x, y).wrapping_add(1)
}

/// A C function of this address that takes numbers.
fn c(name: &str, address: usize, params: usize) -> Target {
    let number = ValType::Int { size: 8, signed: false };
    let signature = Signature { params: vec![number; params], result: number, variadic: false };
    let body = move |mut activation: &mut dyn Activation, args: &[u64; 5]| {
        let ints = [args[0], args[1], args[2], 0, 0, 0];
        let data = (&raw mut activation).cast();
        // SAFETY: the address is of a function above, which takes no more than these words.
        let result = unsafe {
            recover::call_c(address, Form { variadic: false, float: false }, &ints, &[0.0; 8], data, call_back)
        };
        result.map_err(|abort| match *abort {
            recover::Abort::Trap(trap) => trap,
            recover::Abort::Fault(fault) => panic!("{fault}"),
        })
    };
    let function = HostFn::new(name, signature, Arc::new(body));
    #[allow(unused_unsafe, reason = "its contract is that of the function above")]
    // SAFETY: the address is that of a C function of this signature, which is never unloaded.
    Target::Host(unsafe { function.with_c(address as u64) })
}

/// # Safety
/// `data` points to a `&mut dyn Activation` that is not in use.
unsafe fn call_back(data: *mut (), function: u64, args: &[u64; 5]) -> Result<u64, Trap> {
    // SAFETY: the caller promises it.
    unsafe { &mut *data.cast::<&mut dyn Activation>() }.call(function, *args)
}

/// `call extern(n)` calls the n-th of these.
fn hosts() -> Vec<Target> {
    fn host<P>(name: &str, function: impl twinbpf_vm::host::IntoHostFn<(), P>) -> Target {
        Target::Host(HostFn::typed::<(), _>(name, function))
    }
    vec![
        host("deep", |x: u64| {
            black_box(deep(PROMISED));
            x.wrapping_mul(3)
        }),
        host("back", |mut caller: Caller<'_, ()>, function: u64, x: u64, y: u64| {
            caller.activation().call(function, [x, y, 0, 0, 0])
        }),
        host("back_96k", |mut caller: Caller<'_, ()>, function: u64, x: u64, y: u64| {
            let bytes = black_box([1u8; 96 << 10]);
            let result = caller.activation().call(function, [x, y, 0, 0, 0]);
            black_box(bytes);
            result
        }),
        c("deep_in_c", deep_in_c as *const () as usize, 1),
        c("back_from_c", back_from_c as *const () as usize, 3),
    ]
}

pub(crate) struct Rig {
    program: Program,
    loops: Vec<usize>,
}

/// How a run ended: r0, or the trap.
pub(crate) type End = Result<u64, (TrapCode, String)>;

impl Rig {
    /// Functions are what is called; labels that begin with `loop` are entries of their own.
    pub(crate) fn new(text: &str) -> Rig {
        let assembled = asm::assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let loops = assembled.labels.iter().filter(|(name, _)| name.starts_with("loop")).map(|(_, pc)| *pc);
        let loops = loops.collect();
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
        let function = |&start: &usize| Function { name: format!("f{start}").into(), start, signature: None };
        let functions = starts.iter().map(function).collect();
        let (object, name, section) = ("stack.bpf.o".into(), "main".into(), "test".into());
        let program = Program { object, name, section, functions, lines: Vec::new(), stack_size: 512, insns, bindings };
        Rig { program, loops }
    }

    /// The interpreter alone, with memory as for code of this kind.
    pub(crate) fn reference(&self, mode: Mode) -> Machine {
        self.machine_with(Mode::None, mode.is_trusted())
    }

    pub(crate) fn machine(&self, mode: Mode) -> Machine {
        self.machine_with(mode, mode.is_trusted())
    }

    /// What the verifier says of the program's code, functions and loops.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn verify(&self, options: Options) -> Verdict {
        verify::image_with(&self.image(false).1, options)
    }

    fn image(&self, trusted: bool) -> (Arc<Arena>, Arc<Image>) {
        let arena = match trusted {
            // SAFETY: the programs of this test access no memory but their stack, and call the functions above.
            true => unsafe { Arena::trusted(1 << 26) },
            false => Arena::new(1 << 26),
        };
        let arena = arena.unwrap();
        let policy = Policy { groups: Groups::ALL, ..Policy::default() };
        let program = self.program.clone().validate(&policy, &|_| true).unwrap_or_else(|error| panic!("{error:#}"));
        let (externs, helper) = (hosts(), |_| None);
        let resolve = Resolve { maps: &[], values: &[], externs: &externs, helper: &helper, labels: &[], pointed: &[] };
        let image = Arc::new(Image::new(&arena, vec![program], resolve).unwrap());
        (arena, image)
    }

    fn machine_with(&self, mode: Mode, trusted: bool) -> Machine {
        let (arena, image) = self.image(trusted);
        let maps = Arc::new(Maps::new(&[], &arena, 1, &mut |_| None).unwrap());
        let view = match trusted {
            true => View::trusted(Arc::clone(&arena), arena.new_owner()),
            false => View::new(Arc::clone(&arena), arena.new_owner(), Bounds::Exact),
        };
        let runtime = Runtime::new(view, maps, Box::new(std::io::sink()), Box::new(()));
        let fuel = matches!(mode, Mode::All(options) | Mode::Loops(options) if options.fuel);
        let limits = Limits { max_insns: fuel.then_some(1 << 40), ..Limits::default() };
        let mut machine = Machine::new(Arc::clone(&image), runtime, limits).unwrap();
        machine.set_driver(Driver::Threaded);
        let native: Option<Arc<dyn Native>> = match mode {
            Mode::None => None,
            Mode::All(options) => {
                let code = Code::new(image, options).unwrap();
                code.compile_all().unwrap_or_else(|error| panic!("{error}"));
                Some(Arc::new(code))
            }
            Mode::Loops(options) => {
                let code = Code::new(image, options).unwrap();
                for pc in &self.loops {
                    code.compile_loop(*pc as u32).unwrap_or_else(|error| panic!("{error}"));
                }
                Some(Arc::new(code))
            }
        };
        machine.set_native(native).unwrap();
        machine
    }
}

pub(crate) fn run(machine: &mut Machine, depth: u64) -> End {
    let result = machine.run(0, [depth, 0x9e37_79b9_7f4a_7c15, 0, 0, 0]);
    result.map_err(|trap| (trap.code(), trap.detail().to_owned()))
}
