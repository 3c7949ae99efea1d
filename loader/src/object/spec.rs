//! Programs, functions and their notes in an [`Object`](super::Object), as plain data.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use twinbpf_isa::program::Signature;
use twinbpf_isa::{Insn, Raw, context_reads};

use crate::error::Cause;
use crate::section::Attach;

/// One function of the object, as it was compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSpec {
    /// Name of its ELF symbol.
    pub name: Arc<str>,
    /// Name of its ELF section.
    pub section: Arc<str>,
    /// What the section, or for `BEGIN` and its like in `.text` the name, says of it.
    pub attach: Attach,
    /// Whether it is linked by default.
    pub role: Role,
    /// Visible outside its file (`STB_GLOBAL` or `STB_WEAK`).
    pub global: bool,
    /// Whether another definition may replace it (`STB_WEAK`).
    pub weak: bool,
    /// `STV_HIDDEN` or `STV_INTERNAL`: the kernel verifies it as a static function.
    pub hidden: bool,
    /// Slot of its first instruction, counted from the start of the section.
    pub start: usize,
    /// One per 8-byte slot, in little-endian form, not decoded: what does not decode fails when it is used.
    pub insns: Vec<Raw>,
    /// What the instruction at a pc of this function refers to. A bad relocation fails when it is used.
    pub refs: BTreeMap<usize, Result<Reference, Cause>>,
    /// Prototype by BTF.
    pub signature: Option<Signature>,
    /// Of a function that begins inside the symbol of another, where only an instruction that names the place says that
    /// one does: the function of that symbol.
    pub inside: Option<usize>,
    /// Why the function as a whole cannot be used. One that lies outside its section has no instructions.
    pub fault: Option<Cause>,
}

impl ProgramSpec {
    /// The bytes that it reads of what its first argument points to, by their offsets, as
    /// [`context_reads`] finds them. `None`: they are not known.
    pub fn context_reads(&self) -> Option<Vec<Range<i32>>> {
        let insns: Option<Vec<Insn>> = self.insns.iter().map(|raw| Insn::decode(*raw).ok()).collect();
        context_reads(&insns?)
    }
}

/// Whether a function is linked by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// An entry point, which is linked by default.
    Entry,
    /// A function that is linked only where another one reaches it, or the caller names it.
    Function,
}

/// What an instruction refers to. Indices are those of the lists in [`Object`](super::Object).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `lddw`: a map.
    Map(usize),
    /// `lddw`: an address inside a data map.
    MapValue {
        /// Index of the map.
        map: usize,
        /// Byte offset; may be one past the end.
        off: u32,
    },
    /// `call`: a function of this object.
    Call(usize),
    /// `lddw`: the address of a function of this object.
    Address(usize),
    /// `call` or `lddw`: an undefined symbol.
    Extern(usize),
}

/// An 8-byte pointer inside a data map.
#[derive(Clone, Debug, PartialEq)]
pub struct DataPointer {
    /// Index of the map that holds it.
    pub map: usize,
    /// Byte offset inside its value.
    pub off: u32,
    /// What it points to. A bad one fails the programs that use the map.
    pub target: Result<Reference, Cause>,
}

/// A note about an object for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// What was done with it.
    pub kind: NoteKind,
    /// Section it is about.
    pub section: Arc<str>,
    /// Text of the note, one line.
    pub text: String,
}

/// What was done with the subject of a [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteKind {
    /// Accepted, though libbpf refuses or ignores it.
    Accepted,
    /// Kept as data, for another backend.
    Kept,
    /// Has no effect here.
    Skipped,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            NoteKind::Accepted => "accepted",
            NoteKind::Kept => "kept",
            NoteKind::Skipped => "skipped",
        };
        write!(f, "section {}: {kind}: {}", self.section, self.text)
    }
}

/// A broken object could give one for each relocation.
const MAX_NOTES: usize = 1000;

/// Notes in the making.
#[derive(Debug, Default)]
pub(super) struct Notes(pub(super) Vec<Note>);

impl Notes {
    pub(super) fn accepted(&mut self, section: &Arc<str>, text: impl Into<String>) {
        self.add(NoteKind::Accepted, section, text.into());
    }

    pub(super) fn kept(&mut self, section: &Arc<str>, text: impl Into<String>) {
        self.add(NoteKind::Kept, section, text.into());
    }

    pub(super) fn skipped(&mut self, section: &Arc<str>, text: impl Into<String>) {
        self.add(NoteKind::Skipped, section, text.into());
    }

    fn add(&mut self, kind: NoteKind, section: &Arc<str>, text: String) {
        if self.0.len() < MAX_NOTES {
            self.0.push(Note { kind, section: section.clone(), text });
        }
    }
}
