//! The running kernel as an engine of the fuzzer: programs are loaded, run with `BPF_PROG_TEST_RUN`, and their maps
//! read.
//!
//! They are of type `syscall`, whose context is any memory, or, since those may not tail call, of type `xdp`. The state and the array lie in memory that is shared with
//! the kernel, so that a run is one system call. The worlds of two such engines are apart.

use std::os::fd::{AsFd, AsRawFd};

use twinbpf::fuzzing::generate::world::{
    ARRAY, ARRAY_LEN, CONTEXT_SIZE, HASH, JUMPS, KEYS, SLOTS, STATE, STATE_SIZE, TAILS, VALUE, maps,
};
use twinbpf::fuzzing::generate::{Case, Input, Uses};
use twinbpf::fuzzing::{End, Engine, Outcome, Ran};
use twinbpf::isa::{Endian, Raw};
use twinbpf_kernel::{Error, Map, MapCreate, Prog, ProgLoad, ProgType, Shared, TestRun};

/// `BPF_F_SLEEPABLE`: programs of this type are.
const SLEEPABLE: u32 = 1 << 4;
/// `lddw`.
const LDDW: u8 = 0x18;
/// Bytes of a page, at least: what is shared of a map.
const PAGE: usize = 4096;

/// See the module documentation.
#[derive(Debug)]
pub struct KernelEngine {
    maps: Vec<Map>,
    state: Shared,
    array: Shared,
    name: String,
}

impl KernelEngine {
    /// Makes the maps.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<KernelEngine, Error> {
        let specs = maps();
        let made = specs.iter().map(|spec| {
            let create = MapCreate::new(&spec.name, spec.kind, spec.key_size, spec.value_size, spec.max_entries);
            Map::create(&MapCreate { flags: spec.flags, ..create })
        });
        let maps: Vec<Map> = made.collect::<Result<_, _>>()?;
        let (state, array) = (maps[STATE].share(0, PAGE)?, maps[ARRAY].share(0, PAGE)?);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(KernelEngine { maps, state, array, name: format!("kernel({})", release.trim()) })
    }

    /// Slots as a kernel takes them, with descriptors for the numbers of maps.
    fn bytes(&self, slots: impl Iterator<Item = Raw>) -> Vec<u8> {
        let fd = |map: i32| self.maps.get(map as usize).map_or(map, |map| map.as_fd().as_raw_fd());
        let slots = slots.map(|raw| match (raw.opcode, raw.src()) {
            (LDDW, 1 | 2) => Raw { imm: fd(raw.imm), ..raw },
            _ => raw,
        });
        slots.flat_map(|raw| raw.to_bytes(Endian::Little)).collect()
    }

    /// Whether the verifier takes these slots, in which maps are their numbers.
    ///
    /// # Errors
    /// Why it does not.
    pub fn accepts(&self, slots: &[Raw]) -> Result<(), Error> {
        self.load(slots.iter().copied(), ProgType::Syscall).map(|_| ())
    }

    fn load(&self, slots: impl Iterator<Item = Raw>, kind: ProgType) -> Result<Prog, Error> {
        let bytes = self.bytes(slots);
        let flags = if kind == ProgType::Syscall { SLEEPABLE } else { 0 };
        Prog::load(&ProgLoad { flags, ..ProgLoad::new("case", kind, &bytes, "GPL") })
    }

    fn reset(&mut self, input: &Input, uses: Uses) -> Result<(), Error> {
        self.state.write(0, &input.state());
        if uses.array {
            self.array.write(0, &[0; ARRAY_LEN as usize * VALUE]);
        }
        if uses.hash {
            for key in 0..KEYS {
                self.maps[HASH].delete(&key.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    /// Has tail calls lead to the programs of a case.
    fn link(&self, case: &Case, programs: &[Prog]) -> Result<(), Error> {
        let jumps = &self.maps[JUMPS];
        for slot in 0..SLOTS {
            jumps.delete(&slot.to_ne_bytes())?;
        }
        let tails = programs.iter().skip(1).take(case.tails.len().min(TAILS)).zip(0..);
        for (program, slot) in tails.chain([(&programs[0], SLOTS - 1)]) {
            jumps.update_fd(slot, program.as_fd())?;
        }
        Ok(())
    }

    fn observe(&self, r0: u32, context: &[u8], uses: Uses) -> Result<Outcome, Error> {
        let mut outcome = Outcome {
            end: End::Returned(r0.into()),
            narrow: true,
            state: [0; STATE_SIZE],
            context: [0; CONTEXT_SIZE],
            array: [0; ARRAY_LEN as usize * VALUE],
            hash: Vec::new(),
            executed: None,
            digest: None,
        };
        self.state.read(0, &mut outcome.state);
        outcome.context.copy_from_slice(context);
        if uses.array {
            self.array.read(0, &mut outcome.array);
        }
        if uses.hash {
            for key in 0..KEYS {
                let mut value = [0; VALUE];
                if self.maps[HASH].lookup_into(&key.to_ne_bytes(), &mut value, 0)? {
                    outcome.hash.push((key, value));
                }
            }
        }
        Ok(outcome)
    }

    fn run_case(&mut self, case: &Case) -> Result<Vec<Option<Outcome>>, Error> {
        let (uses, insns) = (case.uses(), std::iter::once(&case.main).chain(&case.tails));
        let kind = if uses.jumps { ProgType::Xdp } else { ProgType::Syscall };
        let programs: Vec<Prog> =
            insns.map(|insns| self.load(insns.iter().map(|insn| insn.encode()), kind)).collect::<Result<_, _>>()?;
        if uses.jumps {
            self.link(case, &programs)?;
        }
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
            let ran = programs[0].test_run(&run)?;
            let context = if uses.jumps { &input.context[..] } else { &ran.ctx };
            outcomes.push(Some(self.observe(ran.r0, context, uses)?));
        }
        if uses.jumps {
            // The table and the programs hold each other.
            (0..SLOTS).try_for_each(|slot| self.maps[JUMPS].delete(&slot.to_ne_bytes()).map(|_| ()))?;
        }
        Ok(outcomes)
    }
}

impl Engine for KernelEngine {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&mut self, cases: &[Case]) -> Vec<Ran> {
        let reason = |error: Error| {
            let text = error.reason().map_or_else(|| error.to_string(), str::to_owned);
            // Registers and offsets do not make another reason.
            text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
        };
        cases
            .iter()
            .map(|case| self.run_case(case).map_or_else(|error| Ran::Refused(reason(error)), Ran::Ended))
            .collect()
    }
}
