//! Linking for a kernel: instruction streams as `BPF_PROG_LOAD` takes them, but for file descriptors.
//!
//! The result is libbpf's in a normal form: where its stream has the descriptor of a map or of a module's types,
//! this one has a number, and [`KernelProgram::fixups`] says which descriptor belongs there. Everything else (order
//! of functions, CO-RE, `.kconfig`, `.ksyms`, instructions that stand for what is not there) is byte for byte what
//! libbpf makes.
//!
//! Pure as all of this crate: the kernel is what a [`Kernel`] says of it. Nothing here loads anything, probes
//! features, or changes what an old kernel would refuse: the kernel crate does.

mod attach;
mod context;
mod edit;
mod exception;
mod externs;
mod link;
mod loss;
mod null_check;
mod output;
mod reach;
mod stream;
mod struct_ops;
pub(crate) mod target;
mod types;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twinbpf_btf::{FuncInfo, LineInfo, TypeId};
use twinbpf_isa::Raw;
use twinbpf_isa::program::Line;
use twinbpf_vm::map::MapSpec;

pub use context::ContextTypes;
pub use loss::{COUNTERS, Counter, Counters, Dropped, Helper, dropped_by};
pub use output::{FORMATS, FormatUse, OUTPUT, RESERVE};
pub use target::{Kernel, KernelData, Module, kernel_version};

use crate::error::{Cause, Error};
pub use crate::link::CoreApplied;
use crate::link::Failure;
use crate::section::Attach;

/// What to link, and for what besides the kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    /// Indices in [`Object::programs`](crate::Object::programs). `None`: the entries with a program type that do not
    /// say otherwise (`?` before the section's name).
    pub programs: Option<Vec<usize>>,
    /// Types that CO-RE uses in place of the kernel's, for kernels without any. The later ones are searched for
    /// names that the first does not have.
    pub core: Vec<Module>,
    /// Lines of configuration that go before the kernel's.
    pub config: Option<String>,
    /// Maps that will not be created. An instruction that loads one becomes `call 2001000000 + map`.
    pub absent: BTreeSet<usize>,
    /// What programs attach to, by index in [`Object::programs`](crate::Object::programs), where the section's name
    /// does not name it: `[module:]function`, the name of a tracepoint, hook or iterator.
    pub targets: BTreeMap<usize, Arc<str>>,
    /// Programs may print: see [`KernelLinked::add_output`]. Otherwise [`RESERVE`] is a function that the kernel lacks.
    pub output: bool,
}

/// An object linked for a kernel.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KernelLinked {
    /// In the order of the object.
    pub programs: Vec<KernelProgram>,
    /// Programs that could not be linked, each with its reason.
    pub failures: Vec<Failure>,
    /// The maps of the object, then `.kconfig` if there is such a value. libbpf's order, and its map numbers.
    pub maps: Vec<KernelMap>,
    /// Values of `.struct_ops`, in the order of [`Object::struct_ops`](crate::Object::struct_ops), or why the kernel
    /// takes one not.
    pub struct_ops: Vec<Result<KernelStructOps, Cause>>,
    /// Modules whose functions are called: the types of number `i` belong in slot `i + 1` of `fd_array`.
    pub fd_array: Vec<Arc<str>>,
}

/// A map, and where its key and value are described.
#[derive(Clone, Debug)]
pub struct KernelMap {
    /// The map. Data sections and `.kconfig` have their contents.
    pub spec: MapSpec,
    /// Type of the key among the object's, for `btf_key_type_id`.
    pub key_type: Option<TypeId>,
    /// Type of the value; of a data section the section's.
    pub value_type: Option<TypeId>,
    /// The same types of [`MapSpec::inner`].
    pub inner_types: (Option<TypeId>, Option<TypeId>),
}

/// A value of `.struct_ops` in the form that the kernel takes: a map of type `struct_ops` with one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelStructOps {
    /// Index in [`Object::struct_ops`](crate::Object::struct_ops).
    pub index: usize,
    /// Name of the variable.
    pub name: Arc<str>,
    /// Type of the value, for `btf_vmlinux_value_type_id` of `BPF_MAP_CREATE`.
    pub value_type: TypeId,
    /// Whose type that is, if not the kernel's own: the descriptor of its types is `value_type_btf_obj_fd`.
    pub module: Option<Arc<str>>,
    /// The element, zero where descriptors of programs belong.
    pub value: Vec<u8>,
    /// Offset in the element, and the program whose descriptor (as 8 bytes) belongs there, by index in
    /// [`Object::programs`](crate::Object::programs).
    pub programs: Vec<(u32, usize)>,
    /// Registered by a link (`BPF_F_LINK`), not by writing the element.
    pub link: bool,
}

impl KernelLinked {
    /// Adds a map of the session's own, whose contents have no types, as the last one, and returns its index.
    pub fn add_map(&mut self, spec: MapSpec) -> usize {
        self.maps.push(KernelMap { spec, key_type: None, value_type: None, inner_types: (None, None) });
        self.maps.len() - 1
    }
}

/// What a program at instructions of user space is loaded for, which its `expected_attach_type` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attaching {
    /// As the section says: USDT and perf's notation for one link to all instructions, where the kernel has such links.
    #[default]
    BySection,
    /// Events, each of which it is attached to.
    ByEvents,
    /// One link to all instructions in a file (`BPF_TRACE_UPROBE_MULTI`).
    ByOneLink,
}

/// A program in the form that the kernel takes, but for file descriptors.
#[derive(Clone, Debug)]
pub struct KernelProgram {
    /// Index in [`Object::programs`](crate::Object::programs).
    pub spec: usize,
    /// Name of its ELF symbol.
    pub name: Arc<str>,
    /// Name of its ELF section.
    pub section: Arc<str>,
    /// What the section says.
    pub attach: Attach,
    /// What it attaches to, for kinds that say so when they are loaded.
    pub target: Option<AttachTarget>,
    /// Of a struct_ops program: which member of the struct it is, for `expected_attach_type`.
    pub member: Option<u32>,
    /// Of a program at instructions of user space: what it is loaded for.
    pub attaching: Attaching,
    /// One per slot, in normal form: the index of a map in place of its descriptor; for a variable of a module, one
    /// more than the index in [`Kernel::modules`] in place of the descriptor of its types.
    pub insns: Vec<Raw>,
    /// Slots that need a descriptor. An `lddw` is keyed by its first.
    pub fixups: BTreeMap<usize, Fixup>,
    /// First slot and name of each function.
    pub functions: Vec<(usize, Arc<str>)>,
    /// `func_info`: `insn_off` counts slots of `insns`. Empty if not every function has a record.
    pub func_info: Vec<FuncInfo>,
    /// `line_info`: `insn_off` counts slots of `insns`.
    pub line_info: Vec<LineInfo>,
    /// The same lines in words, for messages.
    pub lines: Vec<Line>,
    /// The CO-RE relocations that were applied, by slot.
    pub core: Vec<CoreApplied>,
    /// Slots of the calls that reserve a record of the session's output.
    pub reserves: Vec<usize>,
    /// The formats that it prints with.
    pub formats: Vec<FormatUse>,
    /// Instructions that the kernel refuses if it gets to them, and what they stand for.
    pub poisons: Vec<Poison>,
}

/// A descriptor that an instruction needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fixup {
    /// `lddw`: the `imm` of the slot is that of a map.
    Map(usize),
    /// `lddw`: the same; the next slot has the offset in its value.
    MapValue(usize),
    /// `lddw` of a variable of a module: the `imm` of the *next* slot is that of the module's types.
    ModuleTypes(Arc<str>),
}

/// What a program attaches to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachTarget {
    /// Name, without a module's.
    pub name: Arc<str>,
    /// What it is.
    pub btf: AttachBtf,
}

/// Where the target of a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachBtf {
    /// A type of the kernel: `attach_btf_id`.
    Kernel(TypeId),
    /// A type of a module, whose descriptor is `attach_btf_obj_fd`.
    Module {
        /// Name of the kernel module.
        module: Arc<str>,
        /// Id of the type in the module's BTF, for `attach_btf_id`.
        id: TypeId,
    },
    /// A function of another program (`freplace`), to be looked up among that program's types.
    Program,
}

/// An instruction that was made invalid, since what it needs is not there.
#[derive(Clone, Debug)]
pub struct Poison {
    /// Index of the instruction slot.
    pub pc: usize,
    /// What it would have done, with its C line and what is missing.
    pub error: Error,
    /// Whether the program gets there.
    pub reach: Reach,
}

/// Whether a program gets to an instruction, by the constants in its own instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reach {
    /// It does not: conditions before it are constants that lead elsewhere.
    Never,
    /// A path that constants do not exclude leads to it.
    Possible,
    /// It does, on every run: nothing but constants decides until then.
    Certain,
}

impl KernelProgram {
    /// Why there is no point in asking the kernel: an invalid instruction that every run gets to.
    pub fn refusal(&self) -> Option<&Error> {
        self.poisons.iter().find(|poison| poison.reach == Reach::Certain).map(|poison| &poison.error)
    }

    /// The C line of an instruction.
    pub fn line_at(&self, pc: usize) -> Option<&Line> {
        let index = self.lines.partition_point(|line| line.pc <= pc);
        let line = self.lines.get(index.checked_sub(1)?)?;
        (line.pc >= self.function_at(pc)?.0).then_some(line)
    }

    /// First slot and name of the function that an instruction is in.
    pub fn function_at(&self, pc: usize) -> Option<(usize, &Arc<str>)> {
        let index = self.functions.partition_point(|(start, _)| *start <= pc);
        self.functions.get(index.checked_sub(1)?).map(|(start, name)| (*start, name))
    }
}
