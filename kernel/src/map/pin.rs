//! Names of maps in a BPF file system.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Difference, Map, MapInfo};
use crate::error::Error;
use crate::sys::{attr, bpf, number};

/// What is at the path where a map is to be pinned.
#[derive(Debug)]
pub enum Pinned {
    /// No file is at the path.
    Nothing,
    /// A map that can stand in.
    Same(Map),
    /// A map that differs.
    Different {
        /// The map that is pinned at the path.
        map: Map,
        /// Attributes in which it differs.
        differences: Vec<Difference>,
    },
}

pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

/// `BPF_OBJ_PIN` of any descriptor.
pub(crate) fn pin(fd: std::os::fd::BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let name = c_path(path)?;
    bpf::obj_pin(&mut attr::Obj { pathname: name.as_ptr() as u64, bpf_fd: number(fd), file_flags: 0 })
}

/// `BPF_OBJ_GET`.
pub(crate) fn get(path: &Path) -> io::Result<OwnedFd> {
    let name = c_path(path)?;
    bpf::obj_get(&mut attr::Obj { pathname: name.as_ptr() as u64, ..attr::Obj::default() })
}

/// Removes names of maps. Another process may have done that already.
pub fn unpin(paths: &[PathBuf]) {
    for path in paths {
        let _ = std::fs::remove_file(path);
    }
}

impl Map {
    /// `BPF_OBJ_PIN`: the map lives until the name is removed.
    ///
    /// # Errors
    /// The kernel's. `EEXIST` when there is something at the path.
    pub fn pin(&self, path: &Path) -> Result<(), Error> {
        pin(self.fd.as_fd(), path).map_err(|cause| {
            let mut error = self.failed("OBJ_PIN", cause);
            let why = not_bpffs(path).map_or_else(String::new, |why| format!("; {why}"));
            error.detail = Some(format!("at {}{why}", path.display()));
            error
        })
    }

    /// `BPF_OBJ_GET`: the map with this name.
    ///
    /// # Errors
    /// The kernel's. `ENOENT` when there is nothing at the path.
    pub fn open(path: &Path) -> Result<Map, Error> {
        let fail = |command, cause| Error::new(command, &path.display().to_string(), cause);
        let fd = get(path).map_err(|cause| {
            let mut error = fail("OBJ_GET", cause);
            error.detail = not_bpffs(path).filter(|_| error.errno() != Some(libc::ENOENT));
            error
        })?;
        let info = MapInfo::of(fd.as_fd()).map_err(|cause| fail("OBJ_GET_INFO_BY_FD", cause))?;
        Ok(Map::from_parts(fd, info))
    }

    /// The map with this number.
    ///
    /// # Errors
    /// The kernel's. `ENOENT` when there is none.
    pub fn by_id(id: u32) -> Result<Map, Error> {
        let fail = |command, cause| Error::new(command, &format!("map {id}"), cause);
        let fd = bpf::open_id(bpf::ObjectKind::Map, id).map_err(|cause| fail("MAP_GET_FD_BY_ID", cause))?;
        let info = MapInfo::of(fd.as_fd()).map_err(|cause| fail("OBJ_GET_INFO_BY_FD", cause))?;
        Ok(Map::from_parts(fd, info))
    }

    /// Numbers of all maps that there are.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ids() -> Result<Vec<u32>, Error> {
        bpf::ids(bpf::ObjectKind::Map).map_err(|cause| Error::new("MAP_GET_NEXT_ID", "all maps", cause))
    }

    /// What is at a path, compared with the map that is to be pinned there.
    ///
    /// # Errors
    /// There is something, but no map, or it cannot be opened.
    pub fn pinned(path: &Path, wanted: &MapInfo) -> Result<Pinned, Error> {
        let map = match Map::open(path) {
            Ok(map) => map,
            Err(error) if error.cause.raw_os_error() == Some(libc::ENOENT) => return Ok(Pinned::Nothing),
            Err(error) => return Err(error),
        };
        let differences = map.info.differences(wanted);
        Ok(if differences.is_empty() {
            Pinned::Same(Map { info: MapInfo { name: wanted.name.clone(), ..map.info }, fd: map.fd })
        } else {
            Pinned::Different { map, differences }
        })
    }
}

/// Evidence: what kind of file system a path is in.
fn not_bpffs(path: &Path) -> Option<String> {
    let parent = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    (!is_in_bpffs(&mounts, &parent)).then(|| format!("{} is in no BPF file system", parent.display()))
}

/// Whether the longest mount point above a path is of type `bpf`.
fn is_in_bpffs(mountinfo: &str, path: &Path) -> bool {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        Some((Path::new(left.split(' ').nth(4)?), right.split(' ').next()?))
    });
    let above = mounts.filter(|(point, _)| path.starts_with(point));
    above.max_by_key(|(point, _)| point.as_os_str().len()).is_some_and(|(_, kind)| kind == "bpf")
}
