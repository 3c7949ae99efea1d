//! Instrumentation of programs: calls of helpers that drop data for lack of room are followed by code that counts it.
//!
//! The kernel does not count a record that does not fit into a ring buffer, an element that does not fit into a map or
//! a stack whose slot is taken: the helper returns an error, which few programs check. A counter here is a word of an
//! array map, and the code adds to it atomically, so that it needs neither stack nor a further call; the registers that
//! it uses are those that every call clobbers. Nothing but a compare is added to a call that succeeds. Where the program
//! itself compares a result with null, the code goes there (`null_check.rs`).

use std::sync::Arc;

use twinbpf_isa::opcode::{ATOMIC_DW, CALL, JEQ_IMM, JNE_IMM, JSGE_IMM, LDDW, MOV_IMM};
use twinbpf_isa::{Raw, SpliceError};
use twinbpf_vm::map::{MapFlags, MapKind, MapSpec};

use super::null_check::{NullCheck, targets};
use super::reach::Registers;
use super::{Fixup, KernelLinked};

/// Name of the map that has the counters, as the kernel shows it.
pub const COUNTERS: &str = "twinbpf_lost";

/// When a result of a helper means that data was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    /// It is a null pointer.
    Null,
    /// It is below zero.
    Negative,
    /// It is one of these, negated.
    Errors(&'static [i32]),
}

/// What a helper drops when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// A record of a ring buffer or a perf event array.
    Record,
    /// An element of a map: it is full, or busy.
    Element,
    /// A stack: another one has its slot in the map.
    Stack,
}

/// A helper that may drop data.
#[derive(Debug, PartialEq, Eq)]
pub struct Helper {
    /// Its name in the kernel.
    pub name: &'static str,
    /// What it drops.
    pub dropped: Dropped,
    number: i32,
    /// Register of the argument that is the map.
    map: usize,
    fails: Fails,
}

const E2BIG: i32 = 7;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;

const fn helper(number: i32, name: &'static str, dropped: Dropped, map: usize, fails: Fails) -> Helper {
    Helper { name, dropped, number, map, fails }
}

static HELPERS: [Helper; 9] = [
    helper(2, "bpf_map_update_elem", Dropped::Element, 1, Fails::Errors(&[E2BIG, ENOMEM, EBUSY])),
    helper(25, "bpf_perf_event_output", Dropped::Record, 2, Fails::Negative),
    helper(27, "bpf_get_stackid", Dropped::Stack, 2, Fails::Errors(&[EEXIST])),
    helper(87, "bpf_map_push_elem", Dropped::Element, 1, Fails::Errors(&[E2BIG, ENOMEM, EBUSY])),
    helper(111, "bpf_skb_output", Dropped::Record, 2, Fails::Negative),
    helper(121, "bpf_xdp_output", Dropped::Record, 2, Fails::Negative),
    helper(130, "bpf_ringbuf_output", Dropped::Record, 1, Fails::Negative),
    helper(131, "bpf_ringbuf_reserve", Dropped::Record, 1, Fails::Null),
    helper(198, "bpf_ringbuf_reserve_dynptr", Dropped::Record, 1, Fails::Negative),
];

/// What one counter counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name of the program.
    pub program: Arc<str>,
    /// The helper that failed.
    pub helper: &'static Helper,
    /// Index of the map in [`KernelLinked::maps`]; `None` where it depends on the path, or comes from a caller.
    pub map: Option<usize>,
}

/// The counters of an object: word `i` of the only element of the map has the count of counter `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Index of the map in [`KernelLinked::maps`].
    pub map: usize,
    /// What is counted.
    pub counters: Vec<Counter>,
}

/// What a helper of this name drops where it fails, if it is one that counts.
pub fn dropped_by(name: &str) -> Option<Dropped> {
    HELPERS.iter().find(|helper| helper.name == name).map(|helper| helper.dropped)
}

impl KernelLinked {
    /// Adds code that counts what helpers drop to every program, and the map of the counters as the last one. `None`: no
    /// program calls such a helper, and nothing is changed.
    ///
    /// # Errors
    /// A program is too long for a jump across the code; some programs may have been changed.
    pub fn count_dropped(&mut self) -> Result<Option<Counters>, SpliceError> {
        let index = self.maps.len();
        let mut counters: Vec<Counter> = Vec::new();
        for program in &mut self.programs {
            let registers = Registers::of(program, &self.maps);
            let calls = program.insns.iter().enumerate().filter(|(_, raw)| raw.opcode == CALL && raw.src() == 0);
            let calls = calls.filter_map(|(pc, raw)| Some((pc, HELPERS.iter().find(|row| row.number == raw.imm)?)));
            let targets = targets(&program.insns);
            // From the end, so that places before it stay.
            for (pc, helper) in calls.collect::<Vec<_>>().into_iter().rev() {
                let map = registers.map(pc, helper.map);
                let counter = Counter { program: Arc::clone(&program.name), helper, map };
                let slot = counters.iter().position(|other| *other == counter).unwrap_or_else(|| {
                    counters.push(counter);
                    counters.len() - 1
                });
                let check = match helper.fails {
                    Fails::Null => NullCheck::after(&program.insns, &targets, pc),
                    Fails::Negative | Fails::Errors(_) => None,
                };
                let Insertion { at, code, load } = Insertion::after(pc, helper.fails, check, [index, slot]);
                program.splice(at, 0, &code)?;
                program.fixups.insert(at + load, Fixup::MapValue(index));
            }
        }
        if counters.is_empty() {
            return Ok(None);
        }
        let mut spec = MapSpec::new(COUNTERS, MapKind::Array, 4, 8 * counters.len() as u32, 1);
        spec.flags = MapFlags::MMAPABLE.bits();
        Ok(Some(Counters { map: self.add_map(spec), counters }))
    }
}

/// Code that counts a failed call.
struct Insertion {
    /// Where it goes.
    at: usize,
    code: Vec<Raw>,
    /// The `lddw` in it.
    load: usize,
}

const fn raw(opcode: u8, dst: u8, off: i16, imm: i32) -> Raw {
    Raw { opcode, regs: dst, off, imm }
}

impl Insertion {
    /// For the call at `call`, to a counter of a map. `check`: the program's own of the result.
    fn after(call: usize, fails: Fails, check: Option<NullCheck>, [map, slot]: [usize; 2]) -> Insertion {
        let (at, mut code, [address, one]) = match check {
            // Across the program's own check.
            Some(NullCheck { pc, jumps_if_null: true, reg, free }) => (pc, vec![raw(JNE_IMM, reg, ADDS + 1, 0)], free),
            Some(NullCheck { pc, free, .. }) => (pc + 1, Vec::new(), free),
            None => (call + 1, condition(fails), [1, 2]),
        };
        let load = code.len();
        code.extend([
            raw(LDDW, 0x20 | address, 0, map as i32),
            raw(0x00, 0x00, 0, 8 * slot as i32),
            raw(MOV_IMM, one, 0, 1),
            // lock *(u64 *)(address + 0) += one
            raw(ATOMIC_DW, one << 4 | address, 0, 0),
        ]);
        Insertion { at, code, load }
    }
}

/// Slots of the addition.
const ADDS: i16 = 4;

/// Jumps across the addition unless the call failed.
fn condition(fails: Fails) -> Vec<Raw> {
    match fails {
        // if r0 != 0 goto the end
        Fails::Null => vec![raw(JNE_IMM, 0, ADDS, 0)],
        // if r0 s>= 0 goto the end
        Fails::Negative => vec![raw(JSGE_IMM, 0, ADDS, 0)],
        Fails::Errors(errors) => {
            let (last, first) = errors.split_last().expect("an error");
            // if r0 == -errno goto the addition
            let to_addition = |(at, errno): (usize, &i32)| raw(JEQ_IMM, 0, (first.len() - at) as i16, -errno);
            let mut code: Vec<Raw> = first.iter().enumerate().map(to_addition).collect();
            // if r0 != -errno goto the end
            code.push(raw(JNE_IMM, 0, ADDS, -last));
            code
        }
    }
}
