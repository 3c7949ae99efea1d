//! How long does a packet take through an XDP or TC program? Real programs, beside the kernel on the same packets.

use std::process::ExitCode;

use twinbpf_benches::bench::{Case, Machine, is_selected, run};
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::packets::{
    PLAIN, PROGRAMS, Program, expected, frames, in_batches, in_kernel, in_place, short_and_long,
};
use twinbpf_benches::peers::Make;
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::table::Table;

const KERNEL: &str = "kernel";
const CALL: &str = "call";
const BATCH: &str = "batch";
const SCRUB: &str = "batch, scrubbed";

/// A packet in a batch, in nanoseconds.
const PACKET: f64 = 30.0;
/// A call of a program with maps over the kernel's.
const WITH_MAPS: f64 = 0.8;
/// The same of all programs, geometric mean.
const MEAN: f64 = 0.4;

/// What the columns mean, for the documentation.
const LEGEND: &str = "\
- kernel: `BPF_PROG_TEST_RUN`, which repeats the program on a packet that lies where it is, by the kernel's own clock
- call: twinbpf, sandboxed, the same way
- batch: `run_xdp_batch` or `run_tc_batch` on 64 packets, which copies the bytes of every packet in, calls the program, and
  gives its verdict and the length of the packet out; scrubbed: with `Config::scrub_packets`
- Figures are of one packet, the mean of 9: UDP and TCP over IPv4 and IPv6, one of 1,500 bytes, one with a VLAN tag, a
  ping's reply, and the two of the kernel's own tests. Programs return the same verdicts in both. Load balancers that would
  move the start of a packet get a service at another address: they find none. `bpf_skb_set_tunnel_key` is a host function
  of the bench that does nothing";

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let (pair, set) = (short_and_long(), frames());
    let cases = PLAIN.iter().filter_map(|program| case(program, &pair, true));
    let base = run("64 and 1,500 bytes", &[KERNEL, CALL, BATCH, SCRUB], cases.collect());
    let cases = PROGRAMS.iter().filter_map(|program| case(program, &set, false));
    let real = run("program", &[KERNEL, CALL, BATCH], cases.collect());
    let (Some(base), Some(real)) = (base, real) else { return };
    let promises = promises(&base, &real);
    promises.print();
    let body = format!("{}\n{}\nReal programs:\n\n{}\n{LEGEND}", promises.markdown(), base.markdown(), real.markdown());
    performance::write("packets", "Packets", &body);
}

/// Without what is not selected, or not on this machine.
fn case(program: &'static Program, frames: &[Vec<u8>], scrubbed: bool) -> Option<Case> {
    if !is_selected(program.name) {
        return None;
    }
    if let Err(why) = program.object() {
        leave_out(program.name, &why);
        return None;
    }
    let expected = expected(program, frames).unwrap_or_else(|error| panic!("{}: {error}", program.name));
    let make = |make: fn(&Program, &[Vec<u8>]) -> _| {
        let frames = frames.to_vec();
        Box::new(move || make(program, &frames)) as Make
    };
    let mut machines = vec![
        Machine::known(KERNEL, make(in_kernel)),
        Machine::ours(CALL, make(in_place)),
        Machine::ours(BATCH, make(|program, frames| in_batches(program, frames, false))),
    ];
    if scrubbed {
        machines.push(Machine::ours(SCRUB, make(|program, frames| in_batches(program, frames, true))));
    }
    Some(Case { name: program.name.to_owned(), operations: frames.len() as u32, expected, machines })
}

fn promises(base: &Table, real: &Table) -> Promises {
    let mut promises = Promises::default();
    let pass = PLAIN[0].name;
    promises.at_most("64 or 1,500 bytes through a program that passes all, batch", base.ns(pass, BATCH), PACKET, " ns");
    promises.at_most("the same / kernel", base.ratio(pass, BATCH, KERNEL), 1.0, "");
    for program in PROGRAMS.iter().filter(|program| program.has_maps()) {
        let ratio = real.ratio(program.name, CALL, KERNEL);
        promises.at_most(&format!("{}, call / kernel", program.name), ratio, WITH_MAPS, "");
    }
    let mean = real.column(CALL).zip(real.column(KERNEL)).and_then(|(own, kernel)| real.mean_ratio(own, kernel));
    promises.at_most("all programs, call / kernel, geometric mean", mean, MEAN, "");
    promises
}
