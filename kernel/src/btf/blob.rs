//! Small pieces of BTF made by hand, to ask the kernel which kinds it knows.

/// BTF in the making: words of types, and strings.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    words: Vec<u32>,
    strings: Vec<u8>,
}

/// `BTF_KIND_INT`, `PTR`, ...
const INT: u32 = 1;
const PTR: u32 = 2;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;

impl Blob {
    pub(crate) fn new() -> Blob {
        Blob { words: Vec::new(), strings: b"\0x\0int\0".to_vec() }
    }

    /// Offset of a new string.
    fn string(&mut self, text: &str) -> u32 {
        let at = self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    fn push(mut self, words: &[u32]) -> Blob {
        self.words.extend(words);
        self
    }

    /// A type without records after it. It is called `x`, where its kind has a name.
    pub(crate) fn add(self, kind: u32, vlen: u32, size_or_type: u32) -> Blob {
        let name = u32::from(!matches!(kind, PTR | FUNC_PROTO));
        self.push(&[name, kind << 24 | vlen, size_or_type])
    }

    /// `int`.
    pub(crate) fn int(self) -> Blob {
        self.push(&[3, INT << 24, 4, 1 << 24 | 32])
    }

    /// As `BPF_BTF_LOAD` takes it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let types = (self.words.len() * 4) as u32;
        assemble(&self.words, &self.strings, types)
    }
}

/// Header, types, strings.
pub(crate) fn assemble(words: &[u32], strings: &[u8], types: u32) -> Vec<u8> {
    let header = [0x0001_eb9f, 24, 0, types, types, strings.len() as u32];
    let all = header.iter().chain(words);
    let mut bytes: Vec<u8> = all.flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(strings);
    bytes
}

/// `void x(int x)`, static (0) or global (1).
pub(crate) fn function(linkage: u32) -> Blob {
    let proto = Blob::new().int().add(FUNC_PROTO, 1, 0).push(&[1, 1]);
    proto.add(FUNC, linkage, 2)
}

/// Two functions `int x(void *x)`: types 4 and 6. The argument of the second is tagged as the context.
pub(crate) fn context_argument() -> Blob {
    let mut blob = Blob::new().int().add(PTR, 0, 0);
    for proto in [3, 5] {
        blob = blob.add(FUNC_PROTO, 1, 1).push(&[1, 2]).add(FUNC, 1, proto);
    }
    let at = blob.string("arg:ctx");
    blob.push(&[at, DECL_TAG << 24, 6, 0])
}

/// A variable in a section.
pub(crate) fn section(name: &str) -> Blob {
    let mut blob = Blob::new().int().add(VAR, 0, 1).push(&[0]);
    let at = blob.string(name);
    blob.push(&[at, DATASEC << 24 | 1, 4]).push(&[2, 0, 4])
}

/// A tag of a variable.
pub(crate) fn declaration_tag() -> Blob {
    Blob::new().int().add(VAR, 0, 1).push(&[0]).add(DECL_TAG, 0, 2).push(&[u32::MAX])
}
