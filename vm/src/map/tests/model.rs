//! Random operations on a map and on the simplest thing that means the same.

use std::collections::{BTreeMap, VecDeque};

use super::lpm::{prefix, trie};
use super::*;
use crate::map::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, Errno};

const STEPS: u32 = 20_000;

/// xorshift64*; the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32) % limit
    }

    fn flags(&mut self) -> u64 {
        [BPF_ANY, BPF_ANY, BPF_NOEXIST, BPF_EXIST][self.below(4) as usize]
    }
}

/// What an update must answer, for maps that answer `full` when there is no room.
fn verdict(exists: bool, room: bool, flags: u64, full: Errno) -> Result<(), Errno> {
    match (exists, flags) {
        (true, BPF_NOEXIST) => Err(Errno::EEXIST),
        (false, BPF_EXIST) => Err(Errno::ENOENT),
        (false, _) if !room => Err(full),
        _ => Ok(()),
    }
}

#[test]
fn hash() {
    let mut random = Random(1);
    let map = make(&arena(), spec(MapKind::Hash, 4, 12, 50));
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in 0..STEPS {
        let at = key(random.below(80)).to_vec();
        match random.below(5) {
            0 | 1 => {
                let value = vec![step as u8; 12];
                let flags = random.flags();
                let expected = verdict(model.contains_key(&at), model.len() < 50, flags, Errno::E2BIG);
                assert_eq!(map.update(&at, &value, flags, 0), expected);
                if expected.is_ok() {
                    model.insert(at, value);
                }
            }
            2 => assert_eq!(map.delete(&at), model.remove(&at).map(|_| ()).ok_or(Errno::ENOENT)),
            3 => assert_eq!(copy(&*map, &at), model.get(&at).cloned()),
            _ => {
                let mut keys = map.keys();
                keys.sort();
                assert!(keys.iter().eq(model.keys()));
                assert_eq!(map.len() as usize, model.len());
            }
        }
    }
}

#[test]
fn lru() {
    let mut random = Random(2);
    let map = make(&arena(), spec(MapKind::LruHash, 4, 4, 20));
    // Oldest first.
    let mut model: VecDeque<(u32, u32)> = VecDeque::new();
    for step in 0..STEPS {
        let number = random.below(40);
        let at = model.iter().position(|entry| entry.0 == number);
        match random.below(4) {
            0 => {
                map.update(&key(number), &key(step), BPF_ANY, 0).unwrap();
                if let Some(at) = at {
                    model.remove(at);
                } else if model.len() == 20 {
                    model.pop_front();
                }
                model.push_back((number, step));
            }
            1 => {
                assert_eq!(map.lookup(&key(number), 0).is_some(), at.is_some());
                if let Some(entry) = at.and_then(|at| model.remove(at)) {
                    model.push_back(entry);
                }
            }
            2 => assert_eq!(map.delete(&key(number)).is_ok(), at.and_then(|at| model.remove(at)).is_some()),
            _ => assert_eq!(copy(&*map, &key(number)), at.map(|at| key(model[at].1).to_vec())),
        }
    }
}

#[test]
fn array() {
    let mut random = Random(3);
    let map = make(&arena(), spec(MapKind::Array, 4, 4, 30));
    let mut model = [0; 30];
    for step in 0..STEPS {
        let index = random.below(33);
        let flags = random.flags();
        let expected = match (index, flags) {
            (30.., _) => Err(Errno::E2BIG),
            (_, BPF_NOEXIST) => Err(Errno::EEXIST),
            _ => Ok(()),
        };
        assert_eq!(map.update(&key(index), &key(step), flags, 0), expected);
        if expected.is_ok() {
            model[index as usize] = step;
        }
        let index = random.below(33);
        assert_eq!(copy(&*map, &key(index)), model.get(index as usize).map(|value| key(*value).to_vec()));
    }
}

/// The bits that count, one a byte, so that prefixes are `starts_with`.
fn bits(key: &[u8]) -> Vec<u8> {
    let count = u32::from_le_bytes(key[..4].try_into().unwrap());
    (0..count as usize).map(|index| key[4 + index / 8] >> (7 - index % 8) & 1).collect()
}

#[test]
fn lpm() {
    let mut random = Random(4);
    let map = make(&arena(), trie(2, 40));
    let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)> = BTreeMap::new();
    for step in 0..STEPS {
        // Few bits, so that prefixes meet.
        let data = [random.below(4) as u8 * 0x55, random.below(256) as u8 & 0xc3];
        let at = prefix(random.below(17), &data);
        let id = bits(&at);
        match random.below(5) {
            0 | 1 => {
                let flags = random.flags();
                let expected = verdict(model.contains_key(&id), model.len() < 40, flags, Errno::ENOSPC);
                assert_eq!(map.update(&at, &key(step), flags, 0), expected);
                if expected.is_ok() {
                    model.insert(id, (at, key(step).to_vec()));
                }
            }
            2 => assert_eq!(map.delete(&at), model.remove(&id).map(|_| ()).ok_or(Errno::ENOENT)),
            3 => {
                let matching = model.iter().filter(|(prefix, _)| id.starts_with(prefix));
                let longest = matching.max_by_key(|(prefix, _)| prefix.len());
                assert_eq!(copy(&*map, &at), longest.map(|(_, (_, value))| value.clone()));
            }
            _ => {
                // Postorder: like a dictionary in which the end of a word comes after every letter.
                let mut keys: Vec<_> =
                    model.iter().map(|(id, (key, _))| ([id.as_slice(), &[2]].concat(), key)).collect();
                keys.sort();
                assert!(map.keys().iter().eq(keys.iter().map(|(_, key)| *key)));
                assert_eq!(map.len() as usize, model.len());
            }
        }
    }
}

#[test]
fn queue_and_stack() {
    for kind in [MapKind::Queue, MapKind::Stack] {
        let mut random = Random(5);
        let map = make(&arena(), spec(kind, 0, 4, 7));
        let mut model: VecDeque<u32> = VecDeque::new();
        for step in 0..STEPS {
            let mut value = [0; 4];
            match random.below(5) {
                0 | 1 => {
                    let flags = [BPF_ANY, BPF_EXIST][random.below(2) as usize];
                    let room = model.len() < 7;
                    let expected = if room || flags == BPF_EXIST { Ok(()) } else { Err(Errno::E2BIG) };
                    assert_eq!(map.push(&key(step), flags), expected);
                    if expected.is_ok() {
                        if !room {
                            model.pop_front();
                        }
                        model.push_back(step);
                    }
                }
                2 | 3 => {
                    let taken = if kind == MapKind::Queue { model.pop_front() } else { model.pop_back() };
                    assert_eq!(map.pop(&mut value).ok().map(|()| u32::from_le_bytes(value)), taken);
                }
                _ => {
                    let seen = if kind == MapKind::Queue { model.front() } else { model.back() };
                    assert_eq!(map.peek(&mut value).ok().map(|()| u32::from_le_bytes(value)), seen.copied());
                }
            }
            assert_eq!(map.len() as usize, model.len());
        }
    }
}

#[test]
fn ring() {
    let mut random = Random(6);
    let arena = arena();
    let map = make(&arena, spec(MapKind::Ringbuf, 0, 0, 4096));
    let ring = map.ring().unwrap();
    let view = view(&arena);
    // Address, bytes, and whether submitted or discarded.
    let mut model: VecDeque<(u64, Vec<u8>, Option<bool>)> = VecDeque::new();
    for step in 0..STEPS {
        match random.below(4) {
            0 | 1 => {
                let size = random.below(400);
                let used: usize = model.iter().map(|record| (record.1.len() + 8).next_multiple_of(8)).sum();
                let fits = used + (size as usize + 8).next_multiple_of(8) < 4096;
                let sample = ring.reserve(u64::from(size));
                assert_eq!(sample.is_some(), fits);
                if let Some(sample) = sample {
                    let bytes = vec![step as u8; size as usize];
                    view.write(sample, &bytes).unwrap();
                    model.push_back((sample, bytes, None));
                }
            }
            2 if !model.is_empty() => {
                let index = random.below(model.len() as u32) as usize;
                let (sample, _, done) = &mut model[index];
                let discard = random.below(4) == 0;
                let open = done.is_none();
                assert_eq!(ring.commit(*sample, discard).is_ok(), open);
                done.get_or_insert(!discard);
            }
            _ => {
                let mut expected = Vec::new();
                while let Some((_, bytes, done)) = model.pop_front_if(|record| record.2.is_some()) {
                    expected.extend(done.unwrap_or(false).then_some(bytes));
                }
                let sent = map.take_sent();
                assert!(sent.iter().map(|sent| &sent.bytes).eq(&expected));
            }
        }
    }
}
