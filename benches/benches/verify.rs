//! What does verifying native code cost, next to compiling it?
//!
//! The corpus' bench objects are compiled by one thread, with and without `Config::verify_native` in turns. Linking, which is
//! in both, is measured alone and taken off.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use twinbpf::{Config, Engine, EngineKind, Isolation, Linker, Object, OptLevel};
use twinbpf_benches::clock::thread_cpu_ns;
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;

/// Rounds. A figure is the median, over all rounds, of the difference between two times of the same round.
const ROUNDS: usize = 31;

fn main() {
    let objects = objects();
    let mut table = String::from("| options | compiling, ms | verifying, ms | added |\n|---|---:|---:|---:|\n");
    let mut promises = Promises::default();
    for isolation in [Isolation::Sandbox, Isolation::Strict] {
        for (level, opt) in [("speed", OptLevel::Speed), ("none", OptLevel::None)] {
            for fuel in [None, Some(1 << 40)] {
                let config = Config::new().isolation(isolation).opt_level(opt).max_insns(fuel);
                let config = config.parallel_compilation(false);
                let (compiling, verifying) = measured(&objects, &config);
                let isolation = if isolation == Isolation::Strict { "strict" } else { "sandbox" };
                let options = format!("{isolation}, {level}{}", if fuel.is_some() { ", counted" } else { "" });
                let added = verifying / compiling * 100.0;
                let (compiling, verifying) = (compiling / 1e6, verifying / 1e6);
                let row = format!("| {options} | {compiling:.1} | {verifying:.1} | {added:.0} % |");
                println!("{row}");
                writeln!(table, "{row}").expect("strings take all");
                promises.at_most(&format!("verifying / compiling, {options}"), Some(added), 25.0, " %");
            }
        }
    }
    promises.print();
    performance::write("verify", "Verifying native code", &format!("{}\n{table}", promises.markdown()));
}

fn objects() -> Vec<Object> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/bench");
    let paths = fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("readable").path());
    let mut paths: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(".bpf.o")).collect();
    paths.sort();
    let open = |path: &Path| Object::open(&path.to_string_lossy(), &fs::read(path).expect("readable"));
    paths.iter().map(|path| open(path).unwrap_or_else(|error| panic!("{error:#}"))).collect()
}

/// Nanoseconds of compiling, and of verifying what was compiled.
fn measured(objects: &[Object], config: &Config) -> (f64, f64) {
    let configs = [
        config.clone().engine(EngineKind::Interp),
        config.clone().engine(EngineKind::Jit),
        config.clone().engine(EngineKind::Jit).verify_native(true),
    ];
    let mut times: [Vec<u64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (config, times) in configs.iter().zip(&mut times) {
            times.push(objects.iter().map(|object| instantiated(object, config)).sum());
        }
    }
    let [linking, compiling, both] = times;
    (difference(&compiling, &linking), difference(&both, &compiling))
}

/// The median of what the same rounds of one took longer than those of another.
fn difference(longer: &[u64], shorter: &[u64]) -> f64 {
    let mut all: Vec<i64> =
        longer.iter().zip(shorter).map(|(longer, shorter)| *longer as i64 - *shorter as i64).collect();
    all.sort_unstable();
    all[ROUNDS / 2] as f64
}

fn instantiated(object: &Object, config: &Config) -> u64 {
    let engine = Engine::new(config.clone()).expect("address space");
    let linker = Linker::<()>::new(&engine);
    let start = thread_cpu_ns();
    let pre = linker.instantiate_pre(object).unwrap_or_else(|error| panic!("{error:#}"));
    let time = thread_cpu_ns() - start;
    drop(pre);
    time
}
