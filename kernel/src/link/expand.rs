//! Sections and places that are patterns: `tp/syscalls/sys_enter_*` is a target for each tracepoint that matches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use twinbpf_btf::glob::matches;
use twinbpf_loader::section::{AutoAttach, Row, SectionKind};

use super::multi::{functions, matching};
use super::target::{binary, file, syscall_function};
use super::{Functions, Return, Target, TargetError, UprobeSite};
use crate::tracefs;
use crate::user::Binary;

impl Target {
    /// Every target that a section name says: where `*` (any text) or `?` (any character) is in it, all that match, in the
    /// order of their names. None where the name leaves the target to the caller. Kinds that take many places by
    /// themselves (`kprobe.multi`, `uprobe.multi`) give one target.
    ///
    /// # Errors
    /// Those of [`Target::of_section`]; nothing matches, or the kind takes no pattern.
    pub fn all_of_section(kind: &SectionKind) -> Result<Vec<Target>, TargetError> {
        let SectionKind::Known { row, target: Some(text), .. } = kind else {
            return Ok(Target::of_section(kind)?.into_iter().collect());
        };
        let one = || Ok(Target::of_section(kind)?.into_iter().collect());
        if !text.contains(['*', '?']) {
            return one();
        }
        let targets = match row.auto {
            Some(AutoAttach::Tp) => tracepoints(text),
            Some(AutoAttach::Kprobe) => kprobes(row, text),
            Some(AutoAttach::Ksyscall) => kprobes(row, &syscall_function(text)),
            Some(AutoAttach::Uprobe) => uprobes(row, text)?,
            Some(AutoAttach::Usdt) => static_probes(text)?,
            Some(AutoAttach::RawTp) => return Err(no_pattern(row, "tp/CATEGORY/PATTERN, or a program for each")),
            Some(AutoAttach::Trace | AutoAttach::Lsm | AutoAttach::Iter) => {
                return Err(no_pattern(row, "a program for each: the kernel has one target for each that it loads"));
            }
            Some(AutoAttach::KprobeMulti | AutoAttach::KprobeSession | AutoAttach::UprobeMulti)
            | Some(AutoAttach::TracingMulti)
            | None => return one(),
        };
        match targets.is_empty() {
            true => Err(TargetError::NoMatch { kind: row.pattern, text: text.to_string() }),
            false => Ok(targets),
        }
    }
}

/// The same places with one link for each file, instead of an event for each place: for a program that was loaded for that
/// ([`Attaching::ByOneLink`](twinbpf_loader::kernel::Attaching)).
pub fn by_one_link<'a>(targets: impl IntoIterator<Item = &'a Target>) -> Vec<Target> {
    let (mut merged, mut others) = (BTreeMap::new(), Vec::new());
    for target in targets {
        match target {
            Target::Uprobe { path, site, ret } => {
                merged.entry((path, *ret)).or_insert_with(Vec::new).push(*site);
            }
            other => others.push(other.clone()),
        }
    }
    let merged = merged.into_iter().map(|((path, ret), sites)| Target::UprobeMulti {
        path: path.clone(),
        functions: Functions::Sites(sites),
        ret: if ret { Return::Yes } else { Return::No },
    });
    merged.chain(others).collect()
}

fn no_pattern(row: &'static Row, instead: &'static str) -> TargetError {
    TargetError::NoPattern { kind: row.pattern, instead }
}

/// Tracepoints of `CATEGORY/NAME`. Without a tracing file system there is none.
fn tracepoints(text: &str) -> Vec<Target> {
    let (category, name) = text.split_once('/').unwrap_or((text, "*"));
    let all = |folder: &str| tracefs::list(folder).unwrap_or_default();
    let categories = all("events").into_iter().filter(|other| matches(category, other));
    let found = categories.flat_map(|category| {
        let names = all(&format!("events/{category}")).into_iter();
        // Folders have files beside those of events.
        let names =
            names.filter(|other| matches(name, other) && tracefs::exists(&format!("events/{category}/{other}/id")));
        names.map(|name| Target::Tracepoint { category: category.clone(), name }).collect::<Vec<_>>()
    });
    found.collect()
}

fn kprobes(row: &Row, text: &str) -> Vec<Target> {
    let ret = row.pattern.contains("ret");
    let names: BTreeSet<String> = functions(text).into_iter().collect();
    names.into_iter().map(|function| Target::Kprobe { function, offset: 0, ret }).collect()
}

fn open(path: &Path) -> Result<Binary, TargetError> {
    Binary::read(path).map_err(|error| TargetError::Binary { path: path.display().to_string(), error })
}

/// A target for each place where a function begins whose name matches.
fn uprobes(row: &'static Row, text: &str) -> Result<Vec<Target>, TargetError> {
    let expected = "BINARY:FUNCTION[+OFFSET]";
    let malformed = || TargetError::Malformed { kind: row.pattern, text: text.to_owned(), expected };
    let (path, pattern) = binary(text).ok_or_else(malformed)?;
    let path = file(path)?;
    let found = matching(&open(&path)?, pattern);
    let ret = row.pattern.contains("ret");
    let site = |offset| UprobeSite { offset, ..UprobeSite::default() };
    Ok(found.into_iter().map(|offset| Target::Uprobe { path: path.clone(), site: site(offset), ret }).collect())
}

/// Static probes of `BINARY:PROVIDER:NAME`.
fn static_probes(text: &str) -> Result<Vec<Target>, TargetError> {
    let expected = "BINARY:PROVIDER:NAME";
    let malformed = || TargetError::Malformed { kind: "usdt", text: text.to_owned(), expected };
    let (rest, name) = text.rsplit_once(':').ok_or_else(malformed)?;
    let (path, provider) = rest.rsplit_once(':').ok_or_else(malformed)?;
    let path = file(path)?;
    let probes = open(&path)?.probes().into_iter();
    let names: BTreeSet<(String, String)> = probes
        .filter(|probe| matches(provider, &probe.provider) && matches(name, &probe.name))
        .map(|probe| (probe.provider, probe.name))
        .collect();
    Ok(names.into_iter().map(|(provider, name)| Target::Usdt { path: path.clone(), provider, name }).collect())
}

#[cfg(test)]
mod tests {
    use twinbpf_loader::section::Attach;

    use super::*;

    fn of(section: &str) -> Result<Vec<Target>, TargetError> {
        Target::all_of_section(&Attach::parse(section).kind)
    }

    #[test]
    fn a_pattern_is_all_functions_that_match() {
        let all = of("uprobe/libc.so.6:str*").unwrap();
        let one = of("uprobe/libc.so.6:strcpy").unwrap();
        assert!(all.len() > 10 && one.len() == 1, "{all:?}");
        let ends: Vec<Target> = of("uretprobe/libc.so.6:str*").unwrap();
        assert!(ends.iter().all(|target| matches!(target, Target::Uprobe { ret: true, .. })));
    }

    #[test]
    fn a_pattern_that_cannot_be_says_why() {
        assert!(matches!(of("uprobe/libc.so.6:no_such_*"), Err(TargetError::NoMatch { .. })));
        for section in ["raw_tp/sys_*", "fentry/tcp_*", "lsm/*", "iter/*"] {
            let error = of(section).unwrap_err();
            assert!(matches!(error, TargetError::NoPattern { .. }), "{section}: {error}");
        }
        assert!(matches!(of("usdt/x:*"), Err(TargetError::Malformed { .. })));
    }

    #[test]
    fn places_of_a_file_share_a_link() {
        let site = |offset| UprobeSite { offset, ..UprobeSite::default() };
        let uprobe = |path: &str, offset, ret| Target::Uprobe { path: path.into(), site: site(offset), ret };
        let link = |path: &str, offsets: &[u64], ret| Target::UprobeMulti {
            path: path.into(),
            functions: Functions::Sites(offsets.iter().copied().map(site).collect()),
            ret,
        };
        let targets =
            [uprobe("b", 1, false), uprobe("a", 2, false), uprobe("b", 3, false), uprobe("b", 4, true), Target::Btf];
        let links =
            [link("a", &[2], Return::No), link("b", &[1, 3], Return::No), link("b", &[4], Return::Yes), Target::Btf];
        assert_eq!(by_one_link(&targets), links);
    }

    #[test]
    fn other_names_are_one_target() {
        assert_eq!(of("tp/a/b").unwrap().len(), 1);
        assert_eq!(of("kprobe.multi/tcp_*").unwrap().len(), 1);
        assert_eq!(of("xdp").unwrap(), []);
    }
}
