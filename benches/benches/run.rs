//! How long does a compute kernel run in the interpreter, and in those of the peers?
//!
//! The end of the output says whether the interpreter keeps its promises.

use twinbpf_benches::kernel::{KERNELS, Kernel};
use twinbpf_benches::peers::{Make, Runner, rbpf, sbpf, twinbpf};
use twinbpf_benches::question::{Case, ask};
use twinbpf_benches::table::Table;

const COLUMNS: &[&str] = &["twinbpf", "rbpf", "solana-sbpf"];
/// How many times as long the peers must take, by geometric mean.
const TARGETS: &[(&str, f64)] = &[("rbpf", 4.0), ("solana-sbpf", 3.0)];

fn main() {
    let cases = KERNELS.iter().map(|kernel| {
        let machine = |make: fn(&Kernel) -> Result<Runner, String>| Box::new(move || make(kernel)) as Make;
        Case {
            name: kernel.name.to_owned(),
            operations: 1,
            expected: kernel.expected(),
            machines: vec![
                ("twinbpf", machine(twinbpf::kernel)),
                ("rbpf", machine(rbpf::kernel)),
                ("solana-sbpf", machine(sbpf::kernel)),
            ],
        }
    });
    if let Some(table) = ask("kernel", COLUMNS, cases.collect()) {
        promises(&table);
    }
}

fn promises(table: &Table) {
    for &(peer, target) in TARGETS {
        let Some(column) = table.columns.iter().position(|name| *name == peer) else { continue };
        let Some(mean) = table.mean_ratio(column) else { continue };
        let verdict = if mean >= target { "holds" } else { "FAILS" };
        println!("at least {target} times as fast as {peer}: {mean:.2}, {verdict}");
        for (kernel, ratio) in table.ratios(column).into_iter().filter(|(_, ratio)| *ratio < 1.0) {
            println!("FAILS: slower than {peer} on {kernel} ({ratio:.2})");
        }
    }
}
