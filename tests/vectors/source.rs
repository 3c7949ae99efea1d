//! Files out of the packaged kernel source.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::skip;

/// What `linux-source-6.12` installs.
const TARBALL: &str = "/usr/src/linux-source-6.12.tar.xz";
const VERSION: &str = "linux-source-6.12";

/// What is wanted of it.
const PATHS: [&str; 7] = [
    "include/linux/filter.h",
    "include/uapi/linux",
    "lib/test_bpf.c",
    "tools/include",
    "tools/lib/bpf",
    "tools/testing/selftests/bpf/*.h",
    "tools/testing/selftests/bpf/progs",
];

/// Unpacks the parts of the source, once per package, and says where they are. None, with a reason printed, where the
/// package is not installed.
pub(crate) fn unpacked() -> Option<PathBuf> {
    static ONCE: OnceLock<Option<PathBuf>> = OnceLock::new();
    ONCE.get_or_init(unpack).clone()
}

/// Held while files are made: the tests of this binary run in two processes, with signals blocked and without.
pub(crate) fn lock() -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vectors.lock");
    let file = File::create(path).expect("a file to lock");
    file.lock().expect("a lock");
    file
}

fn unpack() -> Option<PathBuf> {
    let Ok(tarball) = fs::metadata(TARBALL) else {
        skip(&format!("{TARBALL} is not there: apt-get install {VERSION}"));
        return None;
    };
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("vectors-{}", tarball.len()));
    let root = place.join(VERSION);
    let done = place.join("unpacked");
    let _lock = lock();
    if !done.exists() {
        fs::create_dir_all(&place).expect("a folder");
        let members = PATHS.iter().map(|path| format!("{VERSION}/{path}"));
        let mut tar = Command::new("tar");
        tar.arg("xJf").arg(TARBALL).arg("-C").arg(&place).arg("--wildcards").args(members);
        assert!(tar.status().is_ok_and(|status| status.success()), "tar cannot unpack {TARBALL}");
        fs::write(done, "").expect("a mark");
    }
    Some(root)
}

/// The lines from the first that `begins` up to the first after it that `ends`, which is left out.
pub(crate) fn cut<'a>(text: &'a str, begins: &str, ends: impl Fn(&str) -> bool) -> &'a str {
    let start = text.find(begins).unwrap_or_else(|| panic!("the source has no '{begins}'"));
    let mut end = start;
    for line in text[start..].split_inclusive('\n') {
        if end > start && ends(line) {
            return &text[start..end];
        }
        end += line.len();
    }
    panic!("what begins with '{begins}' has no end")
}
