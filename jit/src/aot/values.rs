//! Numbers that are only known in the process that runs the code: which instructions load them, and what they are.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_isa::program::Binding;
use twinbpf_vm::image::{Image, Link};

/// The `lddw` instructions of an image that refer to something, and an index for each thing.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// Flat pc and index, by pc.
    at: Vec<(u32, u32)>,
    /// Flat pc of one instruction for each.
    pcs: Vec<u32>,
}

impl Values {
    pub(crate) fn new(image: &Image) -> Values {
        let mut values = Values::default();
        let mut known: HashMap<GlobalBinding, u32> = HashMap::new();
        for (index, program) in image.programs().iter().enumerate() {
            let base = image.entry(index);
            for (pc, binding) in &program.bindings {
                let flat = (base + pc) as u32;
                if !matches!(image.links()[base + pc], Link::Value(_)) {
                    continue;
                }
                let thing = GlobalBinding::new(*binding, flat, image);
                let index = *known.entry(thing).or_insert_with(|| {
                    values.pcs.push(flat);
                    values.pcs.len() as u32 - 1
                });
                values.at.push((flat, index));
            }
        }
        values
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.pcs.len()
    }

    /// Index of what the instruction at a flat pc loads, if that is no number of its own.
    pub(crate) fn index(&self, pc: u32) -> Option<u32> {
        let found = self.at.binary_search_by_key(&pc, |entry| entry.0).ok()?;
        Some(self.at[found].1)
    }

    /// What they are in this process.
    pub(crate) fn resolve(&self, image: &Image) -> Box<[u64]> {
        let value = |pc: &u32| match image.links()[*pc as usize] {
            Link::Value(value) => value,
            Link::None | Link::Function(_) | Link::Host(_) | Link::TailCall | Link::Trap(_) => {
                unreachable!("an lddw is linked to a value")
            }
        };
        self.pcs.iter().map(value).collect()
    }

    /// What they are called, with the names of maps and externs.
    pub(super) fn names(&self, image: &Image, maps: &[Arc<str>], externs: &[Arc<str>]) -> Vec<String> {
        let name = |names: &[Arc<str>], index: usize| match names.get(index) {
            Some(name) => name.escape_debug().to_string(),
            None => index.to_string(),
        };
        let describe = |pc: &u32| {
            let (program, local) = image.locate(*pc as usize);
            match image.programs()[program].bindings[&local] {
                Binding::Map(map) => format!("map {}", name(maps, map)),
                Binding::MapValue { map, off } => format!("data {}+{off}", name(maps, map)),
                Binding::Function(start) => {
                    let function = image.function_at(image.entry(program) + start);
                    format!("function {}", image.functions()[function].name.escape_debug())
                }
                Binding::Extern(index) => format!("extern {}", name(externs, index)),
            }
        };
        self.pcs.iter().map(describe).collect()
    }
}

/// A binding, with functions by their index in the image instead of the program.
#[derive(PartialEq, Eq, Hash)]
enum GlobalBinding {
    Bound(Binding),
    Function(u32),
}

impl GlobalBinding {
    fn new(binding: Binding, flat: u32, image: &Image) -> GlobalBinding {
        match binding {
            Binding::Function(start) => {
                let (program, _) = image.locate(flat as usize);
                GlobalBinding::Function((image.entry(program) + start) as u32)
            }
            Binding::Map(_) | Binding::MapValue { .. } | Binding::Extern(_) => GlobalBinding::Bound(binding),
        }
    }
}
