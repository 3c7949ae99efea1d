//! Which workloads from outside choose, and which only report: `sets.toml`.
//!
//! A workload is in the selection if FNV-1a of its name, 64 bits, is a multiple of three, so that nobody chooses after
//! measuring. Constants, superinstructions and passes are chosen by [`selection`] alone. [`reported`] is for the one bench
//! that reports; a test refuses it in any other.

use crate::outside::{Outside, all};

/// The file.
const SETS: &str = include_str!("../sets.toml");

/// What tuning may look at.
pub fn selection() -> Vec<Outside> {
    set("selection")
}

/// What nothing is tuned by.
pub fn reported() -> Vec<Outside> {
    set("report")
}

/// Names that were taken out, with the reason of each.
pub fn dropped() -> Vec<(String, String)> {
    let lines = section("[dropped]").filter_map(|line| line.split_once('='));
    lines.map(|(name, reason)| (unquoted(name), unquoted(reason))).collect()
}

fn set(name: &str) -> Vec<Outside> {
    let names = names(name);
    all().into_iter().filter(|it| names.iter().any(|name| name == it.name)).collect()
}

/// The strings of an array, each on a line of its own.
fn names(array: &str) -> Vec<String> {
    let head = format!("{array} = [");
    let lines = section(&head);
    lines.take_while(|line| *line != "]").map(|line| unquoted(line.trim_end_matches(','))).collect()
}

/// Lines after one, without comments and blank lines.
fn section(head: &str) -> impl Iterator<Item = &'static str> {
    let lines = SETS.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.skip_while(move |line| *line != head).skip(1)
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches('"').to_owned()
}

/// FNV-1a, 64 bits.
pub const fn fnv1a(bytes: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn sets_are_divided_by_the_hash_of_names() {
        let (selection, report) = (names("selection"), names("report"));
        let dropped: Vec<String> = dropped().into_iter().map(|(name, _)| name).collect();
        let mut wanted = [Vec::new(), Vec::new()];
        for it in all().iter().filter(|it| !dropped.iter().any(|name| name == it.name)) {
            wanted[usize::from(!fnv1a(it.name.as_bytes()).is_multiple_of(3))].push(it.name.to_owned());
        }
        wanted.iter_mut().for_each(|names| names.sort());
        assert_eq!([selection, report], wanted, "selection, then report, by name");
    }

    #[test]
    fn names_are_dropped_for_a_reason() {
        for (name, reason) in dropped() {
            assert!(all().iter().any(|it| it.name == name), "{name} is no workload");
            assert!(reason.split_whitespace().count() > 2, "{name}: {reason:?} is no reason");
        }
    }

    #[test]
    fn one_bench_reports_and_no_other_sees_its_set() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut users = Vec::new();
        for part in ["benches", "src", "src/outside", "src/peers"] {
            for entry in
                fs::read_dir(folder.join(part)).expect("a folder of the package").map(|entry| entry.expect("an entry"))
            {
                let name = entry.file_name().to_string_lossy().into_owned();
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                if name.ends_with(".rs") && (text.contains("reported") || text.contains("outside::all")) {
                    users.push(format!("{part}/{name}"));
                }
            }
        }
        users.sort();
        assert_eq!(users, ["benches/outside.rs", "src/sets.rs"]);
    }
}
