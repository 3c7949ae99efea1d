//! Which workloads from outside choose, and which only report: `sets.toml`.
//!
//! A workload is in the selection if FNV-1a of its name, 64 bits, is a multiple of three, so that the division does not depend on
//! measurements. Constants, superinstructions and passes are chosen by [`selection`] alone. [`reported`] is for the one bench
//! that reports, and so is [`sealed`], which is in none of both; `tests/tidy.rs` refuses them in any other.

use std::sync::LazyLock;

use toml::{Table, Value};

use crate::outside::{Outside, all};

/// The contents of `sets.toml`.
static SETS: LazyLock<Table> = LazyLock::new(|| include_str!("../sets.toml").parse().expect("sets.toml is TOML"));

/// The workloads that tuning may use.
pub fn selection() -> Vec<Outside> {
    set("selection")
}

/// The workloads that are only reported.
pub fn reported() -> Vec<Outside> {
    set("report")
}

/// The workloads that no engineer of the optimiser has seen.
pub fn sealed() -> Vec<Outside> {
    set("sealed")
}

/// The first set, of `corpus/bench`, which the optimiser was written for.
pub fn first() -> Vec<Outside> {
    crate::outside::first()
}

/// Names that were taken out, with the reason of each.
pub fn dropped() -> Vec<(String, String)> {
    let dropped = SETS["dropped"].as_table().expect("`dropped` is a table");
    let text = |reason: &Value| reason.as_str().expect("reasons are strings").to_owned();
    dropped.iter().map(|(name, reason)| (name.clone(), text(reason))).collect()
}

fn set(name: &str) -> Vec<Outside> {
    let names = names(name);
    all().into_iter().filter(|it| names.iter().any(|name| name == it.name)).collect()
}

fn names(array: &str) -> Vec<String> {
    let names = SETS[array].as_array().unwrap_or_else(|| panic!("`{array}` is an array"));
    names.iter().map(|name| name.as_str().expect("names are strings").to_owned()).collect()
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
        let apart = [dropped, names("sealed")].concat();
        for it in all().iter().filter(|it| !apart.iter().any(|name| name == it.name)) {
            wanted[usize::from(!fnv1a(it.name.as_bytes()).is_multiple_of(3))].push(it.name.to_owned());
        }
        wanted.iter_mut().for_each(|names| names.sort());
        assert_eq!([selection, report], wanted, "selection, then report, by name");
    }

    #[test]
    fn a_sealed_name_is_in_no_other_set() {
        let (names, others) = (names("sealed"), [names("selection"), names("report")].concat());
        assert_eq!(names.len(), 10);
        assert!(names.is_sorted_by(|a, b| a < b), "by name: {names:?}");
        for name in names {
            let is_other = others.contains(&name) || dropped().iter().any(|(other, _)| *other == name);
            assert!(all().iter().any(|it| it.name == name && it.is_plain_c()) && !is_other, "{name}");
        }
    }

    #[test]
    fn names_are_dropped_for_a_reason() {
        for (name, reason) in dropped() {
            assert!(all().iter().any(|it| it.name == name), "{name} is no workload");
            assert!(reason.split_whitespace().count() > 2, "{name}: {reason:?} is no reason");
        }
    }
}
