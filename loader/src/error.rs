//! The one error of this crate: where it happened, what was found there, and what to do about it.

use std::fmt;
use std::sync::Arc;

use twinbpf_btf::BtfError;
use twinbpf_btf::core_relo::{CoreError, CoreMiss};
use twinbpf_isa::program::Line;
use twinbpf_isa::{DecodeError, Endian};

use crate::elf::names::{file_type_name, machine_name};
use crate::maps::MapError;

/// Something in an object is wrong. `{}` is one line, `{:#}` the full story.
///
/// ```
/// use twinbpf_loader::{Cause, Object};
///
/// let error = Object::open("empty.bpf.o", &[]).expect_err("there is nothing in it");
/// assert!(error.to_string().starts_with("empty.bpf.o: "));
/// assert!(matches!(error.cause(), Cause::NotElf { .. }));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Box<Report>);

/// What an [`Error`] knows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// File name of the object.
    pub object: Arc<str>,
    /// Section, if it is in one.
    pub section: Option<Arc<str>>,
    /// Program, if it is in one.
    pub program: Option<Arc<str>>,
    /// Function of the program, if it is not the first.
    pub function: Option<Arc<str>>,
    /// Instruction, counted from the start of the function.
    pub insn: Option<usize>,
    /// Its C line.
    pub line: Option<Line>,
    /// What is wrong, with the evidence.
    pub cause: Cause,
}

/// What is wrong, with the evidence.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// Some other kind of file.
    #[error("not an ELF object: it starts with {}", hex(start))]
    NotElf {
        /// Up to four bytes.
        start: Vec<u8>,
    },
    /// The file ends too early.
    #[error("truncated: {what} ends at byte {needed}, the file has {have}")]
    Truncated {
        /// The table or section.
        what: String,
        /// Bytes the file needs.
        needed: u64,
        /// Bytes it has.
        have: u64,
    },
    /// Compiled for something else.
    #[error("this is an {} object, not BPF", machine_name(*machine))]
    Machine {
        /// The ELF header's `e_machine`.
        machine: u16,
    },
    /// BPF has only 64-bit objects.
    #[error("ELF class {class}, a BPF object has class 2 (64-bit)")]
    Class {
        /// The byte `EI_CLASS` of the ELF identification.
        class: u8,
    },
    /// The file is linked already, or a core dump.
    #[error("this is {}, not a relocatable object", file_type_name(*kind))]
    NotRelocatable {
        /// The ELF header's `e_type`.
        kind: u16,
    },
    /// The ELF structure contradicts itself.
    #[error("malformed ELF: {what}")]
    Malformed {
        /// Description of the malformation.
        what: String,
    },
    /// No symbol table.
    #[error("no symbol table: the object was stripped")]
    Stripped,
    /// More than this crate is willing to hold.
    #[error("{what} takes {size} bytes, the limit is {limit}")]
    TooLarge {
        /// What needs the memory, for the message.
        what: String,
        /// Number of bytes needed.
        size: u64,
        /// Number of bytes allowed.
        limit: u64,
    },
    /// `.BTF` or `.BTF.ext` cannot be read.
    #[error("corrupt BTF: {0}")]
    Btf(BtfError),
    /// A definition in `.maps` that makes no map.
    #[error("{0}")]
    MapDef(MapError),
    /// Something needs type data and there is none.
    #[error("{what} needs BTF and the object has none")]
    NoBtf {
        /// What needs BTF, for the message.
        what: String,
    },
    /// A map definition without BTF that means nothing, or one with an unknown key.
    #[error("map '{map}': {why}")]
    Map {
        /// Name of the variable that defines the map.
        map: Arc<str>,
        /// What is wrong.
        why: String,
    },
    /// What libbpf refuses, in its words: variables of an arena that is not there, tags that name nothing.
    #[error("{0}")]
    Libbpf(String),
    /// A relocation that means nothing.
    #[error("relocation at offset {offset:#x} of section '{section}' against {}: {why}", symbol_name(symbol))]
    Reloc {
        /// Section that is patched.
        section: Arc<str>,
        /// Byte offset inside it.
        offset: u64,
        /// Symbol, empty if it has no name.
        symbol: Arc<str>,
        /// What is wrong.
        why: RelocFault,
    },
    /// An instruction that no instruction set has.
    #[error("{error} (bytes {})", hex(bytes))]
    Decode {
        /// The slot, little-endian.
        bytes: [u8; 8],
        /// Error of the instruction decoder.
        error: DecodeError,
    },
    /// A local call or function address that leads nowhere.
    #[error("calls instruction {target} of section '{section}', where no function is")]
    NoFunction {
        /// Section of the target.
        section: Arc<str>,
        /// Slot inside it.
        target: i64,
    },
    /// For a kernel: a call or function address that leads into the middle of a function.
    #[error("calls instruction {offset} of '{function}', which starts no function: only the VM runs such a call")]
    CallInside {
        /// The function of the symbol.
        function: Arc<str>,
        /// Instruction inside it.
        offset: usize,
    },
    /// For a kernel: the object was compiled for the other byte order.
    #[error("the object is {}, the kernel is {}", order_name(*.object), order_name(*.kernel))]
    ByteOrder {
        /// Of the object.
        object: Endian,
        /// Of the kernel.
        kernel: Endian,
    },
    /// A function symbol that covers no whole instructions of its section.
    #[error("the function covers bytes {start} to {end} of a section of {size} bytes")]
    Extent {
        /// Offset of the first byte in the section.
        start: u64,
        /// Byte after the last.
        end: u64,
        /// Size of the section.
        size: u64,
    },
    /// A function without instructions: LLVM removes what is reached by undefined behaviour only.
    #[error("clang left the function empty, as every path through it is undefined")]
    EmptyFunction,
    /// An edit replaced an instruction that has a reference by one that cannot hold it.
    #[error("the instruction has a reference and is no call or 64-bit load that could hold it")]
    Edited,
    /// A program with everything it calls is longer than any engine takes.
    #[error("the program and what it calls have more than {limit} instructions")]
    TooLong {
        /// Number of instructions allowed.
        limit: usize,
    },
    /// All programs together are longer than this crate links.
    #[error("the programs before this one and this one have more than {limit} instructions together")]
    TooManyInsns {
        /// Number of instructions allowed.
        limit: usize,
    },
    /// The object has no function of the requested name.
    #[error("there is no function '{name}'")]
    NoProgram {
        /// Function name that was requested.
        name: Arc<str>,
    },
    /// There is no variable of the requested name.
    #[error("variable '{name}': {known}")]
    NoVariable {
        /// As the user wrote it.
        name: Arc<str>,
        /// What there is instead.
        known: String,
    },
    /// A CO-RE relocation that makes no sense or has several answers.
    #[error("{0}")]
    Core(CoreError),
    /// A CO-RE relocation for something that the target does not have.
    #[error("{0}")]
    CoreMiss(Box<CoreMiss>),
    /// Something needs the types of the target, which has none.
    #[error("{what} need the types (BTF) of the target, and it has none")]
    NoTypes {
        /// What needs the types, for the message.
        what: String,
    },
    /// A configuration value that a program reads and that has no value.
    #[error("configuration value '{name}': {why}")]
    Kconfig {
        /// Name of the extern variable.
        name: Arc<str>,
        /// Reason, for the message.
        why: String,
    },
    /// A function or variable of the kernel that is not there.
    #[error("kernel symbol '{name}': {why}")]
    Ksym {
        /// Name of the extern symbol.
        name: Arc<str>,
        /// Reason, for the message.
        why: String,
    },
    /// An extern symbol of which nothing says who defines it.
    #[error("symbol '{name}' is not defined here, and declared neither __ksym nor __kconfig")]
    Undeclared {
        /// Name of the extern symbol.
        name: Arc<str>,
    },
    /// What a program attaches to is not there.
    #[error("attach target '{name}': {why}")]
    AttachTarget {
        /// As the section or the options name it; empty if neither does.
        name: Arc<str>,
        /// Reason, for the message.
        why: String,
    },
    /// A program uses a map that is not to be created.
    #[error("map '{map}' is used, and will not be created")]
    AbsentMap {
        /// Name of the map.
        map: Arc<str>,
    },
    /// A variable cannot be set.
    #[error("variable '{name}': {why}")]
    Variable {
        /// As the user wrote it.
        name: Arc<str>,
        /// Reason, for the message.
        why: String,
    },
}

/// Why a relocation means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelocFault {
    /// The offset is not that of an instruction or pointer inside the section.
    #[error("the offset is not that of {0}")]
    Offset(&'static str),
    /// The symbol index is outside the symbol table.
    #[error("there is no symbol {0}")]
    Symbol(usize),
    /// Neither call nor `lddw`.
    #[error("opcode {0:#04x} is neither a call nor a 64-bit load of an immediate")]
    Opcode(u8),
    /// A call to something that is no function.
    #[error("a call to something that is not a function")]
    CallToData,
    /// `-fcommon`, or no section at all.
    #[error("the symbol has no place in a section; was a global variable left uninitialised under -fcommon?")]
    NoSection,
    /// A section that holds neither code, data nor maps.
    #[error("section '{0}' holds neither functions, maps nor data")]
    Section(Arc<str>),
    /// An offset that is not the start of a map.
    #[error("no map starts at offset {offset:#x} of section '{section}'")]
    NoMap {
        /// Section of the maps.
        section: Arc<str>,
        /// Offset in the section, in bytes.
        offset: i64,
    },
    /// An address outside the data it points to.
    #[error("offset {offset} lies outside section '{section}' of {size} bytes")]
    OutOfData {
        /// Name of the data section.
        section: Arc<str>,
        /// Offset in the section, in bytes.
        offset: i64,
        /// Size of the section in bytes.
        size: u64,
    },
    /// An address inside a function.
    #[error("byte {offset} of section '{section}' is not the start of a function")]
    NotFunctionStart {
        /// Name of the code section.
        section: Arc<str>,
        /// Offset in the section, in bytes.
        offset: i64,
    },
    /// A relocation that is not supported, with its description.
    #[error("{0} are not supported")]
    Unsupported(&'static str),
}

impl Error {
    /// An error about the object as a whole.
    pub(crate) fn new(object: &Arc<str>, cause: Cause) -> Error {
        let object = object.clone();
        Error(Box::new(Report { object, section: None, program: None, function: None, insn: None, line: None, cause }))
    }

    pub(crate) fn in_section(mut self, section: &Arc<str>) -> Error {
        self.0.section = Some(section.clone());
        self
    }

    pub(crate) fn in_program(mut self, program: &Arc<str>) -> Error {
        self.0.program = Some(program.clone());
        self
    }

    pub(crate) fn in_function(mut self, function: &Arc<str>) -> Error {
        self.0.function = Some(function.clone());
        self
    }

    pub(crate) fn at(mut self, insn: usize, line: Option<Line>) -> Error {
        self.0.insn = Some(insn);
        self.0.line = line;
        self
    }

    /// Everything that is known.
    pub fn report(&self) -> &Report {
        &self.0
    }

    /// What is wrong.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        self.0.cause.hint()
    }
}

impl Cause {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Cause::NotElf { .. } | Cause::Machine { .. } | Cause::Class { .. } => {
                Some("compile with `clang -O2 -g -target bpf -c`")
            }
            Cause::NotRelocatable { .. } => Some("pass what `clang -c` makes, without linking"),
            Cause::Truncated { .. } | Cause::Malformed { .. } => Some("compile the object again"),
            Cause::Stripped => Some("keep the symbols; `llvm-strip -g` removes only debug data"),
            Cause::NoBtf { .. } => Some("compile with -g, and strip only with `llvm-strip -g`"),
            Cause::Btf(_) => Some("compile again with -g"),
            Cause::Reloc { why: RelocFault::NoSection, .. } => {
                Some("initialise the variable, or compile with -fno-common")
            }
            Cause::Reloc { why: RelocFault::Section(_), .. } => {
                Some("put data into .data, .rodata or .bss, or a section whose name starts with one of them and a dot")
            }
            Cause::CoreMiss(_) => Some(
                "guard it with bpf_core_field_exists() or bpf_core_type_exists(), or declare the other form as NAME___flavour",
            ),
            Cause::NoTypes { .. } => {
                Some("the kernel needs CONFIG_DEBUG_INFO_BTF; types of the same build can be given as a file")
            }
            Cause::Kconfig { .. } | Cause::Ksym { .. } => Some("declare it __weak to go on without it"),
            Cause::Undeclared { .. } => Some("link the objects (`bpftool gen object OUT IN...`), or declare it __weak"),
            Cause::EmptyFunction => Some("look for a null pointer, a loop without end, or a missing return"),
            Cause::ByteOrder { .. } => Some(
                "compile with `-target bpfel` (or bpfeb) as the kernel is; the VM runs objects of both byte orders",
            ),
            Cause::CallInside { .. } => Some("call the symbol itself, or give the place a function symbol of its own"),
            Cause::TooLarge { .. }
            | Cause::Map { .. }
            | Cause::MapDef(_)
            | Cause::Libbpf(_)
            | Cause::Reloc { .. }
            | Cause::Decode { .. }
            | Cause::NoFunction { .. }
            | Cause::Extent { .. }
            | Cause::TooLong { .. }
            | Cause::TooManyInsns { .. }
            | Cause::Edited
            | Cause::NoProgram { .. }
            | Cause::NoVariable { .. }
            | Cause::Core(_)
            | Cause::AbsentMap { .. }
            | Cause::AttachTarget { .. }
            | Cause::Variable { .. } => None,
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        None
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &*self.0;
        if f.alternate() {
            return report.story(f, self.hint());
        }
        write!(f, "{}: ", report.object)?;
        match (&report.program, &report.section) {
            (Some(program), Some(section)) => write!(f, "{program} (section {section}): ")?,
            (Some(program), None) => write!(f, "{program}: ")?,
            (None, Some(section)) => write!(f, "section {section}: ")?,
            (None, None) => {}
        }
        match (&report.function, report.insn) {
            (Some(function), Some(insn)) => write!(f, "function {function}, instruction {insn}: ")?,
            (Some(function), None) => write!(f, "function {function}: ")?,
            (None, Some(insn)) => write!(f, "instruction {insn}: ")?,
            (None, None) => {}
        }
        write!(f, "{}", report.cause)?;
        if let Some(line) = &report.line {
            let text = if line.text.is_empty() { String::new() } else { format!(": {}", line.text.trim()) };
            write!(f, " ({}:{}{text})", line.file, line.line)?;
        }
        match self.hint() {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl Report {
    fn story(&self, f: &mut fmt::Formatter<'_>, hint: Option<&str>) -> fmt::Result {
        write!(f, "{}\n  object:  {}", self.cause, self.object)?;
        if let Some(section) = &self.section {
            write!(f, "\n  section: {section}")?;
        }
        if let Some(program) = &self.program {
            write!(f, "\n  program: {program}")?;
        }
        if let Some(function) = &self.function {
            write!(f, ", function {function}")?;
        }
        if let Some(insn) = self.insn {
            write!(f, ", instruction {insn}")?;
        }
        if let Some(line) = &self.line {
            write!(f, "\n  source:  {}:{}:{}: {}", line.file, line.line, line.column, line.text.trim())?;
        }
        if let Cause::CoreMiss(miss) = &self.cause {
            miss.reasons().try_for_each(|reason| write!(f, "\n  type:    {reason}"))?;
        }
        match hint {
            Some(hint) => write!(f, "\n  hint:    {hint}"),
            None => Ok(()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if bytes.is_empty() { "nothing, it is empty".into() } else { bytes.join(" ") }
}

fn order_name(order: Endian) -> &'static str {
    match order {
        Endian::Little => "little-endian",
        Endian::Big => "big-endian",
    }
}

fn symbol_name(symbol: &str) -> String {
    if symbol.is_empty() { "a symbol without name".into() } else { format!("symbol '{symbol}'") }
}
