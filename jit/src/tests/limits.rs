//! How the work of the compiler grows with the program: counted, not timed.

use std::sync::Arc;

use super::shapes::{SHAPES, Shape};
use crate::limits::{Strategy, Tier, excess, strategy};
use crate::{Code, CompileLimits, JitError, OptLevel, Options};

fn shape(name: &str) -> &'static Shape {
    SHAPES.iter().find(|shape| shape.name == name).expect("a shape")
}

/// Bytes of native code for each instruction.
fn density(shape: &Shape, n: usize, options: Options) -> f64 {
    let image = shape.image(n);
    let code = Code::new(Arc::clone(&image), options).unwrap();
    code.compile_all().unwrap_or_else(|error| panic!("{}: {error}", shape.name));
    code.bytes() as f64 / image.insns().len() as f64
}

#[test]
fn baseline_code_grows_in_proportion() {
    // As many jumps as labels is a square of its own.
    for shape in SHAPES.iter().filter(|shape| shape.name != "gotox, many of many") {
        for fuel in [false, true] {
            let limits = CompileLimits::NONE.work(0);
            let options = Options { fuel, limits, ..Options::default() };
            let (small, large) = (density(shape, 384, options), density(shape, 1536, options));
            assert!(
                large < small * 1.3,
                "{}, fuel {fuel}: {small} bytes for each instruction, then {large}",
                shape.name
            );
        }
    }
}

/// What the checks after calls need was computed again for each of them: the square of the calls.
#[test]
fn checks_after_calls_repeat_no_work() {
    for name in ["calls", "many calls of one subprogram"] {
        let options = Options { fuel: true, limits: CompileLimits::NONE, ..Options::default() };
        let (small, large) = (density(shape(name), 64, options), density(shape(name), 768, options));
        assert!(large < small * 1.5, "{name}: {small} bytes for each instruction, then {large}");
    }
}

fn chosen(name: &str, n: usize, options: Options) -> Strategy {
    strategy(&shape(name).image(n), 0, options, Tier::Final)
}

#[test]
fn functions_above_the_limit_get_baseline_code() {
    let options = Options::default();
    let none = Options { opt: OptLevel::None, ..options };
    for name in
        ["ladder", "branches to one exit", "back edges", "nested loops", "nested ifs", "switch, chain of compares"]
    {
        assert_eq!(chosen(name, 500, options), Strategy::Optimised, "{name}");
        assert_eq!(chosen(name, 500, none), Strategy::Plain, "{name}");
        assert_eq!(chosen(name, 40_000, options), Strategy::Baseline, "{name}");
        assert_eq!(chosen(name, 40_000, none), Strategy::Baseline, "{name}");
        let unlimited = Options { limits: CompileLimits::NONE, ..options };
        assert_eq!(chosen(name, 40_000, unlimited), Strategy::Optimised, "{name}");
    }
    for name in ["straight", "loads", "stores", "copies", "mixed widths"] {
        assert_eq!(chosen(name, 250_000, options), Strategy::Optimised, "{name}");
        assert_eq!(chosen(name, 500_000, options), Strategy::Plain, "{name}");
        assert_eq!(
            chosen(name, 500_000, Options { limits: CompileLimits::NONE, ..options }),
            Strategy::Optimised,
            "{name}"
        );
    }
    let long = shape("stores").image(300_000);
    let excess = excess(long.insns(), options).expect("too long for the optimiser").to_string();
    assert!(excess.contains(" units of work for the optimiser, more than the limit of 16777216"), "{excess}");
    assert_eq!(chosen("calls", 40_000, options), Strategy::Optimised);
    assert_eq!(chosen("calls", 40_000, Options { fuel: true, ..options }), Strategy::Baseline);
    for name in ["gotox, many of many", "calls by address", "atomic operations", "one loop, loads"] {
        assert_eq!(chosen(name, 100_000, options), Strategy::Baseline, "{name}");
    }
}

#[test]
fn computed_jumps_to_very_many_labels_stay_in_the_interpreter() {
    let image = shape("gotox, many of many").image(1 << 18);
    let error = Code::new(image, Options::default()).unwrap().compile_all().unwrap_err();
    assert!(matches!(error, JitError::Entangled { .. }), "{error}");
}

/// Without the optimiser the compiler must not make what the optimiser would only have removed.
#[test]
fn plain_code_is_not_longer_than_optimised_code_where_programs_repeat_themselves() {
    let speed = Options { limits: CompileLimits::NONE, ..Options::default() };
    let none = Options { opt: OptLevel::None, ..speed };
    for name in ["divisions", "frame words", "many calls of one subprogram"] {
        let [speed, none] = [speed, none].map(|options| density(shape(name), 1200, options));
        assert!(none <= speed * 1.1 + 0.1, "{name}: {none} bytes for each instruction, optimised {speed}");
    }
}

/// Loads of words that are no variables: the function is too long for them.
#[test]
fn loads_of_what_was_just_stored_in_the_frame_make_no_code() {
    let options = Options { opt: OptLevel::None, ..Options::default() };
    let (loads, stores) = (density(shape("copies"), 4000, options), density(shape("frame words"), 4000, options));
    assert!(stores < loads * 0.75, "{stores} bytes for each instruction, {loads} with loads");
}

#[test]
fn branches_of_large_functions_become_selects_without_the_optimiser() {
    let image = shape("selects").image(1200);
    let code = Code::new(Arc::clone(&image), Options { opt: OptLevel::None, ..Options::default() }).unwrap();
    code.compile_all().unwrap();
    let jumps = code.disassemble(0).unwrap().text.matches("; j label").count();
    assert!(jumps < 10, "{jumps} branches");
}
