//! printf prints what the C library prints.
#![no_main]

use std::cell::RefCell;
use twinbpf_fuzzing::{Printer, generate::Choices};

thread_local!(static PRINTER: RefCell<Printer> = RefCell::new(Printer::new().expect("memory")));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    PRINTER.with_borrow_mut(|printer| printer.check(&mut Choices::from_bytes(bytes)));
});
