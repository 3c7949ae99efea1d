//! Interpreter and native code agree on a program that bytes spell out, and on one changed at random.
#![no_main]

use std::cell::RefCell;
use twinbpf::fuzzing::{Campaign, generate};

thread_local!(static CAMPAIGN: RefCell<Campaign> = RefCell::new(Campaign::of_machine().expect("memory")));

libfuzzer_sys::fuzz_target!(|case: generate::Case| {
    let mut changed = generate::mutate(&case, &mut generate::Choices::from_seed(case.inputs[0].regs[0]));
    changed.iter_mut().for_each(|case| case.inputs.truncate(2));
    for case in [Some(case), changed].iter().flatten() {
        let finding = CAMPAIGN.with_borrow_mut(|campaign| campaign.judge_changed(case));
        assert!(finding.is_none(), "{}", finding.expect("it is one"));
    }
});
