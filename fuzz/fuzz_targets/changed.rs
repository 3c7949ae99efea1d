//! Changed programs run or trap, and nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use twinbpf::fuzzing::{Engine as _, Vm, generate};

fuzz_target!(|input: (generate::Case, u64)| {
    let mut choices = generate::Choices::from_seed(input.1);
    let Some(case) = generate::mutate(&input.0, &mut choices) else { return };
    Vm::interp(twinbpf::interp::Driver::Threaded).expect("memory").run(&[case]);
});
