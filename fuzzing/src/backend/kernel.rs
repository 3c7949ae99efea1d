//! The running kernel as an engine of the fuzzer: programs are loaded, run with `BPF_PROG_TEST_RUN`, and their maps
//! read.
//!
//! They are of type `syscall`, whose context is any memory, or, since those may not tail call, of type `xdp`. The state and the array lie in memory that is shared with
//! the kernel, so that a run is one system call. The worlds of two such engines are apart.

use std::os::fd::{AsFd, AsRawFd};
use std::{fs, io};

use twinbpf_isa::opcode::LDDW;
use twinbpf_isa::{Endian, Raw};
use twinbpf_kernel::{Error, Map, MapCreate, Prog, ProgLoad, ProgType, Shared, TestRun};
use twinbpf_vm::map::MapSpec;

use super::outcome::{End, Outcome, Ran};
use super::{Engine, Verifier};
use crate::generate::world::{
    ARRAY, ARRAY_SIZE, ARRAYS_SIZE, CONTEXT_SIZE, HASH, JUMPS, KEYS, PERCPU, SLOTS, STATE, STATE_SIZE, TAILS, maps,
};
use crate::generate::{Case, Input, Uses};

/// `BPF_F_SLEEPABLE`: programs of this type are.
const SLEEPABLE: u32 = 1 << 4;
/// Bytes of log that are read: the last line says why.
const LOG: usize = 1 << 16;
/// Bytes of a page, at least: what is shared of a map.
const PAGE: usize = 4096;

/// See the module documentation.
#[derive(Debug)]
pub struct KernelEngine {
    maps: Vec<Map>,
    state: Shared,
    array: Shared,
    /// Keys that the hash table may have.
    filled: Vec<u32>,
    /// Programs are loaded for the kernel's interpreter.
    interprets: bool,
    name: String,
}

/// Why the kernel's interpreter is not available.
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// The kernel has none, or the process may not choose it.
    #[error("{JIT} cannot be 0: the kernel has no interpreter (CONFIG_BPF_JIT_ALWAYS_ON), or you are not root")]
    Setting(#[source] io::Error),
    /// As of any engine.
    #[error(transparent)]
    Kernel(#[from] Error),
}

/// Whether programs become native code when they are loaded (`net.core.bpf_jit_enable`).
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

impl KernelEngine {
    /// Makes the maps.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<KernelEngine, Error> {
        let maps: Vec<Map> = maps()[..=PERCPU].iter().map(create).collect::<Result<_, _>>()?;
        let (state, array) = (maps[STATE].share(0, PAGE)?, maps[ARRAY].share(0, PAGE)?);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(KernelEngine {
            maps,
            state,
            array,
            filled: Vec::new(),
            interprets: false,
            name: format!("kernel({})", release.trim()),
        })
    }

    /// The same with the kernel's interpreter: while it loads programs, those of others are not compiled either.
    ///
    /// # Errors
    /// The kernel has none, or its other errors.
    pub fn interpreter() -> Result<KernelEngine, InterpreterError> {
        let before = fs::read_to_string(JIT).map_err(InterpreterError::Setting)?;
        fs::write(JIT, "0").and_then(|()| fs::write(JIT, before.trim())).map_err(InterpreterError::Setting)?;
        let engine = KernelEngine::new()?;
        Ok(KernelEngine { name: engine.name.replacen("kernel", "kernel-interp", 1), interprets: true, ..engine })
    }

    /// Slots as a kernel takes them, with descriptors for the numbers of maps.
    fn bytes(&self, slots: impl Iterator<Item = Raw>) -> Vec<u8> {
        // Any other number could be a descriptor that is there.
        let fd = |map: i32| self.maps.get(map as usize).map_or(-1, |map| map.as_fd().as_raw_fd());
        let slots = slots.map(|raw| match (raw.opcode, raw.src()) {
            (LDDW, 1 | 2) => Raw { imm: fd(raw.imm), ..raw },
            _ => raw,
        });
        slots.flat_map(|raw| raw.to_bytes(Endian::Little)).collect()
    }

    fn load(&self, slots: impl Iterator<Item = Raw>, kind: ProgType) -> Result<Prog, Error> {
        let bytes = self.bytes(slots);
        let flags = if kind == ProgType::Syscall { SLEEPABLE } else { 0 };
        Prog::load(&ProgLoad { flags, log_most: LOG, ..ProgLoad::new("case", kind, &bytes, "GPL") })
    }

    fn reset(&mut self, input: &Input, uses: Uses) -> Result<(), Error> {
        self.state.write(0, &input.state());
        if uses.array {
            self.array.write(0, &[0; ARRAY_SIZE]);
        }
        if uses.hash {
            for key in std::mem::replace(&mut self.filled, (0..KEYS).collect()) {
                self.maps[HASH].delete(&key.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    /// Has tail calls lead to the programs of a case.
    fn link(&self, programs: &[Prog]) -> Result<(), Error> {
        let tails = programs.iter().skip(1).take(TAILS).zip(0..);
        let mut all = tails.chain([(&programs[0], SLOTS - 1)]);
        all.try_for_each(|(program, slot)| self.maps[JUMPS].update_fd(slot, program.as_fd()))
    }

    fn observe(&mut self, r0: u32, context: &[u8], uses: Uses) -> Result<Outcome, Error> {
        let mut outcome = Outcome {
            end: End::Returned(r0.into()),
            narrow: true,
            state: [0; STATE_SIZE],
            context: [0; CONTEXT_SIZE],
            array: [0; ARRAYS_SIZE],
            hash: Vec::new(),
            executed: None,
            digest: None,
        };
        self.state.read(0, &mut outcome.state);
        outcome.context.copy_from_slice(context);
        if uses.array {
            self.array.read(0, &mut outcome.array[..ARRAY_SIZE]);
        }
        if uses.hash {
            let array = |bytes: Vec<u8>| bytes.try_into().expect("as large as the map says");
            for (key, value) in self.maps[HASH].entries()? {
                outcome.hash.push((u32::from_ne_bytes(key.try_into().expect("four bytes")), array(value)));
            }
            outcome.hash.sort_unstable();
            self.filled = outcome.hash.iter().map(|(key, _)| *key).collect();
        }
        Ok(outcome)
    }

    fn run_case(&mut self, case: &Case) -> Result<Vec<Option<Outcome>>, Error> {
        let (uses, insns) = (case.uses(), std::iter::once(&case.main).chain(&case.tails));
        let kind = if uses.jumps { ProgType::Xdp } else { ProgType::Syscall };
        if uses.jumps {
            // A table of its own: the kernel takes out of one that is closed, later, what for others waits for all
            // processors (`bpf_arch_poke_desc_update` in arch/x86/net/bpf_jit_comp.c).
            self.maps[JUMPS] = create(&maps()[JUMPS])?;
        }
        let programs: Vec<Prog> =
            insns.map(|insns| self.load(insns.iter().map(|insn| insn.encode()), kind)).collect::<Result<_, _>>()?;
        if uses.jumps {
            self.link(&programs)?;
        }
        self.run_inputs(case, &programs[0], uses)
    }

    fn run_inputs(&mut self, case: &Case, program: &Prog, uses: Uses) -> Result<Vec<Option<Outcome>>, Error> {
        let mut outcomes = Vec::with_capacity(case.inputs.len());
        for input in &case.inputs {
            if input.limit.is_some() {
                outcomes.push(None);
                continue;
            }
            self.reset(input, uses)?;
            let run = match uses.jumps {
                true => TestRun { data: &[0; 64], ..TestRun::default() },
                false => TestRun { ctx: &input.context, ctx_out: true, ..TestRun::default() },
            };
            let ran = program.test_run(&run)?;
            let context = if uses.jumps { &input.context[..] } else { &ran.ctx };
            outcomes.push(Some(self.observe(ran.r0, context, uses)?));
        }
        Ok(outcomes)
    }
}

impl Engine for KernelEngine {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&mut self, cases: &[Case]) -> Vec<Ran> {
        if self.interprets {
            let before = fs::read_to_string(JIT).unwrap_or_default();
            // It could be done when the engine was made.
            let _ = fs::write(JIT, "0");
            let ran = self.run_all(cases);
            let _ = fs::write(JIT, before.trim());
            return ran;
        }
        self.run_all(cases)
    }
}

impl KernelEngine {
    fn run_all(&mut self, cases: &[Case]) -> Vec<Ran> {
        cases
            .iter()
            .map(|case| self.run_case(case).map_or_else(|error| Ran::Refused(reason(error)), Ran::Ended))
            .collect()
    }
}

fn create(spec: &MapSpec) -> Result<Map, Error> {
    let create = MapCreate::new(&spec.name, spec.kind, spec.key_size, spec.value_size, spec.max_entries);
    Map::create(&MapCreate { flags: spec.flags, ..create })
}

/// What the verifier says, without what does not make another reason: registers, offsets.
fn reason(error: Error) -> String {
    let text = error.reason().map_or_else(|| error.to_string(), str::to_owned);
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

impl Verifier for KernelEngine {
    fn verify(&self, slots: &[Raw]) -> Result<(), String> {
        self.load(slots.iter().copied(), ProgType::Syscall).map(drop).map_err(reason)
    }
}
