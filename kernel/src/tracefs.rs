//! The tracing file system: numbers of tracepoints.
//!
//! Where it is mounted nowhere, this process mounts it for itself alone, without a place in the directory tree.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::Error;
use crate::sys::mount;

/// Where it usually is.
const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Path of the mounted file system.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// Keeps a mount of our own.
    _held: Option<OwnedFd>,
}

fn root() -> io::Result<&'static Path> {
    static ROOT: OnceLock<Result<Root, i32>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let mounted = MOUNT_POINTS.iter().map(Path::new).find(|place| place.join("events").exists());
        if let Some(place) = mounted {
            return Ok(Root { path: place.to_owned(), _held: None });
        }
        let own = mount::detached(c"tracefs").map_err(|error| error.raw_os_error().unwrap_or(libc::ENOENT))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", own.as_raw_fd()));
        Ok(Root { path, _held: Some(own) })
    });
    root.as_ref().map(|root| root.path.as_path()).map_err(|errno| io::Error::from_raw_os_error(*errno))
}

/// The text of one of its files.
pub(crate) fn read(file: &str) -> io::Result<String> {
    fs::read_to_string(root()?.join(file))
}

/// Whether it has such a file, as far as this process may see.
pub(crate) fn exists(file: &str) -> bool {
    root().is_ok_and(|root| root.join(file).exists())
}

/// One of its files, to append to.
pub(crate) fn open(file: &str) -> io::Result<File> {
    File::options().append(true).open(root()?.join(file))
}

/// Appends a line to one of its files.
pub(crate) fn append(file: &str, line: &str) -> io::Result<()> {
    open(file)?.write_all(line.as_bytes())
}

/// Names in one of its directories, sorted.
pub fn list(directory: &str) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(root()?.join(directory))?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// The first bytes of the live trace (`trace_pipe`), for what `bpf_printk` writes.
///
/// # Errors
/// There is no tracing file system.
pub fn pipe() -> io::Result<impl Read> {
    File::open(root()?.join("trace_pipe"))
}

/// Whether a name can be part of a path there.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
        && name != "."
        && name != ".."
}

/// The number of a tracepoint.
///
/// # Errors
/// There is none of this name, or no tracing file system.
pub fn tracepoint(category: &str, name: &str) -> Result<u64, Error> {
    let subject = format!("tracepoint {category}:{name}");
    if !is_plain(category) || !is_plain(name) {
        return Err(Error::ours("open", &subject, libc::EINVAL, "no tracepoint has such a name"));
    }
    match read(&format!("events/{category}/{name}/id")) {
        Ok(text) => {
            let number = text.trim().parse();
            number.map_err(|_| Error::ours("read", &subject, libc::EINVAL, format!("its id is {:?}", text.trim())))
        }
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(Error::new("open", &subject, cause)),
        Err(cause) => Err(Error::new("open", &subject, cause).with_detail(why_missing(category, name))),
    }
}

/// Why a tracepoint is not there, and which may be meant.
pub(crate) fn why_missing(category: &str, name: &str) -> String {
    match (root(), list(&format!("events/{category}"))) {
        (Err(why), _) => format!("no tracing file system: {why}"),
        (Ok(_), Err(_)) => no_category(category),
        (Ok(_), Ok(names)) => match similar(name, &names) {
            Some(other) => format!("this kernel has {category}:{other}"),
            None => format!("not among the {} of {category}", names.len()),
        },
    }
}

fn no_category(category: &str) -> String {
    let known = list("events").unwrap_or_default();
    let like = similar(category, &known).map_or_else(String::new, |known| format!(", but {known}"));
    format!("this kernel has no category {category}{like}")
}

/// Likeness of names that are the same but for few letters: 1 less the share of letters that differ.
const LIKE: f64 = 0.6;

/// The name that is most like another, if one is.
fn similar<'a>(name: &str, names: &'a [String]) -> Option<&'a str> {
    let likeness = |other: &&String| strsim::normalized_damerau_levenshtein(name, other);
    let best = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) >= LIKE).then_some(best.as_str())
}
