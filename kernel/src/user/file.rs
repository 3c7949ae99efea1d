//! From the name of a program or library to its file, as a shell or the dynamic linker would find it.

use std::path::{Path, PathBuf};

/// Default directories of the dynamic linker.
const LIBRARIES: [&str; 11] = [
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/riscv64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/riscv64-linux-gnu",
    "/usr/local/lib",
];
/// Directories of programs, after those of `PATH`.
const PROGRAMS: [&str; 2] = ["/usr/bin", "/usr/sbin"];

/// The file that a name means: a path as it is, a bare name with `.so` in it among the libraries
/// (`LD_LIBRARY_PATH` first), any other among the programs (`PATH` first).
pub fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let library = name.contains(".so");
    let (variable, usual) = if library { ("LD_LIBRARY_PATH", &LIBRARIES[..]) } else { ("PATH", &PROGRAMS[..]) };
    let listed = std::env::var_os(variable).unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&listed).filter(|path| path.is_absolute()).collect();
    let all = listed.iter().map(PathBuf::as_path).chain(usual.iter().map(Path::new));
    all.map(|directory| directory.join(name)).find(|path| path.is_file())
}
