//! Errors of CO-RE relocations, and reasons for which a candidate type does not match.

use std::fmt;
use std::sync::Arc;

use crate::{BtfError, CoreKind, TypeId};

/// A relocation whose field, type or enumerator the target lacks.
///
/// libbpf makes an invalid instruction of it and leaves it to the verifier to find out whether it can be reached.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CoreMiss {
    /// Description of the relocation.
    pub kind: CoreKind,
    /// The type or field as the object knows it, in libbpf's words:
    /// `<byte_off> [7] struct task_struct.state (0:2 @ offset 16)`.
    pub local: String,
    /// Types of the same name, and why each will not do. Empty if the target has none.
    pub candidates: Vec<CoreCandidate>,
    /// Bytes of the field in the object and in the target, if that is what is wrong: a load or store of the one
    /// cannot become one of the other without changing the value.
    pub sizes: Option<(u32, u32)>,
}

/// A type of the target that a relocation could not use.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreCandidate {
    /// Whose type it is: `vmlinux`, or a module.
    pub btf: Arc<str>,
    /// The type there.
    pub id: TypeId,
    /// As C writes it.
    pub name: String,
    /// Why the candidate does not match.
    pub why: Mismatch,
}

/// Why a type will not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// A struct or union has no such member.
    #[error("{within} has no member '{member}'")]
    NoMember {
        /// The type that was searched.
        within: String,
        /// Name of the missing member.
        member: String,
    },
    /// The member has another type.
    #[error("its member '{member}' is {target}, not {local}")]
    MemberType {
        /// Name of the differing member.
        member: String,
        /// Type in the object.
        local: String,
        /// Type in the target.
        target: String,
    },
    /// The access names a member of something without members.
    #[error("{within} has no members, so no '{member}'")]
    NoMembers {
        /// The type that the access goes through.
        within: String,
        /// Name of the missing member.
        member: String,
    },
    /// The access indexes something that is no array.
    #[error("{found} is no array")]
    NotArray {
        /// The type that the target has there.
        found: String,
    },
    /// An array is too short.
    #[error("{found} has no element {index}")]
    TooShort {
        /// The type that the target has there.
        found: String,
        /// Index of the element.
        index: u32,
    },
    /// An enum has no such constant.
    #[error("{within} has no constant '{name}'")]
    NoConstant {
        /// The enum of the target.
        within: String,
        /// Name of the enumerator.
        name: String,
    },
    /// The relocation names a constant of something that is no enum.
    #[error("{found} is no enum")]
    NotEnum {
        /// The type that the target has there.
        found: String,
    },
    /// The type as a whole is another.
    #[error("{found} is another type")]
    Type {
        /// The type that the target has there.
        found: String,
    },
    /// It matches, and gives nothing that could be put into the instruction.
    #[error("it gives no value")]
    NoValue,
}

/// A relocation that makes no sense, or whose answer is ambiguous; no instruction comes out of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The number of the kind is not defined.
    #[error("CO-RE relocation of unknown kind {0}")]
    Kind(u32),
    /// The access string or what it leads through is broken.
    #[error("CO-RE access '{access}' of type {type_id} makes no sense: {why}")]
    Access {
        /// Access string of the relocation, as compiled.
        access: String,
        /// Type that the access string starts from.
        type_id: TypeId,
        /// What is wrong.
        why: &'static str,
    },
    /// Types that contradict themselves.
    #[error("CO-RE: {0}")]
    Btf(#[from] BtfError),
    /// Types without a name cannot be found.
    #[error("{kind} relocation of an anonymous type")]
    Anonymous {
        /// Kind of the relocation, in libbpf's words.
        kind: &'static str,
    },
    /// Candidates match at different places.
    #[error("{spec}: several types of the target match, at bits {first} and {second}")]
    OffsetAmbiguous {
        /// Description of the relocation.
        spec: String,
        /// Offset in one candidate, in bits.
        first: u64,
        /// Offset in another candidate, in bits.
        second: u64,
    },
    /// Candidates give different values.
    #[error("{spec}: several types of the target match, giving {first} and {second}")]
    ValueAmbiguous {
        /// Description of the relocation.
        spec: String,
        /// Result for one candidate.
        first: String,
        /// Result for another candidate.
        second: String,
    },
    /// This question has no answer for an array element.
    #[error("{spec}: makes no sense for an element of an array")]
    Element {
        /// Description of the relocation.
        spec: String,
    },
    /// No load of up to 8 bytes covers the bitfield.
    #[error("{spec}: no load covers the bitfield")]
    Bitfield {
        /// Description of the relocation.
        spec: String,
    },
    /// Types nest too deeply to be compared.
    #[error("types nest too deeply to be compared")]
    Depth,
    /// An offset beyond 512 MB.
    #[error("the offset is too large")]
    Offset,
    /// Comparing takes absurdly long.
    #[error("the object's types take too many steps to compare")]
    Budget,
    /// The instruction cannot take a value.
    #[error("the instruction (opcode {opcode:#04x}) is none that a CO-RE relocation can change")]
    Insn {
        /// Opcode of the instruction.
        opcode: u8,
    },
    /// The instruction holds something else than what the object's own types say.
    #[error("the instruction holds {have}, by the types of the object it should be {want}")]
    Unexpected {
        /// Value in the instruction.
        have: i64,
        /// Value by local types.
        want: i64,
    },
    /// The offset of a load or store has 15 bits.
    #[error("the target's offset {0} does not fit a load or store")]
    Range(u64),
    /// A load or store of a size that does not belong to the field.
    #[error("the instruction moves {have} bytes, the field has {want}")]
    MemSize {
        /// Bytes that it moves, 0 if none.
        have: u32,
        /// Bytes of the field.
        want: u32,
    },
}

impl CoreMiss {
    /// Of a load or store whose size cannot follow that of the field.
    pub fn of_size(kind: CoreKind, local: String, sizes: (u32, u32)) -> CoreMiss {
        CoreMiss { kind, local, candidates: Vec::new(), sizes: Some(sizes) }
    }

    /// The reasons, one a line.
    pub fn reasons(&self) -> impl Iterator<Item = String> + '_ {
        self.candidates.iter().map(|found| format!("{} {} of {}: {}", found.id, found.name, found.btf, found.why))
    }
}

impl fmt::Display for CoreMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((old, new)) = self.sizes {
            return write!(
                f,
                "{}: the field has {old} bytes here and {new} there, and only loads of pointers and unsigned integers can follow",
                self.local
            );
        }
        write!(f, "{}: ", self.local)?;
        match self.candidates.as_slice() {
            [] => f.write_str("the target has no type of this name"),
            [one] => write!(f, "{} {} of {} will not do: {}", one.id, one.name, one.btf, one.why),
            [first, rest @ ..] => {
                let more = rest.len();
                write!(f, "{} {} of {} will not do: {} (and {more} more)", first.id, first.name, first.btf, first.why)
            }
        }
    }
}
