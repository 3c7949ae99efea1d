//! Random operations on a map, and on the simplest thing that means the same.
//!
//! Each model says what every operation must answer, errors and order of keys included.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use twinbpf_vm::map::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, Errno, MapFlags, MapKind, MapOps, MapSpec, create};
use twinbpf_vm::mem::{Arena, Bounds, View};

use crate::generate::Choices;

/// A map beside its model: does so many operations. They panic where the map does otherwise.
pub type Model = fn(&mut Choices<'_>, &Arc<Arena>, u32);

/// All models, by name.
pub const MODELS: &[(&str, Model)] = &[
    ("hash", hash),
    ("percpu_hash", percpu_hash),
    ("lru", lru),
    ("array", array),
    ("lpm", lpm),
    ("queue", |choices, arena, steps| queue_or_stack(choices, arena, steps, MapKind::Queue)),
    ("stack", |choices, arena, steps| queue_or_stack(choices, arena, steps, MapKind::Stack)),
    ("ring", ring),
];

const CPUS: u32 = 4;

fn make(arena: &Arc<Arena>, kind: MapKind, key: u32, value: u32, max_entries: u32) -> Arc<dyn MapOps> {
    let mut spec = MapSpec::new("map", kind, key, value, max_entries);
    if kind == MapKind::LpmTrie {
        spec.flags = MapFlags::NO_PREALLOC.bits();
    }
    create(spec, arena, CPUS).expect("a map that can be had")
}

fn below(choices: &mut Choices<'_>, bound: u32) -> u32 {
    choices.below(bound as usize) as u32
}

fn flags(choices: &mut Choices<'_>) -> u64 {
    choices.pick(&[BPF_ANY, BPF_ANY, BPF_NOEXIST, BPF_EXIST])
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn copy(map: &dyn MapOps, key: &[u8], cpu: u32) -> Option<Vec<u8>> {
    let mut value = vec![0xee; map.spec().value_size as usize];
    map.lookup_copy(key, cpu, &mut value).ok().map(|()| value)
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

fn hash(choices: &mut Choices<'_>, arena: &Arc<Arena>, steps: u32) {
    let map = make(arena, MapKind::Hash, 4, 12, 50);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in 0..steps {
        let at = key(below(choices, 80)).to_vec();
        match choices.below(5) {
            0 | 1 => {
                let value = vec![step as u8; 12];
                let flags = flags(choices);
                let expected = verdict(model.contains_key(&at), model.len() < 50, flags, Errno::E2BIG);
                assert_eq!(map.update(&at, &value, flags, 0), expected);
                if expected.is_ok() {
                    model.insert(at, value);
                }
            }
            2 => assert_eq!(map.delete(&at), model.remove(&at).map(|_| ()).ok_or(Errno::ENOENT)),
            3 => assert_eq!(copy(&*map, &at, 0), model.get(&at).cloned()),
            _ => {
                let mut keys = map.keys();
                keys.sort();
                assert!(keys.iter().eq(model.keys()));
                assert_eq!(map.len() as usize, model.len());
            }
        }
    }
}

/// An update by a program gives the other CPUs of a new element zeroes, and leaves those of an old one alone.
fn percpu_hash(choices: &mut Choices<'_>, arena: &Arc<Arena>, steps: u32) {
    let map = make(arena, MapKind::PercpuHash, 4, 8, 6);
    let mut model: BTreeMap<u32, [u64; CPUS as usize]> = BTreeMap::new();
    for step in 0..steps {
        let (number, cpu) = (below(choices, 10), choices.below(CPUS as usize));
        match choices.below(4) {
            0 | 1 => {
                let flags = flags(choices);
                let expected = verdict(model.contains_key(&number), model.len() < 6, flags, Errno::E2BIG);
                let value = u64::from(step) + 1;
                assert_eq!(map.update(&key(number), &value.to_le_bytes(), flags, cpu as u32), expected);
                if expected.is_ok() {
                    model.entry(number).or_default()[cpu] = value;
                }
            }
            2 => assert_eq!(map.delete(&key(number)).is_ok(), model.remove(&number).is_some()),
            _ => {
                let wanted = model.get(&number).map(|values| values[cpu].to_le_bytes().to_vec());
                assert_eq!(copy(&*map, &key(number), cpu as u32), wanted);
            }
        }
    }
}

/// An element of an LRU map.
struct Used {
    number: u32,
    value: u32,
    marked: bool,
}

/// A full map drops the oldest element that was not used since it came to the new end; what it passes goes there.
fn lru(choices: &mut Choices<'_>, arena: &Arc<Arena>, steps: u32) {
    let map = make(arena, MapKind::LruHash, 4, 4, 20);
    // Oldest first.
    let mut model: VecDeque<Used> = VecDeque::new();
    for step in 0..steps {
        let number = below(choices, 40);
        let at = model.iter().position(|entry| entry.number == number);
        match choices.below(4) {
            0 => {
                assert_eq!(map.update(&key(number), &key(step), BPF_ANY, 0), Ok(()));
                if let Some(at) = at {
                    (model[at].value, model[at].marked) = (step, true);
                    continue;
                }
                while model.len() == 20 {
                    let oldest = model.pop_front().expect("it is full");
                    if oldest.marked {
                        model.push_back(Used { marked: false, ..oldest });
                    }
                }
                model.push_back(Used { number, value: step, marked: false });
            }
            1 => {
                assert_eq!(map.lookup(&key(number), 0).is_some(), at.is_some());
                if let Some(at) = at {
                    model[at].marked = true;
                }
            }
            2 => assert_eq!(map.delete(&key(number)).is_ok(), at.and_then(|at| model.remove(at)).is_some()),
            _ => assert_eq!(copy(&*map, &key(number), 0), at.map(|at| key(model[at].value).to_vec())),
        }
    }
}

fn array(choices: &mut Choices<'_>, arena: &Arc<Arena>, steps: u32) {
    let map = make(arena, MapKind::Array, 4, 4, 30);
    let mut model = [0; 30];
    for step in 0..steps {
        let index = below(choices, 33);
        let flags = flags(choices);
        let expected = match (index, flags) {
            (30.., _) => Err(Errno::E2BIG),
            (_, BPF_NOEXIST) => Err(Errno::EEXIST),
            _ => Ok(()),
        };
        assert_eq!(map.update(&key(index), &key(step), flags, 0), expected);
        if expected.is_ok() {
            model[index as usize] = step;
        }
        let index = below(choices, 33);
        assert_eq!(copy(&*map, &key(index), 0), model.get(index as usize).map(|value| key(*value).to_vec()));
    }
}

/// The bits that count, one a byte, so that prefixes are `starts_with`.
fn bits(key: &[u8]) -> Vec<u8> {
    let count = u32::from_le_bytes(key[..4].try_into().expect("four bytes"));
    (0..count as usize).map(|index| key[4 + index / 8] >> (7 - index % 8) & 1).collect()
}

fn lpm(choices: &mut Choices<'_>, arena: &Arc<Arena>, steps: u32) {
    let map = make(arena, MapKind::LpmTrie, 6, 4, 40);
    let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)> = BTreeMap::new();
    for step in 0..steps {
        // Few bits, so that prefixes meet.
        let data = [choices.below(4) as u8 * 0x55, choices.below(256) as u8 & 0xc3];
        let at = [&key(below(choices, 17))[..], &data].concat();
        let id = bits(&at);
        match choices.below(5) {
            0 | 1 => {
                let flags = flags(choices);
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
                assert_eq!(copy(&*map, &at, 0), longest.map(|(_, (_, value))| value.clone()));
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

fn queue_or_stack(choices: &mut Choices<'_>, arena: &Arc<Arena>, steps: u32, kind: MapKind) {
    let map = make(arena, kind, 0, 4, 7);
    let mut model: VecDeque<u32> = VecDeque::new();
    for step in 0..steps {
        let mut value = [0; 4];
        match choices.below(5) {
            0 | 1 => {
                let flags = choices.pick(&[BPF_ANY, BPF_EXIST]);
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

fn ring(choices: &mut Choices<'_>, arena: &Arc<Arena>, steps: u32) {
    let map = make(arena, MapKind::Ringbuf, 0, 0, 4096);
    let ring = map.ring().expect("a ring buffer");
    let view = View::new(Arc::clone(arena), 0, Bounds::Exact);
    // Address, bytes, and whether submitted or discarded.
    let mut model: VecDeque<(u64, Vec<u8>, Option<bool>)> = VecDeque::new();
    for step in 0..steps {
        match choices.below(4) {
            0 | 1 => {
                let size = choices.below(400);
                let used: usize = model.iter().map(|record| (record.1.len() + 8).next_multiple_of(8)).sum();
                let fits = used + (size + 8).next_multiple_of(8) < 4096;
                let sample = ring.reserve(size as u64);
                assert_eq!(sample.is_some(), fits);
                if let Some(sample) = sample {
                    let bytes = vec![step as u8; size];
                    view.write(sample, &bytes).expect("a program may write to its sample");
                    model.push_back((sample, bytes, None));
                }
            }
            2 if !model.is_empty() => {
                let index = choices.below(model.len());
                let (sample, _, done) = &mut model[index];
                let discard = choices.once_in(4);
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
