//! BTF: the types of an object, read from untrusted bytes.
//!
//! [`Btf`] keeps the two tables of the section (types as words in host order, strings) and the position of each
//! type; a [`Type`] is decoded when it is asked for and borrows from them. So parsing a kernel's 5 MB of BTF costs
//! one pass and little more memory than the file.
//!
//! Everything here is total: ids that lead nowhere, types that contain themselves and sizes that overflow are
//! errors or `None`, all walks are bounded in depth and in work, and what is returned is bounded by a small
//! multiple of the input. Strings longer than 511 bytes are cut.
//!
//! Not here: writing or deduplicating BTF, split BTF, comparing types with those of a kernel (CO-RE relocations
//! are read and kept as data), and anything of ELF; sections come in as bytes.

mod error;
mod ext;
mod format;
mod layout;
mod maps;
mod order;
mod parse;
mod query;
mod raw;
mod types;
mod value;

#[cfg(test)]
mod tests;

use std::hash::RandomState;
use std::sync::OnceLock;

pub use twinbpf_vm::isa::Endian;

pub use error::{BtfError, MapError, SetError};
pub use ext::{BtfExt, CoreKind, CoreRelo, ExtSection, FuncInfo, LineInfo, LineResolver};
pub use format::format_value;
pub use layout::{Layouts, fields};
pub use maps::{MapDecl, Slots, SlotsKind, UnknownKey, map_specs};
pub use types::{
    Array, Composite, Datasec, Enum, Enumerator, FuncProto, Int, Linkage, Member, Param, Type, TypeId, VarInfo,
};
pub use value::{Place, encode_value, locate, set_value};

/// The types of an object, or of a kernel.
#[derive(Debug)]
pub struct Btf {
    endian: Endian,
    /// Id of the first type in `starts`. 1, since this is no split BTF on top of another.
    first_id: u32,
    /// The type section.
    words: Vec<u32>,
    /// Where in `words` each type starts.
    starts: Vec<u32>,
    /// The string section, NUL-terminated; bytes that are not UTF-8 are replaced one by one.
    strings: String,
    /// Made by the first lookup.
    names: OnceLock<NameIndex>,
}

/// Finds types by name.
#[derive(Debug)]
struct NameIndex {
    /// With a random key, so that nobody can prepare names whose hashes collide.
    hasher: RandomState,
    /// (hash of name, kind, id) of each named type, sorted.
    entries: Vec<(u32, u8, u32)>,
}
