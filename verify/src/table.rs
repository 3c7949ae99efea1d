//! Input of the verifier, which it trusts: the embedder's description of a module and the VM.

use std::ops::Range;

/// Code to be checked, as it lies in memory.
#[derive(Clone, Debug)]
pub struct Module<'a> {
    /// Functions, by address.
    pub functions: Vec<Function<'a>>,
    /// What is between them: addresses and bytes.
    pub padding: Vec<(u64, &'a [u8])>,
    /// Memory layout of the VM that runs the module.
    pub layout: &'a Layout,
}

/// A function. It has the arguments `(context, r10, r1, r2, r3, r4)`, all in registers.
/// Control enters at its first byte.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// Its bytes: instructions, jump tables, constants.
    pub code: &'a [u8],
    /// Bytes of its BPF frame, below r10.
    pub frame: u32,
}

/// The VM that code runs in.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes at either end of the arena in which nothing is mapped, on both sides.
    pub margin: u64,
    /// Bytes below a native stack that no access may touch and no call may jump over.
    pub guard: u32,
    /// From the r10 of a function to that of its callee.
    pub stride: u32,
    /// Bytes of the VM context that code may load.
    pub context: u32,
    /// What is in it, by offset. What is not named here is loaded as an unknown number and never stored.
    pub fields: Vec<Field>,
    /// Tables that its fields point to.
    pub regions: Vec<Region>,
    /// Memory at these addresses that code may load from, of which nothing is known.
    pub words: Vec<Range<u64>>,
    /// What may be called besides functions, by address. Of several with the same address, one must fit.
    pub callees: Vec<Callee>,
}

/// Fields of the VM context.
#[derive(Clone, Debug)]
pub struct Field {
    /// Offset of the first.
    pub offset: u32,
    /// Bytes of each.
    pub size: u32,
    /// How many there are.
    pub count: u32,
    /// What code may do with it.
    pub access: Access,
}

/// What code may do with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It never changes while code runs, and holds this.
    Constant(Load),
    /// It is stored, as this and with its whole size.
    Write(Write),
}

/// What a constant field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The address of the arena.
    Arena,
    /// The greatest r10 that a callee may get.
    FrameLimit,
    /// The address of this region, by index.
    Region(u16),
    /// A constant, with its value.
    Number(u64),
}

/// What may be stored into a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A value without any constraint.
    Any,
    /// A number less than this.
    Below(u64),
    /// An address in the function's own native frame.
    NativeFrame,
    /// The function's r10.
    Frame,
}

/// A table that code may load from.
#[derive(Clone, Debug)]
pub struct Region {
    /// What is in it.
    pub content: Content,
}

/// What a table holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// These words, which never change.
    Known(Vec<u64>),
    /// Addresses of so many functions, each of which was verified or is trusted.
    Functions(u64),
    /// So many unknown bytes.
    Bytes(u64),
}

impl Region {
    /// Length of the region in bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Known(words) => 8 * words.len() as u64,
            Content::Functions(count) => 8 * count,
            Content::Bytes(len) => *len,
        }
    }
}

/// A function with the C calling convention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callee {
    /// Native address of the callee.
    pub address: u64,
    /// What its first arguments must be.
    pub arguments: Vec<Argument>,
    /// Words of arguments that it may take from the stack.
    pub stack: u32,
    /// What it gives.
    pub returns: Returns,
}

/// What an argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A value without any constraint.
    Any,
    /// The VM context.
    Context,
    /// Exactly this constant.
    Number(u64),
    /// A number less than this.
    Below(u64),
}

/// What a callee gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A number without an address in it.
    Number,
    /// In rax the address of a function that takes the caller's frame over, if rdx is zero.
    TailTarget,
}

impl Layout {
    /// The field that these bytes are all of.
    pub(crate) fn field(&self, offset: u64, size: u64) -> Option<Access> {
        let field = self.covering(offset, size)?;
        ((offset - u64::from(field.offset)).is_multiple_of(u64::from(field.size)) && size == u64::from(field.size))
            .then_some(field.access)
    }

    /// The fields of one kind that these bytes are inside of.
    pub(crate) fn covering(&self, offset: u64, size: u64) -> Option<&Field> {
        let index = self.fields.partition_point(|field| u64::from(field.offset) <= offset).checked_sub(1)?;
        let field = &self.fields[index];
        let end = u64::from(field.offset) + u64::from(field.size) * u64::from(field.count);
        (offset + size <= end).then_some(field)
    }
}
