//! Hooked functions of another process, read from its sites: they lie after the code of stubs, which `/proc/PID/maps` names.

use std::fs;
use std::io;
use std::mem::offset_of;
use std::sync::Arc;

use super::breakpoints::INT3;
use super::layout::{HALF, SLOT};
use super::site::Site;
use super::stubs::NAME;
use super::summary::Summary;
use crate::maps::Mapped;
use crate::memory::read_of;
use crate::modules::{Loaded, Module};
use crate::{Enabled, Error, Preparation, Trampoline};

/// All hooked functions of a process, by address.
pub(crate) fn enabled_in(pid: u32) -> Result<Vec<Enabled>, Error> {
    let path = format!("/proc/{pid}/maps");
    let maps = fs::read_to_string(&path)
        .map_err(|error| Error::System { what: "read the process's /proc/PID/maps", error })?;
    let mapped: Vec<Mapped> = maps.lines().filter_map(Mapped::parse).collect();
    let regions = mapped.iter().filter(|mapped| mapped.path.starts_with("/memfd:twinbpf-hooks"));
    let (mut found, mut modules) = (Vec::new(), Vec::new());
    // Stubs are written through a second mapping, which has no sites after it.
    for region in regions.filter(|region| region.is_code && region.range.end - region.range.start == HALF) {
        if !region.path.starts_with(&format!("/memfd:{NAME} ")) {
            return Err(Error::Version { pid });
        }
        let mut sites = vec![0; HALF as usize];
        let read = read_of(pid, region.range.end, &mut sites);
        if read == 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM) {
            let error = io::Error::from_raw_os_error(libc::EPERM);
            return Err(Error::System { what: "read the process's memory; it takes the same user, or root", error });
        }
        for (index, site) in sites[..read / SLOT as usize * SLOT as usize].chunks_exact(SLOT as usize).enumerate() {
            found.extend(state(pid, site, region.range.start + index as u64 * SLOT, &mapped, &mut modules));
        }
    }
    found.sort_by_key(|state: &Enabled| state.address);
    Ok(found)
}

fn state(
    pid: u32,
    site: &[u8],
    stub: u64,
    mapped: &[Mapped],
    modules: &mut Vec<(String, Arc<Module>)>,
) -> Option<Enabled> {
    let word = |offset: usize| Some(u64::from_le_bytes(site.get(offset..offset + 8)?.try_into().ok()?));
    let address = word(offset_of!(Site, address)).filter(|address| *address != 0)?;
    let summary = Summary::from_word(word(offset_of!(Site, summary))?)?;
    let leads_to_stub = |at: u64| {
        let mut code = [0; 5];
        let distance = |code: [u8; 5]| i64::from(i32::from_le_bytes([code[1], code[2], code[3], code[4]]));
        read_of(pid, at, &mut code) == 5
            && match summary.preparation {
                Preparation::Breakpoint => code[0] == INT3,
                _ => code[0] == 0xe9 && at.wrapping_add_signed(5 + distance(code)) == stub,
            }
    };
    // After a landing pad of indirect branches, or without.
    let is_hooked = [address, address + 4].into_iter().any(leads_to_stub);
    if summary.count == 0 && !summary.replaced && !is_hooked {
        return None;
    }
    let trampoline = match summary.trampoline {
        Trampoline::Direct(_) => Trampoline::Direct(word(offset_of!(Site, target))?),
        other => other,
    };
    let callback = word(offset_of!(Site, callback)).filter(|callback| *callback != 0);
    let lost = (word(offset_of!(Site, skipped))?, word(offset_of!(Site, lost_returns))?);
    let function = (name(pid, address, mapped, modules), address);
    Some(summary.enabled(function, is_hooked.then_some(trampoline), callback, lost))
}

/// The function's name, or where it is in which file.
fn name(pid: u32, address: u64, mapped: &[Mapped], modules: &mut Vec<(String, Arc<Module>)>) -> String {
    let in_file = |mapped: &&Mapped| mapped.range.contains(&address) && mapped.path.starts_with('/');
    let Some(file) = mapped.iter().find(in_file) else { return format!("{address:#x}") };
    if !modules.iter().any(|(path, _)| *path == file.path) {
        let first = mapped.iter().find(|mapped| mapped.path == file.path && mapped.offset == 0);
        let loaded = first.map(|first| Loaded::of_process(pid, &file.path, first.range.start));
        if let Some(module) = loaded.and_then(|loaded| Module::read(loaded).ok()) {
            modules.push((file.path.clone(), Arc::new(module)));
        }
    }
    let module = modules.iter().find(|(path, _)| *path == file.path);
    match module.and_then(|(_, module)| module.function_around(address)) {
        Some(function) => function.name().to_owned(),
        None => format!("{}+{:#x}", file.path, address - file.range.start + file.offset),
    }
}
