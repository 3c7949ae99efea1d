//! Reserved fields: for all 256 opcodes, each field at each of its edge values, do exactly those accept an instruction
//! that should? Under the `kernel` policy that is what this kernel does, under `rfc` what RFC 9669 says.
//!
//! The grid of `isa/src/tests` compares decoding and encoding with each other; this one compares them with others.

mod kernel;
mod probe;
mod rfc;
#[path = "../../../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use probe::{EXIT, LDDW, Probe, TYPE_ID, probes};
use support::harness;
use twinbpf_isa::{Group, Groups, Mode, Policy};

fn the_kernel_policy_is_the_kernel() {
    let Some(mut peer) = kernel::Peer::new() else { return };
    // What this kernel has no instructions for.
    let groups = Groups::ALL.without(Group::Callx).without(Group::Gotox);
    let policy = Policy { groups, mode: Mode::Kernel };
    let mut tally = Tally::default();
    for probe in probes().filter(|probe| !is_lax(probe)) {
        let program = probe.program(peer.map());
        let accepted = program.validates(&policy);
        match peer.answer(&program) {
            kernel::Answer::Value(reason) if accepted => *tally.values.entry(reason).or_default() += 1,
            kernel::Answer::Accepted => tally.count(&probe, accepted, true, ""),
            kernel::Answer::Rejected(log) => tally.count(&probe, accepted, false, &log),
            kernel::Answer::Value(reason) => tally.count(&probe, accepted, false, reason),
        }
    }
    tally.report("the kernel");
}

fn the_rfc_policy_is_the_rfc() {
    let groups = [Group::Callx, Group::Gotox, Group::MayGoto, Group::LoadAcquire, Group::AddrSpaceCast];
    let groups = groups.into_iter().fold(Groups::ALL, Groups::without);
    let policy = Policy { groups, mode: Mode::Rfc };
    let mut tally = Tally::default();
    for probe in probes().filter(|probe| !rfc::is_silent(probe)) {
        let program = probe.program(0);
        tally.count(&probe, program.validates(&policy), rfc::defines(&probe, &program), "");
    }
    tally.report("RFC 9669");
}

/// `do_check` in kernel/bpf/verifier.c does not check the offset of an `exit`. Here it must be 0, as the RFC has it.
/// And which number is that of a function or variable among its types differs from build to build
/// (`check_pseudo_btf_id`); here it is known when an object is linked.
fn is_lax(probe: &Probe) -> bool {
    let well_formed = probe.off == 0 && probe.second == Some((0, 0, 0, 0));
    let names_a_type = probe.opcode == LDDW && probe.src == TYPE_ID && probe.imm > 0 && well_formed;
    probe.opcode == EXIT && probe.off != 0 || names_a_type
}

/// What came of the comparison.
#[derive(Default)]
struct Tally {
    accepted: usize,
    rejected: usize,
    /// What the kernel refused for the sake of a value, and we leave to run time.
    values: BTreeMap<&'static str, usize>,
    differences: Vec<String>,
}

impl Tally {
    fn count(&mut self, probe: &Probe, ours: bool, theirs: bool, why: &str) {
        match (ours, theirs) {
            (true, true) => self.accepted += 1,
            (false, false) => self.rejected += 1,
            _ => self.differences.push(format!("{probe:x?}: we {ours}, they {theirs} {why}")),
        }
    }

    fn report(&self, who: &str) {
        println!("{who}: {} accepted, {} rejected alike", self.accepted, self.rejected);
        for (reason, count) in &self.values {
            println!("  {count} rejected for a value: {reason}");
        }
        assert!(self.accepted > 1000 && self.rejected > 30_000, "too few probes mean anything");
        let shown = self.differences.len().min(40);
        assert!(
            self.differences.is_empty(),
            "{} differ from {who}:\n{}",
            self.differences.len(),
            self.differences[..shown].join("\n")
        );
    }
}

harness::tests! {
    the_kernel_policy_is_the_kernel,
    the_rfc_policy_is_the_rfc,
}
