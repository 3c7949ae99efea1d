//! Layout of a linked program: the functions that it reaches, in libbpf's order.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_btf::{LineInfo, LineResolver};
use twinbpf_isa::program::Line;

use super::{FUNCTION_WEIGHT, MAX_INSNS, MAX_TOTAL_INSNS};
use crate::error::{Cause, Error};
use crate::object::{Object, ProgramSpec, Reference};

/// The functions of a program, in order, and where each starts.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) order: Vec<usize>,
    pub(crate) start: HashMap<usize, usize>,
    pub(crate) slots: usize,
}

/// Lays out programs of one object, sharing strings and a limit.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    pub(crate) object: &'a Object,
    lines: Option<LineResolver<'a>>,
    left: usize,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(object: &'a Object) -> Planner<'a> {
        let lines = object.btf.as_deref().map(LineResolver::new);
        Planner { object, lines, left: MAX_TOTAL_INSNS }
    }

    pub(crate) fn spec(&self, index: usize) -> &'a ProgramSpec {
        // Indices come from `Object::open` and from the lists themselves; see the type's contract.
        &self.object.programs[index]
    }

    /// Depth-first preorder of call sites, without recursion: chains of calls may be long.
    pub(crate) fn layout(&mut self, root: usize) -> Result<Layout, Error> {
        let mut layout = Layout::default();
        self.append(&mut layout, root, root)?;
        Ok(layout)
    }

    /// Puts a function and what it calls after the others, unless it is there.
    pub(crate) fn append(&mut self, layout: &mut Layout, root: usize, function: usize) -> Result<(), Error> {
        if layout.start.contains_key(&function) {
            return Ok(());
        }
        self.place(layout, root, function)?;
        let mut open = vec![(function, 0)];
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
                self.place(layout, root, callee)?;
                open.push((callee, 0));
            }
        }
        Ok(())
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

    /// The lines of a function whose first slot is to be `base`.
    pub(crate) fn lines(&mut self, spec: &ProgramSpec, base: usize) -> Vec<Line> {
        let (object, start) = (self.object, spec.start);
        let infos = object.records.lines(&spec.section, start, spec.insns.len());
        let place = |info: &LineInfo| (info.insn_off as usize / 8).saturating_sub(start) + base;
        let Some(lines) = self.lines.as_mut() else { return Vec::new() };
        infos.iter().map(|info| lines.line(info, place(info))).collect()
    }

    pub(crate) fn error(&mut self, root: usize, spec: &ProgramSpec, pc: Option<usize>, cause: Cause) -> Error {
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
