//! One program for the VM: its final instructions and what they refer to.

use std::collections::{BTreeMap, HashMap};

use twinbpf_isa::program::{Binding, Extern, ExternKind, Function, Program};
use twinbpf_isa::{CallKind, Endian, Insn, Raw};

use super::layout::{Layout, Planner};
use super::relocated::Functions;
use crate::error::{Cause, Error};
use crate::kconfig::Kconfig;
use crate::object::{ArenaData, Object, Reference};

/// `src` of an `lddw` of a map, of an address inside its value, of a function, of anything else.
const KIND_MAP: u8 = 1;
const KIND_MAP_VALUE: u8 = 2;
const KIND_FUNCTION: u8 = 4;
const KIND_PLAIN: u8 = 0;

/// Links programs of one object.
pub(super) struct Linker<'a> {
    planner: Planner<'a>,
    stack_size: u32,
    functions: Functions,
    kconfig: Option<&'a Kconfig>,
    arena: Option<&'a ArenaData>,
    /// Symbols that stand for what CO-RE did not find; their indices follow those of the object.
    pub(super) absent: Vec<Extern>,
    /// The first bad pointer of each data map.
    bad_maps: HashMap<usize, &'a Cause>,
}

/// What went wrong, at which instruction of the function.
type At = (Option<usize>, Cause);

impl<'a> Linker<'a> {
    pub(super) fn new(
        object: &'a Object,
        stack_size: u32,
        functions: Functions,
        kconfig: Option<&'a Kconfig>,
        arena: Option<&'a ArenaData>,
    ) -> Linker<'a> {
        let mut bad_maps = HashMap::new();
        for pointer in &object.pointers {
            if let Err(cause) = &pointer.target {
                bad_maps.entry(pointer.map).or_insert(cause);
            }
        }
        Linker { planner: Planner::new(object), stack_size, functions, kconfig, arena, absent: Vec::new(), bad_maps }
    }

    /// The program that starts with a function.
    pub(super) fn program(&mut self, root: usize) -> Result<Program, Error> {
        let entry = self.planner.spec(root);
        let layout = self.planner.layout(root)?;
        let mut program = Program {
            object: self.planner.object.name.clone(),
            name: entry.name.clone(),
            section: entry.section.clone(),
            insns: Vec::with_capacity(layout.slots),
            bindings: BTreeMap::new(),
            functions: Vec::with_capacity(layout.order.len()),
            lines: Vec::new(),
            stack_size: self.stack_size,
        };
        for index in &layout.order {
            let spec = self.planner.spec(*index);
            let done = self.append(&mut program, *index, &layout);
            done.map_err(|(pc, cause)| self.planner.error(root, spec, pc, cause))?;
        }
        Ok(program)
    }

    fn append(&mut self, program: &mut Program, index: usize, layout: &Layout) -> Result<(), At> {
        let spec = self.planner.spec(index);
        let base = program.insns.len();
        let signature = spec.signature.clone();
        program.functions.push(Function { name: spec.name.clone(), start: base, signature });
        if let Some((pc, cause)) = self.functions.get(index).and_then(|found| found.error.as_ref()) {
            return Err((Some(*pc), cause.clone()));
        }
        for (pc, raw) in self.functions.insns(index, spec).iter().enumerate() {
            let insn = decode(*raw).map_err(|cause| (Some(pc), cause))?;
            program.insns.push(insn);
        }
        self.bind_absent(program, index, base);
        for (pc, target) in &spec.refs {
            let found = target.clone().and_then(|reference| self.bind(program, base + pc, reference, layout));
            found.map_err(|cause| (Some(*pc), cause))?;
        }
        program.lines.extend(self.planner.lines(spec, base));
        Ok(())
    }

    /// What CO-RE did not find is a symbol that nothing defines: reaching it is a trap that says why.
    fn bind_absent(&mut self, program: &mut Program, index: usize, base: usize) {
        let misses = self.functions.get(index).map(|found| found.misses.as_slice()).unwrap_or_default();
        for (pc, miss) in misses {
            let symbol = self.planner.object.externs.len() + self.absent.len();
            let name = miss.why.to_string().into();
            self.absent.push(Extern { name, weak: true, kind: ExternKind::Absent, signature: None });
            // A 64-bit load has become two calls.
            for pc in base + pc..base + pc + miss.slots {
                if let Some(insn) = program.insns.get_mut(pc) {
                    *insn = Insn::Call { kind: CallKind::Extern, off: 0, imm: 0 };
                    program.bindings.insert(pc, Binding::Extern(symbol));
                }
            }
        }
    }

    /// Puts the final form of an instruction and its binding.
    fn bind(&self, program: &mut Program, pc: usize, reference: Reference, layout: &Layout) -> Result<(), Cause> {
        let Some(insn) = program.insns.get(pc).copied() else { return Err(Cause::Edited) };
        if let Insn::Call { .. } = insn {
            let (kind, imm) = match reference {
                Reference::Call(callee) => (CallKind::Local, layout.start[&callee] as i64 - pc as i64 - 1),
                Reference::Extern(index) => {
                    program.bindings.insert(pc, Binding::Extern(index));
                    (CallKind::Extern, 0)
                }
                Reference::Map(_) | Reference::MapValue { .. } | Reference::Address(_) => return Err(Cause::Edited),
            };
            // Streams are shorter than MAX_INSNS, so that distances fit.
            program.insns[pc] = Insn::Call { kind, off: 0, imm: imm as i32 };
            return Ok(());
        }
        let Insn::LoadImm { dst, .. } = insn else { return Err(Cause::Edited) };
        let Some(high @ Insn::LoadImmHi { .. }) = program.insns.get_mut(pc + 1) else { return Err(Cause::Edited) };
        *high = Insn::LoadImmHi { imm: 0 };
        let (kind, binding) = match reference {
            Reference::Map(map) => (KIND_MAP, Binding::Map(self.usable(map)?)),
            Reference::MapValue { map, off } => {
                let off = ArenaData::offset(self.arena, map, off)?;
                (KIND_MAP_VALUE, Binding::MapValue { map: self.usable(map)?, off })
            }
            Reference::Address(callee) => (KIND_FUNCTION, Binding::Function(layout.start[&callee])),
            Reference::Extern(index) => match self.kconfig.and_then(|kconfig| kconfig.offset(index)) {
                Some(off) => (KIND_MAP_VALUE, Binding::MapValue { map: self.planner.object.maps.len(), off: off? }),
                None => (KIND_PLAIN, Binding::Extern(index)),
            },
            Reference::Call(_) => return Err(Cause::Edited),
        };
        program.insns[pc] = Insn::LoadImm { dst, kind, imm: 0 };
        program.bindings.insert(pc, binding);
        Ok(())
    }

    /// A map, unless one of the pointers inside is broken.
    fn usable(&self, map: usize) -> Result<usize, Cause> {
        match self.bad_maps.get(&map) {
            Some(cause) => Err((*cause).clone()),
            None => Ok(map),
        }
    }
}

fn decode(raw: Raw) -> Result<Insn, Cause> {
    Insn::decode(raw).map_err(|error| Cause::Decode { bytes: raw.to_bytes(Endian::Little), error })
}
