//! Errors of BTF parsing, and of values given by the user.

use super::TypeId;

/// Why bytes are not BTF, or a type in it makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
    /// The data does not begin with BTF's magic number.
    #[error("BTF magic is {magic:#06x}, not 0xeb9f")]
    Magic {
        /// The number found in its place.
        magic: u16,
    },
    /// BTF of the other byte order.
    #[error("BTF has the other byte order than its ELF file")]
    ByteOrder,
    /// The header states an unknown version of the format.
    #[error("BTF version {version} is unknown, only 1 is defined")]
    Version {
        /// Version that the header states.
        version: u8,
    },
    /// A number in a header that cannot be.
    #[error("BTF header is corrupt: {what} is {value}")]
    Header {
        /// Name of the header field.
        what: &'static str,
        /// Value of the field.
        value: usize,
    },
    /// The string section does not start and end with NUL.
    #[error("BTF string section does not start and end with a NUL byte")]
    Strings,
    /// A type has a kind that `linux/btf.h` does not define.
    #[error("BTF type {id} has unknown kind {kind}")]
    Kind {
        /// Id of the type.
        id: TypeId,
        /// Number of the kind.
        kind: u32,
    },
    /// The type section ends inside a type.
    #[error("BTF type {id} runs past the end of the type section")]
    TypeTruncated {
        /// Id of the type.
        id: TypeId,
    },
    /// A type refers to an id that does not exist.
    #[error("BTF type {id} refers to type {target}, the last one is [{last}]")]
    Dangling {
        /// Id of the type.
        id: TypeId,
        /// What it refers to.
        target: TypeId,
        /// Number of types.
        last: u32,
    },
    /// A name outside the string section.
    #[error("BTF type {id} has a name at offset {offset}, the string section has {len} bytes")]
    Name {
        /// Id of the type.
        id: TypeId,
        /// Offset in the string section.
        offset: u32,
        /// Length of the string section.
        len: usize,
    },
    /// A field of a type that cannot be.
    #[error("BTF type {id} is corrupt: {what} is {value}")]
    Field {
        /// Id of the type.
        id: TypeId,
        /// Name of the field.
        what: &'static str,
        /// The value found there.
        value: u32,
    },
    /// No such id.
    #[error("BTF has no type {id}, the last one is [{last}]")]
    NoType {
        /// The requested id.
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
        /// Id of the type.
        id: TypeId,
        /// Name of the type, as C writes it.
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
        /// Id of the type.
        id: TypeId,
        /// Name of the type, as C writes it.
        name: String,
    },
    /// The size does not fit 32 bits.
    #[error("BTF type {id} is 4 GiB or larger")]
    TooLarge {
        /// Id of the type.
        id: TypeId,
    },
    /// A record of `.BTF.ext` that cannot be.
    #[error(".BTF.ext is corrupt: {what} is {value}")]
    Ext {
        /// Name of the field.
        what: &'static str,
        /// The value found there.
        value: u32,
    },
}

/// Why a text is no value of a variable.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
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
        /// Smallest value that the type holds.
        min: String,
        /// Largest value that the type holds.
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
        /// Bytes of the given string.
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
        /// Name of the requested member.
        member: String,
        /// C name of the struct or union.
        type_name: String,
        /// Names of its members, separated by commas.
        known: String,
    },
    /// The path names a member of a type that has none.
    #[error("{type_name} ({kind}) has no members, so no '{member}'")]
    NotStruct {
        /// Name of the requested member.
        member: String,
        /// C name of the type.
        type_name: String,
        /// Kind of type.
        kind: &'static str,
    },
    /// The path indexes a type that is no array.
    #[error("{type_name} ({kind}) has no elements, so no [{index}]")]
    NotArray {
        /// The requested index.
        index: u32,
        /// C name of the type.
        type_name: String,
        /// Kind of type.
        kind: &'static str,
    },
    /// Index past the end.
    #[error("index {index} is past the end of {type_name}")]
    Index {
        /// The requested index.
        index: u32,
        /// C name of the array type.
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
        /// The rest of the text, from the error on.
        rest: String,
        /// Description of the expected syntax.
        expected: &'static str,
    },
    /// The bytes of the variable end before the member.
    #[error("{type_name} needs {need} bytes at offset {off}, the variable has {have}")]
    OutOfBounds {
        /// C name of the type.
        type_name: String,
        /// Bytes it needs.
        need: usize,
        /// Byte offset of the value.
        off: usize,
        /// Bytes there are.
        have: usize,
    },
    /// The type makes no sense.
    #[error(transparent)]
    Btf(#[from] BtfError),
}
