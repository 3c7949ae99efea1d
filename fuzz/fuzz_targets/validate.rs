//! What the decoder takes, validation takes or refuses; and what it takes, engines run to the same end.
#![no_main]

use std::cell::RefCell;
use twinbpf_fuzzing::{Campaign, generate};
use twinbpf_isa::{Endian, decode_all};

thread_local!(static CAMPAIGN: RefCell<Campaign> = RefCell::new(Campaign::of_one_memory().expect("memory")));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(main) = decode_all(bytes, Endian::Little) else { return };
    let inputs = vec![generate::Input::new(&mut generate::Choices::from_seed(bytes.len() as u64))];
    let finding = CAMPAIGN.with_borrow_mut(|campaign| campaign.judge_changed(&generate::Case { main, tails: Vec::new(), inputs }));
    assert!(finding.is_none(), "{}", finding.expect("it is one"));
});
