//! How much longer does compiling without optimisation take than with it, for programs that repeat one thing?
//!
//! Each shape ([`shapes`]) at each length, by one thread, at both levels in turns, within the default limits. What is above [`MOST`]
//! after [`FIRST`] turns is measured again with [`AGAIN`] of them.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use twinbpf_benches::bench::{has_flag, is_selected};
use twinbpf_benches::clock::thread_cpu_ns;
use twinbpf_benches::left_out::complete;
use twinbpf_benches::performance;
use twinbpf_benches::rounds::Figure;
use twinbpf_jit::{Code, OptLevel, Options, Threads};
use twinbpf_vm::image::Image;

// Those of the compiler's own tests.
#[path = "../../jit/src/tests/shapes.rs"]
mod shapes;

use shapes::SHAPES;

const LENGTHS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// A shape gets no longer after a compilation that takes this long.
const LONGEST_NS: f64 = 250e6;
/// Turns of every program.
const FIRST: usize = 3;
/// Turns of a program whose ratio is above [`MOST`] after the first ones.
const AGAIN: usize = 11;
/// `none` should take at most so many times as long as `speed`.
const MOST: f64 = 1.1;
/// Ratios that are printed, the largest first.
const PRINTED: usize = 10;

/// Times of compiling, in nanoseconds.
struct Times {
    none: Figure,
    speed: Figure,
}

impl Times {
    /// The median of the turns' ratios.
    fn ratio(&self) -> f64 {
        self.none.ratio_to(&self.speed)
    }
}

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    // Without `cargo bench`, the check is all.
    let lengths = if has_flag("--bench") { &LENGTHS[..] } else { &LENGTHS[..1] };
    let mut rows: Vec<(String, Times)> = Vec::new();
    for shape in SHAPES.iter().filter(|shape| is_selected(shape.name)) {
        for fuel in [false, true] {
            for length in lengths {
                let image = shape.image(*length);
                let Some(mut times) = measured(&image, fuel, FIRST) else { break };
                if times.ratio() > MOST {
                    times = measured(&image, fuel, AGAIN).unwrap_or(times);
                }
                let name = format!("{}{}, {length}", shape.name, if fuel { "+fuel" } else { "" });
                println!("{name}: {:.2}", times.ratio());
                let is_longest = times.none.ns().max(times.speed.ns()) > LONGEST_NS;
                rows.push((name, times));
                if is_longest {
                    break;
                }
            }
        }
    }
    rows.sort_by(|(_, one), (_, other)| other.ratio().total_cmp(&one.ratio()));
    let mut text = String::from("| shape, length | speed, ms | none, ms | none / speed |\n|---|---:|---:|---:|\n");
    for (name, times) in rows.iter().take(PRINTED) {
        let (speed, none) = (times.speed.ns() / 1e6, times.none.ns() / 1e6);
        writeln!(text, "| {name} | {speed:.1} | {none:.1} | {:.2} |", times.ratio()).expect("strings take all");
    }
    let above = rows.iter().filter(|(_, times)| times.ratio() > MOST).count();
    let body = format!(
        "Time of one thread's CPU, of the same program at both levels in turns, medians of {FIRST} turns (of the times, and of the ratios in a turn), of {AGAIN} where the ratio is above \
         {MOST}. {above} of {} ratios stay above it; the largest {}:\n\n{text}",
        rows.len(),
        PRINTED.min(rows.len())
    );
    println!("{body}");
    performance::write("levels", "Compiling without optimisation", &body);
}

/// `None` if the compiler takes no program of this size.
fn measured(image: &Arc<Image>, fuel: bool, turns: usize) -> Option<Times> {
    let (mut none, mut speed) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        for (opt, list) in [(OptLevel::None, &mut none), (OptLevel::Speed, &mut speed)] {
            let options = Options { opt, fuel, verify: false, ..Options::default() };
            let code = Code::new(Arc::clone(image), options).expect("a compiler").with_threads(Threads::One);
            let start = thread_cpu_ns();
            code.compile_all().ok()?;
            list.push((thread_cpu_ns() - start) as f64);
        }
    }
    Some(Times { none: Figure::new(none), speed: Figure::new(speed) })
}
