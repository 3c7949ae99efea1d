//! Interpreter and native code agree on a program that bytes spell out.
#![no_main]

use std::cell::RefCell;
use twinbpf::fuzzing::{Campaign, generate::Case};

thread_local!(static CAMPAIGN: RefCell<Campaign> = RefCell::new(Campaign::of_machine().expect("memory")));

libfuzzer_sys::fuzz_target!(|case: Case| {
    if let Some(finding) = CAMPAIGN.with_borrow_mut(|campaign| campaign.judge(&case)) {
        panic!("{finding}");
    }
});
