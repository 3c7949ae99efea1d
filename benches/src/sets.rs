//! Which workloads from outside choose, and which only report: `sets.toml`.
//!
//! A workload is in the selection if FNV-1a of its name, 64 bits, is a multiple of three, so that nobody chooses after
//! measuring. Constants, superinstructions and passes are chosen by [`selection`] alone. [`reported`] is for the one bench
//! that reports; `tests/tidy.rs` refuses it in any other.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fnv1a;

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
}
