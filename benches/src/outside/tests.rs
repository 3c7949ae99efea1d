use super::*;
use crate::workload::{AREA, INPUT};

const MODES: [Mode; 6] = [Mode::Interpreter, Mode::Fuel, Mode::Sandbox, Mode::Trusted, Mode::Plain, Mode::Auto];

#[test]
fn every_workload_from_outside_returns_what_native_code_does() {
    let mut wrong = Vec::new();
    for subject in all() {
        if let Err(why) = subject.object() {
            println!("{} left out: {why}", subject.name);
            continue;
        }
        for mode in MODES {
            let run = || -> Result<[u64; 2], String> {
                let mut run = subject.run_in(mode, PassSet::ALL)?;
                Ok([run.run()?, run.run()?])
            };
            if run() != Ok([subject.expected(); 2]) {
                wrong.push(format!("{} {mode:?}: {:#x?} instead of {:#x}", subject.name, run(), subject.expected()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn expected_results_are_those_of_native_code() {
    if !native::available() {
        println!("no {}: nothing is compared", native::clang());
        return;
    }
    let mut wrong = Vec::new();
    for subject in all().into_iter().filter(|it| it.is_plain_c() && it.object().is_ok()) {
        for flags in [native::FLAGS, native::UNBOUND] {
            match subject.native(flags).and_then(|mut run| Ok([run.run()?, run.run()?])) {
                Ok(results) if results == [subject.expected(); 2] => {}
                Ok(results) => wrong.push(format!("{} {results:#x?}", subject.name)),
                Err(why) => wrong.push(format!("{}: {why}", subject.name)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn expected_results_are_those_of_second_implementations() {
    let mut wrong = Vec::new();
    for (name, reference) in references::REFERENCES {
        let subject = written::WRITTEN.iter().find(|it| it.name == *name).expect("a workload");
        let block = subject.block();
        let len = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
        let result = reference(&block[INPUT..INPUT + AREA], len);
        if result != subject.expected {
            wrong.push(format!("{name} {result:#x} instead of {:#x}", subject.expected));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
