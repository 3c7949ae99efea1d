//! A program around one instruction in which nothing but the instruction's fields decides.
//!
//! Every register holds an unknown number, and the base of an access such an address that base and offset meet in the
//! middle of a map's value. Jumps land on either side among instructions that lead to an exit, and each of these is
//! reachable without the jump, because the kernel refuses what is not.

use std::collections::{BTreeMap, BTreeSet};

use twinbpf_isa::program::{Binding, Function, Program};
use twinbpf_isa::{Endian, Insn, Policy, Raw, encode_all};

const REGS: [u8; 8] = [0, 1, 2, 6, 9, 10, 11, 15];
const OFFS: [i16; 18] = [0, 1, 2, 3, 7, 8, 16, 24, 32, 64, -1, -2, -8, -16, 127, -128, i16::MAX, i16::MIN];
const IMMS: [i32; 38] = [
    0,
    1,
    2,
    5,
    8,
    15,
    16,
    24,
    31,
    32,
    33,
    48,
    63,
    64,
    65,
    128,
    0x40,
    0x41,
    0x50,
    0x51,
    0x81,
    0xa0,
    0xa1,
    0xe0,
    0xe1,
    0xf0,
    0xf1,
    0x100,
    0x101,
    0x110,
    0x111,
    1 << 16,
    -1,
    -2,
    -8,
    0x1234_5678,
    i32::MAX,
    i32::MIN,
];
/// What the other fields hold while one goes through its values: (src, off, imm).
const BASES: [(u8, i16, i32); 9] = [
    (0, 0, 0),
    (3, 0, 0),
    (0, 0, 16),
    (0, 1, 1),
    (3, 1, 0),
    (3, 8, 0),
    (3, 0, 0xe1),
    (3, 0, 0x100),
    (1, 0, PADS as i32),
];

/// Instructions on either side that jumps may reach.
const PADS: usize = 20;
/// Bytes of the map's value, and the place in it where accesses go.
pub(crate) const VALUE: usize = 80_000;
const MIDDLE: i32 = 40_000;

/// Mode of class STX, and the one operation of it that loads.
const ATOMIC: u8 = 0xc0;
const LOAD_ACQUIRE: i32 = 0x100;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;
const MOV64: u8 = 0xbf;
const SET64: u8 = 0xb7;
const ADD64: u8 = 0x07;
const LOAD64: u8 = 0x79;
const JEQ: u8 = 0x15;
pub(crate) const LDDW: u8 = 0x18;
/// `BPF_PSEUDO_BTF_ID`, the source of an `lddw` of a kernel's variable or function.
pub(crate) const TYPE_ID: u8 = 3;
/// The one helper that probes call: it takes no arguments.
pub(crate) const HELPER: i32 = 5;

/// An instruction, and what follows it where it has two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Probe {
    pub(crate) opcode: u8,
    pub(crate) dst: u8,
    pub(crate) src: u8,
    pub(crate) off: i16,
    pub(crate) imm: i32,
    /// Opcode, registers, offset and immediate of the second slot.
    pub(crate) second: Option<(u8, u8, i16, i32)>,
}

/// Every opcode, each field at each of its edges.
pub(crate) fn probes() -> impl Iterator<Item = Probe> {
    (0..=u8::MAX).flat_map(of_opcode)
}

fn of_opcode(opcode: u8) -> BTreeSet<Probe> {
    let mut found = BTreeSet::new();
    let second = (opcode == LDDW).then_some((0, 0, 0, 0));
    for (src, off, imm) in BASES {
        // Jumps, calls and packet loads use no destination, or any.
        let dst = if matches!(opcode & 7, 0 | 5 | 6) && opcode != LDDW { 0 } else { 2 };
        let base = Probe { opcode, dst, src, off, imm, second };
        found.extend(REGS.map(|dst| Probe { dst, ..base }));
        found.extend(REGS.map(|src| Probe { src, ..base }));
        found.extend((3..=7).map(|src| Probe { src, ..base }));
        found.extend(OFFS.map(|off| Probe { off, ..base }));
        found.extend(IMMS.map(|imm| Probe { imm, ..base }));
    }
    if second.is_some() {
        let plain = Probe { opcode, dst: 2, src: 0, off: 0, imm: 1, second };
        found.extend([0, 1, 0x18, 0x95, 0xb7].map(|code| Probe { second: Some((code, 0, 0, 0)), ..plain }));
        found.extend([1, 0x10, 0xaa].map(|regs| Probe { second: Some((0, regs, 0, 0)), ..plain }));
        found.extend(OFFS.map(|off| Probe { second: Some((0, 0, off, 0)), ..plain }));
        found.extend(IMMS.map(|imm| Probe { second: Some((0, 0, 0, imm)), ..plain }));
        found.insert(Probe { second: None, ..plain });
    }
    if opcode == CALL {
        // Which helpers there are, and what they take, is not a matter of fields.
        found.retain(|probe| probe.src != 0 || probe.imm == HELPER || !(1..1 << 17).contains(&probe.imm));
        found.extend(REGS.map(|dst| Probe { opcode, dst, src: 0, off: 0, imm: HELPER, second }));
        found.extend(OFFS.map(|off| Probe { opcode, dst: 0, src: 0, off, imm: HELPER, second }));
    }
    found
}

/// A probe with what is around it.
pub(crate) struct Whole {
    slots: Vec<Raw>,
    bindings: BTreeMap<usize, Binding>,
    /// Where the instruction is.
    pub(crate) at: usize,
    functions: BTreeSet<usize>,
}

impl Probe {
    fn class(&self) -> u8 {
        self.opcode & 7
    }

    /// The register that an access is relative to.
    pub(crate) fn base(&self) -> Option<u8> {
        match self.class() {
            1 => Some(self.src),
            3 if self.opcode & 0xe0 == ATOMIC && self.imm == LOAD_ACQUIRE => Some(self.src),
            2 | 3 => Some(self.dst),
            _ => None,
        }
    }

    fn is_packet(&self) -> bool {
        self.class() == 0 && matches!(self.opcode & 0xe0, 0x20 | 0x40)
    }

    fn slots(&self, map: i32) -> Vec<Raw> {
        // The number of a map is given where one is wanted.
        let imm = if self.opcode == LDDW && matches!(self.src, 1 | 2) { map } else { self.imm };
        let first = Raw { opcode: self.opcode, regs: self.src << 4 | self.dst, off: self.off, imm };
        let second = self.second.map(|(opcode, regs, off, imm)| Raw { opcode, regs, off, imm });
        [Some(first), second].into_iter().flatten().collect()
    }

    /// The whole program, for a map with this descriptor.
    pub(crate) fn program(&self, map: i32) -> Whole {
        let mut bindings = BTreeMap::new();
        let mut head = Vec::new();
        let mut address = |head: &mut Vec<Raw>, dst: u8| {
            bindings.insert(head.len(), Binding::MapValue { map: 0, off: 0 });
            head.push(Raw { opcode: LDDW, regs: 2 << 4 | dst, off: 0, imm: map });
            head.push(Raw::default());
        };
        let base = self.base().filter(|base| *base < 10);
        if self.is_packet() {
            head.push(slot(MOV64, 0x16, 0, 0));
        }
        address(&mut head, 1);
        let loads = (0..10).filter(|reg| *reg != 1 && !(*reg == 6 && self.is_packet())).chain([1]);
        head.extend(loads.map(|reg| slot(LOAD64, 1 << 4 | reg, 8, 0)));
        if let Some(base) = base {
            address(&mut head, base);
            head.push(slot(ADD64, base, 0, MIDDLE - i32::from(self.off)));
        }
        let test = if base == Some(0) { 9 } else { 0 };
        let own = self.slots(map);
        let (back, ahead) = (PADS, PADS + own.len());
        head.push(slot(JEQ, test, back as i16 + 1, 1));
        head.push(slot(JEQ, test, ahead as i16, 2));
        let mut pads = vec![slot(SET64, 0, 0, 0); PADS - 1];
        pads.push(slot(EXIT, 0, 0, 0));
        let at = head.len() + PADS;
        if self.opcode == LDDW {
            match self.src {
                1 => drop(bindings.insert(at, Binding::Map(0))),
                2 => drop(bindings.insert(at, Binding::MapValue { map: 0, off: 0 })),
                _ => {}
            }
        }
        let calls = self.opcode == CALL && self.src == 1;
        let function = if calls { vec![slot(SET64, 0, 0, 0), slot(EXIT, 0, 0, 0)] } else { Vec::new() };
        let slots = [head, pads.clone(), own, pads, function].concat();
        let called = usize::try_from(at as i64 + 1 + i64::from(self.imm)).ok();
        let called = called.filter(|target| calls && *target < slots.len());
        Whole { slots, bindings, at, functions: called.into_iter().chain([0]).collect() }
    }
}

fn slot(opcode: u8, regs: u8, off: i16, imm: i32) -> Raw {
    Raw { opcode, regs, off, imm }
}

impl Whole {
    /// For the kernel.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.slots.iter().flat_map(|slot| slot.to_bytes(Endian::Little)).collect()
    }

    /// Whether a jump may go there, as far as its fields decide.
    pub(crate) fn has_target(&self, target: i64) -> bool {
        let slot = usize::try_from(target).ok().and_then(|target| self.slots.get(target));
        slot.is_some_and(|slot| slot.opcode != 0)
    }

    /// Whether a function that does not lose its last instruction starts there.
    pub(crate) fn has_function(&self, target: i64) -> bool {
        target == self.slots.len() as i64 - 2
    }

    /// Whether decoding and validation accept it.
    pub(crate) fn validates(&self, policy: &Policy) -> bool {
        let decoded: Result<Vec<Insn>, _> = self.slots.iter().map(|slot| Insn::decode(*slot)).collect();
        let Ok(insns) = decoded else { return false };
        assert_eq!(encode_all(&insns, Endian::Little), self.bytes());
        let function = |start: &usize| Function { name: format!("f{start}").into(), start: *start, signature: None };
        let program = Program {
            object: "probe".into(),
            name: "probe".into(),
            section: "socket".into(),
            insns,
            bindings: self.bindings.clone(),
            functions: self.functions.iter().map(function).collect(),
            lines: Vec::new(),
            stack_size: 512,
        };
        program.validate(policy, &|id| id == HELPER).is_ok()
    }
}
