//! Files with debug information: in the file itself, by build id, by `.gnu_debuglink`, and what dwz put apart.
//!
//! The places are those of gdb's manual, "Debugging Information in Separate Files".

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::ReadFile;
use crate::elf::Elf;
use crate::error::Tried;
use crate::store::Store;

/// Where distributions put debug files.
const GLOBAL: &str = "/usr/lib/debug";

/// The file that has debug information.
pub(crate) struct Found<'a, 'e> {
    pub(crate) elf: &'e Elf<'a>,
    /// Where, if it is another file.
    pub(crate) path: Option<PathBuf>,
}

/// A file with debug information of `elf`, which has none itself.
pub(crate) fn separate<'a>(
    store: &'a Store,
    path: &Path,
    elf: &Elf<'a>,
    files: ReadFile<'a>,
) -> Result<(PathBuf, Elf<'a>), Vec<Tried>> {
    let mut tried = Vec::new();
    if let Some(id) = elf.build_id() {
        match open(store, &by_build_id(id), files, |_, other| same_id(id, other)) {
            Ok(found) => return Ok(found),
            Err(failed) => tried.push(failed),
        }
    }
    let Some((name, checksum)) = elf.debug_link() else { return Err(tried) };
    let name = Path::new(OsStr::from_bytes(name));
    // A name with folders in it could lead anywhere.
    let Some(name) = name.file_name() else { return Err(tried) };
    let folder = path.parent().unwrap_or(Path::new(""));
    let below = folder.components().filter(|part| matches!(part, Component::Normal(_))).collect::<PathBuf>();
    let places = [folder.to_owned(), folder.join(".debug"), Path::new(GLOBAL).join(below)];
    for place in places.map(|place| place.join(name)).into_iter().filter(|place| place != path) {
        let same = |bytes: &[u8], other: &Elf<'_>| match (elf.build_id(), other.build_id()) {
            (Some(id), Some(_)) => same_id(id, other),
            _ => same_checksum(checksum, bytes),
        };
        match open(store, &place, files, same) {
            Ok(found) => return Ok(found),
            Err(failed) => tried.push(failed),
        }
    }
    Err(tried)
}

/// The file that dwz made of what several debug files have in common.
pub(super) fn shared<'a>(
    store: &'a Store,
    path: &Path,
    elf: &Elf<'a>,
    files: ReadFile<'a>,
) -> Result<Option<Elf<'a>>, Tried> {
    let Some((name, id)) = elf.alt_link() else { return Ok(None) };
    let named = path.parent().unwrap_or(Path::new("")).join(OsStr::from_bytes(name));
    let first = open(store, &named, files, |_, other| same_id(id, other));
    match first
        .or_else(|failed| open(store, &by_build_id(id), files, |_, other| same_id(id, other)).map_err(|_| failed))
    {
        Ok((_, elf)) => Ok(Some(elf)),
        Err(failed) => Err(failed),
    }
}

fn by_build_id(id: &[u8]) -> PathBuf {
    let text = hex(id);
    let (first, rest) = text.split_at(text.len().min(2));
    Path::new(GLOBAL).join(".build-id").join(first).join(format!("{rest}.debug"))
}

pub(super) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn same_id(id: &[u8], other: &Elf<'_>) -> Result<(), String> {
    match other.build_id() {
        Some(found) if found == id => Ok(()),
        Some(found) => Err(format!("its build id is {}, not {}", hex(found), hex(id))),
        None => Err(format!("it has no build id, and should have {}", hex(id))),
    }
}

fn same_checksum(checksum: u32, bytes: &[u8]) -> Result<(), String> {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    match crc.sum() {
        found if found == checksum => Ok(()),
        found => Err(format!("its checksum is {found:#010x}, not {checksum:#010x}")),
    }
}

fn open<'a>(
    store: &'a Store,
    path: &Path,
    files: ReadFile<'a>,
    is_same: impl Fn(&[u8], &Elf<'_>) -> Result<(), String>,
) -> Result<(PathBuf, Elf<'a>), Tried> {
    let Some(bytes) = files(path) else { return Err(Tried::Absent(path.to_owned())) };
    let bytes = store.keep(bytes);
    let elf = Elf::parse(bytes).map_err(|why| Tried::Broken { path: path.to_owned(), why: why.to_string() })?;
    is_same(bytes, &elf).map_err(|what| Tried::Mismatch { path: path.to_owned(), what })?;
    Ok((path.to_owned(), elf))
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tried::Absent(path) => write!(f, "{} is not there", path.display()),
            Tried::Mismatch { path, what } => write!(f, "{} is of another build: {what}", path.display()),
            Tried::Broken { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}
