//! Catalog of the attach points of this kernel, as section names.
//!
//! Names come from the kernel's types, its tracing file system and files; whether a kind works at all is tried. What
//! exists by name and is not available is left out, with the reason.

mod events;
mod format;
mod functions;
mod hooks;
mod pattern;

use std::path::Path;

pub use format::{EventField, event_members, event_struct};
pub use pattern::{Pattern, section};

use crate::link::perf_unit;
use crate::probe;
use crate::prog::ProgType;
use crate::system::System;
use crate::tracefs;
use crate::user::{Binary, ElfError};

/// A place for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachPoint {
    /// What goes into `SEC()`.
    pub section: String,
    /// What `--attach PROG=` takes besides, where the section alone does not say it.
    pub attach: Option<String>,
    /// What a program gets there, a line each; empty if that was not requested or is unknown.
    pub arguments: Vec<String>,
}

impl AttachPoint {
    fn new(section: impl Into<String>) -> AttachPoint {
        AttachPoint { section: section.into(), attach: None, arguments: Vec::new() }
    }
}

/// Attach points that exist by name and are not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// What their sections begin with.
    pub kind: &'static str,
    /// How many; 0 where even that cannot be seen.
    pub count: usize,
    /// Reason, for messages.
    pub why: String,
}

/// What there is.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By kind, then by name.
    pub attach_points: Vec<AttachPoint>,
    /// What is not among them.
    pub left_out: Vec<LeftOut>,
}

impl Catalog {
    /// Puts what a pattern wants of a kind into the list, if `can` finds nothing against it.
    fn add(
        &mut self,
        kind: &'static str,
        pattern: &Pattern,
        names: impl IntoIterator<Item = String>,
        can: impl FnOnce() -> Result<(), String>,
    ) -> std::ops::Range<usize> {
        let start = self.attach_points.len();
        let sections = names.into_iter().map(|name| format!("{kind}/{name}"));
        let mut wanted: Vec<String> = sections.filter(|section| pattern.wants(section)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if !wanted.is_empty() {
            match can() {
                Ok(()) => self.attach_points.extend(wanted.into_iter().map(AttachPoint::new)),
                Err(why) => self.left_out.push(LeftOut { kind, count: wanted.len(), why }),
            }
        }
        start..self.attach_points.len()
    }

    /// What the kernel has, with arguments if they are wanted.
    pub fn of_kernel(pattern: &Pattern, arguments: bool) -> Catalog {
        let mut catalog = Catalog::default();
        events::tracepoints(&mut catalog, pattern, arguments);
        events::raw_tracepoints(&mut catalog, pattern, arguments);
        functions::probes(&mut catalog, pattern, arguments);
        functions::trampolines(&mut catalog, pattern, arguments);
        functions::iterators(&mut catalog, pattern, arguments);
        hooks::security(&mut catalog, pattern, arguments);
        events::sampled(&mut catalog, pattern);
        events::interfaces(&mut catalog, pattern);
        hooks::control_groups(&mut catalog, pattern);
        catalog
    }

    /// What a file of user space has.
    ///
    /// # Errors
    /// It is no such file.
    pub fn of_binary(path: &Path, pattern: &Pattern) -> Result<Catalog, ElfError> {
        let binary = Binary::read(path)?;
        let mut catalog = Catalog::default();
        let can = || match perf_unit("uprobe") || tracefs::exists("uprobe_events") {
            true => Ok(()),
            false => Err("this kernel has no probes in user space (CONFIG_UPROBES)".to_owned()),
        };
        let file = path.display();
        let (names, ambiguous) = binary.unique_functions();
        for kind in ["uprobe", "uretprobe"].into_iter().filter(|kind| pattern.includes(kind, "uprobe")) {
            catalog.add(kind, pattern, names.iter().map(|name| format!("{file}:{name}")), can);
            let several = ambiguous.iter().filter(|name| pattern.wants(&format!("{kind}/{file}:{name}"))).count();
            if several > 0 {
                let why = "several functions of the file have the name: say which by BINARY:0xOFFSET".to_owned();
                catalog.left_out.push(LeftOut { kind, count: several, why });
            }
        }
        let probes = binary.probes();
        let name = |sdt: &crate::user::Sdt| format!("{file}:{}:{}", sdt.provider, sdt.name);
        let added = catalog.add("usdt", pattern, probes.iter().map(name), can);
        for point in &mut catalog.attach_points[added] {
            let same = probes.iter().filter(|sdt| point.section == format!("usdt/{}", name(sdt)));
            point.arguments = same.map(|sdt| sdt.arguments.clone()).filter(|text| !text.is_empty()).collect();
            point.arguments.dedup();
        }
        Ok(catalog)
    }
}

/// Why programs of a type cannot be loaded, if so.
fn programs(kind: ProgType) -> Result<(), String> {
    match probe::prog_type(kind) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("this kernel has no programs of type {}", kind.name())),
        Err(error) => Err(format!("this process may not try: {error}")),
    }
}

/// Why functions of the kernel cannot be probed, if so.
fn kprobes() -> Result<(), String> {
    match perf_unit("kprobe") || tracefs::exists("kprobe_events") {
        true => Ok(()),
        false => Err("this kernel has no kprobes (CONFIG_KPROBES)".to_owned()),
    }
}

/// The kernel's types, or why nothing can be said without.
fn types() -> Result<&'static twinbpf_btf::Btf, String> {
    System::get().btf().map(AsRef::as_ref).ok_or_else(|| "this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)".to_owned())
}
