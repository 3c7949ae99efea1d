//! A linked program: instructions whose references to the world are still names.
//!
//! The loader makes it, every backend consumes it. Nothing here exists yet at run time: a map is an index
//! into a list of specifications, a host function an index into the list of [`Extern`]s.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::sync::Arc;

use crate::{Insn, LowerFrameError, Moved, Raw, SpliceError, lower_frame, splice};

/// Instructions of one entry function and of every function it reaches, in one stream.
///
/// ```
/// use std::collections::BTreeMap;
/// use twinbpf_isa::asm;
/// use twinbpf_isa::program::{Function, Program};
///
/// let insns = asm::parse("r0 = 7; exit")?;
/// let entry = Function { name: "seven".into(), start: 0, signature: None };
/// let program = Program {
///     object: "seven.bpf.o".into(),
///     name: "seven".into(),
///     section: ".text".into(),
///     insns,
///     bindings: BTreeMap::new(),
///     functions: vec![entry],
///     lines: Vec::new(),
///     stack_size: 512,
/// };
/// assert_eq!(program.line_at(0), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// File name of the object, for messages.
    pub object: Arc<str>,
    /// Name of the entry function's symbol.
    pub name: Arc<str>,
    /// ELF section it came from, for example `xdp` or `tp/syscalls/sys_enter_read`.
    pub section: Arc<str>,
    /// One per 8-byte slot.
    pub insns: Vec<Insn>,
    /// What the instruction at a pc refers to. An `lddw` is keyed by its first slot.
    pub bindings: BTreeMap<usize, Binding>,
    /// The functions, sorted by `start`; the first starts at 0 and is the entry.
    pub functions: Vec<Function>,
    /// Source lines, sorted by pc. Empty without `.BTF.ext`.
    pub lines: Vec<Line>,
    /// Stack bytes of one frame (512 unless the loader is configured otherwise).
    pub stack_size: u32,
}

/// One function inside a [`Program`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of its ELF symbol.
    pub name: Arc<str>,
    /// pc of its first instruction; it ends where the next one starts.
    pub start: usize,
    /// Number of arguments and so on, where BTF tells.
    pub signature: Option<Signature>,
}

/// A C source line of an instruction and those after it up to the next record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// First pc it covers.
    pub pc: usize,
    /// Path of the source file, as the compiler recorded it.
    pub file: Arc<str>,
    /// Line number, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The text of the line.
    pub text: Arc<str>,
}

/// What an instruction refers to, still symbolic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// `lddw`: the handle of a map.
    Map(usize),
    /// `lddw`: an address inside the single value of a data map (`.data`, `.rodata`, `.bss`).
    MapValue {
        /// Index of the map.
        map: usize,
        /// Byte offset inside the value.
        off: u32,
    },
    /// `lddw`: the address of the function of this program that starts at this pc.
    Function(usize),
    /// `call`: an undefined symbol; `lddw`: its address.
    Extern(usize),
}

impl Binding {
    fn moved(self, moved: Moved) -> Binding {
        match self {
            Binding::Function(start) => Binding::Function(moved.start(start).unwrap_or(start)),
            Binding::Map(_) | Binding::MapValue { .. } | Binding::Extern(_) => self,
        }
    }
}

/// A cursor over the bindings of a program, which are read in ascending order of pc.
pub struct InOrder<'a> {
    /// The next one and its pc, which is one that no instruction has if there is none.
    next: (usize, Option<Binding>),
    rest: btree_map::Iter<'a, usize, Binding>,
}

impl<'a> InOrder<'a> {
    /// At the first of them.
    pub fn new(bindings: &'a BTreeMap<usize, Binding>) -> InOrder<'a> {
        let mut bindings = InOrder { next: (0, None), rest: bindings.iter() };
        bindings.take();
        bindings
    }

    /// The next one, wherever it is.
    pub(crate) fn take(&mut self) -> Option<Binding> {
        let next = self.rest.next().map_or((usize::MAX, None), |(pc, binding)| (*pc, Some(*binding)));
        std::mem::replace(&mut self.next, next).1
    }

    /// The one at `pc`.
    pub fn at(&mut self, pc: usize) -> Option<Binding> {
        if self.next.0 == pc { self.take() } else { None }
    }
}

/// An undefined symbol of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Extern {
    /// Name of its ELF symbol.
    pub name: Arc<str>,
    /// An unresolved weak symbol has address 0.
    pub weak: bool,
    /// What kind of thing it must be.
    pub kind: ExternKind,
    /// Prototype by BTF, for functions that have one.
    pub signature: Option<Signature>,
}

/// What an extern is, by section and use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternKind {
    /// Called, or its address taken as a function.
    Function,
    /// `.kconfig` value; kept for the kernel backend.
    Kconfig,
    /// `.ksyms` variable; kept for the kernel backend.
    Ksym,
    /// A type, field or value that CO-RE did not find. The name says why.
    Absent,
}

/// Type of a function: from a BTF prototype or from the Rust type of a closure.
///
/// ```
/// use twinbpf_isa::program::{Signature, ValType};
///
/// // double f(int, ...);
/// let int = ValType::Int { size: 4, signed: true };
/// let f = Signature { params: vec![int], variadic: true, result: ValType::Float { size: 8 } };
/// assert_eq!(f.to_string(), "double (s32, ...)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Fixed parameters, in order. At most five.
    pub params: Vec<ValType>,
    /// Whether `...` follows.
    pub variadic: bool,
    /// Type of the result.
    pub result: ValType,
}

/// C type class of a parameter or result: what decides extension and register class.
///
/// ```
/// use twinbpf_isa::program::ValType;
///
/// let size_t = ValType::Int { size: 8, signed: false };
/// assert_ne!(size_t, ValType::Pointer);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValType {
    /// No value: the type of a function that returns nothing.
    Void,
    /// An integer, enum or bool of 1, 2, 4 or 8 bytes.
    Int {
        /// Size in bytes: 1, 2, 4 or 8.
        size: u8,
        /// Sign-extended if set, else zero-extended.
        signed: bool,
    },
    /// `float` (4) or `double` (8); BPF passes the bits in an integer register.
    Float {
        /// Size in bytes: 4 or 8.
        size: u8,
    },
    /// A pointer to anything, 8 bytes.
    Pointer,
    /// Something that cannot be passed in one register (a struct by value, `__int128`).
    Unsupported,
}

/// A prototype as C would write it, without names.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.result)?;
        for (index, param) in self.params.iter().enumerate() {
            write!(f, "{}{param}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str(match (self.params.is_empty(), self.variadic) {
            (true, true) => "...)",
            (true, false) => "void)",
            (false, true) => ", ...)",
            (false, false) => ")",
        })
    }
}

impl fmt::Display for ValType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValType::Void => f.write_str("void"),
            ValType::Int { size, signed } => write!(f, "{}{}", if *signed { 's' } else { 'u' }, u32::from(*size) * 8),
            ValType::Float { size: 4 } => f.write_str("float"),
            ValType::Float { .. } => f.write_str("double"),
            ValType::Pointer => f.write_str("pointer"),
            ValType::Unsupported => f.write_str("aggregate"),
        }
    }
}

impl Program {
    /// Replaces `remove` instructions from `at` on, see [`splice`]. What referred to instructions that stay still does;
    /// the inserted ones refer to nothing, and belong to the function and the C line of the place.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn splice(&mut self, at: usize, remove: usize, insert: &[Insn]) -> Result<Moved, SpliceError> {
        let mut raws: Vec<Raw> = self.insns.iter().map(|insn| insn.encode()).collect();
        // Addresses of functions are bindings here, and no distances.
        let named = self.functions_named();
        named.iter().for_each(|pc| raws[*pc].regs &= 0x0f);
        let insert: Vec<Raw> = insert.iter().map(|insn| insn.encode()).collect();
        let moved = splice(&mut raws, at, remove, &insert)?;
        for pc in named.iter().filter_map(|pc| moved.insn(*pc)) {
            raws[pc].regs |= 0x40;
        }
        let decoded: Result<Vec<Insn>, _> = raws.into_iter().map(Insn::decode).collect();
        self.insns = decoded.expect("what was decoded once, with other distances");
        self.bindings = std::mem::take(&mut self.bindings)
            .into_iter()
            .filter_map(|(pc, binding)| Some((moved.insn(pc)?, binding.moved(moved))))
            .collect();
        self.functions.iter_mut().for_each(|function| function.start = moved.start(function.start).unwrap_or(at));
        self.lines.retain_mut(|line| match moved.start(line.pc) {
            Some(pc) => {
                line.pc = pc;
                true
            }
            None => false,
        });
        Ok(moved)
    }

    /// Lets the frame of the entry function begin so many bytes lower, so that what is inserted at its start may keep
    /// them for itself.
    ///
    /// # Errors
    /// As of [`lower_frame`]. The program may be half changed then.
    pub fn lower_frame(&mut self, bytes: usize) -> Result<(), LowerFrameError> {
        let end = self.functions.get(1).map_or(self.insns.len(), |function| function.start);
        let mut entry: Vec<Raw> = self.insns[..end].iter().map(|insn| insn.encode()).collect();
        let inserted = lower_frame(&mut entry, self.stack_size, bytes)?;
        for (insn, raw) in self.insns.iter_mut().zip(entry) {
            *insn = Insn::decode(raw).expect("what was decoded once, with another offset");
        }
        for (at, raw) in inserted {
            self.splice(at, 0, &[Insn::decode(raw).expect("an addition")])?;
        }
        Ok(())
    }

    /// Instructions that load the address of a function of this program.
    fn functions_named(&self) -> Vec<usize> {
        let is_function = |binding: &Binding| matches!(binding, Binding::Function(_));
        self.bindings.iter().filter(|(_, binding)| is_function(binding)).map(|(pc, _)| *pc).collect()
    }

    /// The function that contains `pc`.
    pub fn function_at(&self, pc: usize) -> Option<&Function> {
        let index = self.functions.partition_point(|function| function.start <= pc);
        index.checked_sub(1).map(|index| &self.functions[index])
    }

    /// The source line of `pc`, inside the same function.
    pub fn line_at(&self, pc: usize) -> Option<&Line> {
        let index = self.lines.partition_point(|line| line.pc <= pc);
        let line = &self.lines[index.checked_sub(1)?];
        (line.pc >= self.function_at(pc)?.start).then_some(line)
    }
}
