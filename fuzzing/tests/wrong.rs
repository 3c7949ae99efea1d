//! The verifier of machine code rejects wrong compilations. A mistake of the compiler counts if a generated program is
//! found that does with it what the proof says is impossible: its code runs one instruction at a time, and what each is
//! about to access, and where it goes, is compared with what it may.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::time::Instant;

use twinbpf_fuzzing::JitMode;
use twinbpf_fuzzing::generate::{Case, Choices, Config, Dialect, case, wild};
use twinbpf_fuzzing::mutants::wrong::{Mistake, Trial, Tried, all};
use twinbpf_fuzzing::verify::verified_modes;
use twinbpf_jit::Strategy;

/// Programs without a mistake.
const RIGHT: u64 = 300;
/// Programs with each mistake, at most.
const LIMIT: u64 = 2000;
/// Mistakes that must count, at least.
const ENOUGH: usize = 40;

/// Where the search for a program begins, for mistakes that few programs show. It continues from there.
const BEGIN: &[(&str, u64)] = &[
    ("zeros_above_sign", 3100),
    ("zeros_above_and", 990),
    // Look-ups in arrays, whose results most programs use, are no calls.
    ("zeros_above_call", 51_060),
    ("zeros_above_shift", 8500),
    ("constant_sign", 374),
    ("width_not_counted", 663),
    ("load_widened", 670),
    ("callx_off_by_one", 290),
    ("callx_low_half", 330),
    ("callx_scale", 252),
    ("tail_call_status", 242),
    ("tail_call_target", 242),
    ("tail_call_context", 242),
    ("tail_call_frame", 608),
];

fn generated(seed: u64) -> Case {
    let config = Config { insns: 24, inputs: 2, dialect: Dialect::Machine, ..Config::default() };
    let mut choices = Choices::from_seed(seed);
    let planned = case(&mut choices, &config);
    if seed.is_multiple_of(4) { planned } else { wild(&planned, &mut choices) }
}

/// Few mistakes have a place in baseline code; the first tier's is plain code that counts turns.
fn mode(seed: u64) -> JitMode {
    let usual = |mode: &JitMode| !matches!(mode.strategy, Strategy::Baseline | Strategy::FirstTier);
    let modes: Vec<JitMode> = verified_modes().filter(usual).collect();
    modes[(seed / 4) as usize % modes.len()]
}

#[test]
fn right_code_does_nothing_wrong_and_is_proved() {
    let trial = Trial::new().expect("memory");
    let mut steps = 0;
    for seed in 0..RIGHT {
        let tried = trial.run(&generated(seed), mode(seed), None).unwrap_or_else(|why| panic!("program {seed}: {why}"));
        assert!(tried.refused.is_empty() && tried.stray.is_none(), "program {seed}: {tried:?}\n{}", generated(seed));
        steps += tried.steps;
    }
    println!("{RIGHT} programs, {steps} instructions");
    assert!(steps > 100 * RIGHT, "{steps} instructions");
}

/// A program that shows a mistake: its seed, how many were tried, and what became of it.
fn find(trial: &Trial, mistake: &Mistake) -> Option<(u64, u64, Tried)> {
    let begin = BEGIN.iter().find(|(name, _)| *name == mistake.name).map_or(0, |(_, seed)| *seed);
    (0..LIMIT).find_map(|tried| {
        let seed = begin + tried;
        // What does not end, or ends in the host, shows nothing.
        let result = trial.run(&generated(seed), mode(seed), Some(mistake.name)).ok()?;
        result.stray.is_some().then_some((seed, tried + 1, result))
    })
}

/// Whether what an instruction does wrong is an access, and not where it goes.
fn touches(what: &str) -> bool {
    what.contains("` reads ") || what.contains("` writes ")
}

#[test]
fn wrong_code_is_rejected() {
    let trial = Trial::new().expect("memory");
    let begin = Instant::now();
    let (mut counted, mut touching, mut missed, mut unseen) = (0, 0, Vec::new(), Vec::new());
    for mistake in all() {
        let Some((seed, programs, tried)) = find(&trial, mistake) else {
            unseen.push(mistake.name);
            continue;
        };
        counted += 1;
        let stray = tried.stray.as_ref().expect("it was found by that");
        touching += usize::from(touches(&stray.what));
        println!("{} ({}): {}", mistake.name, mistake.stage(), mistake.what);
        println!("    shown by program {seed}, after {programs} programs");
        println!("    does:     {}", stray.what);
        match tried.verdict() {
            Some(refused) if refused.range.contains(&stray.at) => println!("    verifier: {}", refused.why),
            Some(refused) => println!("    verifier, of another function: {}", refused.why),
            None => missed.push(format!("{}, program {seed}: {}", mistake.name, stray.what)),
        }
    }
    let (rejected, took) = (counted - missed.len(), begin.elapsed());
    println!("{counted} wrong compilations, {touching} of them by an access, {rejected} rejected, in {took:?}");
    assert!(missed.is_empty(), "the verifier takes wrong code:\n{}", missed.join("\n"));
    assert!(unseen.is_empty(), "no program shows {}", unseen.join(", "));
    assert!(touching >= ENOUGH, "{touching} mistakes touch memory");
}

/// Minutes: all programs, and not only the first that shows a mistake. `TWINBPF_WRONG` chooses mistakes by a part of
/// their names.
#[test]
#[ignore = "takes minutes"]
fn wrong_code_is_rejected_whatever_program_shows_it() {
    let trial = Trial::new().expect("memory");
    let (mut missed, only) = (0, std::env::var("TWINBPF_WRONG").unwrap_or_default());
    for mistake in all().filter(|mistake| mistake.name.contains(&only)) {
        let mut shown = 0;
        for seed in 0..LIMIT {
            let Ok(tried) = trial.run(&generated(seed), mode(seed), Some(mistake.name)) else { continue };
            let Some(stray) = &tried.stray else { continue };
            shown += 1;
            if tried.verdict().is_none() {
                println!("missed: {}, program {seed}: {}", mistake.name, stray.what);
                missed += 1;
            }
        }
        println!("{} is shown by {shown} of {LIMIT} programs", mistake.name);
    }
    assert_eq!(missed, 0, "the verifier takes wrong code");
}
