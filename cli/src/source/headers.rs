//! Headers that clang gets: `twinbpf/script.h`, `trace.h`, `perf.h` and `perf_script.h`, which are part of this command, and
//! `vmlinux.h`, made of the running kernel's types. They are kept in the user's cache, in folders named after what they were made of.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use twinbpf_btf::Btf;

use crate::cache::{folder, publish, sum};
use crate::hex::hex;

/// Where a running kernel has its types.
pub(crate) const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// Links into `include/` of the repository, in whose place a package has the files.
const SCRIPT: [(&str, &str); 4] = [
    ("twinbpf/script.h", include_str!("../../include/twinbpf/script.h")),
    ("twinbpf/trace.h", include_str!("../../include/twinbpf/trace.h")),
    ("twinbpf/perf.h", include_str!("../../include/twinbpf/perf.h")),
    ("twinbpf/perf_script.h", include_str!("../../include/twinbpf/perf_script.h")),
];
/// Changes whenever the same types give another header.
const FORMAT: u32 = 1;

/// Where headers are.
pub(super) struct Headers {
    script: PathBuf,
    kernel: PathBuf,
    /// Whether there is a `vmlinux.h`.
    pub(super) has_kernel: bool,
}

impl Headers {
    /// Makes those that are not there yet.
    pub(super) fn get() -> Result<Headers> {
        let cache = folder()?;
        let texts: String = SCRIPT.iter().map(|(_, text)| *text).collect();
        let script = cache.join(format!("script-{:016x}", sum(texts.as_bytes())));
        let write = |path: &Path, text: &str| {
            publish(path, text.as_bytes())
                .with_context(|| format!("cannot write {}; set XDG_CACHE_HOME", path.display()))
        };
        for (name, text) in SCRIPT {
            let header = script.join(name);
            if !header.exists() {
                write(&header, text)?;
            }
        }
        let (kernel, has_kernel) = match identity() {
            None => (cache, false),
            Some(identity) => {
                let folder = cache.join(format!("vmlinux-{FORMAT}-{identity}"));
                let header = folder.join("vmlinux.h");
                let made = header.exists()
                    || match kernel_header() {
                        Some(text) => write(&header, &text).map(|()| true)?,
                        None => false,
                    };
                (folder, made)
            }
        };
        Ok(Headers { script, kernel, has_kernel })
    }

    /// Folders to be searched.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        [self.script.as_path(), self.kernel.as_path()].into_iter()
    }
}

/// What distinguishes this kernel's types from those of others: its build id, else the bytes themselves.
fn identity() -> Option<String> {
    let types = fs::metadata(KERNEL).ok()?;
    if let Some(id) = fs::read("/sys/kernel/notes").ok().and_then(|notes| build_id(&notes)) {
        return Some(id);
    }
    let bytes = fs::read(KERNEL).ok()?;
    Some(format!("{}-{:016x}", types.len(), sum(&bytes)))
}

/// The `NT_GNU_BUILD_ID` among ELF notes, as hex digits.
fn build_id(mut notes: &[u8]) -> Option<String> {
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (name_len, text_len, kind) = (word(0), word(4), word(8));
        let name = rest.get(..name_len)?;
        let text = rest.get(name_len.next_multiple_of(4)..)?;
        let id = text.get(..text_len)?;
        if kind == 3 && name == b"GNU\0" && !id.is_empty() {
            return Some(hex(id));
        }
        notes = text.get(text_len.next_multiple_of(4)..)?;
    }
}

fn kernel_header() -> Option<String> {
    let bytes = fs::read(KERNEL).ok()?;
    let header = Btf::parse(&bytes, Btf::detect_endian(&bytes)?).and_then(|btf| btf.to_c(None));
    header.inspect_err(|error| log::warn!("{KERNEL}: {error}; there is no vmlinux.h")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_found_after_other_notes() {
        let note = |name: &[u8], kind: u32, text: &[u8]| {
            let mut note: Vec<u8> = [name.len() as u32, text.len() as u32, kind].map(u32::to_ne_bytes).concat();
            for part in [name, text] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let id = note(b"GNU\0", 3, &[0xab, 1, 2]);
        assert_eq!(build_id(&[note(b"Xen\0", 3, b"12345"), id.clone()].concat()).as_deref(), Some("ab0102"));
        assert_eq!(build_id(&id[..id.len() - 2]), None);
        assert_eq!(build_id(b""), None);
    }
}
