//! BTF for old kernels: kinds that a kernel does not know become others of the same size, so that no type gets another
//! number. What is lost serves only those who print it.
//!
//! The replacements are those of libbpf (`bpf_object__sanitize_btf`), which objects are tested with.

use super::blob::assemble;
use crate::probe::Feature;

const INT: u32 = 1;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;
/// Bits of an `int` of one byte.
const ONE_BYTE: u32 = 8;

struct Parts {
    words: Vec<u32>,
    strings: Vec<u8>,
    /// Where in `words` each type starts.
    starts: Vec<usize>,
}

impl Parts {
    /// `None` if this is no BTF that the parser knows: the kernel reports what is wrong.
    fn of(bytes: &[u8]) -> Option<Parts> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if word(0)? & 0xffff != 0xeb9f {
            return None;
        }
        let header = word(4)? as usize;
        let part = |off: u32, len: u32| {
            let start = header.checked_add(off as usize)?;
            bytes.get(start..start.checked_add(len as usize)?)
        };
        let types = part(word(8)?, word(12)?)?;
        let strings = part(word(16)?, word(20)?)?.to_vec();
        let words: Vec<u32> =
            types.chunks_exact(4).map(|chunk| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])).collect();
        let (mut starts, mut at) = (Vec::new(), 0);
        while at < words.len() {
            starts.push(at);
            at += 3 + extra(*words.get(at + 1)?)?;
        }
        (at == words.len()).then_some(Parts { words, strings, starts })
    }

    fn kind(&self, at: usize) -> u32 {
        self.words[at + 1] >> 24 & 0x1f
    }

    fn count(&self, at: usize) -> u32 {
        self.words[at + 1] & 0xffff
    }

    fn name(&mut self, at: usize) -> &mut [u8] {
        let rest = self.strings.get_mut(self.words[at] as usize..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        &mut rest[..end]
    }

    fn rename(&mut self, at: usize, unwanted: &[u8]) {
        self.name(at).iter_mut().filter(|byte| unwanted.contains(byte)).for_each(|byte| *byte = b'_');
    }

    fn become_int(&mut self, at: usize) {
        self.words[at + 1] = INT << 24;
        self.words[at + 2] = 1;
        self.words[at + 3] = ONE_BYTE;
    }
}

/// Words after the three of every type.
fn extra(info: u32) -> Option<usize> {
    let count = (info & 0xffff) as usize;
    Some(match info >> 24 & 0x1f {
        INT | VAR | DECL_TAG => 1,
        3 => 3,
        STRUCT | UNION | DATASEC | ENUM64 => 3 * count,
        ENUM | FUNC_PROTO => 2 * count,
        2 | 7..=12 | FLOAT | TYPE_TAG => 0,
        _ => return None,
    })
}

/// The same types for a kernel that has only some features.
pub fn sanitize(bytes: &[u8], has: &dyn Fn(Feature) -> bool) -> Vec<u8> {
    let Some(mut parts) = Parts::of(bytes) else { return bytes.to_vec() };
    let mut placeholder = None;
    for at in parts.starts.clone() {
        replace(&mut parts, at, has, &mut placeholder);
    }
    if let Some(name) = placeholder {
        parts.words.extend([name, INT << 24, 1, ONE_BYTE]);
    }
    let types = (parts.words.len() * 4) as u32;
    assemble(&parts.words, &parts.strings, types)
}

/// One type. `placeholder` is the name of the type that stands for 64-bit values of enumerators, if one is needed; it
/// will be the last.
fn replace(parts: &mut Parts, at: usize, has: &dyn Fn(Feature) -> bool, placeholder: &mut Option<u32>) {
    let count = parts.count(at);
    match parts.kind(at) {
        VAR if !has(Feature::BtfDatasec) => parts.become_int(at),
        DECL_TAG if !has(Feature::BtfDeclTag) => parts.become_int(at),
        DATASEC if !has(Feature::BtfDatasec) => {
            parts.rename(at, b".?");
            parts.words[at + 1] = STRUCT << 24 | count;
            for member in (0..count as usize).map(|member| at + 3 + 3 * member) {
                let [variable, offset] = [parts.words[member], parts.words[member + 1]];
                let start = parts.starts.get((variable as usize).wrapping_sub(1)).copied();
                parts.words[member] = start.map_or(0, |start| parts.words[start]);
                parts.words[member + 1] = variable;
                parts.words[member + 2] = offset.wrapping_mul(8);
            }
        }
        DATASEC if !has(Feature::BtfDatasecName) => parts.rename(at, b"?"),
        FUNC_PROTO if !has(Feature::BtfFunc) => {
            parts.words[at + 1] = ENUM << 24 | count;
            parts.words[at + 2] = 4;
        }
        FUNC if !has(Feature::BtfFunc) => parts.words[at + 1] = TYPEDEF << 24,
        FUNC if !has(Feature::BtfGlobalFunc) => parts.words[at + 1] = FUNC << 24,
        FLOAT if !has(Feature::BtfFloat) => parts.words[at + 1] = STRUCT << 24,
        TYPE_TAG if !has(Feature::BtfTypeTag) => {
            parts.words[at] = 0;
            parts.words[at + 1] = CONST << 24;
        }
        ENUM64 if !has(Feature::BtfEnum64) => {
            if placeholder.is_none() {
                *placeholder = Some(parts.strings.len() as u32);
                parts.strings.extend(b"enum64_placeholder\0");
            }
            let id = parts.starts.len() as u32 + 1;
            parts.words[at + 1] = UNION << 24 | count;
            for member in (0..count as usize).map(|member| at + 3 + 3 * member) {
                parts.words[member + 1] = id;
                parts.words[member + 2] = 0;
            }
        }
        // The bit for signed enumerators came with those of 64 bits.
        ENUM if !has(Feature::BtfEnum64) => parts.words[at + 1] &= 0x7fff_ffff,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::blob::{self, Blob};
    use super::{Parts, sanitize};
    use crate::probe::Feature;

    fn kinds(bytes: &[u8]) -> Vec<(u32, u32)> {
        let parts = Parts::of(bytes).expect("it is BTF");
        parts.starts.iter().map(|at| (parts.kind(*at), parts.count(*at))).collect()
    }

    #[test]
    fn a_kernel_that_has_all_gets_all() {
        let bytes = blob::section("?.x").to_bytes();
        assert_eq!(sanitize(&bytes, &|_| true), bytes);
        assert_eq!(sanitize(b"nothing", &|_| false), b"nothing");
    }

    #[test]
    fn unknown_kinds_become_others_of_the_same_size() {
        let bytes = blob::section("?.x").to_bytes();
        let old = sanitize(&bytes, &|_| false);
        assert_eq!(kinds(&old), [(1, 0), (1, 0), (4, 1)]);
        assert_eq!(old.len(), bytes.len());
        assert!(!old.contains(&b'?') && !old[24 + 40..].contains(&b'.'), "{old:?}");
        let function = blob::function(1).to_bytes();
        assert_eq!(kinds(&sanitize(&function, &|_| false)), [(1, 0), (6, 1), (8, 0)]);
        let global = |feature| feature != Feature::BtfGlobalFunc;
        assert_eq!(kinds(&sanitize(&function, &global)), [(1, 0), (13, 1), (12, 0)]);
        let tags = Blob::new().int().add(18, 0, 1).add(16, 0, 4).add(19, 0, 8).to_bytes();
        assert_eq!(kinds(&sanitize(&tags, &|_| false)), [(1, 0), (10, 0), (4, 0), (5, 0), (1, 0)]);
    }
}
