//! The `twinbpf` command: reads arguments, calls the library, prints.

// Everything that is printed passes through `twinbpf_trace::terminal`, which escapes it for terminals.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bench;
mod btf;
mod cache;
mod check;
mod compile;
mod conformance;
mod diff;
mod disasm;
mod enabled;
mod exec;
mod fuzz;
mod hex;
mod input;
mod list;
mod load;
mod man;
mod map;
mod new;
mod probe;
mod record;
mod run;
mod script;
mod source;
mod target;
mod trace;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use args::{BpfCommand, Cli, Command};
use twinbpf::{Trap, TrapCode};
use twinbpf_trace::{errln, terminal};

/// Exit status for errors that are not the script's or the workload's own.
const STATUS_ERROR: u8 = 125;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(terminal::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    terminal::set_raw(cli.raw);
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Record(args) => record::record(&args),
        Command::Bpf(args) => match args.command {
            BpfCommand::Record(args) => record::record(&args),
        },
        Command::Script(args) => script::script(&args),
        Command::Exec(args) => exec::exec(&args),
        Command::Check(args) => check::check(&args),
        Command::Disasm(args) => disasm::disasm(&args),
        Command::Compile(args) => compile::compile(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Conformance(args) => Ok(conformance::conformance(&args)),
        Command::Btf(args) => btf::btf(&args),
        Command::List(args) => list::list(&args),
        Command::Enabled(args) => enabled::enabled(&args),
        Command::Probe(args) => probe::probe(&args),
        Command::Map(args) => map::map(&args),
        Command::Fuzz(args) => fuzz::fuzz(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::New(args) => new::new(&args),
        Command::Completions(args) => man::completions(&args),
        Command::Man(args) => man::man(&args),
    };
    result.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            twinbpf_trace::end_by_pipe();
        }
        errln!("twinbpf: {}", story(&error));
        if let Some(remedy) = remedy(&error) {
            errln!("  hint: {remedy}");
        }
        ExitCode::from(STATUS_ERROR)
    })
}

/// Help and version, or what is wrong with the command line. Its status is that of our own errors, so that it
/// cannot be taken for a workload's.
fn usage(error: &clap::Error) -> ExitCode {
    // If the output is closed, there is nowhere to report it.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(STATUS_ERROR) } else { ExitCode::SUCCESS }
}

/// The whole chain of an error; from the first cause on that formats its own chain, that chain.
fn story(error: &anyhow::Error) -> String {
    let report = error.chain().enumerate().find_map(|(depth, cause)| Some((depth, full(cause)?)));
    let Some((depth, full)) = report else { return format!("{error:#}") };
    let context: Vec<String> = error.chain().take(depth).map(ToString::to_string).collect();
    if context.is_empty() { full } else { format!("{}: {full}", context.join(": ")) }
}

/// The option that raises the limit at which a program ended.
fn remedy(error: &anyhow::Error) -> Option<&'static str> {
    let trap = error.chain().find_map(|cause| {
        let of_session = || match cause.downcast_ref::<twinbpf_trace::Error>() {
            Some(twinbpf_trace::Error::Trap(trap)) => Some(trap),
            _ => None,
        };
        cause.downcast_ref::<Trap>().or_else(of_session)
    })?;
    match trap.code() {
        TrapCode::CallDepth => Some("--max-depth N allows more nested calls"),
        TrapCode::StackOverflow => {
            Some("--stack-limit BYTES allows more in all; each call takes its frame, --stack-size at most")
        }
        _ => None,
    }
}

/// The full story of an error that has one.
fn full(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    let report = cause.downcast_ref::<Trap>().map(|trap| format!("{trap:#}"));
    report
        .or_else(|| cause.downcast_ref::<twinbpf::Error>().map(|error| format!("{error:#}")))
        .or_else(|| cause.downcast_ref::<twinbpf_loader::Error>().map(|error| format!("{error:#}")))
        .or_else(|| cause.downcast_ref::<twinbpf_trace::Error>().map(|error| format!("{error:#}")))
        .or_else(|| cause.downcast_ref::<twinbpf_kernel::Error>().map(|error| format!("{error:#}")))
        .or_else(|| cause.downcast_ref::<twinbpf_kernel::map::FindError>().map(|error| format!("{error:#}")))
}

/// `twinbpf ... | head` is not worth a message.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
