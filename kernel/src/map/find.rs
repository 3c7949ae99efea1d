//! Maps of other processes: by number, name or path, and their holders.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use super::{Map, MapInfo, kernel_name};
use crate::error::Error;
use crate::sys::text;

/// A process that has a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id of the holder.
    pub pid: u32,
    /// Command name, as in `/proc/PID/comm`.
    pub comm: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.comm, self.pid)
    }
}

/// Why a text means no map.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] Error),
    /// There is none with this number.
    #[error("no map has the number {0}; `twinbpf map list` shows all")]
    NoNumber(u32),
    /// There is none of this name.
    #[error("no map is called {name}{near}; `twinbpf map list` shows all, a number or a pinned path will do too")]
    Nothing {
        /// Map name that was searched.
        name: String,
        /// Those that have it as a part.
        near: String,
    },
    /// There are several.
    #[error("{} maps are called {name}: {}; say which by its number", .found.len(), .found.join(", "))]
    Several {
        /// Map name that was searched.
        name: String,
        /// Number, kind and holders of each.
        found: Vec<String>,
    },
}

impl Map {
    /// The map that a number, a name or a path means.
    ///
    /// # Errors
    /// There is none or more than one, or the kernel does not show it.
    pub fn find(wanted: &str) -> Result<Map, FindError> {
        if let Ok(id) = wanted.parse() {
            return Map::by_id(id).map_err(|error| match error.errno() {
                Some(libc::ENOENT) => FindError::NoNumber(id),
                _ => error.into(),
            });
        }
        if wanted.contains('/') {
            return Ok(Map::open(Path::new(wanted))?);
        }
        // The kernel has cut the name as it cuts this one.
        let name = text(&kernel_name(wanted));
        let all = Map::all()?;
        let found: Vec<&MapInfo> = all.iter().filter(|info| info.name == name).collect();
        match found.as_slice() {
            [only] => Ok(Map::by_id(only.id)?),
            [] => {
                let mut near: Vec<&str> =
                    all.iter().map(|info| info.name.as_str()).filter(|other| other.contains(wanted)).collect();
                near.sort_unstable();
                near.dedup();
                let near = if near.is_empty() { String::new() } else { format!(" (there is {})", near.join(", ")) };
                Err(FindError::Nothing { name: wanted.to_owned(), near })
            }
            several => {
                let held = holders();
                let describe = |info: &&MapInfo| {
                    let by = held.get(&info.id).map_or_else(String::new, |holders| format!(" of {}", joined(holders)));
                    format!("{} ({}{by})", info.id, info.kind.name())
                };
                Err(FindError::Several { name: wanted.to_owned(), found: several.iter().map(describe).collect() })
            }
        }
    }

    /// What every map of the kernel is. One that goes away meanwhile, or is of a kind that is unknown here, is left
    /// out.
    ///
    /// # Errors
    /// The kernel's.
    pub fn all() -> Result<Vec<MapInfo>, Error> {
        let mut all = Vec::new();
        for id in Map::ids()? {
            match Map::by_id(id) {
                Ok(map) => all.push(map.info().clone()),
                Err(error) if error.errno() == Some(libc::ENOENT) => {}
                Err(error) if error.cause.kind() == io::ErrorKind::Unsupported => log::debug!("{error}"),
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Whether system calls cannot change it any more.
    pub fn is_frozen(&self) -> bool {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.as_fd().as_raw_fd()));
        info.is_ok_and(|text| field(&text, "frozen:") == Some(1))
    }
}

/// Which processes hold which map, as far as this one may see.
pub fn holders() -> BTreeMap<u32, Vec<Holder>> {
    let mut all: BTreeMap<u32, Vec<Holder>> = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        let mut maps: Vec<u32> =
            files.filter_map(|entry| field(&fs::read_to_string(entry.path()).ok()?, "map_id:")).collect();
        maps.sort_unstable();
        maps.dedup();
        if maps.is_empty() {
            continue;
        }
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
        for map in maps {
            all.entry(map).or_default().push(Holder { pid, comm: comm.clone() });
        }
    }
    all
}

/// A list of several, for messages.
pub fn joined(holders: &[Holder]) -> String {
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ")
}

fn field(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}
