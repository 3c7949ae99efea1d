//! What the programs of a case find, and what they leave there, in an engine of this process.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use twinbpf_isa::program::Program;
use twinbpf_isa::validate::Valid;
use twinbpf_vm::helper;
use twinbpf_vm::host::Runtime;
use twinbpf_vm::image::{Image, Resolve, Target};
use twinbpf_vm::interp::{Limits, Machine};
use twinbpf_vm::map::Maps;
use twinbpf_vm::mem::{Arena, Block, Bounds, MemError, RegionKind, RegionSpec, View};

use super::outcome::{End, Outcome};
use crate::generate::world::{
    ARRAY, ARRAY_LEN, ARRAY_SIZE, ARRAYS_SIZE, CONTEXT_SIZE, CPU, CPUS, EXTERNS, HASH, HASHES, INNER, INNER_LEN, JUMPS,
    MAPS, OUTER, OUTER_LEN, PERCPU, SLOTS, STATE, STATE_SIZE, TAILS, VALUE, maps,
};
use crate::generate::{Case, Input, Uses};

/// Instructions after which a program is taken to run for ever.
pub(super) const ENOUGH: u64 = 1 << 16;
/// Memory that a world may have.
const ARENA: u64 = 1 << 24;
/// Limits of machines.
pub(super) const LIMITS: Limits = Limits { max_insns: Some(ENOUGH), max_depth: 16, stack_bytes: 16 * 512 };

/// Memory, maps and context of an engine.
#[derive(Debug)]
pub(crate) struct World {
    arena: Arc<Arena>,
    maps: Arc<Maps>,
    pub(super) context: Block,
    _front: Option<Block>,
}

impl World {
    pub(super) fn new(trusted: bool) -> Result<World, MemError> {
        World::after_block(0, trusted)
    }

    /// A world with so many bytes before it.
    #[expect(unsafe_code, reason = "compares trusted code")]
    pub(crate) fn after_block(front: u32, trusted: bool) -> Result<World, MemError> {
        let arena = match trusted {
            // SAFETY: `Vm::run` gives trusted modes only cases that stay inside their memory.
            true => unsafe { Arena::trusted(ARENA) }?,
            false => Arena::new(ARENA)?,
        };
        let spec = RegionSpec::new("something else", RegionKind::Host, front);
        let front = (front > 0).then(|| arena.alloc(spec)).transpose()?;
        let maps = Maps::new(&maps(), &arena, CPUS, &mut |_| None).expect("maps that every machine can have");
        let spec = RegionSpec::new("the context", RegionKind::Context, CONTEXT_SIZE as u32);
        let context = arena.alloc(spec)?;
        Ok(World { arena, maps: Arc::new(maps), context, _front: front })
    }

    pub(crate) fn image(&self, programs: Vec<Valid<Program>>, labels: &[(usize, usize)]) -> Result<Arc<Image>, String> {
        let handles: Vec<u64> = (0..MAPS).map(|index| self.maps.handle(index)).collect();
        let values: Vec<u64> = (0..MAPS).map(|index| self.maps.addr_of_value(index).unwrap_or(0)).collect();
        let helper = |id: u32| i32::try_from(id).ok().and_then(helper::resolve);
        let externs = EXTERNS.map(|name| Target::Host(helper::by_name(name).expect("a function of every machine")));
        let resolve =
            Resolve { maps: &handles, values: &values, externs: &externs, helper: &helper, labels, pointed: &[] };
        let image = Image::new(&self.arena, programs, resolve).map_err(|error| error.to_string())?;
        Ok(Arc::new(image.with_maps(&self.maps)))
    }

    pub(crate) fn machine(&self, image: &Arc<Image>) -> Result<Machine, MemError> {
        let (arena, owner) = (Arc::clone(&self.arena), self.arena.new_owner());
        let view = match arena.is_trusted() {
            true => View::trusted(arena, owner),
            false => View::new(arena, owner, Bounds::Exact),
        };
        let mut runtime =
            Runtime::new(view, Arc::clone(&self.maps) as _, Box::new(io::sink()), Box::new(())).on_cpu(CPU);
        runtime.trace = Box::new(io::sink());
        // No other thread runs here that could unlock one.
        runtime.lock_wait = Duration::ZERO;
        Machine::new(Arc::clone(image), runtime, LIMITS)
    }

    pub(super) fn block(&self, map: usize) -> &Block {
        self.maps.own()[map].memory().expect("an array")
    }

    /// Makes the world as new, with an input.
    pub(super) fn reset(&self, input: &Input, uses: Uses) {
        self.block(STATE).write(0, &input.state());
        self.context.write(0, &input.context);
        if uses.array {
            self.block(ARRAY).fill(0, ARRAY_SIZE, 0);
        }
        for (map, cpu, key) in World::values(uses) {
            self.maps.own()[map].update(&key, &[0; VALUE], 0, cpu).expect("an entry of an array");
        }
        if uses.hash {
            let hash = &self.maps.own()[HASH];
            for key in hash.keys() {
                hash.delete(&key).expect("the key was listed");
            }
        }
        if uses.outer {
            self.exchange(&input.memory);
        }
    }

    /// Gives maps of maps other inner maps, or none.
    fn exchange(&self, choices: &[u8]) {
        let own = self.maps.own();
        for (key, choice) in (0..OUTER_LEN).zip(choices) {
            let key = key.to_le_bytes();
            let put = |outer: usize, inner: Option<&usize>| match inner {
                Some(inner) => self.maps.set_inner(&*own[outer], &key, &own[*inner]).expect("it is as the template"),
                // What is not there need not be deleted.
                None => drop(own[outer].delete(&key)),
            };
            put(OUTER, INNER.get(usize::from(*choice) % (INNER.len() + 1)));
            put(HASHES, Some(&HASH).filter(|_| *choice >= 64));
        }
    }

    /// The values of the per-CPU array and of inner arrays, as far as they are used: map, CPU and key.
    fn values(uses: Uses) -> impl Iterator<Item = (usize, u32, [u8; 4])> {
        let array = |map, cpu, len| (0..len).map(move |key: u32| (map, cpu, key.to_le_bytes()));
        let per_cpu = (0..if uses.percpu { CPUS } else { 0 }).flat_map(move |cpu| array(PERCPU, cpu, ARRAY_LEN));
        let inner = INNER.into_iter().zip(INNER_LEN).filter(move |_| uses.outer);
        per_cpu.chain(inner.flat_map(move |(map, len)| array(map, 0, len)))
    }

    /// Has tail calls lead to the programs of a case, of which the first has this index in the image.
    pub(super) fn link(&self, case: &Case, first: usize) {
        let jumps = &self.maps.own()[JUMPS];
        for slot in 0..SLOTS {
            // What is not there need not be deleted.
            let _ = jumps.delete(&slot.to_le_bytes());
        }
        let tails = (0..case.tails.len().min(TAILS)).map(|slot| (slot as u32, first + 1 + slot));
        for (slot, program) in tails.chain([(SLOTS - 1, first)]) {
            jumps.set_program(slot, program as u32).expect("a slot that exists");
        }
    }

    pub(super) fn observe(&self, end: End, executed: Option<u64>, uses: Uses) -> Outcome {
        let mut outcome = Outcome {
            end,
            narrow: false,
            state: [0; STATE_SIZE],
            context: [0; CONTEXT_SIZE],
            array: [0; ARRAYS_SIZE],
            hash: Vec::new(),
            executed,
            digest: None,
        };
        self.block(STATE).read(0, &mut outcome.state);
        self.context.read(0, &mut outcome.context);
        if uses.array {
            self.block(ARRAY).read(0, &mut outcome.array[..ARRAY_SIZE]);
        }
        let values = outcome.array[ARRAY_SIZE..].chunks_exact_mut(VALUE);
        for ((map, cpu, key), value) in World::values(uses).zip(values) {
            self.maps.own()[map].lookup_copy(&key, cpu, value).expect("an entry of an array");
        }
        if uses.hash {
            let hash = &self.maps.own()[HASH];
            for key in hash.keys() {
                let mut value = [0; VALUE];
                hash.lookup_copy(&key, 0, &mut value).expect("the key was listed");
                outcome.hash.push((u32::from_le_bytes(key.try_into().expect("four bytes")), value));
            }
            outcome.hash.sort_unstable();
        }
        outcome
    }
}
