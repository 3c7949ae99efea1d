//! Generated code inside a machine against the interpreter: calls in both directions, traps and their words, limits,
//! panics.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

mod bpf_loop;
mod budgets;
mod calls;
mod first_tier;
mod for_each;
mod forwarding;
mod frame_words;
mod inlining;
mod inner_maps;
mod intrinsics;
mod iter_num;
mod merged;
mod small_indexes;
mod traps;
mod unrolling;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use twinbpf_isa::program::{Binding, Program};
use twinbpf_isa::{Groups, Policy};
use twinbpf_vm::host::native::{Native, Site};
use twinbpf_vm::host::{Caller, HostFn, Reason, Runtime};
use twinbpf_vm::ident::ImageId;
use twinbpf_vm::image::{Image, Resolve, Target};
use twinbpf_vm::interp::{Limits, Machine};
use twinbpf_vm::map::{MapFlags, MapKind, MapSpec, Maps, Slot};
use twinbpf_vm::mem::{Arena, Block, Bounds, RegionKind, RegionSpec, View};
use twinbpf_vm::trap::{Trap, TrapCode};

use super::rig::program;
use crate::{Code, CompileLimits, Memory, OptLevel, Options, PassSet};

/// Which code a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    Interpreter,
    /// All programs.
    Compiled(Options),
    /// One program, the others are interpreted.
    Program(usize, Options),
    /// What the interpreter finds hot, at once.
    Hot(Options),
    /// All programs for the first tier, and each loop that is reported as hot for good.
    FirstTier(Options),
}

/// Compiles each loop and program that is reported as hot.
#[derive(Debug)]
struct Hot {
    code: Code,
    asked: AtomicU32,
}

// SAFETY: passes on what its code says.
unsafe impl Native for Hot {
    fn image_id(&self) -> ImageId {
        self.code.image_id()
    }

    fn entry(&self, function: u32) -> Option<u64> {
        self.code.entry(function)
    }

    fn loop_entry(&self, pc: u32) -> Option<u64> {
        self.code.loop_entry(pc)
    }

    fn site(&self, address: u64) -> Option<Site> {
        self.code.site(address)
    }

    fn is_final(&self, function: u32) -> bool {
        self.code.is_final(function)
    }

    fn want_loop(&self, pc: u32) -> bool {
        self.report_hot(pc);
        true
    }

    fn report_hot(&self, pc: u32) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.code.image().functions().iter().any(|function| function.start == pc) {
            true => self.code.compile_program(0).unwrap(),
            false => self.code.compile_loop(pc).unwrap(),
        }
    }

    fn functions(&self) -> *const u64 {
        self.code.functions()
    }

    fn reads_rest(&self, function: u32) -> bool {
        self.code.reads_rest(function)
    }

    fn counts(&self) -> bool {
        self.code.counts()
    }

    fn keeps_registers(&self) -> bool {
        self.code.keeps_registers()
    }
}

pub(super) const OPTIONS: Options = Options {
    memory: Memory::Sandbox,
    fuel: false,
    keep_registers: false,
    opt: OptLevel::Speed,
    verify: true,
    limits: CompileLimits::NONE,
    passes: PassSet::ALL,
};
/// CPUs that maps have values for.
const CPUS: u32 = 3;
const FUEL: Options = Options { fuel: true, ..OPTIONS };
const KEEP: Options = Options { keep_registers: true, ..OPTIONS };

/// Programs, 4,096 bytes of memory whose address is their first argument, host functions, a map of programs.
pub(super) struct Rig {
    pub(super) image: Arc<Image>,
    maps: Arc<Maps>,
    memory: Block,
    limits: Limits,
    /// Of the interpreter.
    bounds: Bounds,
    /// The third argument.
    third: u64,
}

/// `call extern(n)` calls the n-th of these.
fn hosts() -> Vec<Target> {
    fn host<P>(name: &str, function: impl twinbpf_vm::host::IntoHostFn<u32, P>) -> Target {
        Target::Host(HostFn::typed::<u32, _>(name, function))
    }
    let iter = ["new", "next", "destroy"].map(|step| format!("bpf_iter_num_{step}"));
    let iter = iter.map(|name| Target::Host(twinbpf_vm::helper::by_name(&name).unwrap()));
    let own = [
        host("add", |a: u64, b: u64| a.wrapping_add(b)),
        host("call_back", |mut caller: Caller<'_, u32>, function: u64, argument: u64| {
            caller.activation().call(function, [argument, 2, 3, 4, 5])
        }),
        host("end", |how: u32| match how {
            0 => Err(Trap::new(TrapCode::Host, "as asked")),
            1 => Err(Trap::exit(3)),
            2 => panic!("as asked: {how}"),
            _ => Ok(how),
        }),
        host("interrupt", |mut caller: Caller<'_, u32>| caller.runtime().interrupt().raise(Reason::Cancelled)),
        Target::Unresolved("missing is weak and nothing defines it".into()),
        host("many", |a: u8, b: i16, c: u32, d: i64, e: f32| {
            u64::from(a) + (i64::from(b) + d) as u64 + u64::from(c) + e as u64
        }),
        host("is_below_test", || {
            u32::from(std::backtrace::Backtrace::force_capture().to_string().contains("backtraces_go_through"))
        }),
    ];
    let attempt = host("attempt", |mut caller: Caller<'_, u32>, function: u64| {
        caller.activation().call(function, [1, 2, 3, 4, 5]).unwrap_or(77)
    });
    own.into_iter().chain(iter).chain([attempt]).collect()
}

/// An array that may be an inner map beside others of other sizes.
fn inner_array(name: &str, entries: u32) -> MapSpec {
    MapSpec { flags: MapFlags::INNER_MAP.bits(), ..MapSpec::new(name, MapKind::Array, 4, 24, entries) }
}

/// A map of 4 maps like a template, of which the first are given by index.
fn outer(kind: MapKind, template: MapSpec, inner: &[usize]) -> MapSpec {
    let slots = (0..).zip(inner.iter().copied().map(Slot::Map)).collect();
    MapSpec { inner: Some(Box::new(template)), slots, ..MapSpec::new("outer", kind, 4, 4, 4) }
}

impl Rig {
    pub(super) fn new(text: &str) -> Rig {
        Rig::with(&[text])
    }

    pub(super) fn with(texts: &[&str]) -> Rig {
        Rig::of(texts.iter().map(|text| program(text)).collect())
    }

    /// `r2 = map_fd(0) ll` is the map of programs, each at its index, of 4 entries; 1 an array of 5 values of 24 bytes, 2 the same
    /// per CPU, of which the machine is the last, 3 a hash of as many, 4 a queue, 5 a bloom filter. 6 and 7 are arrays of 5 and 9 such
    /// values that may be inner maps: of 8, an array of 4 slots, the last two empty, and of 9, a hash. 10 and 11 are arrays with 3 and
    /// 2 in their first slot.
    fn of(programs: Vec<Program>) -> Rig {
        Rig::over(Arena::new(1 << 26).unwrap(), programs)
    }

    fn over(arena: Arc<Arena>, programs: Vec<Program>) -> Rig {
        let memory = arena.alloc(RegionSpec::new("memory", RegionKind::Host, 4096)).unwrap();
        let specs = [
            MapSpec::new("programs", MapKind::ProgArray, 4, 4, 8),
            MapSpec::new("array", MapKind::Array, 4, 24, 5),
            MapSpec::new("percpu", MapKind::PercpuArray, 4, 24, 5),
            MapSpec::new("hash", MapKind::Hash, 4, 24, 5),
            MapSpec::new("queue", MapKind::Queue, 0, 24, 5),
            MapSpec::new("bloom", MapKind::BloomFilter, 0, 24, 5),
            inner_array("short", 5),
            inner_array("long", 9),
            outer(MapKind::ArrayOfMaps, inner_array("template", 5), &[6, 7]),
            outer(MapKind::HashOfMaps, inner_array("template", 5), &[6, 7]),
            outer(MapKind::ArrayOfMaps, MapSpec::new("template", MapKind::Hash, 4, 24, 5), &[3]),
            outer(MapKind::ArrayOfMaps, MapSpec::new("template", MapKind::PercpuArray, 4, 24, 5), &[2]),
        ];
        let maps = Arc::new(Maps::new(&specs, &arena, CPUS, &mut |_| None).unwrap());
        let policy = Policy { groups: Groups::ALL, ..Policy::default() };
        let programs: Vec<_> = programs
            .into_iter()
            .map(|mut program| {
                for (pc, insn) in program.insns.iter_mut().enumerate() {
                    if let twinbpf_isa::Insn::LoadImm { kind: 1, imm, .. } = insn {
                        program.bindings.insert(pc, Binding::Map(std::mem::take(imm) as usize));
                    }
                }
                program.validate(&policy, &|_| true).unwrap_or_else(|error| panic!("{error:#}"))
            })
            .collect();
        for index in (0..4).filter(|index| *index != 3) {
            maps.own()[0].set_program(index, index).unwrap();
        }
        let helper = |number: u32| twinbpf_vm::helper::resolve(number as i32);
        let handles: Vec<u64> = (0..specs.len()).map(|index| maps.handle(index)).collect();
        let values = [0; 5];
        let resolve =
            Resolve { maps: &handles, values: &values, externs: &hosts(), helper: &helper, labels: &[], pointed: &[] };
        let image = Arc::new(Image::new(&arena, programs, resolve).unwrap().with_maps(&maps));
        Rig { image, maps, memory, limits: Limits::default(), bounds: Bounds::Exact, third: 0 }
    }

    pub(super) fn machine(&self, backend: Backend) -> Machine {
        let arena = self.image.arena();
        let view = match arena.is_trusted() {
            true => View::trusted(Arc::clone(arena), arena.new_owner()),
            false => View::new(Arc::clone(arena), arena.new_owner(), self.bounds),
        };
        let runtime = Runtime::new(view, Arc::clone(&self.maps) as _, Box::new(std::io::sink()), Box::new(0u32));
        let runtime = runtime.on_cpu(CPUS - 1);
        let mut machine = Machine::new(Arc::clone(&self.image), runtime, self.limits).unwrap();
        let code = |options| Code::new(Arc::clone(&self.image), options).unwrap();
        let native: Option<Arc<dyn Native>> = match backend {
            Backend::Interpreter => None,
            Backend::Compiled(options) => {
                let code = code(options);
                code.compile_all().unwrap();
                Some(Arc::new(code))
            }
            Backend::Program(program, options) => {
                let code = code(options);
                code.compile_program(program).unwrap();
                Some(Arc::new(code))
            }
            Backend::FirstTier(options) => {
                let code = code(options);
                (0..self.image.programs().len()).for_each(|program| code.compile_first_tier(program).unwrap());
                Some(Arc::new(Hot { code, asked: AtomicU32::new(0) }))
            }
            Backend::Hot(options) => Some(Arc::new(Hot { code: code(options), asked: AtomicU32::new(0) })),
        };
        machine.set_native(native).unwrap();
        machine
    }

    /// Each map but the first has 10 + i under i for i < 4.
    fn fill_maps(&self) {
        for map in self.maps.own()[1..].iter().filter(|map| map.spec().inner.is_none()) {
            let mut value = [0; 24];
            while map.pop(&mut value).is_ok() {}
            for key in map.keys() {
                // Arrays keep their elements.
                let _ = map.delete(&key);
            }
            for index in 0..4_u8 {
                value[0] = 10 + index;
                let key = if map.spec().key_size == 0 { &[][..] } else { &[index, 0, 0, 0] };
                map.update(key, &value, 0, CPUS - 1).unwrap();
            }
        }
    }

    /// The result of program 0 called with the memory and `argument`, as text. Twice, since a machine can be used
    /// again whatever happened.
    fn run(&self, backend: Backend, argument: u64) -> String {
        self.run_on(&mut self.machine(backend), argument)
    }

    fn run_on(&self, machine: &mut Machine, argument: u64) -> String {
        let mut once = || {
            self.memory.fill(0, 4096, 0);
            self.fill_maps();
            machine.runtime().interrupt().clear(&[Reason::Cancelled]);
            let result = machine.run(0, [self.memory.addr(), argument, self.third, 0, 0]);
            let executed = if self.limits.max_insns.is_some() { machine.insns_executed() } else { 0 };
            let memory: u64 = self.memory.to_vec(0, 4096).iter().map(|byte| u64::from(*byte)).sum();
            match result {
                Ok(r0) => format!("{r0:#x}, memory {memory}, {executed} insns"),
                Err(trap) => format!("{trap:#}\nmemory {memory}"),
            }
        };
        let first = once();
        assert_eq!(once(), first);
        first
    }

    /// Runs all backends, which must agree; returns the text.
    #[track_caller]
    fn agree(&self, argument: u64) -> String {
        let expected = self.run(Backend::Interpreter, argument);
        let strict = Options { memory: Memory::Strict, ..OPTIONS };
        let none = Options { opt: OptLevel::None, ..OPTIONS };
        let all = [OPTIONS, FUEL, KEEP, strict, none].map(Backend::Compiled);
        let last = self.image.programs().len() - 1;
        let some = [
            Backend::Program(0, OPTIONS),
            Backend::Program(last, OPTIONS),
            Backend::Program(last, FUEL),
            Backend::Hot(OPTIONS),
            Backend::FirstTier(OPTIONS),
            Backend::FirstTier(FUEL),
            Backend::FirstTier(KEEP),
        ];
        for backend in all.into_iter().chain(some) {
            assert_eq!(self.run(backend, argument), expected, "{backend:?}");
        }
        expected
    }
}
