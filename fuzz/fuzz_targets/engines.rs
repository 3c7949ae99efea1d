//! Interpreter and native code agree on a program that bytes spell out, and on one changed at random.
#![no_main]

use std::cell::RefCell;
use twinbpf_fuzzing::{Campaign, generate::{Choices, Config, case, mutate}};

thread_local!(static CAMPAIGNS: RefCell<[Campaign; 2]> =
    RefCell::new([Campaign::of_machine().expect("memory"), Campaign::of_one_memory().expect("memory")]));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| CAMPAIGNS.with_borrow_mut(|[valid, any]| {
    let case = case(&mut Choices::from_bytes(bytes), &Config { inputs: 4, ..Config::default() });
    let mut changed = mutate(&case, &mut Choices::from_seed(case.inputs[0].regs[0]));
    changed.iter_mut().for_each(|case| case.inputs.truncate(2));
    let finding = valid.judge(&case).or_else(|| any.judge_changed(&changed?));
    assert!(finding.is_none(), "{}", finding.expect("it is one"));
}));
