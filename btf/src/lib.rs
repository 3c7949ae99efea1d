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
//! [`core_relo`] compares types of an object with those of a kernel, [`Btf::to_c`] writes them as a C header, and
//! [`format_value`], [`encode_value`] and their like turn bytes of a type into text and back. [`glob`] is how patterns match names.
//! What map definitions mean is the loader's; sections come in as bytes.
#![forbid(unsafe_code)]

mod c;
pub mod core_relo;
mod edit;
mod error;
mod ext;
mod format;
pub mod glob;
mod index;
mod initialiser;
mod order;
mod parse;
mod query;
mod raw;
mod types;
mod value;

// Under this name the loader's tests have it too, with which some files are shared.
#[cfg(test)]
extern crate self as twinbpf_btf;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

pub use twinbpf_isa::Endian;

pub use edit::{Edit, FuncCopy, NewMember, SectionEntry};
pub use error::{BtfError, SetError};
pub use ext::{BtfExt, CoreKind, CoreRelo, ExtSection, FuncInfo, LineInfo, LineResolver};
pub use format::{format_value, json_value};
pub use index::{TypeKind, essential_name};
pub use initialiser::encode_initialiser;
pub use query::MAX_DEPTH;
pub use raw::kind;
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
