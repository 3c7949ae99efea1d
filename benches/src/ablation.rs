//! What a pass is worth: the same workloads with it and without, next to builds that are the same.

use twinbpf::{PassInfo, PassSet};

use crate::rounds::Figure;

/// A pass stays if the geometric mean loses so much without it.
pub const MEAN_LOSS: f64 = 0.005;
/// Or some workload so much.
pub const WORST_LOSS: f64 = 0.05;

/// Passes that one makes worth while for another; they are judged together, too.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("addresses", &["strength-reduction", "address-folding", "licm"]),
    ("induction variables", &["increment-sinking", "iv-widening", "correlated-branches"]),
    ("latches", &["tail-duplication", "exit-splitting", "copy-coalescing"]),
    ("operands", &["reassociation", "commutation", "load-folding"]),
    ("all passes", &["all"]),
];

/// A build of the optimiser.
#[derive(Clone, Copy)]
pub struct Build {
    /// The pass or group that it lacks.
    pub name: &'static str,
    /// What it has.
    pub passes: PassSet,
}

/// How many builds with all passes there are; the first is what the others are compared with.
pub const EQUAL: usize = 4;

/// [`EQUAL`] builds with all passes, then one without each pass and each group that is wanted.
pub fn builds(wanted: impl Fn(&str) -> bool) -> Vec<Build> {
    let without = |name: &'static str, passes: &[&str]| {
        let text: Vec<String> = passes.iter().map(|pass| format!("-{pass}")).collect();
        let passes = text.join(",").parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        Build { name, passes }
    };
    let alone = PassInfo::all().iter().map(|pass| without(pass.name, &[pass.name]));
    let groups = GROUPS.iter().map(|(name, passes)| without(name, passes));
    let full = std::iter::repeat_n(Build { name: "nothing", passes: PassSet::ALL }, EQUAL);
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
    /// Of times by workload: in the build, and in the one with all passes.
    ///
    /// # Panics
    ///
    /// Without workloads.
    pub fn of(names: &[&'static str], times: &[Figure], full: &[Figure]) -> Loss {
        let ratios: Vec<f64> = times.iter().zip(full).map(|(time, full)| time.ratio_to(full)).collect();
        Loss::of_ratios(names, &ratios)
    }

    fn of_ratios(names: &[&'static str], ratios: &[f64]) -> Loss {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp() - 1.0;
        let losses = || names.iter().copied().zip(ratios.iter().map(|ratio| ratio - 1.0));
        let most = losses().max_by(|a, b| a.1.total_cmp(&b.1)).expect("workloads");
        let least = losses().min_by(|a, b| a.1.total_cmp(&b.1)).expect("workloads");
        Loss { mean, worst: most, best: least }
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
    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn loss(ratios: [f64; 4]) -> Loss {
        Loss::of_ratios(&NAMES, &ratios)
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
    fn what_two_equal_builds_differ_by_justifies_nothing() {
        let same = Spread::of(&[loss([1.0, 1.0, 1.0, 1.0]), loss([1.08, 0.99, 1.0, 1.0])]);
        assert!(!loss([1.07, 0.99, 1.0, 1.0]).justifies(same));
        assert!(!loss([1.01, 1.01, 1.01, 1.01]).justifies(same));
        assert!(loss([1.09, 0.99, 1.0, 1.0]).justifies(same));
    }

    #[test]
    fn groups_name_passes() {
        let all = builds(|_| true);
        assert_eq!(all.len(), EQUAL + PassInfo::all().len() + GROUPS.len());
        assert!(all[EQUAL..].iter().all(|build| build.passes != PassSet::ALL));
        assert_eq!(builds(|name| name == "licm").len(), EQUAL + 1);
    }
}
