//! BTF: the types of an object, read from untrusted bytes.
//!
//! [`Btf`] keeps the two tables of the section (types as words in host order, strings) and the position of each
//! type; a [`Type`] is decoded on each access and borrows from them. So parsing a kernel's 5 MB of BTF costs
//! one pass and little more memory than the file.
//!
//! Everything here is total: ids that lead nowhere, types that contain themselves and sizes that overflow are
//! errors or `None`, all walks are bounded in depth and in work, and what is returned is bounded by a small
//! multiple of the input. Strings longer than 511 bytes are cut.
//!
//! A module's BTF continues where the kernel's ends ([`Btf::parse_split`]): its ids and string offsets count from
//! there.
//!
//! Not here: deduplicating BTF, comparing types with those of a kernel (that is CO-RE's), and anything of ELF;
//! sections come in as bytes.

mod c;
mod edit;
mod error;
mod ext;
mod format;
mod index;
mod initialiser;
mod layout;
mod maps;
mod order;
mod parse;
mod query;
mod raw;
mod types;
mod value;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

pub use twinbpf_isa::Endian;

pub(crate) use edit::{Edit, Entry, FuncCopy};
pub use error::{BtfError, MapError, SetError};
pub use ext::{BtfExt, CoreKind, CoreRelo, ExtSection, FuncInfo, LineInfo, LineResolver};
pub use format::{format_value, json_value};
pub use index::essential_name;
pub use initialiser::encode_initialiser;
pub use layout::{Layouts, fields};
pub use maps::{MapDecl, Slots, SlotsKind, UnknownKey, map_specs};
pub use types::{
    Array, Composite, Datasec, Enum, Enumerator, FuncProto, Int, Linkage, Member, Param, Type, TypeId, VarInfo,
};
pub use value::{MemberLocation, encode_value, locate, set_value};

/// The types of an object, or of a kernel.
#[derive(Debug)]
pub struct Btf {
    endian: Endian,
    /// The types that this one continues from.
    base: Option<Arc<Btf>>,
    /// Id of the first type in `starts`: 1, or the one after the last of `base`.
    first_id: u32,
    /// Offset of the first string in `strings`: 0, or the one after the last of `base`.
    first_str: u32,
    /// The type section.
    words: Vec<u32>,
    /// Where in `words` each type starts.
    starts: Vec<u32>,
    /// The string section, NUL-terminated; bytes that are not UTF-8 are replaced one by one.
    strings: String,
    /// Made once enough lookups were answered without it.
    names: OnceLock<index::NameIndex>,
    /// How many were.
    queries: AtomicU32,
}
