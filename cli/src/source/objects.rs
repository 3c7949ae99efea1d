//! Objects that clang has made, kept in the user's cache: a second start of the same source takes no clang.
//!
//! The name of an object is a hash of the source, the options, and clang itself; with it is the list of the files that
//! it included, with hashes of theirs. It is used only while all of them are as they were. The folder belongs to the user
//! alone, since what is in it is loaded into the kernel.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use twinbpf_kernel::user;

use crate::cache::{own_folder, prune, publish, sum};

/// Objects that are kept.
const MOST: usize = 256;

/// An object that may be kept, and where.
pub(super) struct Kept {
    object: PathBuf,
    list: PathBuf,
    /// For the list that clang writes of what it includes.
    pub(super) includes: PathBuf,
}

impl Kept {
    /// The place of a command and the text that it gets. `None`: there is no folder that is the user's alone.
    pub(super) fn new(clang: &OsStr, arguments: &[String], text: &str) -> Option<Kept> {
        let folder = own_folder("objects").inspect_err(|why| log::debug!("objects are not kept: {why}")).ok()?;
        let program = user::find(&clang.to_string_lossy())?;
        let of = fs::metadata(&program).ok()?;
        let mut hasher = DefaultHasher::new();
        (program, of.len(), of.mtime(), of.mtime_nsec(), arguments, text).hash(&mut hasher);
        (std::env::current_dir().ok()?, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
        let name = format!("{:016x}", hasher.finish());
        let file = |end: &str| folder.join(format!("{name}.{end}"));
        let includes = folder.join(format!(".{name}.{}.d", std::process::id()));
        Some(Kept { object: file("o"), list: file("json"), includes })
    }

    /// The object, if it is there and all that it included is as it was.
    pub(super) fn get(&self) -> Option<Vec<u8>> {
        let list: Value = serde_json::from_slice(&fs::read(&self.list).ok()?).ok()?;
        let same = |file: &Value| {
            let (path, wanted) = (file["path"].as_str()?, file["sum"].as_u64()?);
            (sum(&fs::read(path).ok()?) == wanted).then_some(())
        };
        list["files"].as_array()?.iter().map(same).collect::<Option<Vec<()>>>()?;
        let object = fs::read(&self.object).ok()?;
        (sum(&object) == list["object"].as_u64()?).then_some(object)
    }

    /// Keeps an object. What cannot be kept is compiled again the next time.
    pub(super) fn put(&self, object: &[u8]) {
        let Ok(written) = fs::read_to_string(&self.includes) else { return };
        let files = included(&written).into_iter().filter(|path| path != "-");
        let files = files.map(|path| Some(json!({ "sum": sum(&fs::read(&path).ok()?), "path": path })));
        let Some(files) = files.collect::<Option<Vec<Value>>>() else { return };
        let list = json!({ "object": sum(object), "files": files }).to_string();
        let kept = publish(&self.object, object).and_then(|()| publish(&self.list, list.as_bytes()));
        if let Err(error) = kept {
            log::debug!("{}: {error}", self.object.display());
        }
        self.object.parent().into_iter().for_each(|folder| prune(folder, 2 * MOST));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It is there only where clang has run.
        let _ = fs::remove_file(&self.includes);
    }
}

/// Files of a list that clang writes for make (`-MD`): after the target, with `\ ` for blanks and `\` before line ends.
fn included(list: &str) -> Vec<String> {
    let files = list.split_once(": ").map_or("", |(_, files)| files).replace("\\\n", " ");
    let (mut found, mut name) = (Vec::new(), String::new());
    let mut chars = files.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&' ') => name.extend(chars.next()),
            '$' if chars.peek() == Some(&'$') => name.extend(chars.next()),
            c if c.is_whitespace() => found.extend(Some(std::mem::take(&mut name)).filter(|name| !name.is_empty())),
            c => name.push(c),
        }
    }
    found.extend(Some(name).filter(|name| !name.is_empty()));
    found
}

#[cfg(test)]
mod tests {
    use super::included;

    #[test]
    fn lists_for_make_are_read() {
        let list = "-: - \\\n  /a/b.h /a\\ b/c.h \\\n  d$$e.h\n";
        assert_eq!(included(list), ["-", "/a/b.h", "/a b/c.h", "d$e.h"]);
        assert_eq!(included(""), Vec::<String>::new());
    }
}
