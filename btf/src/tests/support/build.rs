//! Builds BTF bytes type by type.

use twinbpf_btf::{Btf, Endian, kind};

pub(crate) const SIGNED: u32 = 1 << 24;
pub(crate) const BOOL: u32 = 1 << 26;

/// BTF under construction. Every method that adds a type returns its id.
pub(crate) struct Build {
    pub(crate) endian: Endian,
    pub(crate) types: Vec<u32>,
    pub(crate) strings: Vec<u8>,
    pub(crate) count: u32,
}

impl Build {
    pub(crate) fn new(endian: Endian) -> Build {
        Build { endian, types: Vec::new(), strings: vec![0], count: 0 }
    }

    pub(crate) fn str(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let offset = self.strings.len() as u32;
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        offset
    }

    pub(crate) fn add(&mut self, name: &str, kind: u32, vlen: usize, kflag: bool, size: u32, extra: &[u32]) -> u32 {
        let name = self.str(name);
        let info = kind << 24 | vlen as u32 | u32::from(kflag) << 31;
        self.types.extend([name, info, size]);
        self.types.extend(extra);
        self.count += 1;
        self.count
    }

    pub(crate) fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.add(name, kind::INT, 0, false, size, &[encoding | (size * 8)])
    }

    pub(crate) fn ptr(&mut self, to: u32) -> u32 {
        self.add("", kind::PTR, 0, false, to, &[])
    }

    pub(crate) fn array(&mut self, elem: u32, len: u32) -> u32 {
        self.add("", kind::ARRAY, 0, false, 0, &[elem, elem, len])
    }

    pub(crate) fn modifier(&mut self, kind: u32, name: &str, to: u32) -> u32 {
        self.add(name, kind, 0, false, to, &[])
    }

    /// Struct or union of members (name, type, bit offset).
    pub(crate) fn composite(&mut self, kind: u32, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let members: Vec<_> = members.iter().map(|&(name, id, off)| [self.str(name), id, off]).collect();
        self.add(name, kind, members.len(), false, size, &members.concat())
    }

    pub(crate) fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite(kind::STRUCT, name, size, members)
    }

    /// Struct of members (name, type, bit offset, bits).
    pub(crate) fn bitfields(&mut self, name: &str, size: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let members: Vec<_> =
            members.iter().map(|&(name, id, off, bits)| [self.str(name), id, bits << 24 | off]).collect();
        self.add(name, kind::STRUCT, members.len(), true, size, &members.concat())
    }

    pub(crate) fn enumeration(&mut self, name: &str, size: u32, signed: bool, values: &[(&str, i32)]) -> u32 {
        let values: Vec<_> = values.iter().map(|&(name, value)| [self.str(name), value.cast_unsigned()]).collect();
        self.add(name, kind::ENUM, values.len(), signed, size, &values.concat())
    }

    pub(crate) fn enum64(&mut self, name: &str, signed: bool, values: &[(&str, u64)]) -> u32 {
        let values: Vec<_> =
            values.iter().map(|&(name, value)| [self.str(name), value as u32, (value >> 32) as u32]).collect();
        self.add(name, kind::ENUM64, values.len(), signed, 8, &values.concat())
    }

    pub(crate) fn proto(&mut self, result: u32, params: &[(&str, u32)]) -> u32 {
        let params: Vec<_> = params.iter().map(|&(name, id)| [self.str(name), id]).collect();
        self.add("", kind::FUNC_PROTO, params.len(), false, result, &params.concat())
    }

    pub(crate) fn func(&mut self, name: &str, proto: u32, linkage: usize) -> u32 {
        self.add(name, kind::FUNC, linkage, false, proto, &[])
    }

    pub(crate) fn var(&mut self, name: &str, id: u32, linkage: u32) -> u32 {
        self.add(name, kind::VAR, 0, false, id, &[linkage])
    }

    /// Section of entries (type, offset, size).
    pub(crate) fn datasec(&mut self, name: &str, entries: &[(u32, u32, u32)]) -> u32 {
        let entries: Vec<_> = entries.iter().map(|&(id, off, size)| [id, off, size]).collect();
        self.add(name, kind::DATASEC, entries.len(), false, 0, &entries.concat())
    }

    /// `int (*)[n]`, as `__uint` makes it.
    pub(crate) fn uint(&mut self, int: u32, n: u32) -> u32 {
        let array = self.array(int, n);
        self.ptr(array)
    }

    pub(crate) fn word(&self, value: u32) -> [u8; 4] {
        match self.endian {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn half(&self, value: u16) -> [u8; 2] {
        match self.endian {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    pub(crate) fn words(&self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|&word| self.word(word)).collect()
    }

    /// The section, with `pad` unknown bytes at the end of the header.
    pub(crate) fn bytes_padded(&self, pad: u32) -> Vec<u8> {
        let types = (self.types.len() * 4) as u32;
        let mut bytes = self.half(0xeb9f).to_vec();
        bytes.extend([1, 0]);
        bytes.extend(self.words(&[24 + pad, 0, types, types, self.strings.len() as u32]));
        bytes.extend(vec![0xaa; pad as usize]);
        bytes.extend(self.words(&self.types));
        bytes.extend(&self.strings);
        bytes
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes_padded(0)
    }

    /// The BTF of a module on top of `self`, to be built.
    pub(crate) fn split(&self) -> Build {
        let strings = vec![0; self.strings.len()];
        Build { endian: self.endian, types: Vec::new(), strings, count: self.count }
    }

    /// What [`Build::split`] gave, on top of the same types.
    pub(crate) fn btf_on(&self, base: &std::sync::Arc<Btf>, below: &Build) -> Btf {
        let own = self.strings[below.strings.len()..].to_vec();
        let bytes = Build { endian: self.endian, types: self.types.clone(), strings: own, count: 0 }.bytes();
        Btf::parse_split(&bytes, base).expect("built BTF is well-formed")
    }

    pub(crate) fn btf(&self) -> Btf {
        Btf::parse(&self.bytes(), self.endian).expect("built BTF is well-formed")
    }
}

/// Runs a test in both byte orders.
pub(crate) fn both(test: impl Fn(Endian)) {
    test(Endian::Little);
    test(Endian::Big);
}
