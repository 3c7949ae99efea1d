//! One program: which functions it needs, in which order, and its final instructions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use twinbpf_vm::isa::{CallKind, Endian, Insn, Raw};
use twinbpf_vm::program::{Binding, Function, Line, Program};

use super::{FUNCTION_WEIGHT, MAX_INSNS, MAX_TOTAL_INSNS};
use crate::btf::LineResolver;
use crate::error::{Cause, Error};
use crate::object::{Object, ProgramSpec, Reference};

/// `src` of an `lddw` of a map, of an address inside its value, of a function, of anything else.
const KIND_MAP: u8 = 1;
const KIND_MAP_VALUE: u8 = 2;
const KIND_FUNCTION: u8 = 4;
const KIND_PLAIN: u8 = 0;

/// Links programs of one object, sharing strings and a limit.
pub(super) struct Linker<'a> {
    object: &'a Object,
    stack_size: u32,
    lines: Option<LineResolver<'a>>,
    /// The first bad pointer of each data map.
    bad_maps: HashMap<usize, &'a Cause>,
    left: usize,
}

/// The functions of a program, in order, and where each starts.
#[derive(Default)]
struct Layout {
    order: Vec<usize>,
    start: HashMap<usize, usize>,
    slots: usize,
}

impl<'a> Linker<'a> {
    pub(super) fn new(object: &'a Object, stack_size: u32) -> Linker<'a> {
        let mut bad_maps = HashMap::new();
        for pointer in &object.pointers {
            if let Err(cause) = &pointer.target {
                bad_maps.entry(pointer.map).or_insert(cause);
            }
        }
        let lines = object.btf.as_deref().map(LineResolver::new);
        Linker { object, stack_size, lines, bad_maps, left: MAX_TOTAL_INSNS }
    }

    /// The program that starts with a function.
    pub(super) fn program(&mut self, root: usize) -> Result<Program, Error> {
        let entry = self.spec(root);
        let layout = self.layout(root)?;
        let mut program = Program {
            object: self.object.name.clone(),
            name: entry.name.clone(),
            section: entry.section.clone(),
            insns: Vec::with_capacity(layout.slots),
            bindings: BTreeMap::new(),
            functions: Vec::with_capacity(layout.order.len()),
            lines: Vec::new(),
            stack_size: self.stack_size,
        };
        for index in &layout.order {
            let spec = self.spec(*index);
            self.append(&mut program, spec, &layout).map_err(|(pc, cause)| self.error(root, spec, pc, cause))?;
        }
        Ok(program)
    }

    fn spec(&self, index: usize) -> &'a ProgramSpec {
        // Indices come from `Object::open` and from the lists themselves; see the type's contract.
        &self.object.programs[index]
    }

    /// Depth-first preorder of call sites, without recursion: chains of calls may be long.
    fn layout(&mut self, root: usize) -> Result<Layout, Error> {
        let mut layout = Layout::default();
        self.place(&mut layout, root, root)?;
        let mut open = vec![(root, 0)];
        while let Some((function, pc)) = open.last_mut() {
            let spec = &self.object.programs[*function];
            let next = spec.refs.range(*pc..).find_map(|(pc, target)| match target {
                Ok(Reference::Call(callee) | Reference::Address(callee)) => Some((*pc, *callee)),
                Ok(Reference::Map(_) | Reference::MapValue { .. } | Reference::Extern(_)) | Err(_) => None,
            });
            let Some((at, callee)) = next else {
                open.pop();
                continue;
            };
            *pc = at + 1;
            if !layout.start.contains_key(&callee) {
                self.place(&mut layout, root, callee)?;
                open.push((callee, 0));
            }
        }
        Ok(layout)
    }

    fn place(&mut self, layout: &mut Layout, root: usize, function: usize) -> Result<(), Error> {
        let spec = self.spec(function);
        if let Some(fault) = &spec.fault {
            return Err(self.error(root, spec, None, fault.clone()));
        }
        layout.start.insert(function, layout.slots);
        layout.order.push(function);
        layout.slots += spec.insns.len();
        if layout.slots > MAX_INSNS {
            return Err(self.error(root, self.spec(root), None, Cause::TooLong { limit: MAX_INSNS }));
        }
        match self.left.checked_sub(spec.insns.len() + FUNCTION_WEIGHT) {
            Some(left) => self.left = left,
            None => {
                return Err(self.error(root, self.spec(root), None, Cause::TooManyInsns { limit: MAX_TOTAL_INSNS }));
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        program: &mut Program,
        spec: &ProgramSpec,
        layout: &Layout,
    ) -> Result<(), (Option<usize>, Cause)> {
        let base = program.insns.len();
        let signature = spec.signature.clone();
        program.functions.push(Function { name: spec.name.clone(), start: base, signature });
        for (pc, raw) in spec.insns.iter().enumerate() {
            let insn = decode(*raw).map_err(|cause| (Some(pc), cause))?;
            program.insns.push(insn);
        }
        for (pc, target) in &spec.refs {
            let found = target.clone().and_then(|reference| self.bind(program, base + pc, reference, layout));
            found.map_err(|cause| (Some(*pc), cause))?;
        }
        for info in self.object.records.lines(&spec.section, spec.start, spec.insns.len()) {
            let pc = (info.insn_off as usize / 8).saturating_sub(spec.start) + base;
            program.lines.extend(self.lines.as_mut().map(|lines| lines.line(info, pc)));
        }
        Ok(())
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
            Reference::MapValue { map, off } => (KIND_MAP_VALUE, Binding::MapValue { map: self.usable(map)?, off }),
            Reference::Address(callee) => (KIND_FUNCTION, Binding::Function(layout.start[&callee])),
            Reference::Extern(index) => (KIND_PLAIN, Binding::Extern(index)),
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

    fn error(&mut self, root: usize, spec: &ProgramSpec, pc: Option<usize>, cause: Cause) -> Error {
        let entry = self.spec(root);
        let mut error = Error::new(&self.object.name, cause).in_section(&spec.section).in_program(&entry.name);
        if !Arc::ptr_eq(&entry.name, &spec.name) {
            error = error.in_function(&spec.name);
        }
        match pc {
            Some(pc) => {
                let line = self.line(spec, pc);
                error.at(pc, line)
            }
            None => error,
        }
    }

    fn line(&mut self, spec: &ProgramSpec, pc: usize) -> Option<Line> {
        let records = self.object.records.lines(&spec.section, spec.start, pc + 1);
        let resolver = self.lines.as_mut()?;
        records.last().map(|info| resolver.line(info, pc))
    }
}

fn decode(raw: Raw) -> Result<Insn, Cause> {
    Insn::decode(raw).map_err(|error| Cause::Decode { bytes: raw.to_bytes(Endian::Little), error })
}
