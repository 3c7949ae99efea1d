//! `twinbpf run`: its arguments.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use twinbpf_trace as trace;
use twinbpf_vm::host::OutputFormat;

use super::{EngineArgs, KernelArgs, LimitArgs, LoadArgs};

/// `twinbpf run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf run hello.bpf.o
  twinbpf run -e 'tp/syscalls/sys_enter_openat { count(&opens, comm()); }'
  twinbpf run a.bpf.o b.bpf.o             both BEGINs in this order, then both ENDs
  twinbpf run stats.bpf.o --set limit=10 -- ls -l
  twinbpf run 'stats.bpf.o/map:limits.value[0,3...5]=7/'
  twinbpf run roots.bpf.o --lib libm.so.6
  twinbpf run profile.bpf.o -p 1234 -F 199   samples of one process
  twinbpf run drops.bpf.o --attach count=eth0
  twinbpf run tool.bpf.o --dry-run        what would run where

A run is over when the workload is, or the process of -p; without either at SIGINT or SIGTERM. What it attached is gone
then, also after kill -9. A second Ctrl-C ends it at once, without END.")]
pub(crate) struct RunArgs {
    /// A program text, C in braces after its sections: 'tp/sched/sched_switch { count(&switches, comm()); }'. Several are
    /// one source; - reads standard input.
    #[arg(short = 'e', value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Objects made by clang, or C sources; perf's terms may follow each: tool.bpf.o/map:limits.value[3]=7/.
    #[arg(required_unless_present = "text", value_name = "OBJ")]
    pub(crate) objects: Vec<PathBuf>,
    /// The workload: runs between BEGIN and END.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) workload: Vec<String>,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// What a session is like.
#[derive(Args, Debug)]
pub(crate) struct SessionArgs {
    /// Every process on every CPU, which is what happens anyway.
    #[arg(short, conflicts_with_all = ["pid", "tid", "cpus"])]
    all: bool,
    /// Only these CPUs, for programs on perf events: 0,2-3.
    #[arg(short = 'C', value_name = "CPUS", value_parser = cpus)]
    cpus: Option<CpuList>,
    /// Only this process, for programs on perf events, uprobes and USDT. The run ends with it.
    #[arg(short, value_name = "PID")]
    pid: Option<u32>,
    /// Only this thread, for programs on perf events. The run ends with it.
    #[arg(short, value_name = "TID", conflicts_with = "pid")]
    tid: Option<u32>,
    /// Samples a second of perf_event programs.
    #[arg(short = 'F', value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u64).range(1..))]
    frequency: u64,
    /// Attach a program to what its section does not say, or to something else: an interface, a cgroup's path,
    /// BINARY:FUNCTION, CLOCK:HZ. Several times for one program attaches it to each.
    #[arg(long, value_name = "PROG=PLACE", value_parser = attach)]
    attach: Vec<(String, String)>,
    /// Leave a program out: it is neither loaded nor run. May be given several times.
    #[arg(long, value_name = "PROG")]
    without: Vec<String>,
    /// Let programs that would not run be notes, not errors: without an attach point, of unknown sections.
    #[arg(long)]
    allow_unattached: bool,
    /// Where programs run: auto (those for the kernel there, if any), kernel (all maps there), or user (nothing there,
    /// no privilege needed).
    #[arg(long, value_name = "MODE", default_value = "auto")]
    mode: Mode,
    /// Write what programs print to a file.
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// How to write it: text, or json (an object a line).
    #[arg(short, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
    /// Print what would run where, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print every map at the end.
    #[arg(long)]
    print_maps: bool,
    /// Let 0 that a program on a tracepoint returns drop the sample, in every recording of that tracepoint by anybody.
    /// Otherwise programs return 1 to the kernel.
    #[arg(long)]
    filter: bool,
    /// Load programs exactly as libbpf would, without the code that counts the records, elements and stacks which they
    /// lose for lack of room, and attach them after BEGIN; what they return counts as with --filter.
    #[arg(long)]
    no_count_loss: bool,
    /// End with status 125, after END, if anything was lost.
    #[arg(long, conflicts_with = "no_count_loss")]
    fail_on_loss: bool,
    /// Draw the folded stacks of programs (print_folded) as a flame graph, SVG, at the end.
    #[arg(long, value_name = "FILE")]
    flamegraph: Option<PathBuf>,
    /// Draw histograms, and maps that print every interval over time, as charts, SVG, at the end.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Serve maps as metrics of Prometheus at http://ADDR/metrics: PORT, of this machine only, or IP:PORT.
    #[arg(long, value_name = "ADDR", value_parser = metrics)]
    metrics: Option<SocketAddr>,
    /// Series of a map among the metrics at most.
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "metrics")]
    metrics_series: usize,
    /// Size of the ring buffer that kernel programs print to, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    print_buffer: u32,
    /// What becomes of the workload when a trap or a failed write ends the session: wait (it runs to its end, unobserved),
    /// detach (it runs on alone), or kill (SIGTERM).
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    on_error: OnError,
    /// Let scripts run commands (system) and read the memory of every process (read_mem), and uprobes go where it is
    /// unknown whether an instruction begins.
    #[arg(long = "unsafe")]
    allow_unsafe: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Auto,
    Kernel,
    User,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnError {
    Wait,
    Detach,
    Kill,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// CPUs by number, so that clap takes them for one value.
#[derive(Clone, Debug)]
struct CpuList(Vec<u32>);

impl SessionArgs {
    pub(crate) fn options(&self, kernel: trace::KernelFiles) -> trace::Options {
        trace::Options {
            mode: match self.mode {
                Mode::Auto => trace::Mode::Auto,
                Mode::Kernel => trace::Mode::Kernel,
                Mode::User => trace::Mode::User,
            },
            samples: false,
            pid: self.pid,
            tid: self.tid,
            cpus: self.cpus.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
            frequency: self.frequency,
            attach: self.attach.clone(),
            without: self.without.clone(),
            allow_unattached: self.allow_unattached,
            print_maps: self.print_maps,
            commands: self.allow_unsafe,
            unproven_places: self.allow_unsafe,
            foreign_memory: self.allow_unsafe,
            filter: self.filter,
            count_loss: !self.no_count_loss,
            fail_on_loss: self.fail_on_loss,
            flamegraph: self.flamegraph.clone(),
            svg: self.svg.clone(),
            metrics: self.metrics,
            metrics_series: self.metrics_series,
            output_bytes: self.print_buffer << 10,
            on_error: match self.on_error {
                OnError::Wait => trace::OnError::Wait,
                OnError::Detach => trace::OnError::Detach,
                OnError::Kill => trace::OnError::Kill,
            },
            kernel,
        }
    }

    pub(crate) fn format(&self) -> OutputFormat {
        match self.format {
            Format::Text => OutputFormat::Text,
            Format::Json => OutputFormat::Json,
        }
    }
}

/// `0,2-3`.
fn cpus(text: &str) -> Result<CpuList, String> {
    let list = twinbpf_kernel::cpu::parse_list(text).map(CpuList);
    list.ok_or_else(|| format!("'{text}' is no list of CPUs such as 0,2-3"))
}

/// `9435`, `:9435`, `0.0.0.0:9435`, `[::1]:9435`.
fn metrics(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let address = port.map(local).or_else(|_| text.replace("localhost:", "127.0.0.1:").parse());
    address.map_err(|_| format!("'{text}' is no PORT and no IP:PORT such as 127.0.0.1:9435"))
}

fn attach(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((program, place)) if !program.is_empty() && !place.is_empty() => {
            Ok((program.to_owned(), place.to_owned()))
        }
        _ => Err(format!("'{text}' is not PROG=PLACE")),
    }
}

#[cfg(test)]
mod tests {
    use super::{attach, cpus, metrics};

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("0,2-3").unwrap().0, [0, 2, 3]);
        assert_eq!(cpus("7").unwrap().0, [7]);
        for text in ["", "a", "3-1", "1-", "0-99999"] {
            assert!(cpus(text).unwrap_err().contains("no list of CPUs"), "{text}");
        }
    }

    #[test]
    fn addresses_of_metrics() {
        let of = |text| metrics(text).unwrap().to_string();
        assert_eq!(["9435", ":9435", "localhost:9435"].map(of), ["127.0.0.1:9435"; 3]);
        assert_eq!(["0.0.0.0:1", "[::1]:2"].map(of), ["0.0.0.0:1", "[::1]:2"]);
        assert!(["", "host:1", "1.2.3.4", "99999"].iter().all(|text| metrics(text).is_err()));
    }

    #[test]
    fn places_of_programs() {
        assert_eq!(attach("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(attach("a").is_err() && attach("=b").is_err() && attach("a=").is_err());
    }
}
