//! Finding types by name.
//!
//! The first lookups walk over all types: they compare a few bytes each, and a whole kernel takes less than a
//! millisecond. Later lookups build an index, which takes as long as some twenty walks. Its entries are keyed by the
//! *essential* name, so that one index answers both "what is called `task_struct`" and "what might `task_struct___old`
//! be" (CO-RE's flavours).

use std::hash::{BuildHasher as _, RandomState};

use std::sync::atomic::Ordering;

use super::raw::{RawType, TYPE_WORDS, kind, record};
use super::{Btf, TypeId};

/// Lookups that are answered without an index.
const WALKS: u32 = 24;

/// Finds types by name.
#[derive(Debug)]
pub(super) struct NameIndex {
    /// The random key of the hash, so that an attacker cannot prepare names that collide.
    key: [u64; 2],
    /// `heads[bucket]..heads[bucket + 1]` are the entries of a bucket.
    heads: Vec<u32>,
    /// (part of the hash, kind, id) of each named type, by bucket and in it by rising id.
    entries: Vec<(u16, u8, u32)>,
}

/// A name without its flavour: what precedes the last `___` between characters that are no underscores.
///
/// The rule of libbpf's `bpf_core_essential_name_len`.
pub fn essential_name(name: &str) -> &str {
    let bytes = name.as_bytes();
    let separates = |window: &[u8]| window[0] != b'_' && &window[1..4] == b"___" && window[4] != b'_';
    if !bytes.contains(&b'_') {
        return name;
    }
    let at = bytes.windows(5).rposition(separates);
    at.and_then(|at| name.get(..at + 1)).unwrap_or(name)
}

impl Btf {
    /// Every type called `name`, by rising id. Types of [`Btf::base`] are not among them.
    pub fn ids_by_name<'a>(&'a self, name: &'a str) -> impl Iterator<Item = TypeId> + use<'a> {
        self.named(name, None)
    }

    /// The types called `name`, of one kind or of all.
    pub(super) fn named<'a>(&'a self, name: &'a str, kind: Option<u32>) -> impl Iterator<Item = TypeId> + use<'a> {
        let essential = essential_name(name);
        let found = self.lookup(essential, move |of| kind.is_none_or(|kind| kind == of));
        found.filter(move |&id| self.name(id) == name)
    }

    /// The types that CO-RE may take for a type of kind `like` called `name` or some flavour of it, by rising id.
    pub fn core_candidates<'a>(&'a self, name: &'a str, like: TypeKind) -> impl Iterator<Item = TypeId> + 'a {
        let essential = essential_name(name);
        let found = self.lookup(essential, move |kind| like.takes(kind));
        found.filter(move |&id| essential_name(self.name(id)) == essential)
    }

    /// The kind of a type; `void` has none.
    pub fn kind_of(&self, id: TypeId) -> TypeKind {
        TypeKind(self.raw(id).map_or(0, |(head, _)| head.kind()))
    }

    /// Types of some kinds whose name begins like, or has the hash of, an essential name.
    fn lookup<'a>(
        &'a self,
        essential: &'a str,
        wanted: impl Fn(u32) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = TypeId> + 'a {
        let queries = self.queries.fetch_add(1, Ordering::Relaxed);
        let walks = queries < WALKS && self.names.get().is_none() && !essential.is_empty();
        let (walk, index) = match walks {
            true => (Some(self.walk(essential.as_bytes(), wanted)), None),
            false => (None, Some(self.names().bucket(essential, wanted))),
        };
        walk.into_iter().flatten().chain(index.into_iter().flatten())
    }

    fn walk<'a>(
        &'a self,
        prefix: &'a [u8],
        wanted: impl Fn(u32) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = TypeId> + 'a {
        let strings = self.strings.as_bytes();
        self.starts.iter().zip(self.first_id..).filter_map(move |(&start, id)| {
            // The kind first: strings lie elsewhere in memory.
            let head = record::<RawType>(&self.words[start as usize..][..TYPE_WORDS]);
            if !wanted(head.kind()) {
                return None;
            }
            // A module may use a string of the kernel's.
            let is = match head.name_off.checked_sub(self.first_str) {
                Some(own) => strings.get(own as usize..).is_some_and(|rest| rest.starts_with(prefix)),
                None => self.str(head.name_off).as_bytes().starts_with(prefix),
            };
            is.then_some(TypeId(id))
        })
    }

    fn names(&self) -> &NameIndex {
        self.names.get_or_init(|| self.name_index())
    }

    fn name_index(&self) -> NameIndex {
        let state = RandomState::new();
        let key = [state.hash_one(0_u8), state.hash_one(1_u8) | 1];
        let buckets = self.starts.len().next_power_of_two().max(2);
        let mut index = NameIndex { key, heads: vec![0; buckets + 1], entries: Vec::new() };
        let mut hashes = Vec::with_capacity(self.starts.len());
        for (at, &start) in self.starts.iter().enumerate() {
            let (head, _) = self.record(start as usize);
            let name = self.str(head.name_off);
            if name.is_empty() {
                continue;
            }
            let (bucket, part) = index.bucket_and_part(essential_name(name));
            index.heads[bucket + 1] += 1;
            hashes.push((bucket as u32, part, head.kind() as u8, self.first_id + at as u32));
        }
        for bucket in 1..index.heads.len() {
            index.heads[bucket] += index.heads[bucket - 1];
        }
        let mut next = index.heads.clone();
        index.entries = vec![(0, 0, 0); hashes.len()];
        for (bucket, part, kind, id) in hashes {
            let slot = &mut next[bucket as usize];
            index.entries[*slot as usize] = (part, kind, id);
            *slot += 1;
        }
        index
    }
}

impl NameIndex {
    fn bucket<'a>(&'a self, essential: &str, wanted: impl Fn(u32) -> bool + 'a) -> impl Iterator<Item = TypeId> + 'a {
        let (bucket, part) = self.bucket_and_part(essential);
        let range = self.heads[bucket] as usize..self.heads[bucket + 1] as usize;
        let same = self.entries[range].iter().filter(move |entry| entry.0 == part && wanted(u32::from(entry.1)));
        same.map(|&(_, _, id)| TypeId(id))
    }

    /// Bucket of a name, and 16 other bits of its hash.
    fn bucket_and_part(&self, name: &str) -> (usize, u16) {
        let mut state = self.key[0] ^ name.len() as u64;
        let (words, rest) = name.as_bytes().as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        for word in words.iter().chain([&last]) {
            // A multiplication whose two halves are folded; the second factor is part of the key.
            let product = u128::from(state ^ u64::from_le_bytes(*word)) * u128::from(self.key[1]);
            state = (product as u64) ^ (product >> 64) as u64;
        }
        (state as usize & (self.heads.len() - 2), (state >> 48) as u16)
    }
}

/// The kind of a type, as CO-RE compares kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeKind(u32);

impl TypeKind {
    /// Same kind, or enums of either width (`btf_kind_core_compat`).
    pub fn is_like(self, other: TypeKind) -> bool {
        self.takes(other.0)
    }

    fn takes(self, other: u32) -> bool {
        let is_enum = |kind| matches!(kind, kind::ENUM | kind::ENUM64);
        self.0 == other || is_enum(self.0) && is_enum(other)
    }
}
