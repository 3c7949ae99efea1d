//! Programs from assembler text, for tests of images and engines.
//!
//! Functions are the labels that are called or whose address is taken (`r1 = func(label) ll`). The numbers in
//! `map_fd(n)`, `map_value(n, off)` and `call extern(n)` index what the rig was given.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{Image, Resolve, Target};
use crate::host::{HostFn, MapTable, Runtime, fake};
use crate::map::MapOps;
use crate::mem::{Arena, Block, Bounds, RegionKind, RegionSpec, View};
use twinbpf_isa::program::{Binding, Function, Line, Program};
use twinbpf_isa::validate::Valid;
use twinbpf_isa::{CallKind, Groups, Insn, Policy, asm};

pub(crate) struct Rig {
    pub(crate) arena: Arc<Arena>,
    pub(crate) memory: Block,
    pub(crate) externs: Vec<Target>,
    pub(crate) helpers: HashMap<u32, HostFn>,
    pub(crate) maps: Vec<(u64, Arc<dyn MapOps>)>,
    pub(crate) labels: Vec<(usize, usize)>,
    programs: Vec<Valid<Program>>,
}

struct Maps(Vec<(u64, Arc<dyn MapOps>)>);

impl MapTable for Maps {
    fn get(&self, handle: u64) -> Option<Arc<dyn MapOps>> {
        self.0.iter().find(|entry| entry.0 == handle).map(|entry| Arc::clone(&entry.1))
    }
}

impl Rig {
    /// 4,096 bytes of memory called `memory`, which `map_value(n, off)` points into too.
    pub(crate) fn new() -> Rig {
        Rig::over(Arena::new(1 << 26).unwrap())
    }

    /// A rig with one program called `main`, which is trusted.
    pub(crate) fn trusted(text: &str) -> Rig {
        let mut rig = Rig::over(fake::trusted_arena(1 << 26));
        rig.program("main", text);
        rig
    }

    fn over(arena: Arc<Arena>) -> Rig {
        let memory = arena.alloc(RegionSpec::new("memory", RegionKind::Host, 4096)).unwrap();
        let (externs, helpers, maps, labels) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        Rig { arena, memory, externs, helpers, maps, labels, programs: Vec::new() }
    }

    /// A rig with one program called `main`.
    pub(crate) fn with(text: &str) -> Rig {
        let mut rig = Rig::new();
        rig.program("main", text);
        rig
    }

    /// Adds a program; the C line of the instruction at pc n is `t.c:n`.
    pub(crate) fn program(&mut self, name: &str, text: &str) -> &mut Rig {
        self.valid(program(name, text))
    }

    pub(crate) fn valid(&mut self, program: Program) -> &mut Rig {
        let valid = program.validate(&policy(), &|_| true).unwrap_or_else(|error| panic!("{error:#}"));
        self.programs.push(valid);
        self
    }

    pub(crate) fn host(&mut self, host: HostFn) -> &mut Rig {
        self.externs.push(Target::Host(host));
        self
    }

    pub(crate) fn image(&self) -> Arc<Image> {
        let values = vec![self.memory.addr(); 8];
        let maps: Vec<u64> = self.maps.iter().map(|map| map.0).collect();
        let helper = |id| self.helpers.get(&id).cloned();
        let resolve = Resolve {
            maps: &maps,
            values: &values,
            externs: &self.externs,
            helper: &helper,
            labels: &self.labels,
            pointed: &[],
        };
        Arc::new(Image::new(&self.arena, self.programs.clone(), resolve).unwrap())
    }

    pub(crate) fn runtime(&self) -> Runtime {
        let (arena, owner) = (Arc::clone(&self.arena), self.arena.new_owner());
        let view = match arena.is_trusted() {
            true => View::trusted(arena, owner),
            false => View::new(arena, owner, Bounds::Exact),
        };
        let maps = Arc::new(Maps(self.maps.clone()));
        Runtime::new(view, maps, Box::new(std::io::sink()), Box::new(0u32))
    }
}

fn policy() -> Policy {
    Policy { groups: Groups::ALL, ..Policy::default() }
}

pub(crate) fn program(name: &str, text: &str) -> Program {
    let assembled = asm::assemble(text).unwrap_or_else(|error| panic!("{error}"));
    let mut insns = assembled.insns;
    let (mut bindings, mut starts) = (BTreeMap::new(), BTreeSet::from([0]));
    for pc in 0..insns.len() {
        let hi = match insns.get(pc + 1) {
            Some(Insn::LoadImmHi { imm }) => *imm,
            _ => 0,
        };
        let binding = match &mut insns[pc] {
            Insn::Call { kind: CallKind::Local, imm, .. } => {
                starts.insert((pc as i32 + 1 + *imm) as usize);
                continue;
            }
            Insn::Call { kind: CallKind::Extern, imm, .. } => Binding::Extern(std::mem::take(imm) as usize),
            Insn::LoadImm { kind: 1, imm, .. } => Binding::Map(std::mem::take(imm) as usize),
            Insn::LoadImm { kind: 2, imm, .. } => {
                Binding::MapValue { map: std::mem::take(imm) as usize, off: hi as u32 }
            }
            // `btf_id(n)` stands for the address of an extern.
            Insn::LoadImm { kind: kind @ 3, imm, .. } => {
                *kind = 0;
                Binding::Extern(std::mem::take(imm) as usize)
            }
            Insn::LoadImm { kind: 4, imm, .. } => {
                let target = (pc as i32 + 1 + std::mem::take(imm)) as usize;
                starts.insert(target);
                Binding::Function(target)
            }
            _ => continue,
        };
        bindings.insert(pc, binding);
    }
    let label = |start: usize| assembled.labels.iter().find(|label| *label.1 == start).map(|label| label.0.as_str());
    let functions = starts.iter().map(|&start| {
        let name = if start == 0 { name } else { label(start).unwrap_or("unnamed") };
        Function { name: name.into(), start, signature: None }
    });
    let lines = (0..insns.len()).map(|pc| Line {
        pc,
        file: "t.c".into(),
        line: pc as u32,
        column: 1,
        text: format!("line {pc};").into(),
    });
    Program {
        object: "t.bpf.o".into(),
        name: name.into(),
        section: "test".into(),
        functions: functions.collect(),
        lines: lines.collect(),
        stack_size: 512,
        insns,
        bindings,
    }
}
