//! The objects of the corpus.

use std::path::PathBuf;

use twinbpf_btf::Endian;

/// `.BTF` and `.BTF.ext` of an object of the corpus. A section table is all that is read of ELF here.
pub(crate) fn sections(path: &str) -> (Vec<u8>, Vec<u8>, Endian) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(path);
    let elf = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let endian = if elf[5] == 1 { Endian::Little } else { Endian::Big };
    let number = |at: usize, len: usize| {
        let push = |value: usize, byte: &u8| value << 8 | usize::from(*byte);
        match endian {
            Endian::Little => elf[at..at + len].iter().rev().fold(0, push),
            Endian::Big => elf[at..at + len].iter().fold(0, push),
        }
    };
    let word = |at| number(at, 4);
    let (table, count, names) = (number(0x28, 8), number(0x3c, 2), number(0x3e, 2));
    let body = |index: usize| {
        let head = table + index * 64;
        (word(head), number(head + 24, 8), number(head + 32, 8))
    };
    let find = |name: &[u8]| {
        let (_, strings, _) = body(names);
        let hit = (0..count).map(body).find(|&(at, ..)| elf[strings + at..].starts_with(&[name, &[0]].concat()));
        hit.map_or(Vec::new(), |(_, at, len)| elf[at..at + len].to_vec())
    };
    (find(b".BTF"), find(b".BTF.ext"), endian)
}

/// Every object of the corpus, as a path inside it.
pub(crate) fn objects() -> Vec<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let list = |path: &PathBuf| std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    let folders: Vec<_> = list(&root).into_iter().filter(|path| path.is_dir()).collect();
    let names =
        folders.iter().flat_map(list).map(|file| file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
    names.filter(|name| name.ends_with(".bpf.o")).collect()
}
