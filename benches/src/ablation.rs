//! What a pass is worth: the same workloads with it and without, next to builds that are the same.

use std::collections::BTreeMap;

use twinbpf::PassSet;
use twinbpf_jit::PassInfo;

/// A pass stays if the geometric mean loses so much without it.
pub const MEAN_LOSS: f64 = 0.005;
/// Or some workload so much.
pub const WORST_LOSS: f64 = 0.05;

/// Passes that one makes worth while for another; they are judged together, too.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("addresses", &["address-folding", "licm"]),
    ("induction variables", &["increment-sinking", "iv-widening"]),
    ("all passes", &["all"]),
];

/// A build of the optimiser.
#[derive(Clone, Copy)]
pub struct Build {
    /// The pass or group that it lacks.
    pub name: &'static str,
    /// The passes, or `all`.
    lacks: &'static [&'static str],
    /// What it has.
    pub passes: PassSet,
}

/// How many builds with all passes there are; the first is what the others are compared with.
pub const EQUAL: usize = 4;

/// Places that each pass changed in a workload.
pub type Changes = BTreeMap<&'static str, usize>;

impl Build {
    /// Places in a workload that what it lacks would change.
    pub fn misses(&self, changes: &Changes) -> usize {
        let lacks = |name: &&str| self.lacks.contains(name) || self.lacks == ["all"];
        changes.iter().filter(|(name, _)| lacks(name)).map(|(_, places)| places).sum()
    }

    /// Whether a workload can be different code: it has all passes, and is there to show by how much equal code differs, or what it
    /// lacks would change something.
    pub fn concerns(&self, changes: &Changes) -> bool {
        self.lacks.is_empty() || self.misses(changes) > 0
    }
}

/// [`EQUAL`] builds with all passes, then one without each pass and each group that is wanted.
pub fn builds(wanted: impl Fn(&str) -> bool) -> Vec<Build> {
    let without = |name: &'static str, lacks: &'static [&'static str]| {
        let text: Vec<String> = lacks.iter().map(|pass| format!("-{pass}")).collect();
        let passes = text.join(",").parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        Build { name, lacks, passes }
    };
    let alone = PassInfo::all().iter().map(|pass| without(pass.name, std::slice::from_ref(&pass.name)));
    let groups = GROUPS.iter().map(|(name, passes)| without(name, passes));
    let full = std::iter::repeat_n(Build { name: "nothing", lacks: &[], passes: PassSet::ALL }, EQUAL);
    full.chain(alone.chain(groups).filter(|build| wanted(build.name))).collect()
}

/// How much longer the workloads take in another build.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Geometric mean, as a fraction of the time.
    pub mean: f64,
    /// The workload that loses most, and its loss.
    pub worst: (&'static str, f64),
    /// The one that gains most, and its loss, which is below zero.
    pub best: (&'static str, f64),
}

impl Loss {
    /// Of how many times as long each workload takes as in the build with all passes; at least one. Where both are the same code
    /// there is no ratio, for that it would be noise.
    pub fn of(ratios: &[(&'static str, Option<f64>)]) -> Loss {
        let mean = ratios.iter().map(|(_, ratio)| ratio.unwrap_or(1.0).ln()).sum::<f64>() / ratios.len() as f64;
        let losses = || ratios.iter().map(|(name, ratio)| (*name, ratio.unwrap_or(1.0) - 1.0));
        let most = losses().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", 0.0));
        let least = losses().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", 0.0));
        Loss { mean: mean.exp() - 1.0, worst: most, best: least }
    }

    /// Whether the pass stays: what it loses is enough, and more than builds that are the same are apart.
    pub fn justifies(&self, spread: Spread) -> bool {
        self.mean >= MEAN_LOSS.max(spread.mean) || self.worst.1 >= WORST_LOSS.max(spread.worst)
    }
}

/// How far builds that are the same are apart.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// In the geometric mean.
    pub mean: f64,
    /// On one workload.
    pub worst: f64,
}

impl Spread {
    /// Of what other builds with all passes seem to lose.
    pub fn of(equal: &[Loss]) -> Spread {
        let most = |of: fn(&Loss) -> f64| equal.iter().map(of).fold(0.0, f64::max);
        Spread { mean: most(|loss| loss.mean.abs()), worst: most(|loss| loss.worst.1.abs().max(loss.best.1.abs())) }
    }
}

#[cfg(test)]
mod tests {
    use twinbpf::Object;

    use super::*;
    use crate::outside::engine;
    use crate::peers::twinbpf::{Mode, instantiate_in};
    use crate::sets::selection;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn loss(ratios: [f64; 4]) -> Loss {
        let ratios: Vec<_> = NAMES.into_iter().zip(ratios.map(Some)).collect();
        Loss::of(&ratios)
    }

    #[test]
    fn a_pass_stays_by_the_mean_or_by_one_workload() {
        let same = Spread::of(&[loss([1.001, 0.999, 1.0, 1.002])]);
        assert!(loss([1.02, 1.01, 1.0, 1.0]).justifies(same));
        assert!(loss([1.06, 0.98, 0.98, 0.98]).justifies(same));
        assert!(!loss([1.004, 1.004, 1.0, 1.0]).justifies(same));
        assert!(!loss([0.9, 0.9, 0.9, 0.9]).justifies(same));
        assert_eq!(loss([1.06, 0.98, 1.0, 1.0]).worst.0, "a");
    }

    #[test]
    fn differences_between_equal_builds_justify_nothing() {
        let same = Spread::of(&[loss([1.0, 1.0, 1.0, 1.0]), loss([1.08, 0.99, 1.0, 1.0])]);
        assert!(!loss([1.07, 0.99, 1.0, 1.0]).justifies(same));
        assert!(!loss([1.01, 1.01, 1.01, 1.01]).justifies(same));
        assert!(loss([1.09, 0.99, 1.0, 1.0]).justifies(same));
    }

    #[test]
    fn equal_code_neither_loses_nor_hides_a_loss() {
        let changes = Changes::from([("licm", 0), ("dce", 3)]);
        let concerns = |name: &str| builds(|it| it == name).last().is_some_and(|build| build.concerns(&changes));
        assert!(concerns("dce") && concerns("all passes") && concerns("no such pass"));
        assert!(!concerns("licm") && !concerns("addresses"));
        let loss = Loss::of(&[("a", None), ("b", Some(1.0302)), ("c", None)]);
        assert!((loss.mean - 0.00997).abs() < 1e-4 && loss.worst.0 == "b", "{loss:?}");
    }

    /// Names, code and changes of an object's programs, without addresses.
    fn listings(object: &Object, passes: PassSet) -> (String, Changes) {
        let engine = engine(Mode::Sandbox, passes).expect("an engine");
        let pre = instantiate_in(object, &engine).expect("it links");
        let (mut code, mut changes) = (String::new(), Changes::new());
        for (_, listing) in
            pre.programs().flat_map(|name| pre.listing(pre.program(name).expect("a program")).expect("code"))
        {
            let words = listing.text.split_whitespace().filter(|word| !word.contains("0x") && word.len() < 9);
            code.extend(words.flat_map(|word| [word, " "]));
            listing.passes.iter().for_each(|run| *changes.entry(run.name).or_insert(0) += run.changes);
        }
        (code, changes)
    }

    #[test]
    fn a_pass_that_changes_nothing_leaves_the_code_as_it_is() {
        let mut equal = 0;
        for subject in selection().into_iter().take(16) {
            let object = subject.object().expect("an object of the corpus");
            let (code, changes) = listings(&object, PassSet::ALL);
            assert!(code.len() > 1000, "{code}");
            for build in builds(|_| true).iter().filter(|build| !build.concerns(&changes)) {
                assert!(listings(&object, build.passes).0 == code, "{} without {}", subject.name, build.name);
                equal += 1;
            }
        }
        assert!(equal > 20, "{equal}");
    }

    #[test]
    fn groups_name_passes() {
        let all = builds(|_| true);
        assert_eq!(all.len(), EQUAL + PassInfo::all().len() + GROUPS.len());
        assert!(all[EQUAL..].iter().all(|build| build.passes != PassSet::ALL));
        assert_eq!(builds(|name| name == "licm").len(), EQUAL + 1);
    }
}
