//! How does the time of compilation grow with the length of a program, for programs that repeat one thing?
//!
//! Each shape ([`shapes`]) is compiled at growing lengths, by one thread, at each optimisation level,
//! with and without an instruction budget, within the default limits and without limits. A column ends where one
//! compilation takes longer than it may. The exponent is that of the last two lengths.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use twinbpf_benches::bench::is_selected;
use twinbpf_benches::clock::thread_cpu_ns;
use twinbpf_benches::left_out::complete;
use twinbpf_benches::performance;
use twinbpf_jit::{Code, CompileLimits, OptLevel, Options, Strategy, Threads};

// Those of the compiler's own tests.
#[path = "../../jit/src/tests/shapes.rs"]
mod shapes;

use shapes::{SHAPES, Shape};

/// Lengths with limits: the last one is what the kernel's verifier takes.
const LENGTHS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// With limits, a column ends after the first compilation that takes this long.
const LONGEST_NS: u64 = 10_000_000_000;
/// Lengths without limits.
const FREE: [usize; 4] = [500, 1_000, 2_000, 4_000];
const LONGEST_FREE_NS: u64 = 1_500_000_000;

/// One compilation.
struct Sample {
    insns: usize,
    ns: u64,
    /// How the longest function is compiled, if not as the options say.
    mark: &'static str,
}

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let mut text = String::from(
        "| shape | options | 1,000 | 10,000 | 100,000 | 1,000,000 | exponent | no limits: 500 | 1,000 | 2,000 | 4,000 | exponent |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut slowest: Option<(f64, String)> = None;
    for shape in SHAPES.iter().filter(|shape| is_selected(shape.name)) {
        for fuel in [false, true] {
            let column = |opt, limits, lengths: &[usize], longest| {
                let options = Options { opt, fuel, limits, verify: false, ..Options::default() };
                samples(shape, options, lengths, longest)
            };
            let limits = CompileLimits::default();
            let [speed, none] = [OptLevel::Speed, OptLevel::None].map(|opt| column(opt, limits, &LENGTHS, LONGEST_NS));
            for (level, bounded) in [("speed", speed), ("none", none)] {
                let opt = if level == "speed" { OptLevel::Speed } else { OptLevel::None };
                let free = column(opt, CompileLimits::NONE, &FREE, LONGEST_FREE_NS);
                for sample in &bounded {
                    let rate = sample.insns as f64 / sample.ns as f64 * 1e9;
                    let name =
                        || format!("{}, {level}{}, {}", shape.name, if fuel { "+fuel" } else { "" }, sample.insns);
                    if slowest.as_ref().is_none_or(|(slowest, _)| rate < *slowest) {
                        slowest = Some((rate, name()));
                    }
                }
                let options = format!("{level}{}", if fuel { "+fuel" } else { "" });
                let row = format!("| {} | {options} |{}{}", shape.name, cells(&bounded, 4), cells(&free, 4));
                println!("{row}");
                writeln!(text, "{row}").expect("strings take all");
            }
        }
    }
    let (rate, name) = slowest.expect("shapes");
    let notes = format!(
        "\nTimes in milliseconds of one thread's CPU, least of three below 50 ms; `b` says that the program's longest function gets \
         baseline code, `n` that it is compiled without the optimiser, `-` that a shorter one took too long (10 s, 1.5 s without limits) or is left to the interpreter. The exponent is that of \
         the last two lengths.\n\nSlowest with limits: {rate:.0} instructions/s ({name}).\n",
    );
    println!("{notes}");
    performance::write("shapes", "Compile time by length", &(text + &notes));
}

fn samples(shape: &Shape, options: Options, lengths: &[usize], longest: u64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for length in lengths {
        let Some(sample) = sample(shape, options, *length) else { break };
        let ns = sample.ns;
        samples.push(sample);
        if ns > longest {
            break;
        }
    }
    samples
}

fn sample(shape: &Shape, options: Options, length: usize) -> Option<Sample> {
    let image = shape.image(length);
    let mut least = u64::MAX;
    for _ in 0..3 {
        let code = Code::new(Arc::clone(&image), options).expect("a compiler").with_threads(Threads::One);
        let start = thread_cpu_ns();
        if let Err(error) = code.compile_all() {
            println!("{}, {length}: {error}", shape.name);
            return None;
        }
        least = least.min(thread_cpu_ns() - start);
        if least > 50_000_000 {
            break;
        }
    }
    let code = Code::new(Arc::clone(&image), options).expect("a compiler");
    let longest = (0..image.functions().len()).max_by_key(|index| {
        let function = &image.functions()[*index];
        function.end - function.start
    });
    let mark = match code.strategy(longest.expect("a function") as u32) {
        Strategy::Baseline => " b",
        Strategy::Plain if options.opt == OptLevel::Speed => " n",
        Strategy::Optimised | Strategy::Plain | Strategy::FirstTier => "",
    };
    Some(Sample { insns: image.insns().len(), ns: least, mark })
}

/// Times, then the exponent.
fn cells(samples: &[Sample], count: usize) -> String {
    let mut text = String::new();
    for at in 0..count {
        match samples.get(at) {
            Some(Sample { ns, mark, .. }) => {
                write!(text, " {:.1}{mark} |", *ns as f64 / 1e6).expect("strings take all");
            }
            None => text.push_str(" - |"),
        }
    }
    match samples {
        [.., one, other] => {
            let exponent = (other.ns as f64 / one.ns as f64).ln() / (other.insns as f64 / one.insns as f64).ln();
            write!(text, " {exponent:.1} |").expect("strings take all");
        }
        _ => text.push_str(" - |"),
    }
    text
}
