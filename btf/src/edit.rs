//! Changing the few things that compilers leave open, and writing types as bytes again.
//!
//! Types keep their numbers and strings their offsets; what is added comes after both.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use super::raw::{HEADER_LEN, MAGIC, RawType, TYPE_WORDS, kind, record};
use super::types::{Linkage, Type, TypeId};
use super::{Btf, Endian};

/// A copy of the types of an object, being changed.
#[derive(Debug)]
pub struct Edit<'a> {
    btf: &'a Btf,
    words: Vec<u32>,
    strings: Vec<u8>,
    last: u32,
}

/// An entry of a section (`struct btf_var_secinfo`).
#[derive(Clone, Copy, Debug)]
pub struct SectionEntry {
    /// A variable or function.
    pub var: TypeId,
    /// Where in the section it lies, in bytes.
    pub offset: u32,
    /// How many bytes it has.
    pub size: u32,
}

/// A member of a struct that is added.
#[derive(Clone, Copy, Debug)]
pub struct NewMember<'a> {
    /// Name of the member.
    pub name: &'a str,
    /// Type of the member.
    pub type_id: TypeId,
    /// Where in the struct it is, in bytes.
    pub offset: u32,
}

/// A function that was added as a copy of another.
#[derive(Clone, Copy, Debug)]
pub struct FuncCopy {
    /// Type of the copy.
    pub id: TypeId,
    /// Where in the words its parameters are.
    params: usize,
}

impl Btf {
    /// No types at all, to which others can be added.
    pub fn empty(endian: Endian) -> Btf {
        Btf {
            endian,
            base: None,
            first_id: 1,
            first_str: 0,
            words: Vec::new(),
            starts: Vec::new(),
            strings: "\0".to_owned(),
            names: OnceLock::new(),
            queries: AtomicU32::new(0),
        }
    }

    /// A copy to be changed. This is no BTF of a module.
    pub fn edit(&self) -> Edit<'_> {
        Edit { btf: self, words: self.words.clone(), strings: self.strings.clone().into_bytes(), last: self.last_id() }
    }
}

impl Edit<'_> {
    /// Sets the size of a section and its entries, which are as many as before.
    pub fn section(&mut self, id: TypeId, size: u32, entries: &[SectionEntry]) {
        let Some(at) = self.start(id, kind::DATASEC) else { return };
        self.words[at + 2] = size;
        let count = (self.words[at + 1] & 0xffff) as usize;
        for (index, entry) in entries.iter().take(count).enumerate() {
            let slot = at + TYPE_WORDS + 3 * index;
            self.words[slot..slot + 3].copy_from_slice(&[entry.var.0, entry.offset, entry.size]);
        }
    }

    /// Sets the linkage of a variable or function.
    pub fn linkage(&mut self, id: TypeId, linkage: Linkage) {
        let number = linkage as u32;
        if let Some(at) = self.start(id, kind::VAR) {
            self.words[at + TYPE_WORDS] = number;
        } else if let Some(at) = self.start(id, kind::FUNC) {
            self.words[at + 1] = self.words[at + 1] & !0xffff | number;
        }
    }

    /// Sets the type of a variable.
    pub fn retype(&mut self, id: TypeId, to: TypeId) {
        if let Some(at) = self.start(id, kind::VAR) {
            self.words[at + 2] = to.0;
        }
    }

    /// Gives the parameters of a prototype that have none a name.
    pub fn name_parameters(&mut self, proto: TypeId, name: u32) {
        let Some(at) = self.start(proto, kind::FUNC_PROTO) else { return };
        let count = (self.words[at + 1] & 0xffff) as usize;
        for index in 0..count {
            let slot = at + TYPE_WORDS + 2 * index;
            if self.words[slot] == 0 && self.words[slot + 1] != 0 {
                self.words[slot] = name;
            }
        }
    }

    /// Adds a variable; gives its id and the offset of its name.
    pub fn add_var(&mut self, name: &str, type_id: TypeId) -> (TypeId, u32) {
        let name = self.add_str(name);
        (self.add(name, kind::VAR, type_id.0, &[Linkage::Global as u32]), name)
    }

    /// An `int`: one that is there, or a new one.
    pub fn int(&mut self) -> TypeId {
        let is_int = |id: &TypeId| matches!(self.btf.type_by_id(*id), Some(Type::Int(int)) if int.bits == 32);
        match self.btf.ids().find(is_int) {
            Some(id) => id,
            None => self.add_int("int", 4, true),
        }
    }

    /// Adds an integer of so many bytes.
    pub fn add_int(&mut self, name: &str, size: u32, signed: bool) -> TypeId {
        let name = self.add_str(name);
        self.add(name, kind::INT, size, &[(u32::from(signed) << 24) | (8 * size)])
    }

    /// Adds an array.
    pub fn add_array(&mut self, element: TypeId, index: TypeId, count: u32) -> TypeId {
        self.add(0, kind::ARRAY, 0, &[element.0, index.0, count])
    }

    /// Adds a pointer; to `void` for [`TypeId`] 0.
    pub fn add_pointer_to(&mut self, pointee: TypeId) -> TypeId {
        self.add(0, kind::PTR, pointee.0, &[])
    }

    /// Adds a struct of so many bytes. It has 65,535 members at most.
    pub fn add_struct(&mut self, name: &str, size: u32, members: &[NewMember<'_>]) -> TypeId {
        let name = self.add_str(name);
        let members = &members[..members.len().min(0xffff)];
        let words = members
            .iter()
            .flat_map(|member| [self.add_str(member.name), member.type_id.0, member.offset.saturating_mul(8)]);
        let words: Vec<u32> = words.collect();
        let info = self.words.len() + 1;
        let id = self.add(name, kind::STRUCT, size, &words);
        self.words[info] |= members.len() as u32;
        id
    }

    /// Linkage of a function, as changed so far.
    pub fn func_linkage(&self, id: TypeId) -> Option<Linkage> {
        let at = self.start(id, kind::FUNC)?;
        Linkage::new(self.words[at + 1] & 0xffff)
    }

    /// Adds a pointer to a new struct of this name without members.
    pub fn add_pointer(&mut self, name: &str) -> TypeId {
        let name = self.add_str(name);
        let pointee = self.add(name, kind::STRUCT, 0, &[]);
        self.add_pointer_to(pointee)
    }

    /// Adds a copy of a function and of its prototype.
    pub fn copy_func(&mut self, id: TypeId) -> Option<FuncCopy> {
        let at = self.start(id, kind::FUNC)?;
        let [name, info, proto] = *self.words[at..at + TYPE_WORDS].first_chunk()?;
        let from = self.start(TypeId(proto), kind::FUNC_PROTO)?;
        let count = (self.words[from + 1] & 0xffff) as usize;
        let params = self.words.len() + TYPE_WORDS;
        self.words.extend_from_within(from..from + TYPE_WORDS + 2 * count);
        let proto = self.last + 1;
        self.words.extend([name, info, proto]);
        self.last += 2;
        Some(FuncCopy { id: TypeId(self.last), params })
    }

    /// Sets the type of a parameter of a copied function, and tags it.
    pub fn tag_parameter(&mut self, func: FuncCopy, index: u32, to: TypeId, tag: &str) {
        self.words[func.params + 2 * index as usize + 1] = to.0;
        let name = self.add_str(tag);
        self.add(name, kind::DECL_TAG, func.id.0, &[index]);
    }

    /// Adds a string; gives its offset.
    pub fn add_str(&mut self, text: &str) -> u32 {
        let offset = self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        offset
    }

    /// The section, in the byte order that it had.
    pub fn to_bytes(&self) -> Vec<u8> {
        let endian = self.btf.endian();
        let (types, strings) = ((self.words.len() * 4) as u32, self.strings.len() as u32);
        let header = [HEADER_LEN as u32, 0, types, types, strings];
        let mut bytes = match endian {
            Endian::Little => MAGIC.to_le_bytes().to_vec(),
            Endian::Big => MAGIC.to_be_bytes().to_vec(),
        };
        bytes.extend([1, 0]);
        for word in header.iter().chain(&self.words) {
            bytes.extend(match endian {
                Endian::Little => word.to_le_bytes(),
                Endian::Big => word.to_be_bytes(),
            });
        }
        bytes.extend(&self.strings);
        bytes
    }

    fn start(&self, id: TypeId, kind: u32) -> Option<usize> {
        let at = *self.btf.starts.get(id.0.checked_sub(self.btf.first_id)? as usize)? as usize;
        let head = record::<RawType>(&self.words[at..at + TYPE_WORDS]);
        (head.kind() == kind).then_some(at)
    }

    fn add(&mut self, name: u32, kind: u32, size_or_type: u32, extra: &[u32]) -> TypeId {
        self.words.extend([name, kind << 24, size_or_type]);
        self.words.extend(extra);
        self.last += 1;
        TypeId(self.last)
    }
}
