//! Core files made here, whole and damaged.

use super::*;

const HEADER: usize = 64;
const ENTRY: usize = 56;

/// A part of memory in a core: address, bytes, and bytes in memory.
type Part<'a> = (u64, &'a [u8], u64);

fn note(kind: u32, desc: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [5, desc.len() as u32, kind] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(b"CORE\0\0\0\0");
    bytes.extend(desc);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn status(tid: u32) -> Vec<u8> {
    let mut bytes = vec![0; 336];
    bytes[TID..TID + 4].copy_from_slice(&tid.to_ne_bytes());
    for register in 0..27_u64 {
        let at = REGISTERS + 8 * register as usize;
        bytes[at..at + 8].copy_from_slice(&(u64::from(tid) * 1000 + register).to_ne_bytes());
    }
    bytes
}

fn mapped(path: &str) -> Vec<u8> {
    let words = [1_u64, 4096, 0x10_000, 0x13_000, 1];
    words.iter().flat_map(|word| word.to_ne_bytes()).chain(path.bytes()).chain([0]).collect()
}

fn core(parts: &[Part<'_>], notes: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }, 1, 0]);
    let machine = CORE.map_or(0, |(machine, _)| machine);
    let count = parts.len() as u16 + 1;
    for (at, half) in [(16, elf::ET_CORE), (18, machine), (52, HEADER as u16), (54, ENTRY as u16), (56, count)] {
        bytes[at..at + 2].copy_from_slice(&half.to_ne_bytes());
    }
    bytes[32..40].copy_from_slice(&(HEADER as u64).to_ne_bytes());
    let mut offset = HEADER + ENTRY * usize::from(count);
    let all = parts.iter().map(|part| (elf::PT_LOAD, part.0, part.1, part.2));
    let all: Vec<_> = all.chain([(elf::PT_NOTE, 0, notes, 0)]).collect();
    for (kind, address, content, size) in &all {
        let words = [offset as u64, *address, 0, content.len() as u64, *size, 4];
        bytes.extend([*kind, 6].iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        offset += content.len();
    }
    all.iter().for_each(|(_, _, content, _)| bytes.extend(*content));
    bytes
}

/// A file below the folder for temporary ones, which goes with this.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("twinbpf-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn usual(path: &Path) -> Vec<u8> {
    let notes = [note(elf::NT_PRSTATUS, &status(7)), note(elf::NT_FILE, &mapped(path.to_str().unwrap()))];
    let notes = [notes.concat(), note(elf::NT_PRSTATUS, &status(8)), note(0x46e6_2b7f, b"other")].concat();
    core(&[(0x1000, b"hello", 5), (0x10_000, &[1; 4096], 0x3000), (u64::MAX - 3, b"abcd", 4)], &notes)
}

#[test]
fn memory_registers_and_files_of_a_core() {
    let file = Temporary::new("mapped", &[[2; 4096], [3; 4096], [4; 4096]].concat());
    let path = Temporary::new("core", &usual(&file.0));
    let core = CoreFile::open(&path.0).unwrap();
    let words = CORE.unwrap().1;
    assert_eq!(core.threads().iter().map(|thread| thread.tid).collect::<Vec<_>>(), [7, 8]);
    let wanted: Vec<u8> = (0..words as u64).flat_map(|register| (8000 + register).to_ne_bytes()).collect();
    assert_eq!(core.threads()[1].registers, wanted[..8 * words]);
    let [mapping] = core.mappings() else { panic!("{:?}", core.mappings()) };
    assert_eq!((mapping.start, mapping.end, mapping.offset), (0x10_000, 0x13_000, 4096));
    assert!(mapping.is_of(&file.0));
    let read = |address: u64, count: usize| {
        let mut bytes = vec![0xee; count];
        let count = core.read(address, &mut bytes);
        bytes[..count].to_vec()
    };
    assert_eq!(read(0x1001, 3), b"ell");
    assert_eq!(read(0x1001, 9), b"ello");
    assert_eq!(read(0xfff, 2), b"");
    // The first page is in the core, the next ones are not; the file ends before the memory does.
    assert_eq!(read(0x10_ffe, 4), [1, 1, 4, 4]);
    assert_eq!(read(0x11_000, 0x3000).len(), 4096);
    assert_eq!(read(u64::MAX - 2, 8), b"bcd");
    drop(file);
    let core = CoreFile::open(&path.0).unwrap();
    assert_eq!(core.read(0x11_000, &mut [0; 4]), 0, "the file is gone");
}

fn refused(bytes: &[u8], name: &str) -> String {
    let file = Temporary::new(name, bytes);
    CoreFile::open(&file.0).unwrap_err().to_string()
}

#[test]
fn other_files_are_refused() {
    let kind = "not a core file: no 64-bit ELF file of this machine's kind";
    assert_eq!(refused(b"", "empty"), kind);
    assert_eq!(refused(b"#!/bin/sh\n", "text"), kind);
    let mut other = usual(Path::new("/none"));
    other[18] ^= 0x55;
    assert_eq!(refused(&other, "machine"), kind);
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(refused(&own, "program"), "not a core file, but an executable, a library or an object");
    let error = CoreFile::open(Path::new("/no/such/core")).unwrap_err();
    assert_eq!(error.to_string(), "No such file or directory (os error 2)");
    assert!(matches!(CoreFile::open(Path::new("/dev/null")), Err(CoreError::Kind)));
    let mut notes = usual(Path::new("/none"));
    let at = HEADER + 3 * ENTRY + 32;
    notes[at..at + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
    assert_eq!(refused(&notes, "notes"), format!("the core file is damaged: its notes have {} bytes", u64::MAX));
}

#[test]
fn damaged_cores_never_panic() {
    let whole = usual(Path::new("/proc/self/exe"));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let numbers = [0, 1, 0xff, u64::MAX, u64::MAX - 3, 1 << 63, 0x7fff_ffff, 1 << 32];
    let mut opened = 0;
    for round in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..=next() % 3 {
            // Headers and notes, as single bytes and as numbers.
            let start = if next() % 4 == 0 { whole.len() - 900 } else { 0 };
            let at = start + (next() % 800) as usize;
            match next() % 3 {
                0 => bytes[at] = next() as u8,
                _ => {
                    let at = at & !7;
                    bytes[at..at + 8].copy_from_slice(&numbers[(next() % 8) as usize].to_ne_bytes());
                }
            }
        }
        if next() % 3 == 0 {
            bytes.truncate((next() % whole.len() as u64) as usize);
        }
        let file = Temporary::new("damaged", &bytes);
        let Ok(core) = CoreFile::open(&file.0) else { continue };
        opened += 1;
        for address in [0, 0x1000, 0x10_fff, 0x11_000, 0x12_fff, u64::MAX - 3, u64::MAX, next()] {
            let mut bytes = [0; 64];
            let count = core.read(address, &mut bytes);
            assert!(count <= 64, "round {round}");
        }
    }
    assert!(opened > 500, "{opened} could be opened");
}
