//! Paths of cgroups by their numbers, as `bpf_get_current_cgroup_id` returns them.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::sys;

/// `FILEID_KERNFS` of `include/linux/exportfs.h`: a handle is the number.
const KERNFS: i32 = 0xfe;

/// Where the hierarchy of version 2 is mounted.
static MOUNT: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.filter(|fields| fields.get(2) == Some(&"cgroup2")).find_map(|fields| Some(PathBuf::from(fields.get(1)?)))
});

/// Path in the hierarchy, `/` for its root. `None`: there is no such cgroup any more, or no privilege to ask.
pub(super) fn path(number: u64) -> Option<String> {
    let mount = MOUNT.as_deref()?;
    let folder = File::open(mount).ok()?;
    let found = sys::by_handle(folder.as_fd(), KERNFS, &number.to_ne_bytes()).ok()?;
    let path = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?;
    let inside = path.strip_prefix(mount).ok()?;
    Some(Path::new("/").join(inside).to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::{MOUNT, path};

    #[test]
    fn numbers_are_those_of_folders() {
        assert_eq!(path(0), None);
        let Some(mount) = &*MOUNT else { return };
        let number = |path: &str| std::fs::metadata(mount.join(path)).map(|data| data.ino());
        let root = number("").unwrap();
        let Some(name) = path(root) else { return };
        assert_eq!(name, "/");
        let made = format!("twinbpf-test-{}", std::process::id());
        if std::fs::create_dir(mount.join(&made)).is_err() {
            return;
        }
        let number = number(&made).unwrap();
        assert_eq!(path(number), Some(format!("/{made}")));
        std::fs::remove_dir(mount.join(&made)).unwrap();
        assert_eq!(path(number), None);
    }
}
