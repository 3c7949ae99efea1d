//! Properties of the generators: validity of every program, determinism by seed.

use twinbpf_isa::{Groups, Mode, Policy, asm, disasm, text_at};

use super::*;

fn valid(case: &Case, mode: Mode) {
    let policy = Policy { groups: Groups::default(), mode };
    for program in case.programs() {
        let text = disasm(&program.insns);
        program.validate(&policy, &|_| true).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
    }
}

fn config(seed: u64) -> Config {
    let dialect = if seed & 1 == 0 { Dialect::Kernel } else { Dialect::Machine };
    Config { insns: 1 + seed as usize % 128, inputs: 2, dialect, cpu: Cpu::Newest }
}

#[test]
fn every_program_is_valid() {
    for seed in 0..20_000 {
        let config = config(seed);
        let case = case(&mut Choices::from_seed(seed), &config);
        valid(&case, if config.dialect == Dialect::Kernel { Mode::Kernel } else { Mode::Rfc });
    }
}

#[test]
fn any_bytes_are_a_valid_program() {
    let mut random = Choices::from_seed(7);
    for len in 0..2000 {
        let bytes: Vec<u8> = (0..len % 700).map(|_| random.word() as u8).collect();
        valid(&case(&mut Choices::from_bytes(&bytes), &Config::default()), Mode::Kernel);
    }
}

#[test]
fn the_same_seed_gives_the_same_case() {
    let make = |seed| case(&mut Choices::from_seed(seed), &Config::default());
    assert_eq!(make(1), make(1));
    assert_ne!(make(1), make(2));
}

#[test]
fn text_reads_back() {
    for seed in 0..500 {
        let case = case(&mut Choices::from_seed(seed), &config(seed));
        let text = case.to_string();
        assert_eq!(text.parse::<Case>().unwrap_or_else(|error| panic!("{error}\n{text}")), case);
        assert_eq!(asm::parse(&disasm(&case.main)).expect("assembles"), case.main);
    }
}

#[test]
fn text_that_is_no_case_says_where() {
    for (text, line) in [
        ("", 0),
        ("hello", 1),
        ("# fine\ninput r10=1", 2),
        ("input r1=x", 1),
        ("input memory=0", 1),
        ("program\n r1 = r2\n nonsense\n", 3),
        ("tail\n exit\n", 1),
    ] {
        assert_eq!(text.parse::<Case>().expect_err(text).line, line, "{text}");
    }
}

/// All operations of the tables occur, and in all their forms.
#[test]
fn coverage_is_complete() {
    use twinbpf_isa::{AluOp, AtomicOp, Cond};
    let mut coverage = Coverage::default();
    (0..3000).for_each(|seed| {
        let case = case(&mut Choices::from_seed(seed), &config(seed));
        coverage.add(&case.main);
        case.tails.iter().for_each(|tail| coverage.add(tail));
    });
    // Both widths of each row (one is 64 bits only), byte orders, loads and stores, jumps, calls.
    let rows = 2 * (AluOp::TABLE.len() + Cond::TABLE.len() + AtomicOp::TABLE.len()) - 1;
    // The last: by register, an address loaded for it, of externs.
    let others = 9 + 3 + 7 + 4 + 4 + 4 + 3 + 8 + 1 + 4;
    assert_eq!(coverage.operations(), rows + others, "{} points", coverage.len());
}

/// Callbacks of walks that delete keys, and that add them again.
#[test]
fn walks_meet_what_their_callbacks_change() {
    let (mut deleted, mut added) = (0, 0);
    for seed in 0..4000 {
        let case = case(&mut Choices::from_seed(seed), &config(seed));
        let calls = |pc: usize| text_at(&case.main, pc);
        let walks = (0..case.main.len()).any(|pc| calls(pc) == "call 164");
        let last: Vec<String> = (0..case.main.len()).map(calls).filter(|text| text.starts_with("call ")).collect();
        deleted += u32::from(walks && last.last().is_some_and(|call| call == "call 3"));
        added += u32::from(walks && last.ends_with(&["call 3".to_owned(), "call 2".to_owned()]));
    }
    assert!(deleted > 5 && added > 5, "{deleted} delete, {added} add again");
}

#[test]
fn equivalents_are_valid() {
    let mut made = 0;
    for seed in 0..4000 {
        let case = case(&mut Choices::from_seed(seed), &config(seed));
        for meta in Meta::ALL {
            if let Some(other) = equivalent(&case, meta, &mut Choices::from_seed(!seed)) {
                valid(&other, Mode::Rfc);
                // A label more would move those of the next table.
                assert_eq!(other.labels().count(), case.labels().count(), "{meta:?}, seed {seed}");
                made += 1;
            }
        }
    }
    assert!(made > 10_000, "{made} of 16000 changes");
}

#[test]
fn mutants_are_valid_or_nothing() {
    let made = (0..4000).filter_map(|seed| {
        let case = case(&mut Choices::from_seed(seed), &config(seed));
        mutate(&case, &mut Choices::from_seed(!seed))
    });
    let count = made.inspect(|case| valid(case, Mode::Rfc)).count();
    assert!(count > 1000, "{count} mutants");
}

#[test]
fn nearly_valid_programs_differ_in_one_slot() {
    for seed in 0..4000 {
        let case = case(&mut Choices::from_seed(seed), &config(seed));
        let near = near_valid(&case, &mut Choices::from_seed(!seed));
        let differs = |pc: &usize| near.slots[*pc] != case.main[*pc].encode();
        assert_eq!((0..near.slots.len()).filter(differs).collect::<Vec<_>>(), [near.pc]);
    }
}

/// Parts of instructions that Linux 6.12 and 6.1 do not know, as text.
const NEWEST: [&str; 3] = ["may_goto", "load_acquire", "store_release"];
const NEW: [&str; 8] = ["s/=", "s%=", "(s8)", "(s16)", "(s32)", "(s8 *)", "bswap", "gotol"];

#[test]
fn older_kernels_get_older_programs() {
    for seed in 0..2000 {
        for (cpu, unknown) in [(Cpu::V4, NEWEST.to_vec()), (Cpu::V3, [&NEWEST[..], &NEW].concat())] {
            let config = Config { cpu, dialect: Dialect::Kernel, ..config(seed) };
            let case = case(&mut Choices::from_seed(seed), &config);
            valid(&case, Mode::Kernel);
            for insns in case.programs().map(|program| program.insns) {
                let texts = (0..insns.len()).map(|pc| text_at(&insns, pc)).collect::<Vec<_>>();
                let found = texts.iter().find(|text| unknown.iter().any(|mark| text.contains(mark)));
                assert_eq!(found, None, "{cpu:?}, seed {seed}");
            }
        }
    }
}
