//! Construction of an image: functions, addresses, and a link for every instruction.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Function, ImageError, Link, MAX_SLOTS, Resolve, TAIL_CALL, Target, address};
use crate::helper;
use crate::host::HostFn;
use crate::mem::HandleRange;
use crate::trap::TrapCode;
use twinbpf_isa::program::{Binding, Program};
use twinbpf_isa::validate::Valid;
use twinbpf_isa::{CallKind, Insn};

/// An image without addresses.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) bases: Vec<u32>,
    pub(super) insns: Vec<Insn>,
    /// What refers to something: index of the program, and pc in it.
    pub(super) referring: Vec<(usize, usize)>,
    pub(super) functions: Vec<Function>,
    pub(super) hosts: Vec<HostFn>,
    pub(super) labels: Vec<u32>,
    pub(super) traps: Vec<(TrapCode, String)>,
    pub(super) externs: HashMap<usize, u32>,
    pub(super) helpers: BTreeMap<u32, u32>,
}

impl Builder {
    pub(super) fn new(programs: &[Valid<Program>]) -> Result<Builder, ImageError> {
        let total: usize = programs.iter().map(|program| program.insns.len()).sum();
        if total > MAX_SLOTS {
            return Err(ImageError::TooLarge { limit: MAX_SLOTS });
        }
        // As many as there are in much code.
        let referring = Vec::with_capacity(total / 5);
        let mut builder = Builder { insns: Vec::with_capacity(total), referring, ..Builder::default() };
        for (index, program) in programs.iter().enumerate() {
            let base = builder.insns.len() as u32;
            builder.bases.push(base);
            builder.insns.extend_from_slice(&program.insns);
            let refers = |insn: &Insn| matches!(insn, Insn::LoadImm { .. } | Insn::Call { .. });
            let slots = program.insns.iter().enumerate().filter(|(_, insn)| refers(insn));
            builder.referring.extend(slots.map(|(pc, _)| (index, pc)));
            let ends = program.functions.iter().skip(1).map(|function| function.start).chain([program.insns.len()]);
            builder.functions.extend(program.functions.iter().zip(ends).map(|(function, end)| Function {
                name: Arc::clone(&function.name),
                program: index as u32,
                start: base + function.start as u32,
                end: base + end as u32,
                stack_size: program.stack_size,
            }));
        }
        Ok(builder)
    }

    /// Instructions that programs take the address of, and that `extra` lists.
    pub(super) fn labels(&mut self, programs: &[Valid<Program>], extra: &[(usize, usize)]) {
        for (program, base) in programs.iter().zip(&self.bases) {
            self.labels.extend(program.bindings.values().filter_map(|binding| match binding {
                Binding::Function(pc) => Some(base + *pc as u32),
                Binding::Map(_) | Binding::MapValue { .. } | Binding::Extern(_) => None,
            }));
        }
        for &(program, pc) in extra {
            if programs.get(program).is_some_and(|program| pc < program.insns.len()) {
                self.labels.push(self.bases[program] + pc as u32);
            }
        }
        let starts = |pc: &u32| self.functions.binary_search_by_key(pc, |function| function.start).is_ok();
        self.labels.retain(|pc| !starts(pc));
        self.labels.sort_unstable();
        self.labels.dedup();
    }

    /// The host functions that programs and data refer to, each once.
    pub(super) fn hosts(&mut self, programs: &[Valid<Program>], resolve: &Resolve<'_>) {
        let bindings = programs.iter().flat_map(|program| program.bindings.values());
        let bound = bindings.filter_map(|binding| match binding {
            Binding::Extern(index) => Some(*index),
            Binding::Map(_) | Binding::MapValue { .. } | Binding::Function(_) => None,
        });
        for index in bound.chain(resolve.pointed.iter().copied()) {
            if let Some(Target::Host(host)) = resolve.externs.get(index)
                && !self.externs.contains_key(&index)
            {
                self.externs.insert(index, self.hosts.len() as u32);
                self.hosts.push(host.clone());
            }
        }
        for &(program, pc) in &self.referring {
            if let Insn::Call { kind: CallKind::Helper, imm, .. } = programs[program].insns[pc]
                && !self.helpers.contains_key(&(imm as u32))
                && let Some(host) = (resolve.helper)(imm as u32)
            {
                self.helpers.insert(imm as u32, self.hosts.len() as u32);
                self.hosts.push(host);
            }
        }
    }

    /// What an instruction that refers to something refers to. With it, the index of the program, and what it is bound to.
    pub(super) fn link(
        &mut self,
        program: &Program,
        (index, pc, binding): (usize, usize, Option<Binding>),
        resolve: &Resolve<'_>,
        handles: &HandleRange,
    ) -> Result<Link, ImageError> {
        let base = self.bases[index];
        let dangling = |what, index| {
            let (object, program) = (Arc::clone(&program.object), Arc::clone(&program.name));
            ImageError::Dangling { object, program, pc, what, index }
        };
        match program.insns[pc] {
            Insn::LoadImm { imm, .. } => match binding {
                Some(binding) => {
                    let (what, number, value) = self.value(binding, base, resolve, handles);
                    value.map(Link::Value).ok_or_else(|| dangling(what, number))
                }
                None => {
                    let Some(Insn::LoadImmHi { imm: hi }) = program.insns.get(pc + 1) else {
                        unreachable!("validated: lddw has two halves");
                    };
                    Ok(Link::Value(u64::from(imm as u32) | u64::from(*hi as u32) << 32))
                }
            },
            Insn::Call { kind: CallKind::Helper, imm, .. } => Ok(self.helper(imm as u32)),
            Insn::Call { kind: CallKind::Local, imm, .. } => {
                let target = i64::from(base) + pc as i64 + 1 + i64::from(imm);
                let found = self.functions.binary_search_by_key(&target, |function| i64::from(function.start));
                Ok(Link::Function(found.expect("validated: a call reaches a function") as u32))
            }
            Insn::Call { kind: CallKind::Extern, .. } => {
                let Some(Binding::Extern(number)) = binding else {
                    unreachable!("validated: the call of an extern is bound");
                };
                self.extern_call(number, resolve).ok_or_else(|| dangling("extern", number))
            }
            Insn::Alu { .. }
            | Insn::Endian { .. }
            | Insn::LoadImmHi { .. }
            | Insn::Load { .. }
            | Insn::Store { .. }
            | Insn::Atomic { .. }
            | Insn::LoadAcquire { .. }
            | Insn::StoreRelease { .. }
            | Insn::LoadPacket { .. }
            | Insn::Branch { .. }
            | Insn::Goto { .. }
            | Insn::Gotol { .. }
            | Insn::Gotox { .. }
            | Insn::MayGoto { .. }
            | Insn::Callx { .. }
            | Insn::AddrSpaceCast { .. }
            | Insn::Exit => unreachable!("it refers to nothing"),
        }
    }

    /// What a binding of an `lddw` is, its index, and its value if it exists.
    fn value(
        &self,
        binding: Binding,
        base: u32,
        resolve: &Resolve<'_>,
        handles: &HandleRange,
    ) -> (&'static str, usize, Option<u64>) {
        match binding {
            Binding::Map(map) => ("map", map, resolve.maps.get(map).copied()),
            Binding::MapValue { map, off } => {
                ("data map", map, resolve.values.get(map).map(|value| value.wrapping_add(u64::from(off))))
            }
            Binding::Function(pc) => {
                let addr = address(&self.functions, &self.labels, self.hosts.len(), handles, base + pc as u32);
                ("function", pc, addr)
            }
            Binding::Extern(number) => ("extern", number, self.extern_value(number, resolve, handles)),
        }
    }

    fn extern_value(&self, number: usize, resolve: &Resolve<'_>, handles: &HandleRange) -> Option<u64> {
        match resolve.externs.get(number)? {
            Target::Host(_) => Some(handles.addr(self.functions.len() as u32 + self.externs[&number])),
            Target::Value(value) => Some(*value),
            Target::TailCall | Target::Unresolved(_) => Some(0),
        }
    }

    fn extern_call(&mut self, number: usize, resolve: &Resolve<'_>) -> Option<Link> {
        Some(match resolve.externs.get(number)? {
            Target::Host(_) => Link::Host(self.externs[&number]),
            Target::TailCall => Link::TailCall,
            Target::Value(value) => self.trap(TrapCode::BadCall, format!("the extern is the value {value:#x}")),
            Target::Unresolved(why) => self.trap(TrapCode::Unresolved, why.to_string()),
        })
    }

    fn helper(&mut self, id: u32) -> Link {
        match self.helpers.get(&id) {
            Some(host) => Link::Host(*host),
            None if id == TAIL_CALL => Link::TailCall,
            None => {
                let name = i32::try_from(id).ok().and_then(helper::name).unwrap_or_else(|| "kernel helper".to_owned());
                self.trap(TrapCode::Unresolved, format!("{name} ({id}) is not available in the virtual machine"))
            }
        }
    }

    fn trap(&mut self, code: TrapCode, detail: String) -> Link {
        self.traps.push((code, detail));
        Link::Trap(self.traps.len() as u32 - 1)
    }
}
