//! Programs placed one after another in one flat pc space, with every name resolved to a number: what engines run.
//!
//! An image is built once and shared. It belongs to no engine: it says what the instruction at a pc refers to,
//! never how to execute it. It makes nothing: maps, data and host functions come resolved from the embedder, who
//! also writes function addresses into data sections ([`Image::function_address`]).
#![forbid(unsafe_code)]

mod build;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use build::Builder;

use crate::host::HostFn;
use crate::ident::{ImageId, ProgramId};
use crate::map::{ArrayTable, MapKind, MapOps, Maps, SlotWords};
use crate::mem::{Arena, HandleRange, MemError};
use crate::trap::{Location, Trap, TrapCode};
use twinbpf_isa::program::{InOrder, Program};
use twinbpf_isa::validate::Valid;
use twinbpf_isa::{Insn, text_at};

/// Number of `bpf_tail_call`, which is part of every engine and not a host function.
pub const TAIL_CALL: u32 = 12;

/// What an extern turned out to be.
#[derive(Clone, Debug)]
pub enum Target {
    /// A host function.
    Host(HostFn),
    /// A number, for example a `.kconfig` value.
    Value(u64),
    /// `bpf_tail_call`, called by its name.
    TailCall,
    /// A symbol that nothing defines: its address is 0, and calling it traps. This is what the trap says.
    Unresolved(Arc<str>),
}

/// The meaning of every binding of the programs of an image, by index.
#[derive(Clone, Copy)]
pub struct Resolve<'a> {
    /// Handle of each map.
    pub maps: &'a [u64],
    /// Address of the value of each data map; anything for other maps.
    pub values: &'a [u64],
    /// What each extern refers to.
    pub externs: &'a [Target],
    /// Helpers by number; [`TAIL_CALL`] only if it means another function.
    pub helper: &'a dyn Fn(u32) -> Option<HostFn>,
    /// Instructions, by program and pc, whose addresses data sections hold, as targets of `gotox`.
    pub labels: &'a [(usize, usize)],
    /// Externs whose addresses data sections hold.
    pub pointed: &'a [usize],
}

/// What the instruction at a pc refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Nothing but its own fields.
    None,
    /// `lddw`: this number.
    Value(u64),
    /// `call`: a function of the image, by index.
    Function(u32),
    /// `call`: a host function, by index.
    Host(u32),
    /// `call`: the helper `bpf_tail_call`, which the backend implements itself.
    TailCall,
    /// `call`: this trap ([`Image::trap`]).
    Trap(u32),
}

/// What an address that a program holds can be called as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A function of the image, by index.
    Function(u32),
    /// A host function, by index.
    Host(u32),
}

/// A BPF function of the image.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name of its ELF symbol.
    pub name: Arc<str>,
    /// Index of its program.
    pub program: u32,
    /// Flat pc of its first instruction.
    pub start: u32,
    /// Flat pc after its last instruction.
    pub end: u32,
    /// Stack bytes of a frame.
    pub stack_size: u32,
}

/// Stack bytes of an image's frames, 0 without functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSizes {
    /// The least that a function has.
    pub smallest: u32,
    /// The most that a function has.
    pub largest: u32,
}

impl FrameSizes {
    fn of(functions: &[Function]) -> FrameSizes {
        let sizes = || functions.iter().map(|function| function.stack_size);
        FrameSizes { smallest: sizes().min().unwrap_or(0), largest: sizes().max().unwrap_or(0) }
    }

    /// The size, if all functions have the same, so that the bytes of a stack follow from the number of its frames.
    pub fn same(self) -> Option<u32> {
        (self.smallest == self.largest).then_some(self.largest)
    }
}

/// Why no image can be made.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No room in the table of function addresses.
    #[error(transparent)]
    Mem(#[from] MemError),
    /// More code than pcs can number.
    #[error("more than {limit} instructions in one image")]
    TooLarge {
        /// Number of instructions allowed.
        limit: usize,
    },
    /// A binding names something that the resolution does not have.
    #[error("{object}: program {program}, insn {pc}: {what} {index} does not exist; link and resolve the same object")]
    Dangling {
        /// Name of the object file.
        object: Arc<str>,
        /// Name of the program's entry function.
        program: Arc<str>,
        /// pc in the program.
        pc: usize,
        /// `map`, `data map`, `extern` or `function`.
        what: &'static str,
        /// Index that the resolution does not have.
        index: usize,
    },
}

/// See the module documentation.
pub struct Image {
    id: ImageId,
    arena: Arc<Arena>,
    programs: Vec<Valid<Program>>,
    /// Flat pc of each program's first instruction.
    bases: Vec<u32>,
    /// Index of the function with that instruction, after a number that is none.
    entries: Vec<u32>,
    insns: Vec<Insn>,
    links: Vec<Link>,
    /// Sorted by start.
    functions: Vec<Function>,
    frame_sizes: FrameSizes,
    hosts: Vec<HostFn>,
    /// Flat pcs that have an address without being the start of a function.
    labels: Vec<u32>,
    /// Functions, then host functions, then labels.
    handles: HandleRange,
    traps: Vec<(TrapCode, String)>,
    /// What its handles of maps mean, where generated code may know that.
    maps: Option<Arc<Maps>>,
    /// Host functions of one map each, by host function and handle.
    bound: Mutex<BTreeMap<(u32, u64), HostFn>>,
    /// Words of prog arrays and arrays of maps, by handle.
    slot_words: Mutex<BTreeMap<u64, Option<SlotWords>>>,
    /// Translation of an engine, made on first use.
    translation: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// Most slots an image can have: pcs and their distances fit into an `i32`.
const MAX_SLOTS: usize = 1 << 28;

/// Bytes after a frame.
const FRAME_GAP: u32 = 64;

impl Image {
    /// Places `programs` one after another and resolves what they refer to.
    ///
    /// # Errors
    /// See [`ImageError`]. A helper that does not exist is not one: calling it traps.
    pub fn new(arena: &Arc<Arena>, programs: Vec<Valid<Program>>, resolve: Resolve<'_>) -> Result<Image, ImageError> {
        let mut builder = Builder::new(&programs)?;
        builder.labels(&programs, resolve.labels);
        builder.hosts(&programs, &resolve);
        let slots = builder.functions.len() + builder.hosts.len() + builder.labels.len();
        let handles = arena.functions().reserve(u32::try_from(slots).expect("fewer than instructions"))?;
        let mut links = vec![Link::None; builder.insns.len()];
        let referring = std::mem::take(&mut builder.referring);
        for slots in referring.chunk_by(|(one, _), (two, _)| one == two) {
            let (index, base) = (slots[0].0, builder.bases[slots[0].0] as usize);
            let mut bindings = InOrder::new(&programs[index].bindings);
            for &(_, pc) in slots {
                let slot = (index, pc, bindings.at(pc));
                links[base + pc] = builder.link(&programs[index], slot, &resolve, &handles)?;
            }
        }
        let Builder { bases, insns, functions, hosts, labels, traps, .. } = builder;
        let (arena, translation) = (Arc::clone(arena), OnceLock::new());
        let frame_sizes = FrameSizes::of(&functions);
        let entry = |base: &u32| functions.partition_point(|function: &Function| function.start <= *base) as u32 - 1;
        let entries = [u32::MAX].into_iter().chain(bases.iter().map(entry)).collect();
        Ok(Image {
            id: ImageId::new(programs.len()),
            arena,
            programs,
            bases,
            entries,
            insns,
            links,
            functions,
            frame_sizes,
            hosts,
            labels,
            handles,
            traps,
            maps: None,
            bound: Mutex::default(),
            slot_words: Mutex::default(),
            translation,
        })
    }

    /// The same image, whose machines have these maps, so that generated code need not look up handles.
    #[must_use]
    pub fn with_maps(self, maps: &Arc<Maps>) -> Image {
        Image { maps: Some(Arc::clone(maps)), ..self }
    }

    /// The map that a handle means in all machines of this image, if that is known and programs can use it.
    pub fn map(&self, handle: u64) -> Option<&Arc<dyn MapOps>> {
        self.maps.as_ref()?.get(handle)
    }

    /// Where in this process the prog array with a handle keeps its programs, as long as the image lives.
    pub fn program_words(&self, handle: u64) -> Option<SlotWords> {
        self.slot_words(handle, MapKind::ProgArray)
    }

    /// Where in this process the array of maps with a handle keeps the handles of inner maps, as long as the image lives.
    pub fn inner_words(&self, handle: u64) -> Option<SlotWords> {
        self.slot_words(handle, MapKind::ArrayOfMaps)
    }

    fn slot_words(&self, handle: u64, kind: MapKind) -> Option<SlotWords> {
        let map = self.map(handle).filter(|map| map.spec().kind == kind)?;
        let mut known = self.slot_words.lock().expect("no panic while held");
        known.entry(handle).or_insert_with(|| map.slot_words()).clone()
    }

    /// Where in this process the arrays among the maps of its machines are, by handle, if some may be inner maps.
    pub fn array_table(&self) -> Option<&ArrayTable> {
        self.maps.as_ref()?.array_table()
    }

    /// Addresses of words of 32 bits: one that is the index of no function, then the index of each program's first function.
    pub fn entry_words(&self) -> Range<u64> {
        let words = self.entries.as_ptr_range();
        words.start.expose_provenance() as u64..words.end.expose_provenance() as u64
    }

    /// Addresses that generated code may load from: those of [`Image::entry_words`], of [`Image::array_table`], and of what
    /// [`Image::program_words`] and [`Image::inner_words`] have given.
    pub fn constant_words(&self) -> Vec<Range<u64>> {
        let known = self.slot_words.lock().expect("no panic while held");
        let arrays = self.array_table().map(ArrayTable::range);
        known.values().flatten().map(SlotWords::range).chain(arrays).chain([self.entry_words()]).collect()
    }

    /// A host function whose first argument is the map with this handle, if there can be one. The image keeps it.
    pub fn bound(&self, host: u32, handle: u64) -> Option<HostFn> {
        let map = self.map(handle)?;
        let mut bound = self.bound.lock().expect("no panic while held");
        if let Some(known) = bound.get(&(host, handle)) {
            return Some(known.clone());
        }
        let function = self.hosts[host as usize].bind(map)?;
        bound.insert((host, handle), function.clone());
        Some(function)
    }

    /// All that [`Image::bound`] has made.
    pub fn all_bound(&self) -> Vec<HostFn> {
        self.bound.lock().expect("no panic while held").values().cloned().collect()
    }

    /// Number that no other image of the process has.
    pub fn id(&self) -> ImageId {
        self.id
    }

    /// The identity of the program with this index.
    ///
    /// # Panics
    /// If there is none.
    pub fn program_id(&self, index: usize) -> ProgramId {
        assert!(index < self.programs.len(), "program {index} of the image");
        self.id.program(index)
    }

    /// The index of a program; `None` for one of another image.
    pub fn index_of(&self, program: ProgramId) -> Option<usize> {
        self.id.index(program, self.programs.len())
    }

    /// The arena that its programs' memory is in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The programs, in the order they were given.
    pub fn programs(&self) -> &[Valid<Program>] {
        &self.programs
    }

    /// Gives its programs back.
    pub fn into_programs(self) -> Vec<Valid<Program>> {
        self.programs
    }

    /// Index of the program with this name.
    pub fn program_index(&self, name: &str) -> Option<usize> {
        self.programs.iter().position(|program| &*program.name == name)
    }

    /// Flat pc of a program's first instruction.
    pub fn entry(&self, program: usize) -> usize {
        self.bases[program] as usize
    }

    /// Index of a program's first function.
    pub fn entry_function(&self, program: usize) -> usize {
        self.entries[program + 1] as usize
    }

    /// All instructions, by flat pc.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// What each instruction refers to, by flat pc.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The BPF functions of all programs, sorted by start.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// How large the frames of its functions are.
    pub fn frame_sizes(&self) -> FrameSizes {
        self.frame_sizes
    }

    /// Bytes from the frame of a function to that of the one it calls: the largest frame and an unused gap, so that an
    /// overrun of its end is detected.
    pub fn frame_stride(&self) -> u32 {
        self.frame_sizes.largest.max(1).saturating_add(FRAME_GAP)
    }

    /// Address of the first function, as programs see it; the others follow, one slot of the table each. 0 if there
    /// are none.
    pub fn first_slot(&self) -> u64 {
        if self.functions.is_empty() { 0 } else { self.handles.addr(0) }
    }

    /// Index of the function that contains a flat pc.
    pub fn function_at(&self, pc: usize) -> usize {
        self.functions.partition_point(|function| function.start as usize <= pc) - 1
    }

    /// The host functions that its programs refer to.
    pub fn hosts(&self) -> &[HostFn] {
        &self.hosts
    }

    /// Address of the function (or label) at `pc` of a program, as programs see it.
    pub fn function_address(&self, program: usize, pc: usize) -> Option<u64> {
        let base = *self.bases.get(program)?;
        let program = self.programs.get(program)?;
        (pc < program.insns.len()).then_some(())?;
        address(&self.functions, &self.labels, self.hosts.len(), &self.handles, base + pc as u32)
    }

    /// Address of a host function, if programs or data of this image refer to one of this name.
    pub fn host_address(&self, name: &str) -> Option<u64> {
        let index = self.hosts.iter().position(|host| &**host.name() == name)?;
        Some(self.handles.addr((self.functions.len() + index) as u32))
    }

    /// What an address that a program gave can be called as.
    pub fn callee(&self, addr: u64) -> Option<Callee> {
        let index = self.handles.index(addr)?;
        let functions = self.functions.len() as u32;
        match index.checked_sub(functions) {
            None => Some(Callee::Function(index)),
            Some(host) => ((host as usize) < self.hosts.len()).then_some(Callee::Host(host)),
        }
    }

    /// The flat pc at an address that a program gave.
    pub fn label(&self, addr: u64) -> Option<usize> {
        let index = self.handles.index(addr)? as usize;
        match index.checked_sub(self.functions.len()) {
            None => Some(self.functions[index].start as usize),
            Some(index) => self.labels.get(index.checked_sub(self.hosts.len())?).map(|pc| *pc as usize),
        }
    }

    /// Flat pcs that have an address without being the start of a function.
    pub fn labels(&self) -> impl Iterator<Item = usize> + '_ {
        self.labels.iter().map(|pc| *pc as usize)
    }

    /// The labels among some flat pcs, and the slot of the first: they lie side by side.
    pub fn labels_in(&self, pcs: Range<u32>) -> (u32, &[u32]) {
        let first = self.labels.partition_point(|pc| *pc < pcs.start);
        let end = self.labels.partition_point(|pc| *pc < pcs.end);
        ((self.functions.len() + self.hosts.len() + first) as u32, &self.labels[first..end])
    }

    /// The trap of a [`Link::Trap`].
    pub fn trap(&self, index: u32) -> Trap {
        let (code, detail) = &self.traps[index as usize];
        Trap::new(*code, detail.as_str())
    }

    /// Program, and pc in it, of a flat pc.
    pub fn locate(&self, pc: usize) -> (usize, usize) {
        let index = self.bases.partition_point(|base| *base as usize <= pc) - 1;
        (index, pc - self.bases[index] as usize)
    }

    /// Program, function, instruction and C line of a flat pc.
    pub fn location(&self, pc: usize) -> Location {
        let (index, local) = self.locate(pc);
        let program = &self.programs[index];
        let line = program.line_at(local).map(|line| format!("{}:{}: {}", line.file, line.line, line.text.trim()));
        Location {
            object: Arc::clone(&program.object),
            program: Arc::clone(&program.name),
            function: Arc::clone(&self.functions[self.function_at(pc)].name),
            pc: local,
            insn: self.insn_text(index, local),
            line,
        }
    }

    /// An instruction of a program as text, a call with the name of the function.
    pub fn insn_text(&self, index: usize, pc: usize) -> String {
        let text = text_at(&self.programs[index].insns, pc);
        match self.links[self.bases[index] as usize + pc] {
            Link::Host(host) => format!("{text} ({})", self.hosts[host as usize].name()),
            Link::Function(callee) => format!("{text} ({})", self.functions[callee as usize].name),
            Link::TailCall => format!("{text} (bpf_tail_call)"),
            Link::None | Link::Value(_) | Link::Trap(_) => text,
        }
    }

    /// An engine's translation of this image, made by the first caller. One engine per image: asking for
    /// another type panics.
    pub fn translation<T: Any + Send + Sync>(&self, make: impl FnOnce(&Image) -> T) -> &T {
        let translation = self.translation.get_or_init(|| Box::new(make(self)));
        translation.downcast_ref().expect("one engine translates an image")
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs: Vec<&str> = self.programs.iter().map(|program| &*program.name).collect();
        f.debug_struct("Image").field("programs", &programs).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Address of the function or label that starts at a flat pc.
fn address(functions: &[Function], labels: &[u32], hosts: usize, handles: &HandleRange, pc: u32) -> Option<u64> {
    if let Ok(index) = functions.binary_search_by_key(&pc, |function| function.start) {
        return Some(handles.addr(index as u32));
    }
    let index = labels.binary_search(&pc).ok()?;
    Some(handles.addr((functions.len() + hosts + index) as u32))
}

#[cfg(test)]
pub(crate) mod rig;
#[cfg(test)]
mod tests;
