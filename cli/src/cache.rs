//! The user's cache: headers that clang gets, objects that it has made, and the shared object that perf loads.
//!
//! A file appears whole or not at all: it is written beside its place and renamed. While that lasts, the signals that
//! end a command wait.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use twinbpf_trace::terminal::uninterrupted;

pub(crate) fn folder() -> Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(base.context("compiling C needs a place for headers; set XDG_CACHE_HOME or HOME")?.join("twinbpf"))
}

/// A folder that belongs to the user alone, which is made if it is not there.
pub(crate) fn own_folder(name: &str) -> std::result::Result<PathBuf, String> {
    let path = folder().map_err(|error| error.to_string())?.join(name);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let of = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let own = fs::metadata("/proc/self").map(|process| process.uid()).ok();
    match Some(of.uid()) == own && of.mode() & 0o022 == 0 {
        true => Ok(path),
        false => Err(format!("{} can be written by others", path.display())),
    }
}

pub(crate) fn sum(bytes: &[u8]) -> u64 {
    // With fixed keys; another compiler's may differ, which costs one more file.
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Puts a file at its place, whole.
pub(crate) fn publish(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let temporary = folder.join(format!(".{}.tmp", std::process::id()));
    uninterrupted(|| {
        let written = fs::File::create(&temporary)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // It may not exist; the result says why writing failed.
            let _ = fs::remove_file(&temporary);
        }
        written
    })
}

/// Removes the oldest files where there are more.
pub(crate) fn prune(folder: &Path, most: usize) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut files: Vec<(SystemTime, PathBuf)> =
        entries.flatten().filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    files.sort();
    for (_, path) in files.iter().take(files.len().saturating_sub(most)) {
        // Another process may do the same.
        let _ = fs::remove_file(path);
    }
}
