//! Command-line interface: arguments of each subcommand (clap), and their help.

mod bench;
mod btf;
mod compile;
mod conformance;
mod enabled;
mod fuzz;
mod list;
mod map;
mod probe;
mod record;
mod run;
mod script;
mod target;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use twinbpf::{CompileLimits, EngineKind, OptLevel, PassSet, Perf};
use twinbpf_isa::{Group, Mode};
use twinbpf_trace::KernelFiles;
use twinbpf_vm::interp::{Driver, SuperinstructionSet};
use twinbpf_vm::mem::Bounds;

pub(crate) use bench::{BenchArgs, BenchEngine};
pub(crate) use btf::{BtfArgs, BtfCommand, BtfDumpArgs, BtfFormat, NewArgs};
pub(crate) use compile::ObjectFileArgs;
pub(crate) use conformance::{ConformanceArgs, ConformanceEngine};
pub(crate) use enabled::EnabledArgs;
pub(crate) use fuzz::{DiffArgs, EnginesArgs, FuzzArgs, FuzzEngine, ModeWord, Peer};
pub(crate) use list::ListArgs;
pub(crate) use map::{MapArgs, MapCommand, MapGetArgs, MapListArgs, MapSetArgs, MapWatchArgs, ShowArgs};
pub(crate) use probe::ProbeArgs;
pub(crate) use record::{BpfArgs, BpfCommand, RecordArgs};
pub(crate) use run::{Format, RunArgs};
pub(crate) use script::ScriptArgs;
pub(crate) use target::TargetArgs;

/// One BPF object, two places to run it.
#[derive(Debug, Parser)]
#[command(name = "twinbpf", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  twinbpf run hello.bpf.o                 run its BEGIN and END
  twinbpf run count.bpf.o -- make -j2     BEGIN, then the workload, then END
  twinbpf record -e slow.bpf.o -- make    perf.data with the samples that programs keep
  twinbpf script counts.bpf.o             over the samples of a recording
  twinbpf exec xdp.bpf.o --packet @p.bin  run one program on one packet
  twinbpf check tool.bpf.o                what everything resolves to; runs nothing
  twinbpf disasm tool.bpf.o:main --source instructions with their C lines
  twinbpf compile tool.bpf.o -o tool.o    an object file for the C linker
  twinbpf bench kernel.bpf.o              how long it takes on each engine
  twinbpf fuzz --time 1m                  engines compared on random programs
  twinbpf btf dump > vmlinux.h            the kernel's types as a C header
  twinbpf list 'tp/sched/*'               what programs can be attached to
  twinbpf probe -x tgt 'work* n'          where functions are, and their arguments
  twinbpf enabled 1234                    hooked functions of a process
  twinbpf map dump counts                 what is in a map of the kernel
  twinbpf new tool                        tool.bpf.c, to start from

Where an object is wanted, a C source will do: twinbpf run tool.bpf.c. It is compiled with clang, with vmlinux.h of the
running kernel and <twinbpf/script.h> at hand.

Status: that of exit(), else of the workload (128+signal if one killed it), else 0;
125 for errors of twinbpf itself and for programs that trap.")]
pub(crate) struct Cli {
    /// Leave control characters in names and in what programs print as they are, where the output is a terminal. By
    /// default they are escaped (`\\x1b`).
    #[arg(long, global = true)]
    pub(crate) raw: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the scripts of objects: BEGIN, the workload, END.
    Run(RunArgs),
    /// Record samples with perf: programs decide which.
    Record(RecordArgs),
    /// The same, as the command line of 2015 had it: twinbpf bpf record.
    Bpf(BpfArgs),
    /// Run scripts over the samples of a recording: BEGIN, EVENT for each sample, END.
    Script(ScriptArgs),
    /// Run one program once (or many times) and print what it returns.
    Exec(ExecArgs),
    /// Print every program, map and extern, and what it resolves to. No side effects.
    Check(CheckArgs),
    /// Print instructions.
    Disasm(DisasmArgs),
    /// Compile programs into an object file for the C linker.
    Compile(ObjectFileArgs),
    /// Measure programs on each engine.
    Bench(BenchArgs),
    /// Run bare instructions and print r0: a plugin of bpf_conformance.
    Conformance(ConformanceArgs),
    /// Print types of the kernel, of a module, or of an object.
    Btf(BtfArgs),
    /// Print what programs can be attached to.
    List(ListArgs),
    /// Print the functions of a process that have hooks.
    Enabled(EnabledArgs),
    /// Find the points of probe definitions in a program, and where their arguments are.
    Probe(ProbeArgs),
    /// Read maps of the kernel, and change them.
    Map(MapArgs),
    /// Compare engines on random programs.
    Fuzz(FuzzArgs),
    /// Run cases that `fuzz` has found on all engines.
    Diff(DiffArgs),
    /// Write a starting point for a tool.
    New(NewArgs),
    /// Print a completion script for a shell, or install those of bash, zsh and fish.
    Completions(CompletionsArgs),
    /// Print the manual page of the command, or write one for each subcommand.
    Man(ManArgs),
}

/// Arguments of `completions`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  source <(twinbpf completions bash)              in this shell
  twinbpf completions --install ~/.local          for each new one

Below PREFIX/share the scripts go to bash-completion/completions/twinbpf, zsh/site-functions/_twinbpf and
fish/vendor_completions.d/twinbpf.fish. bash and fish look there in ~/.local, /usr/local and /usr; zsh in
the folders of $fpath.")]
pub(crate) struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell.
    #[arg(required_unless_present = "install", conflicts_with = "install")]
    pub(crate) shell: Option<Shell>,
    /// Write the scripts of bash, zsh and fish to their places below a folder, which are made if they are not there.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) install: Option<PathBuf>,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf man | man -l -                          the page of the command
  twinbpf man --out ~/.local/share/man/man1       a page each for it and its subcommands
  man twinbpf-run")]
pub(crate) struct ManArgs {
    /// The folder that pages go to: twinbpf.1, twinbpf-run.1 and so on. It is made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// What applies wherever an object is loaded.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LoadArgs {
    /// Give a global variable a value before loading, typed by BTF: integers, enum names, strings. Or an element of an
    /// array, hash or trie: 'limits[3]=7', 'limits[3].most=7', 'flows[{"port":80}]={"most":7}'. Or all lines of a file.
    #[arg(long, value_name = "VAR=VALUE|@FILE")]
    pub(crate) set: Vec<String>,
    /// A shared library whose functions programs may call, for example libm.so.6.
    #[arg(long, value_name = "LIBRARY")]
    pub(crate) lib: Vec<String>,
    /// Declares functions of the libraries for programs in the sandbox, which may call them with any arguments: a C
    /// prototype with scalar types, or a file of them. Arithmetic of libm and libc needs none.
    #[arg(long = "extern", value_name = "PROTOTYPE|@FILE", requires = "lib")]
    pub(crate) externs: Vec<String>,
    /// Lets programs follow any pointer, and C functions have pointers. A bad one ends the program, not this process,
    /// but a wrong one can damage it.
    #[arg(long)]
    pub(crate) trust: bool,
    /// An option for clang, where a C source is given in place of an object.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) clang_opt: Vec<String>,
    /// Stack bytes of a frame, if the object was made with -mllvm -bpf-stack-size.
    #[arg(long, value_name = "BYTES")]
    pub(crate) stack_size: Option<u32>,
    /// Which instructions are valid where RFC 9669 and the kernel differ: rfc or kernel.
    #[arg(long, value_name = "POLICY", value_parser = mode)]
    pub(crate) policy: Option<Mode>,
    /// Switch on an instruction group that is off: packet.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub(crate) enable: Vec<Group>,
    /// Switch off an instruction group: callx, may_goto, load_acquire, addr_space_cast, gotox, atomic, ...
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub(crate) disable: Vec<Group>,
}

/// A kernel to link for, where it is not the running one.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct KernelArgs {
    /// Types of the kernel for CO-RE, in place of the running one's: BTF, or an ELF file with it. Further ones are those of
    /// its modules. An empty file (/dev/null) stands for a kernel without types.
    #[arg(long, value_name = "FILE")]
    pub(crate) btf: Vec<PathBuf>,
    /// Configuration of the kernel for __kconfig variables, as in /boot/config-*.
    #[arg(long, value_name = "FILE")]
    pub(crate) kconfig: Option<PathBuf>,
}

impl KernelArgs {
    pub(crate) fn files(&self) -> anyhow::Result<KernelFiles> {
        Ok(KernelFiles::read(&self.btf, self.kconfig.as_deref())?)
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "rfc" => Ok(Mode::Rfc),
        "kernel" => Ok(Mode::Kernel),
        other => Err(format!("'{other}' is neither rfc nor kernel")),
    }
}

fn group(text: &str) -> Result<Group, String> {
    let known = || Group::ALL.iter().map(|group| group.name()).collect::<Vec<_>>().join(", ");
    Group::from_name(text).ok_or_else(|| format!("no group '{text}'; there are {}", known()))
}

/// Limits of a run.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LimitArgs {
    /// Instructions one call of a program may execute.
    #[arg(long, value_name = "N")]
    pub(crate) max_insns: Option<u64>,
    /// Time one call of a program may take: 500ms, 2s, 1m; a bare number is seconds.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Calls of functions that may be nested, the program's own included; 1024 if it is not said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=262_144))]
    pub(crate) max_depth: Option<u32>,
    /// Stack bytes of all nested calls, 524288 if it is not said: each takes its frame, of --stack-size at most.
    #[arg(long, value_name = "BYTES")]
    pub(crate) stack_limit: Option<u32>,
    /// Accesses that the interpreter allows: exact (only bytes of live regions) or arena (any page that was ever allocated,
    /// as native code has it).
    #[arg(long, value_name = "BOUNDS", value_parser = bounds, conflicts_with = "trust")]
    pub(crate) bounds: Option<Bounds>,
    /// How the interpreter goes from instruction to instruction: `step` or `threaded`. The results are the same.
    #[arg(long, hide = true, value_parser = driver)]
    pub(crate) driver: Option<Driver>,
    /// Superinstructions that the interpreter uses, as changes to the set of all, in order: -NAME, +NAME, -all, all.
    #[arg(long, value_name = "LIST", hide = true, allow_hyphen_values = true)]
    pub(crate) superinstructions: Option<SuperinstructionSet>,
}

/// What executes programs.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EngineArgs {
    /// What executes programs: interp, jit (native code, before the first call), or auto (the interpreter, and native
    /// code where a program is hot). The default is auto.
    #[arg(long, value_name = "ENGINE", value_parser = engine)]
    pub(crate) engine: Option<EngineKind>,
    /// A shared library made of what `twinbpf compile` made of this object, to run instead of compiling it again.
    #[arg(long, value_name = "LIBRARY", conflicts_with = "engine")]
    pub(crate) compiled: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) compile: CompileArgs,
}

/// What native code is like.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CompileArgs {
    /// Native code traps at a pointer out of the arena, instead of taking its low half.
    #[arg(long, conflicts_with = "trust")]
    pub(crate) strict: bool,
    /// How much the compiler does: none or speed.
    #[arg(long, value_name = "LEVEL", value_parser = opt_level)]
    pub(crate) opt_level: Option<OptLevel>,
    /// How much work a function may be for the compiler before it gets baseline code, which is compiled sooner and runs
    /// slower: a number, in the units that the warning has, or `none` for no limit.
    #[arg(long, value_name = "WORK", value_parser = compile_limit)]
    pub(crate) compile_limit: Option<CompileLimits>,
    /// Passes of the optimiser that run, as changes to the set of all, in order: -NAME, +NAME, -all, all.
    #[arg(long, value_name = "LIST", hide = true, allow_hyphen_values = true)]
    pub(crate) passes: Option<PassSet>,
    /// Only so many runs of a pass over a function take place, to find the one that makes a difference.
    #[arg(long, value_name = "COUNT", hide = true)]
    pub(crate) opt_bisect: Option<u64>,
    /// Verifies native code before it runs, so that the compiler need not be trusted. What fails is not used.
    #[arg(long, conflicts_with = "trust")]
    pub(crate) verify_native: bool,
    /// Give perf the names of native code: map (`/tmp/perf-PID.map`), jitdump (`jit-PID.dump` with code and C lines,
    /// for `perf inject --jit`), or off.
    #[arg(long, value_name = "FILE", env = "TWINBPF_PERF", default_value = "off", hide_default_value = true)]
    pub(crate) perf: Perf,
    /// Give gdb and lldb the names and C lines of native code.
    #[arg(long)]
    pub(crate) gdb: bool,
}

/// `twinbpf exec`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf exec xdp.bpf.o --packet 0102030405060708090a0b0c0800
  twinbpf exec tc.bpf.o:classify --packet @frame.bin --json
  twinbpf exec tp.bpf.o:on_open --ctx @context.bin --trace
  twinbpf exec uprobe.bpf.o --core core   arguments and memory of a process that crashed
  twinbpf exec sum.bpf.o --repeat 1000

A program in perf's notation (exec=./tgt;wk=work* n) gets its arguments from the registers of
--ctx or --core, by the code that fetches them in the kernel: that of the point at the instruction
pointer, or of --point.")]
pub(crate) struct ExecArgs {
    /// Object, and the program in it if there are several.
    #[arg(value_name = "OBJ[:PROG]")]
    pub(crate) program: String,
    /// Bytes of the context: hex digits, or a file.
    #[arg(long, value_name = "HEX|@FILE", conflicts_with = "packet")]
    pub(crate) ctx: Option<String>,
    /// Bytes of a packet, around which the context of XDP and TC programs is built.
    #[arg(long, value_name = "HEX|@FILE")]
    pub(crate) packet: Option<String>,
    /// Run it this often, each time on the same input, and print the mean duration.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Print every instruction with the registers it changed, to standard error.
    #[arg(long)]
    pub(crate) trace: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// `twinbpf check`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf check tool.bpf.o
  twinbpf check tool.bpf.o --kernel       whether its programs link for the running kernel; needs no privilege
  twinbpf check tool.bpf.o --btf vmlinux-6.1.btf --kconfig config-6.1")]
pub(crate) struct CheckArgs {
    /// Objects made by clang; perf's terms may follow each.
    #[arg(required = true, value_name = "OBJ")]
    pub(crate) objects: Vec<PathBuf>,
    /// Print one JSON object per line and object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Link programs for the kernel, the running one or that of --btf and --kconfig, and print what it lacks.
    #[arg(long)]
    pub(crate) kernel: bool,
    #[command(flatten)]
    pub(crate) target: KernelArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// `twinbpf disasm`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf disasm tool.bpf.o               every program, with all it calls
  twinbpf disasm tool.bpf.o:main --source with the C lines
  twinbpf disasm tool.bpf.o:main --native what it is compiled to")]
pub(crate) struct DisasmArgs {
    /// Object, and the program in it if not all are wanted.
    #[arg(value_name = "OBJ[:PROG]")]
    pub(crate) program: String,
    /// Print C lines between the instructions.
    #[arg(long)]
    pub(crate) source: bool,
    /// Print native code as the compiler of `--engine jit` makes it, function by function.
    #[arg(long, conflicts_with = "source")]
    pub(crate) native: bool,
    /// In place of the code, print how often each function has each superinstruction of the interpreter; with `--native`, what
    /// each pass of the optimiser changed in it and how long that took.
    #[arg(long, conflicts_with = "source")]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) compile: CompileArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// `500ms`, `2s`, `1m`, `3` (seconds), `0.5`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit '{unit}'; use us, ms, s, m or h")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("'{digits}' is not a number"))?;
    let duration = Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())?;
    if duration.is_zero() {
        return Err("the time must be above zero".to_owned());
    }
    Ok(duration)
}

fn engine(text: &str) -> Result<EngineKind, String> {
    match text {
        "auto" => Ok(EngineKind::Auto),
        "interp" => Ok(EngineKind::Interp),
        "jit" => Ok(EngineKind::Jit),
        other => Err(format!("'{other}' is none of auto, interp and jit")),
    }
}

fn opt_level(text: &str) -> Result<OptLevel, String> {
    match text {
        "none" => Ok(OptLevel::None),
        "speed" => Ok(OptLevel::Speed),
        other => Err(format!("'{other}' is neither none nor speed")),
    }
}

fn compile_limit(text: &str) -> Result<CompileLimits, String> {
    match text {
        "none" => Ok(CompileLimits::NONE),
        number => match number.parse() {
            Ok(work) => Ok(CompileLimits::NONE.work(work)),
            Err(_) => Err(format!("'{number}' is neither a number nor none")),
        },
    }
}

fn bounds(text: &str) -> Result<Bounds, String> {
    match text {
        "exact" => Ok(Bounds::Exact),
        "arena" => Ok(Bounds::Arena),
        other => Err(format!("'{other}' is neither exact nor arena")),
    }
}

fn driver(text: &str) -> Result<Driver, String> {
    match text {
        "step" => Ok(Driver::Step),
        "threaded" => Ok(Driver::Threaded),
        other => Err(format!("'{other}' is neither step nor threaded")),
    }
}

/// Splits `OBJ[:PROG]`. A file of that full name wins, so that paths may hold colons.
pub(crate) fn split_program(text: &str) -> (PathBuf, Option<&str>) {
    if PathBuf::from(text).exists() {
        return (PathBuf::from(text), None);
    }
    match text.rsplit_once(':') {
        Some((object, program)) if !object.is_empty() && !program.is_empty() => (PathBuf::from(object), Some(program)),
        _ => (PathBuf::from(text), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert!(duration("3parsecs").is_err());
        assert!(duration("-1s").is_err());
        assert!(duration("ms").is_err());
        assert!(duration("0").is_err());
    }

    #[test]
    fn a_program_follows_the_last_colon() {
        assert_eq!(split_program("a:b.o:main"), (PathBuf::from("a:b.o"), Some("main")));
        assert_eq!(split_program("a.o"), (PathBuf::from("a.o"), None));
        assert_eq!(split_program("a.o:"), (PathBuf::from("a.o:"), None));
    }
}
