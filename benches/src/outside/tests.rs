use super::*;

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
