//! The code of a kernel, as bytes that any machine takes.

use std::path::Path;

/// Which instructions the code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// clang's `-mcpu=v3`: 32-bit arithmetic and jumps.
    V3,
    /// clang's `-mcpu=v2`: 64-bit only.
    V2,
}

/// The section of the kernel's object that holds its code.
///
/// # Panics
///
/// When the object is missing or is not one: the corpus is part of the repository.
pub fn code(kernel: &str, dialect: Dialect) -> Vec<u8> {
    let folder = match dialect {
        Dialect::V3 => "../corpus/bench",
        Dialect::V2 => "../corpus/bench/v2",
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(format!("{kernel}.bpf.o"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    section(&bytes, "syscall").unwrap_or_else(|| panic!("{}: no section `syscall`", path.display()))
}

fn section(elf: &[u8], wanted: &str) -> Option<Vec<u8>> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?) as usize);
    let u32_at = |at: usize| Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?) as usize);
    let u64_at = |at: usize| Some(u64::from_le_bytes(elf.get(at..at + 8)?.try_into().ok()?) as usize);
    let (table, count, names) = (u64_at(0x28)?, u16_at(0x3c)?, u16_at(0x3e)?);
    let content = |index: usize| {
        let header = table + index * 64;
        let start = u64_at(header + 0x18)?;
        elf.get(start..start + u64_at(header + 0x20)?)
    };
    let names = content(names)?;
    (0..count).find_map(|index| {
        let name = names.get(u32_at(table + index * 64)?..)?;
        let name = name.strip_prefix(wanted.as_bytes())?;
        (name.first() == Some(&0)).then(|| content(index).map(<[u8]>::to_vec))?
    })
}
