//! What can be wrong with BTF, with a map's definition, and with a value given by the user.

use super::TypeId;

/// Why bytes are not BTF, or a type in it makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// Section shorter than its header or than the header says.
    #[error("BTF is truncated: {what} needs {need} bytes, there are {have}")]
    Truncated {
        /// Part of the section.
        what: &'static str,
        /// Bytes it needs.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Not BTF.
    #[error("BTF magic is {magic:#06x}, not 0xeb9f")]
    Magic {
        /// What stands there.
        magic: u16,
    },
    /// BTF of the other byte order.
    #[error("BTF has the other byte order than its ELF file")]
    ByteOrder,
    /// Unknown version.
    #[error("BTF version {version} is unknown, only 1 is defined")]
    Version {
        /// What stands there.
        version: u8,
    },
    /// A number in a header that cannot be.
    #[error("BTF header is corrupt: {what} is {value}")]
    Header {
        /// Field.
        what: &'static str,
        /// What stands there.
        value: usize,
    },
    /// The string section does not start and end with NUL.
    #[error("BTF string section does not start and end with a NUL byte")]
    Strings,
    /// Unknown kind.
    #[error("BTF type {id} has unknown kind {kind}")]
    Kind {
        /// Type.
        id: TypeId,
        /// What stands there.
        kind: u32,
    },
    /// The type section ends inside a type.
    #[error("BTF type {id} runs past the end of the type section")]
    TypeTruncated {
        /// Type.
        id: TypeId,
    },
    /// A type refers to an id that does not exist.
    #[error("BTF type {id} refers to type {target}, the last one is [{last}]")]
    Dangling {
        /// Type.
        id: TypeId,
        /// What it refers to.
        target: TypeId,
        /// Number of types.
        last: u32,
    },
    /// A name outside the string section.
    #[error("BTF type {id} has a name at offset {offset}, the string section has {len} bytes")]
    Name {
        /// Type.
        id: TypeId,
        /// Offset.
        offset: u32,
        /// Length of the string section.
        len: usize,
    },
    /// A field of a type that cannot be.
    #[error("BTF type {id} is corrupt: {what} is {value}")]
    Field {
        /// Type.
        id: TypeId,
        /// Field.
        what: &'static str,
        /// What stands there.
        value: u32,
    },
    /// No such id.
    #[error("BTF has no type {id}, the last one is [{last}]")]
    NoType {
        /// Id asked for.
        id: TypeId,
        /// Number of types.
        last: u32,
    },
    /// A chain of types without end, or too long.
    #[error("BTF type {id} leads through more than {limit} types; does it contain itself?")]
    TooDeep {
        /// Type where the chain starts.
        id: TypeId,
        /// Longest chain followed.
        limit: usize,
    },
    /// A type that needs itself before it is complete.
    #[error("BTF type {id} ({name}) contains itself")]
    Endless {
        /// Type.
        id: TypeId,
        /// C name.
        name: String,
    },
    /// Text of types that would be absurdly long.
    #[error("BTF type {id} makes a text of more than {limit} bytes")]
    TooLong {
        /// Type that was written last.
        id: TypeId,
        /// Most bytes for types of this number.
        limit: usize,
    },
    /// The type has no size (void, a function, a forward declaration).
    #[error("BTF type {id} ({name}) has no size")]
    Unsized {
        /// Type.
        id: TypeId,
        /// C name.
        name: String,
    },
    /// The size does not fit 32 bits.
    #[error("BTF type {id} is 4 GiB or larger")]
    TooLarge {
        /// Type.
        id: TypeId,
    },
    /// A record of `.BTF.ext` that cannot be.
    #[error(".BTF.ext is corrupt: {what} is {value}")]
    Ext {
        /// Field.
        what: &'static str,
        /// What stands there.
        value: u32,
    },
}

/// Why a definition in `.maps` makes no map. The conditions are those of libbpf's `parse_btf_map_def`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Static or extern.
    #[error("map '{map}' is {linkage}: a map must be a global variable that this object defines")]
    Linkage {
        /// Map.
        map: String,
        /// `static` or `extern`.
        linkage: &'static str,
    },
    /// The variable is no struct.
    #[error("map '{map}' is of type {found}, a map is defined by a struct")]
    NotStruct {
        /// Map.
        map: String,
        /// What it is.
        found: String,
    },
    /// The struct is larger than the variable in the section.
    #[error("map '{map}' is corrupt: its struct has {size} bytes, its variable {var}")]
    Size {
        /// Map.
        map: String,
        /// Bytes of the struct.
        size: u32,
        /// Bytes of the variable.
        var: u32,
    },
    /// More members than a definition can have.
    #[error("map '{map}' has {count} keys, more than {limit}")]
    TooManyKeys {
        /// Map.
        map: String,
        /// Members.
        count: usize,
        /// Most that are read.
        limit: usize,
    },
    /// An integer key that is not written with `__uint`.
    #[error("map '{map}': '{key}' is of type {found}, an integer is written __uint({key}, N)")]
    Integer {
        /// Map.
        map: String,
        /// Key.
        key: String,
        /// Type of the member.
        found: String,
    },
    /// `key` or `value` that is not written with `__type`.
    #[error("map '{map}': '{key}' is of type {found}, a type is written __type({key}, T)")]
    NotPointer {
        /// Map.
        map: String,
        /// `key` or `value`.
        key: &'static str,
        /// Type of the member.
        found: String,
    },
    /// `key`/`key_size` or `value`/`value_size` that differ.
    #[error("map '{map}': {key} is {first} by one key and {second} by another")]
    Conflict {
        /// Map.
        map: String,
        /// `key_size` or `value_size`.
        key: &'static str,
        /// Size read first.
        first: u32,
        /// Size read later.
        second: u32,
    },
    /// `pinning` other than 0 or 1.
    #[error("map '{map}': pinning is {value}, only LIBBPF_PIN_NONE (0) and LIBBPF_PIN_BY_NAME (1) exist")]
    Pinning {
        /// Map.
        map: String,
        /// What stands there.
        value: u32,
    },
    /// `pinning` in an inner map.
    #[error("map '{map}': an inner map cannot be pinned")]
    InnerPinned {
        /// Inner map.
        map: String,
    },
    /// Maps of maps of maps.
    #[error("map '{map}': an inner map cannot have 'values', maps nest one level")]
    Nested {
        /// Inner map.
        map: String,
    },
    /// `values` not at the end.
    #[error("map '{map}': 'values' must be the last key")]
    ValuesNotLast {
        /// Map.
        map: String,
    },
    /// `values` in a map that holds neither maps nor programs.
    #[error("map '{map}' of type {kind} cannot have 'values', only maps of maps and prog_array can")]
    ValuesKind {
        /// Map.
        map: String,
        /// Map type.
        kind: String,
    },
    /// `values` of a wrong type.
    #[error("map '{map}': 'values' is of type {found}, it is written __array(values, {want})")]
    ValuesType {
        /// Map.
        map: String,
        /// Type of the member.
        found: String,
        /// What it should be.
        want: &'static str,
    },
    /// No `type`.
    #[error("map '{map}' has no type, write __uint(type, BPF_MAP_TYPE_...)")]
    NoType {
        /// Map.
        map: String,
    },
    /// A map type that no kernel has.
    #[error("map '{map}' has type {number}, which is no BPF_MAP_TYPE_* that twinbpf knows")]
    Kind {
        /// Map.
        map: String,
        /// What stands there.
        number: u32,
    },
    /// A type in the definition makes no sense.
    #[error("map '{map}': '{key}': {source}")]
    Btf {
        /// Map.
        map: String,
        /// Key.
        key: &'static str,
        /// Why.
        source: BtfError,
    },
}

/// Why a text is no value of a variable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetError {
    /// Not a number.
    #[error("'{text}' is no {type_name}: {hint}")]
    Syntax {
        /// What was given.
        text: String,
        /// Type of the variable.
        type_name: String,
        /// What is understood.
        hint: &'static str,
    },
    /// Number too large or too small.
    #[error("{text} does not fit {type_name}, which holds {min} to {max}")]
    Range {
        /// What was given.
        text: String,
        /// Type of the variable.
        type_name: String,
        /// Smallest value.
        min: String,
        /// Largest value.
        max: String,
    },
    /// No enumerator of that name.
    #[error("'{text}' is not in {type_name}, which has {known}")]
    Enumerator {
        /// What was given.
        text: String,
        /// Type of the variable.
        type_name: String,
        /// Enumerators, separated by commas.
        known: String,
    },
    /// String too long.
    #[error("the string has {len} bytes, {type_name} holds {max} and the NUL")]
    TooLong {
        /// Bytes given.
        len: usize,
        /// Type of the variable.
        type_name: String,
        /// Bytes that fit.
        max: usize,
    },
    /// A string for C with a NUL inside.
    #[error("the string contains a NUL byte, where C would end it")]
    Nul,
    /// A type that no text can set.
    #[error("{type_name} ({kind}) cannot be set: {hint}")]
    Unsettable {
        /// Kind of type.
        kind: &'static str,
        /// Type of the variable.
        type_name: String,
        /// What to do.
        hint: String,
    },
    /// The path names no member.
    #[error("{type_name} has no member '{member}', it has {known}")]
    NoMember {
        /// What was asked for.
        member: String,
        /// Struct.
        type_name: String,
        /// Its members.
        known: String,
    },
    /// The path asks for a member of something that has none.
    #[error("{type_name} ({kind}) has no members, so no '{member}'")]
    NotStruct {
        /// What was asked for.
        member: String,
        /// Type.
        type_name: String,
        /// Kind of type.
        kind: &'static str,
    },
    /// The path asks for an element of something that is no array.
    #[error("{type_name} ({kind}) has no elements, so no [{index}]")]
    NotArray {
        /// Index asked for.
        index: u32,
        /// Type.
        type_name: String,
        /// Kind of type.
        kind: &'static str,
    },
    /// Index past the end.
    #[error("index {index} is past the end of {type_name}")]
    Index {
        /// Index asked for.
        index: u32,
        /// Array.
        type_name: String,
    },
    /// A path that cannot be read.
    #[error("'{path}' is no path of members and indices, such as .a.b[2]")]
    Path {
        /// What was given.
        path: String,
    },
    /// Brackets, names and values that do not fit together.
    #[error("expected {expected}, found '{rest}'")]
    Initialiser {
        /// What follows.
        rest: String,
        /// What should.
        expected: &'static str,
    },
    /// The bytes of the variable end before the member.
    #[error("{type_name} needs {need} bytes at offset {off}, the variable has {have}")]
    OutOfBounds {
        /// Type.
        type_name: String,
        /// Bytes it needs.
        need: usize,
        /// Where.
        off: usize,
        /// Bytes there are.
        have: usize,
    },
    /// The type makes no sense.
    #[error(transparent)]
    Btf(#[from] BtfError),
}
