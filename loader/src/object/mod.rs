//! An opened object: everything its ELF file says, as plain data that may be edited before it is linked.
//!
//! Opening is pure and nearly total: only a file that is no BPF object at all, or needs absurd amounts of
//! memory, is refused. An unknown section, a broken relocation, an instruction that does not decode, a map
//! without a type fail the program that uses them, at [`Object::link`]. What libbpf would refuse or ignore is
//! listed in [`Object::report`].
//!
//! Memory is bounded by about a hundred times the size of the file, time by its size times a logarithm.

mod arena;
mod code;
mod data;
mod elements;
mod externs;
mod functions;
mod image;
mod legacy;
mod maps;
mod slots;
mod source;
mod spec;
mod struct_ops;
mod symbol_layout;
mod types;
mod vars;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use twinbpf_btf::{Btf, BtfError, CoreRelo, LineInfo, TypeId};
use twinbpf_isa::program::Extern;
use twinbpf_isa::{Endian, Insn, encode_all};
use twinbpf_vm::digest::Digest;
use twinbpf_vm::map::{MapSpec, Slot};

pub use elements::split_setting;
pub use spec::{DataPointer, Note, NoteKind, ProgramSpec, Reference, Role};
pub use struct_ops::StructOps;
pub use vars::Variable;

use crate::elf::{Elf, Read, Section, SectionType};
use crate::error::Error;
use crate::section::SectionKind;
pub(crate) use arena::ArenaData;
use elements::ElementTypes;
use externs::Externs;
use functions::{Functions, is_code};
use maps::Maps;
use spec::Notes;
pub(crate) use symbol_layout::SymbolLayout;
use types::{Records, Types};

/// An opened object.
///
/// Lists refer to each other by index, so entries may be edited and appended, not removed.
///
/// ```
/// use twinbpf_isa::{Endian, Insn};
/// use twinbpf_loader::{LinkOptions, Object};
///
/// // r0 = 7; exit
/// let code = [0xb7, 0, 0, 0, 7, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
/// let object = Object::from_code("seven", &code, Endian::Little)?;
/// assert_eq!(&*object.programs[0].name, "main");
/// let options = LinkOptions { entries: vec!["main".to_owned()], ..LinkOptions::default() };
/// assert_eq!(object.link(&options)?.programs[0].insns.len(), 2);
/// # Ok::<(), twinbpf_loader::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Object {
    /// File name, for messages.
    pub name: Arc<str>,
    /// [`Digest`] of the bytes it was opened from, whatever was edited since.
    pub digest: u128,
    /// Byte order it was compiled for.
    pub endian: Endian,
    /// Every function, in the order of sections and offsets; then those that begin inside the symbol of another, where
    /// a call says so.
    pub programs: Vec<ProgramSpec>,
    /// Maps that were defined, then one for each data section.
    pub maps: Vec<MapSpec>,
    /// Undefined symbols that programs or data refer to.
    pub externs: Vec<Extern>,
    /// Pointers inside data maps.
    pub pointers: Vec<DataPointer>,
    /// Values of `.struct_ops`, for the kernel.
    pub struct_ops: Vec<StructOps>,
    /// Variables in data sections.
    pub variables: Vec<Variable>,
    /// `license` section. Absent stays absent: no licence is invented.
    pub license: Option<Arc<str>>,
    /// Contents of the `version` section.
    pub version: Option<u32>,
    /// `config` section, as it is.
    pub config: Option<Vec<u8>>,
    /// Types of the section `.BTF`, if there is one.
    pub btf: Option<Arc<Btf>>,
    /// Why there is no type data, if there should be.
    pub btf_error: Option<BtfError>,
    /// What was accepted beyond libbpf, kept for later, or skipped.
    pub report: Vec<Note>,
    pub(crate) records: Records,
    pub(crate) layout: SymbolLayout,
    element_types: ElementTypes,
}

impl Object {
    /// The global functions of an object that has no entry points: what it offers to an embedder.
    pub fn exported(&self) -> impl Iterator<Item = &str> {
        // A slot of a prog array makes an entry of any function.
        let is_section = |spec: &ProgramSpec| spec.role == Role::Entry && spec.attach.kind != SectionKind::Text;
        let library = !self.programs.iter().any(is_section);
        self.programs.iter().filter(move |spec| library && spec.global).map(|spec| &*spec.name)
    }

    /// Opens the object file `bytes`; `name` is for messages.
    pub fn open(name: &str, bytes: &[u8]) -> Result<Object, Error> {
        let elf = Elf::parse(bytes).map_err(|cause| Error::new(&name.into(), cause))?;
        Object::of_elf(name, bytes, &elf)
    }

    /// An object of nothing but instructions, as other machines and their test suites take them: one program,
    /// `main`, and a function wherever a local call goes. Bytes after the last whole instruction do not count.
    ///
    /// # Errors
    /// There are too many of them.
    pub fn from_code(name: &str, code: &[u8], endian: Endian) -> Result<Object, Error> {
        Object::of_elf(name, code, &image::of_code(code, endian))
    }

    /// As [`Object::from_code`], of decoded instructions.
    ///
    /// ```
    /// use twinbpf_isa::asm;
    /// use twinbpf_loader::Object;
    ///
    /// let object = Object::from_insns("sum", &asm::parse("r0 = r1\nr0 += r2\nexit")?)?;
    /// assert_eq!(object.program("main"), Some(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn from_insns(name: &str, insns: &[Insn]) -> Result<Object, Error> {
        Object::from_code(name, &encode_all(insns, Endian::Little), Endian::Little)
    }

    fn of_elf(name: &str, bytes: &[u8], elf: &Elf) -> Result<Object, Error> {
        let name: Arc<str> = name.into();
        let fail = |cause| Error::new(&name, cause);
        let mut notes = Notes::default();
        let types = Types::read(elf, &mut notes);
        let mut functions = Functions::collect(elf, bytes.len(), &mut notes);
        let mut maps = Maps::collect(elf, &types, &mut notes).map_err(fail)?;
        let externs = Externs::collect(elf, &types);
        let targets = code::Targets { elf, maps: &maps, externs: &externs };
        code::resolve(&mut functions, &targets, &mut notes);
        let struct_ops = struct_ops::collect(elf, &types, &functions, &targets);
        let pointers = data::pointers(&functions, &targets, &mut notes);
        maps.initialise(elf, &functions, &externs, &mut notes);
        add_roles(&mut functions, &pointers, &maps, &mut notes);
        for spec in &mut functions.specs {
            spec.signature = types.signature(&spec.section, spec.start, &spec.name);
        }
        note_sections(elf, &mut notes);
        let variables = vars::collect(elf, &maps, &types);
        let layout = SymbolLayout::collect(elf, &types);
        let (btf, btf_error) = match types.btf {
            Ok(btf) => (btf, None),
            Err(error) => (None, Some(error)),
        };
        Ok(Object {
            digest: Digest::of(bytes),
            endian: elf.endian,
            programs: functions.specs,
            maps: maps.specs,
            externs: externs.list,
            pointers,
            struct_ops,
            variables,
            license: elf.section("license").map(|section| text(section.data)),
            version: elf.section("version").and_then(|section| section.data.first_chunk()).map(|v| elf.endian.u32(*v)),
            config: config(elf),
            btf,
            btf_error,
            report: notes.0,
            records: types.records,
            layout,
            element_types: ElementTypes::default(),
            name,
        })
    }

    /// Index of the function with this name; of several, the first global one.
    pub fn program(&self, name: &str) -> Option<usize> {
        let named = |global: bool| self.programs.iter().position(|spec| &*spec.name == name && spec.global == global);
        named(true).or_else(|| named(false))
    }

    /// Index of the map with this name.
    pub fn map(&self, name: &str) -> Option<usize> {
        self.maps.iter().position(|spec| &*spec.name == name)
    }

    /// The CO-RE relocations of a function; `insn_off` counts bytes from the start of its section.
    ///
    /// Linking applies them: for the VM only where it is given types ([`LinkOptions::kernel`](crate::LinkOptions)).
    pub fn core_relocs(&self, spec: &ProgramSpec) -> &[CoreRelo] {
        self.records.relos(&spec.section, spec.start, spec.insns.len())
    }

    /// The source lines of a function, by rising `insn_off`, which counts bytes from the start of its section.
    pub fn line_infos(&self, spec: &ProgramSpec) -> &[LineInfo] {
        self.records.lines(&spec.section, spec.start, spec.insns.len())
    }

    /// The `FUNC` that `.BTF.ext` gives a function.
    pub fn func_type(&self, spec: &ProgramSpec) -> Option<TypeId> {
        self.records.function(&spec.section, spec.start)
    }
}

/// Functions that nothing in the object reaches, or that a map's slot names, are entries, wherever they are.
fn add_roles(functions: &mut Functions, pointers: &[DataPointer], maps: &Maps, notes: &mut Notes) {
    let refs = functions.specs.iter().flat_map(|spec| spec.refs.values());
    let all = refs.chain(pointers.iter().map(|pointer| &pointer.target));
    let reached: HashSet<usize> = all
        .filter_map(|target| match target {
            Ok(Reference::Call(function) | Reference::Address(function)) => Some(*function),
            Ok(Reference::Map(_) | Reference::MapValue { .. } | Reference::Extern(_)) | Err(_) => None,
        })
        .collect();
    let slots = maps.specs.iter().flat_map(|spec| &spec.slots);
    let named: HashSet<Arc<str>> = slots
        .filter_map(|(_, slot)| match slot {
            Slot::Program(name) => Some(name.clone()),
            Slot::Map(_) => None,
        })
        .collect();
    for (index, spec) in functions.specs.iter_mut().enumerate().filter(|(_, spec)| spec.role == Role::Function) {
        let outside = spec.attach.kind != SectionKind::Text;
        if outside && !spec.global && spec.inside.is_none() {
            notes.accepted(&spec.section, format!("'{}' is static", spec.name));
        }
        if named.contains(&spec.name) || (outside && !reached.contains(&index)) {
            spec.role = Role::Entry;
        }
    }
}

/// The sections `config`: a linker that is not clang's may leave several.
fn config(elf: &Elf) -> Option<Vec<u8>> {
    let sections = elf.sections.iter().filter(|section| &*section.name == "config");
    let bytes: Vec<&[u8]> = sections.map(|section| section.data).collect();
    (!bytes.is_empty()).then(|| bytes.join(&b'\n'))
}

/// Says what becomes of sections that hold neither code nor data nor maps.
fn note_sections(elf: &Elf, notes: &mut Notes) {
    if elf.endian == Endian::Big {
        notes.accepted(&".data".into(), "the object is big-endian; initial data stays in its byte order");
    }
    for section in &elf.sections {
        let name = &*section.name;
        let known = ["license", "version", "config", ".maps", "maps", ".addr_space.1"].contains(&name);
        let data = [".data", ".rodata", ".bss", "maps/"].iter().any(|prefix| name.starts_with(prefix));
        if section.kind == SectionType::Other || !section.alloc || section.size == 0 || known || data {
            continue;
        }
        if name.trim_start_matches('?').starts_with(".struct_ops") {
            notes.kept(&section.name, "struct_ops values, for the kernel");
        } else if !is_code(section) {
            notes.skipped(&section.name, describe(section));
        }
    }
}

fn describe(section: &Section) -> &'static str {
    match section.kind {
        SectionType::NoBits => "zeroes outside .bss, which programs cannot refer to",
        SectionType::ProgBits | SectionType::Other => {
            "data outside .data, .rodata and .bss, which programs cannot refer to"
        }
    }
}

/// A C string, or all of the bytes.
fn text(bytes: &[u8]) -> Arc<str> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into()
}
