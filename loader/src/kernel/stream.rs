//! One program for a kernel: final instructions (`bpf_object__relocate_data`), records, and what is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinbpf_btf::core_relo::invalid_call;
use twinbpf_btf::{FuncInfo, LineInfo};
use twinbpf_isa::Raw;
use twinbpf_isa::opcode::{CALL, LDDW};

use super::externs::{Symbol, Symbols};
use super::output::{FormatUse, RESERVE_HELPER};
use super::{AttachTarget, Fixup, KernelProgram, Poison, Reach};
use crate::error::{Cause, Error};
use crate::link::{Functions, Layout, Planner};
use crate::object::{ArenaData, ProgramSpec, Reference};

/// `src` of calls: in the program, of a function of the kernel.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_KFUNC_CALL: u8 = 2;
/// `src` of an `lddw`: map, address in a map's value, variable of the kernel, function of the program.
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
const PSEUDO_BTF_ID: u8 = 3;
const PSEUDO_FUNC: u8 = 4;
/// Numbers of calls that stand for a map, and for a function of the kernel, that is not there; libbpf's.
const MAP_POISON: usize = 2_001_000_000;
const KFUNC_POISON: usize = 2_002_000_000;

/// Puts programs of one object together.
pub(super) struct Builder<'a> {
    pub(super) planner: Planner<'a>,
    pub(super) functions: Functions,
    pub(super) symbols: &'a Symbols,
    pub(super) absent: &'a std::collections::BTreeSet<usize>,
    pub(super) arena: Option<&'a ArenaData>,
    /// Index of the `.kconfig` map.
    pub(super) kconfig: usize,
    /// Index of the map that has the formats of what programs print, if they may.
    pub(super) formats: Option<usize>,
}

/// A program in the making.
#[derive(Default)]
struct Draft {
    insns: Vec<Raw>,
    fixups: BTreeMap<usize, Fixup>,
    /// Slot, slot in the function, function, and why it was made invalid.
    missing: Vec<(usize, usize, usize, Cause)>,
    reserves: Vec<usize>,
    formats: Vec<FormatUse>,
}

impl<'a> Builder<'a> {
    pub(super) fn program(&mut self, layout: &Layout, target: Option<AttachTarget>) -> Result<KernelProgram, Error> {
        let root = layout.order[0];
        let entry = self.planner.spec(root);
        let mut draft = Draft { insns: Vec::with_capacity(layout.slots), ..Draft::default() };
        let mut program =
            KernelProgram { target, ..KernelProgram::new(root, [&entry.name, &entry.section], entry.attach.clone()) };
        for index in &layout.order {
            let spec = self.planner.spec(*index);
            let base = draft.insns.len();
            let done = self.append(&mut draft, *index, layout);
            done.map_err(|(pc, cause)| self.planner.error(root, spec, pc, cause))?;
            program.functions.push((base, spec.name.clone()));
            let applied = self.functions.get(*index).into_iter().flat_map(|found| &found.applied);
            program.core.extend(applied.map(|found| super::CoreApplied { pc: found.pc + base, ..*found }));
            program.lines.extend(self.planner.lines(spec, base));
        }
        self.records(&mut program, layout);
        program.insns = draft.insns;
        program.fixups = draft.fixups;
        (program.reserves, program.formats) = (draft.reserves, draft.formats);
        draft.missing.sort_by_key(|(pc, ..)| *pc);
        for (pc, local, function, why) in draft.missing {
            let error = self.planner.error(root, self.planner.spec(function), Some(local), why);
            program.poisons.push(Poison { pc, error, reach: Reach::Possible });
        }
        Ok(program)
    }

    fn append(&self, draft: &mut Draft, index: usize, layout: &Layout) -> Result<(), (Option<usize>, Cause)> {
        let spec = self.planner.spec(index);
        let base = draft.insns.len();
        draft.insns.extend(self.functions.insns(index, spec));
        if let Some(found) = self.functions.get(index) {
            if let Some((pc, cause)) = &found.error {
                return Err((Some(*pc), cause.clone()));
            }
            for (pc, miss) in &found.misses {
                draft.missing.push((base + pc, *pc, index, Cause::CoreMiss(Box::new(miss.why.clone()))));
            }
        }
        for (pc, target) in &spec.refs {
            let bound = target.clone().and_then(|reference| self.bind(draft, base + pc, reference, layout));
            match bound {
                Ok(None) => {}
                Ok(Some(missing)) => draft.missing.push((base + pc, *pc, index, missing)),
                Err(cause) => return Err((Some(*pc), cause)),
            }
        }
        Ok(())
    }

    /// Puts the final form of an instruction; gives what is missing if that is an invalid one.
    fn bind(
        &self,
        draft: &mut Draft,
        pc: usize,
        reference: Reference,
        layout: &Layout,
    ) -> Result<Option<Cause>, Cause> {
        let Some(insns) = draft.insns.get_mut(pc..) else { return Err(Cause::Edited) };
        match insns.first().map(|insn| insn.opcode) {
            Some(CALL) if self.is_output(&reference) => {
                insns[0] = Raw { opcode: CALL, regs: 0, off: 0, imm: RESERVE_HELPER };
                draft.reserves.push(pc);
                Ok(None)
            }
            Some(CALL) => self.bind_call(insns, pc, reference, layout),
            Some(LDDW) if insns.len() >= 2 => {
                if let Reference::MapValue { map, off } = reference
                    && self.formats == Some(map)
                {
                    [insns[0].imm, insns[1].imm] = [off.cast_signed(), 0];
                    set_src(&mut insns[0], 0);
                    draft.formats.push(FormatUse { pc, number: off });
                    return Ok(None);
                }
                let (missing, fixup) = self.bind_load(insns, pc, reference, layout)?;
                draft.fixups.extend(fixup.map(|fixup| (pc, fixup)));
                Ok(missing)
            }
            _ => Err(Cause::Edited),
        }
    }

    fn is_output(&self, reference: &Reference) -> bool {
        matches!(reference, Reference::Extern(index) if matches!(self.symbol(*index), Ok(Symbol::Output)))
    }

    fn bind_call(
        &self,
        insns: &mut [Raw],
        pc: usize,
        reference: Reference,
        layout: &Layout,
    ) -> Result<Option<Cause>, Cause> {
        let insn = &mut insns[0];
        match reference {
            Reference::Call(callee) => {
                set_src(insn, PSEUDO_CALL);
                // Streams are shorter than MAX_INSNS, so that distances fit.
                insn.imm = (layout.start[&callee] as i64 - pc as i64 - 1) as i32;
                Ok(None)
            }
            Reference::Extern(index) => match self.symbol(index)? {
                Symbol::Function { id, slot } => {
                    set_src(insn, PSEUDO_KFUNC_CALL);
                    (insn.imm, insn.off) = (id.0.cast_signed(), *slot);
                    Ok(None)
                }
                Symbol::Absent { rank, why } => {
                    *insn = invalid_call((KFUNC_POISON + rank) as i32);
                    Ok(Some(why.clone()))
                }
                Symbol::Value(_) | Symbol::Variable { .. } | Symbol::Address(_) | Symbol::Output => {
                    let name = self.planner.object.externs[index].name.clone();
                    Err(Cause::Ksym { name, why: "it is called, and is no function".into() })
                }
            },
            Reference::Map(_) | Reference::MapValue { .. } | Reference::Address(_) => Err(Cause::Edited),
        }
    }

    fn bind_load(
        &self,
        insns: &mut [Raw],
        pc: usize,
        reference: Reference,
        layout: &Layout,
    ) -> Result<(Option<Cause>, Option<Fixup>), Cause> {
        let (low, high) = match insns {
            [low, high, ..] => (low, high),
            _ => return Err(Cause::Edited),
        };
        let mut load = |src: u8, imm: i32, next: i32| {
            set_src(low, src);
            low.imm = imm;
            high.imm = next;
        };
        match reference {
            Reference::Map(map) | Reference::MapValue { map, .. } if self.absent.contains(&map) => {
                let name = self.planner.object.maps.get(map).map_or_else(|| "".into(), |map| map.name.clone());
                [*low, *high] = [invalid_call((MAP_POISON + map) as i32); 2];
                Ok((Some(Cause::AbsentMap { map: name }), None))
            }
            Reference::Map(map) => {
                load(PSEUDO_MAP_FD, map as i32, 0);
                Ok((None, Some(Fixup::Map(map))))
            }
            Reference::MapValue { map, off } => {
                let off = ArenaData::offset(self.arena, map, off)?;
                load(PSEUDO_MAP_VALUE, map as i32, off.cast_signed());
                Ok((None, Some(Fixup::MapValue(map))))
            }
            Reference::Address(callee) => {
                load(PSEUDO_FUNC, (layout.start[&callee] as i64 - pc as i64 - 1) as i32, 0);
                Ok((None, None))
            }
            Reference::Extern(index) => Ok(match self.symbol(index)? {
                Symbol::Value(off) => {
                    load(PSEUDO_MAP_VALUE, self.kconfig as i32, off.cast_signed());
                    (None, Some(Fixup::MapValue(self.kconfig)))
                }
                Symbol::Variable { id, module } => {
                    load(PSEUDO_BTF_ID, id.0.cast_signed(), module.map_or(0, |index| index as i32 + 1));
                    (None, module.and_then(|index| self.symbols.module(index)).map(Fixup::ModuleTypes))
                }
                Symbol::Function { id, .. } => {
                    load(PSEUDO_BTF_ID, id.0.cast_signed(), 0);
                    (None, None)
                }
                Symbol::Address(address) => {
                    (low.imm, high.imm) = (*address as i32, (address >> 32) as i32);
                    (None, None)
                }
                Symbol::Absent { .. } => {
                    (low.imm, high.imm) = (0, 0);
                    (None, None)
                }
                // It is there.
                Symbol::Output => {
                    (low.imm, high.imm) = (1, 0);
                    (None, None)
                }
            }),
            Reference::Call(_) => Err(Cause::Edited),
        }
    }

    fn symbol(&self, index: usize) -> Result<&'a Symbol, Cause> {
        let symbols: &'a Symbols = self.symbols;
        symbols.found.get(index).ok_or(Cause::Edited)?.as_ref().map_err(Cause::clone)
    }

    /// `func_info` and `line_info`, offsets in slots. A function without a record takes the list with it, as the
    /// kernel wants one for each.
    fn records(&self, program: &mut KernelProgram, layout: &Layout) {
        let object = self.planner.object;
        let mut complete = true;
        for index in &layout.order {
            let spec = self.planner.spec(*index);
            let base = layout.start[index];
            match object.func_type(spec) {
                Some(type_id) => program.func_info.push(FuncInfo { insn_off: base as u32, type_id }),
                None => complete = false,
            }
            program.line_info.extend(line_records(object.line_infos(spec), spec, base));
        }
        if !complete {
            program.func_info.clear();
        }
        let first = program.line_info.first().is_some_and(|record| record.insn_off == 0);
        if !first {
            program.line_info.clear();
        }
    }
}

fn line_records<'a>(
    records: &'a [LineInfo],
    spec: &'a ProgramSpec,
    base: usize,
) -> impl Iterator<Item = LineInfo> + 'a {
    let slot = move |record: &LineInfo| (record.insn_off as usize / 8).saturating_sub(spec.start) + base;
    records.iter().map(move |record| LineInfo { insn_off: slot(record) as u32, ..*record })
}

impl Symbols {
    /// Name of a module.
    fn module(&self, index: usize) -> Option<Arc<str>> {
        self.modules.get(index).cloned()
    }
}

fn set_src(insn: &mut Raw, src: u8) {
    insn.regs = insn.dst() | src << 4;
}
