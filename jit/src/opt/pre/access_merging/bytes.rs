//! Where the bytes of values come from: from memory, from another value, or from nowhere because they are constants.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Function, Inst, InstructionData, Opcode, Value};
use smallvec::SmallVec;

use super::super::super::ir::{acts, constant, resolve};
use super::access::Access;

/// Where one byte comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Byte {
    Const(u8),
    /// A byte of what a load gives, by the number under which it was noted.
    Loaded {
        load: u32,
        byte: u8,
    },
    /// A byte of another value.
    Of {
        value: Value,
        byte: u8,
    },
}

const ZERO: Byte = Byte::Const(0);

/// The bytes of a value, the lowest first. Those past its type mean nothing.
pub(super) type Bytes = [Byte; 8];

/// A load, and how many writes, calls and traps come before it in its block.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) access: Access,
    pub(super) epoch: u32,
}

/// Loads of bytes that are next to each other in memory.
pub(super) struct Neighbours {
    /// By their numbers, in the order of the program.
    pub(super) loads: SmallVec<[u32; 8]>,
    /// Offset of the lowest byte.
    pub(super) off: i32,
    pub(super) size: u8,
    /// The lowest byte is the last one.
    pub(super) swapped: bool,
}

/// The bytes of the values of one block, as far as it was read.
#[derive(Default)]
pub(super) struct Origins {
    /// One more than the index in `table`.
    known: SecondaryMap<Value, u32>,
    /// Values with what is known of their bytes.
    table: Vec<(Value, Bytes)>,
    /// By their numbers.
    pub(super) loads: Vec<Load>,
    epoch: u32,
}

impl Origins {
    /// Starts with nothing known.
    pub(super) fn start(&mut self) {
        // Of a function that has many blocks, each one takes as long as it has values.
        for (value, _) in self.table.drain(..) {
            self.known[value] = 0;
        }
        self.loads.clear();
        self.epoch = 0;
    }

    /// The bytes of a value.
    pub(super) fn of(&self, func: &Function, value: Value) -> Bytes {
        let value = resolve(func, value);
        match self.known[value] {
            0 => match constant(func, value) {
                Some(bits) => bits.to_le_bytes().map(Byte::Const),
                None => whole(value),
            },
            index => self.table[index as usize - 1].1,
        }
    }

    /// Reads the next instruction of the block.
    pub(super) fn read(&mut self, func: &Function, inst: Inst) {
        let opcode = func.dfg.insts[inst].opcode();
        match Access::of(func, inst) {
            Some(access) if opcode.can_load() => self.note_load(func.dfg.first_result(inst), access),
            _ if opcode == Opcode::SequencePoint => {}
            _ if acts(opcode) => self.epoch += 1,
            _ => self.note_inst(func, inst),
        }
    }

    /// The loads of these bytes, if these are next to each other and nothing may write to memory between their loads. One load
    /// alone is none.
    pub(super) fn neighbours(&self, bytes: &[Byte]) -> Option<Neighbours> {
        let mut loads = SmallVec::<[u32; 8]>::new();
        let mut offs = SmallVec::<[i32; 8]>::new();
        for byte in bytes {
            let Byte::Loaded { load, byte } = *byte else { return None };
            offs.push(self.loads[load as usize].access.off + i32::from(byte));
            loads.push(load);
        }
        loads.sort_unstable();
        loads.dedup();
        let last = bytes.len() - 1;
        let (off, swapped) = (offs[0].min(offs[last]), offs[0] > offs[last]);
        let Load { access: first, epoch } = self.loads[loads[0] as usize];
        let fits = |load: &u32| {
            let Load { access, epoch: at } = self.loads[*load as usize];
            (access.addr, access.traps, at) == (first.addr, first.traps, epoch)
                && off <= access.off
                && access.end() <= off + bytes.len() as i32
        };
        let in_order = |at: usize| offs[at] == off + if swapped { last - at } else { at } as i32;
        let all = loads.len() > 1 && loads.iter().all(fits) && (0..=last).all(in_order);
        all.then_some(Neighbours { loads, off, size: bytes.len() as u8, swapped })
    }

    fn note_load(&mut self, result: Value, access: Access) {
        let load = self.loads.len() as u32;
        self.loads.push(Load { access, epoch: self.epoch });
        let byte = |byte| if byte < access.size { Byte::Loaded { load, byte } } else { ZERO };
        self.note(result, std::array::from_fn(|at| byte(at as u8)));
    }

    /// Notes what an instruction does with bytes, if it keeps them whole.
    fn note_inst(&mut self, func: &Function, inst: Inst) {
        let bytes = match func.dfg.insts[inst] {
            InstructionData::Unary { opcode, arg } => self.unary(func, opcode, arg),
            InstructionData::Binary { opcode, args } => self.binary(func, inst, opcode, args),
            _ => None,
        };
        if let Some(bytes) = bytes {
            self.note(func.dfg.first_result(inst), bytes);
        }
    }

    fn note(&mut self, value: Value, bytes: Bytes) {
        self.table.push((value, bytes));
        self.known[value] = self.table.len() as u32;
    }

    fn unary(&self, func: &Function, opcode: Opcode, arg: Value) -> Option<Bytes> {
        let bytes = self.of(func, arg);
        let size = func.dfg.value_type(arg).bytes() as usize;
        match opcode {
            Opcode::Ireduce => Some(bytes),
            Opcode::Uextend => Some(std::array::from_fn(|at| if at < size { bytes[at] } else { ZERO })),
            Opcode::Bswap => Some(std::array::from_fn(|at| if at < size { bytes[size - 1 - at] } else { ZERO })),
            _ => None,
        }
    }

    fn binary(&self, func: &Function, inst: Inst, opcode: Opcode, [a, b]: [Value; 2]) -> Option<Bytes> {
        let result = whole(func.dfg.first_result(inst));
        let each = |choose: &dyn Fn(Byte, Byte) -> Option<Byte>| {
            let (a, b) = (self.of(func, a), self.of(func, b));
            std::array::from_fn(|at| choose(a[at], b[at]).unwrap_or(result[at]))
        };
        match opcode {
            Opcode::Bor => Some(each(&or)),
            Opcode::Band => Some(each(&|a, b| and(a, b).or_else(|| and(b, a)))),
            Opcode::Ishl | Opcode::Ushr => {
                let bits = func.dfg.value_type(a).bits();
                let by = constant(func, b)? as u32 & (bits - 1);
                let (by, size) = ((by.is_multiple_of(8)).then_some(by as usize / 8)?, bits as usize / 8);
                let from = self.of(func, a);
                Some(std::array::from_fn(|at| {
                    let source = if opcode == Opcode::Ishl { at.checked_sub(by) } else { Some(at + by) };
                    source.filter(|at| *at < size).map_or(ZERO, |at| from[at])
                }))
            }
            _ => None,
        }
    }
}

fn whole(value: Value) -> Bytes {
    std::array::from_fn(|byte| Byte::Of { value, byte: byte as u8 })
}

fn or(a: Byte, b: Byte) -> Option<Byte> {
    match (a, b) {
        (ZERO, other) | (other, ZERO) => Some(other),
        _ => None,
    }
}

fn and(a: Byte, mask: Byte) -> Option<Byte> {
    match mask {
        ZERO => Some(ZERO),
        Byte::Const(0xff) => Some(a),
        Byte::Const(_) | Byte::Loaded { .. } | Byte::Of { .. } => None,
    }
}
