//! Engines agree on random programs, and a campaign finds what is wrong with one that has a bug.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use support::harness;
use twinbpf_fuzzing::generate::{C_PREAMBLE, Case, Choices, Config, Dialect, any_insns, c_program, case, mutate};
use twinbpf_fuzzing::mutants::seeded::{ALL, Bug, COMPILER, Seeded};
use twinbpf_fuzzing::{CCampaign, Campaign, Changed, Engine, Finding, MODELS, Printer, Ran, Vm, jit_modes, known};
use twinbpf_jit::{IntrinsicInfo, LOWERING_MUTANTS};
use twinbpf_vm::interp::Driver;
use twinbpf_vm::mem::Arena;

const BATCH: u64 = 64;

fn cases(first: u64, dialect: Dialect) -> Vec<Case> {
    let config = Config { insns: 32, inputs: 4, dialect, ..Config::default() };
    (first..first + BATCH).map(|seed| case(&mut Choices::from_seed(seed), &config)).collect()
}

fn interp(driver: Driver) -> Box<dyn Engine> {
    Box::new(Vm::interp(driver).expect("memory"))
}

fn report(campaign: &mut Campaign, findings: &[Finding]) {
    if let Some(finding) = findings.first() {
        panic!("{}\nreduced:\n{}", finding, campaign.reduce(finding));
    }
}

fn both_drivers_agree() {
    let mut campaign = Campaign::new(vec![interp(Driver::Step), interp(Driver::Threaded)]);
    for batch in 0..60 {
        let dialect = if batch % 2 == 0 { Dialect::Kernel } else { Dialect::Machine };
        let findings = campaign.run(&cases(batch * BATCH, dialect));
        report(&mut campaign, &findings);
    }
    assert!(campaign.tally.refused.is_empty(), "{:?}", campaign.tally.refused);
    assert!(campaign.tally.coverage.len() > 500, "{} points", campaign.tally.coverage.len());
}

fn programs_for_kernels_come_to_their_end() {
    let mut engine = Vm::interp(Driver::Step).expect("memory");
    for batch in 0..20 {
        let cases = cases(batch * BATCH, Dialect::Kernel);
        for (ran, case) in engine.run(&cases).into_iter().zip(&cases) {
            let Ran::Ended(outcomes) = ran else { panic!("{ran:?}\n{case}") };
            for outcome in outcomes.iter().flatten() {
                assert!(matches!(outcome.end, twinbpf_fuzzing::End::Returned(_)), "{:?}\n{case}", outcome.end);
            }
        }
    }
}

/// Every mode in turns, a batch each.
fn native_code_agrees() {
    let modes: Vec<_> = jit_modes().collect();
    let jit = Vm::jit(modes.clone()).expect("memory");
    let mut campaign = Campaign::new(vec![interp(Driver::Step), Box::new(jit)]);
    for batch in 0..modes.len() as u64 {
        let dialect = if batch % 3 == 0 { Dialect::Machine } else { Dialect::Kernel };
        let findings = campaign.run(&cases(7000 + batch * BATCH, dialect)[..24]);
        report(&mut campaign, &findings);
    }
    let refused = &campaign.tally.refused;
    assert!(refused.is_empty(), "{refused:?}");
}

/// Native code that counts, in each mode in turn, with every budget.
fn each_budget_ends_programs_alike() {
    let modes: Vec<_> = jit_modes().filter(|mode| mode.fuel).collect();
    let mut campaign = Campaign::new(vec![interp(Driver::Threaded), Box::new(Vm::jit(modes).expect("memory"))]);
    let mut ended = 0;
    for first in (0..).step_by(BATCH as usize) {
        let dialect = if first % (2 * BATCH) == 0 { Dialect::Machine } else { Dialect::Kernel };
        let cases: Vec<Case> = cases(first, dialect).iter().filter_map(|case| campaign.with_budgets(case)).collect();
        let findings = campaign.run(&cases);
        report(&mut campaign, &findings);
        ended += cases.len();
        if ended >= 10_000 {
            break;
        }
    }
    println!("{ended} programs, {} runs", campaign.tally.runs);
}

/// Also programs that are not valid by construction: mutated ones, which may see addresses, and slots at random.
fn valid_programs_end_alike() {
    let mut campaign = Campaign::of_one_memory().expect("memory");
    let mut judged = 0;
    for seed in 0..500 {
        let mut choices = Choices::from_seed(seed);
        let mut planned =
            case(&mut choices, &Config { insns: 24, inputs: 2, dialect: Dialect::Machine, ..Config::default() });
        if seed % 2 == 0 {
            let Some(changed) = mutate(&planned, &mut choices) else { continue };
            planned = changed;
        } else {
            let end = planned.main.len() - 1;
            planned.main.splice(end..end, any_insns(&mut choices, 4));
        }
        judged += u64::from(!matches!(campaign.outcomes(&planned)[0].1, Ran::Refused(_)));
        if let Some(finding) = campaign.judge_changed(&planned) {
            panic!("program {seed}\n{finding}");
        }
    }
    assert!(judged > 120, "{judged} programs were valid");
}

fn equivalent_programs_agree() {
    let changed = Changed::new(Vm::interp(Driver::Threaded).expect("memory"));
    let mut campaign = Campaign::new(vec![interp(Driver::Threaded), Box::new(changed)]);
    for batch in 0..40 {
        let dialect = if batch < 20 { Dialect::Kernel } else { Dialect::Machine };
        let findings = campaign.run(&cases(batch * BATCH, dialect));
        report(&mut campaign, &findings);
    }
    let ran: u64 = campaign.tally.executed.iter().filter(|it| it.0.contains("with")).map(|it| it.1).sum();
    assert!(ran > 1500, "{ran} programs changed");
}

/// Also where it shows at an instruction that only has to do with it.
fn known_kernel_bugs_are_recognised() {
    let find = |suspect: &str, insn: &str, text: &str| {
        let finding = Finding {
            failed: None,
            case: format!("input\nprogram\n{text}\nexit\n").parse().expect("a case"),
            suspects: vec![suspect.to_owned()],
            majority: vec!["interp".to_owned()],
            difference: String::new(),
            insn: Some(insn.to_owned()),
            known: None,
        };
        known::find(&finding).is_some()
    };
    let (stack, elsewhere) =
        ("r1 = atomic_fetch_add((u64 *)(r10 - 8), r1)", "r1 = atomic_fetch_add((u64 *)(r2 + 0), r1)");
    assert!(find("kernel(6.18)", stack, "r0 = 0"));
    assert!(find("kernel(6.18)", "r1 = r3", stack));
    assert!(!find("kernel(6.18)", "r1 = r3", elsewhere));
    assert!(!find("interp", stack, stack));
    assert!(find("kernel(6.18)", "r1 = r3", "w0 = cmpxchg32_32(r10 - 8, w0, w8)"));
    assert!(find("kernel(6.1.0-56-cloud-amd64)", "r1 <<= r0", "call 3"));
    assert!(!find("kernel(6.1.0-56-cloud-amd64)", "r1 <<= r0", "call 1"));
    assert!(!find("kernel(6.12.1)", "r1 <<= r0", "call 3"));
}

fn maps_are_their_models() {
    for (seed, (name, model)) in MODELS.iter().enumerate() {
        println!("{name}");
        model(&mut Choices::from_seed(seed as u64), &Arena::new(1 << 20).expect("memory"), 20_000);
    }
}

fn printf_is_that_of_c() {
    let mut printer = Printer::new().expect("memory");
    for seed in 0..50_000 {
        printer.check(&mut Choices::from_seed(seed));
    }
}

/// A clang with BPF and a compiler for this machine, and a folder for what they make, if there are any.
fn compilers(folder: &str) -> Option<CCampaign> {
    const CLANG: &str = "clang-19";
    if let Some(missing) = [CLANG, "cc"].iter().find(|tool| !support::installed(tool)) {
        support::skip(&format!("{missing} is not installed"));
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    Some(CCampaign::new(CLANG, "cc", folder).expect("compilers"))
}

/// Clang's encodings for all versions of the instruction set, on all engines, and what the machine itself makes of it.
fn encodings_of_c_agree() {
    let Some(mut campaign) = compilers("c") else { return };
    for seed in 0..16 {
        let finding = campaign.run(seed, 8).unwrap_or_else(|error| panic!("program {seed}: {error}"));
        assert!(finding.is_none(), "{}", finding.expect("it is one"));
    }
    // Clang's stack for BPF is small, but few programs reach its end.
    assert!(campaign.refused < 10, "{} encodings refused", campaign.refused);
}

fn an_encoding_that_differs_is_found_and_reduced() {
    let Some(mut campaign) = compilers("c-differs") else { return };
    let program = c_program(&mut Choices::from_seed(1), 2);
    let end = program.rfind("\treturn").expect("the entry returns");
    let (before, after) = program.split_at(end);
    let source = format!("{before}#ifdef __BPF_FEATURE_MOVSX\n\tw->out[3]++;\n#endif\n{after}");
    let finding = campaign.examine(&source, 1, 2).expect("it compiles").expect("it differs");
    assert_eq!(finding.votes.len(), 2, "{finding}");
    assert!(finding.votes[1].voters.iter().all(|voter| voter.ends_with("of v4")), "{finding}");
    assert!(finding.votes[1].difference.contains("word 19 of the world"), "{finding}");
    let own = finding.source.strip_prefix(C_PREAMBLE).expect("the preamble stays");
    assert!(own.lines().count() < 16, "{own}");
}

/// Programs until the bug shows, at most.
const BUDGET: u64 = 400 * BATCH;

fn find(bug: Bug) -> Result<(u64, Duration), String> {
    let begin = Instant::now();
    let seeded = Seeded::new(Vm::interp(Driver::Threaded).expect("memory"), bug);
    let engines: Vec<Box<dyn Engine>> = vec![interp(Driver::Threaded), interp(Driver::Threaded), Box::new(seeded)];
    let mut campaign = Campaign::new(engines);
    for first in (0..BUDGET).step_by(BATCH as usize) {
        if let Some(finding) = campaign.run(&cases(first, Dialect::Kernel)).first() {
            let took = begin.elapsed();
            let small = campaign.reduce(finding);
            if small.suspects.len() != 1 || !small.suspects[0].contains(bug.name) {
                return Err(format!("{}: it is {:?} who is wrong", bug.name, small.suspects));
            }
            return Ok((campaign.tally.programs, took));
        }
    }
    Err(format!("{}: not found in {BUDGET} programs", bug.name))
}

fn every_seeded_bug_is_found() {
    assert!(ALL.len() >= 40, "{} bugs", ALL.len());
    let mut missed = Vec::new();
    let mut slowest = Duration::ZERO;
    for bug in ALL {
        match find(*bug) {
            Ok((programs, took)) => {
                slowest = slowest.max(took);
                println!("{programs:>6} programs {:>5} ms  {}", took.as_millis(), bug.name);
            }
            Err(what) => missed.push(what),
        }
    }
    println!("mutation score {} of {}, the slowest after {slowest:?}", ALL.len() - missed.len(), ALL.len());
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// What was reduced from findings, in all modes.
fn programs_of_earlier_findings_agree() {
    let modes = jit_modes().map(|mode| Box::new(Vm::jit(vec![mode]).expect("memory")) as Box<dyn Engine>);
    let mut campaign = Campaign::new(std::iter::once(interp(Driver::Threaded)).chain(modes).collect());
    let folder = support::corpus().join("fuzz");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for path in paths {
        let case: Case = std::fs::read_to_string(&path).unwrap().parse().unwrap_or_else(|error| panic!("{error}"));
        let finding = campaign.judge(&case);
        assert!(finding.is_none(), "{}: {}", path.display(), finding.unwrap());
        assert!(campaign.outcomes(&case).iter().all(|(_, ran)| matches!(ran, Ran::Ended(_))), "{}", path.display());
        seen += 1;
    }
    assert!(seen > 0);
}

/// Runs programs on native code with this mutant of the compiler until one shows it.
fn find_in_compiler(mutant: &str) -> (Campaign, Finding) {
    let jit = Vm::jit(jit_modes().collect()).expect("memory").with_compiler_mutant(mutant);
    let mut campaign = Campaign::new(vec![interp(Driver::Threaded), Box::new(jit)]);
    let found = (0..400).find_map(|batch| {
        let dialect = if batch % 2 == 0 { Dialect::Kernel } else { Dialect::Machine };
        campaign.set_turn(batch / 2);
        Some((batch, campaign.run(&cases(batch * BATCH, dialect)).into_iter().next()?))
    });
    let (batch, finding) = found.unwrap_or_else(|| panic!("{mutant} is not found"));
    println!("{mutant}: found among {} programs", (batch + 1) * BATCH);
    (campaign, finding)
}

/// Each makes invalid IR, which the verifier finds: a finding that names the stage, and stays one when it is reduced.
fn every_mutant_of_the_compiler_is_found() {
    for mutant in COMPILER {
        let (mut campaign, finding) = find_in_compiler(mutant);
        let small = campaign.reduce(&finding);
        assert!(small.failed.is_some_and(|why| why.contains("internal compiler error in stage licm:")), "{finding}");
        assert!(small.case.main.len() <= finding.case.main.len());
    }
}

/// Each row of the table of intrinsics has mutants, whose code is valid and gives something else.
fn every_mutant_of_intrinsics_is_found() {
    for row in IntrinsicInfo::all() {
        assert!(!row.mutants.is_empty(), "{} has none", row.helper);
        for mutant in row.mutants {
            let (_, finding) = find_in_compiler(mutant);
            assert!(finding.failed.is_none(), "{finding}");
        }
    }
}

/// Likewise those of inlined calls, of unrolled loops, of forwarded stores and of frame words.
fn every_mutant_of_lowering_is_found() {
    for mutant in LOWERING_MUTANTS {
        let (_, finding) = find_in_compiler(mutant);
        assert!(finding.failed.is_none(), "{finding}");
    }
}

harness::tests! {
    both_drivers_agree,
    programs_for_kernels_come_to_their_end,
    native_code_agrees,
        each_budget_ends_programs_alike,
    valid_programs_end_alike,
    equivalent_programs_agree,
    known_kernel_bugs_are_recognised,
    maps_are_their_models,
    printf_is_that_of_c,
    encodings_of_c_agree,
    an_encoding_that_differs_is_found_and_reduced,
    every_seeded_bug_is_found,
    programs_of_earlier_findings_agree,
    every_mutant_of_the_compiler_is_found,
    every_mutant_of_intrinsics_is_found,
    every_mutant_of_lowering_is_found,
}
