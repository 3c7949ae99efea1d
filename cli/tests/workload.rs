//! How a run ends: the workload's status, signals while it runs, output that is not read.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, pipe};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};

use common::{corpus, run, stderr, twinbpf};

const HELLO: &str = "scripts/hello.bpf.o";
/// The last line of its END.
const HELLO_END: &str = "END: the sum is 55\n";

/// Status of a run with this shell command as workload; END must have run.
fn shell(command: &str) -> Option<i32> {
    let output = run(&["run", HELLO, "--", "sh", "-c", command]);
    assert!(String::from_utf8_lossy(&output.stdout).ends_with(HELLO_END), "{command}: {output:?}");
    output.status.code()
}

#[test]
fn the_status_is_the_workloads() {
    assert_eq!(shell("exit 0"), Some(0));
    assert_eq!(shell("exit 7"), Some(7));
    assert_eq!(shell("exit 125"), Some(125));
}

#[test]
fn a_killed_workload_is_128_and_the_signal() {
    assert_eq!(shell("kill -KILL $$"), Some(128 + 9));
    assert_eq!(shell("kill -TERM $$"), Some(128 + 15));
    // Nothing of us is inherited that a shell would not have: a broken pipe kills it.
    assert_eq!(shell("kill -PIPE $$"), Some(128 + 13));
}

#[test]
fn a_workload_that_cannot_start_is_our_error() {
    for workload in ["/no/such/command", "/", ""] {
        let output = run(&["run", HELLO, "--", workload]);
        assert_eq!(output.status.code(), Some(125), "{workload}");
        let text = stderr(&output);
        assert!(text.starts_with(&format!("twinbpf: cannot run the workload '{workload}': ")), "{text}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("END"), "END is not for a run that never was");
    }
}

#[test]
fn no_workload_after_the_dashes_is_no_workload() {
    let output = run(&["run", HELLO, "--"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with(HELLO_END));
}

#[test]
fn a_workload_without_dashes_is_explained() {
    let output = run(&["run", HELLO, "make"]);
    assert_eq!(output.status.code(), Some(125));
    let wanted = "twinbpf: cannot read make: there is no such file; a workload follows two dashes: run OBJ -- CMD\n";
    assert_eq!(stderr(&output), wanted);
    assert!(output.stdout.is_empty());
}

#[test]
fn files_without_end_are_refused() {
    for args in [&["check", "/dev/zero"][..], &["exec", "scripts/hello.bpf.o:END", "--ctx", "@/dev/zero"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(stderr(&output).contains("/dev/zero is too large: "), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_wrong_command_line_is_our_error() {
    for args in [&["run"][..], &["frobnicate"], &["run", "--no-such", HELLO], &[], &["run", HELLO, "--timeout", "3x"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
    for args in [&["--help"][..], &["run", "-h"], &["--version"], &["help", "exec"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stdout).contains("disasm"), "{shell}");
    }
}

#[test]
fn completions_are_installed_where_shells_look() {
    let prefix = tempfile::tempdir().expect("a folder");
    let path = prefix.path().to_str().expect("UTF-8");
    let output = run(&["completions", "--install", path]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    for (shell, place) in [
        ("bash", "bash-completion/completions/twinbpf"),
        ("zsh", "zsh/site-functions/_twinbpf"),
        ("fish", "fish/vendor_completions.d/twinbpf.fish"),
    ] {
        let script = std::fs::read(prefix.path().join("share").join(place)).expect(place);
        assert_eq!(script, run(&["completions", shell]).stdout, "{shell}");
    }
    for args in [&["completions"][..], &["completions", "zsh", "--install", path]] {
        assert_eq!(run(args).status.code(), Some(125), "{args:?}");
    }
}

/// Names of the subcommands, as the help lists them.
fn subcommands() -> Vec<String> {
    let help = String::from_utf8(run(&["--help"]).stdout).expect("UTF-8");
    let list = help.split("Commands:\n").nth(1).expect("a list").split("\n\n").next().expect("its lines");
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn pages_and_completions_name_each_subcommand() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("share/man/man1");
    let output = run(&["man", "--out", pages.to_str().expect("UTF-8")]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let main = page("twinbpf.1");
    assert_eq!(String::from_utf8_lossy(&run(&["man"]).stdout), main);
    let scripts = ["bash", "zsh", "fish"].map(|shell| String::from_utf8(run(&["completions", shell]).stdout).unwrap());
    let names = subcommands();
    assert!(names.len() > 12 && names.iter().any(|name| name == "man"), "{names:?}");
    for name in names {
        assert!(main.contains(&format!("twinbpf\\-{name}(1)")), "twinbpf.1 has no {name}");
        let own = page(&format!("twinbpf-{name}.1"));
        assert!(own.contains(".SH SYNOPSIS") && own.contains(".SH DESCRIPTION"), "{name}: {own}");
        assert!(scripts.iter().all(|script| script.contains(&name)), "{name}");
    }
    // Examples are in lines of their own.
    assert!(page("twinbpf-run.1").contains("\n.nf\n") && page("twinbpf-map-dump.1").contains(".SH OPTIONS"));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    // A device that is always full.
    let commands: &[&[&str]] = &[&["run", HELLO], &["exec", "scripts/hello.bpf.o:END"], &["check", HELLO]];
    for args in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = twinbpf().current_dir(corpus()).args(*args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(stderr(&output).contains("No space left on device"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_reader_that_goes_ends_the_run_by_sigpipe() {
    let commands: &[&[&str]] = &[
        &["run", "faults/endless_end.bpf.o"],
        &["exec", "scripts/hello.bpf.o:BEGIN", "--json"],
        &["check", HELLO],
        &["disasm", HELLO],
        &["completions", "bash"],
        &["man"],
    ];
    for args in commands {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = twinbpf().current_dir(corpus()).args(*args).stdout(writer).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{args:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {}", stderr(&output));
    }
}

/// A run in a process group of its own, as a terminal starts it.
struct Session {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Session {
    fn start(args: &[&str]) -> Session {
        let mut command = twinbpf();
        command.current_dir(corpus()).arg("run").args(args).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Session { child, lines }
    }

    /// Reads up to this line.
    fn wait_for(&mut self, wanted: &str) {
        let mut line = String::new();
        while line.trim_end() != wanted {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "no line '{wanted}'");
        }
    }

    fn kill(&self, everybody: bool, signal: i32) {
        let pid = self.child.id() as i32;
        // SAFETY: kill(2) takes two integers and touches no memory of ours.
        let result = unsafe { libc::kill(if everybody { -pid } else { pid }, signal) };
        assert_eq!(result, 0);
    }

    /// What was printed until the end, and how it ended.
    fn end(mut self) -> (String, ExitStatus) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap())
    }
}

/// Says a word when it runs and then waits.
const WAITS: [&str; 3] = ["sh", "-c", "echo running; exec sleep 60"];

#[test]
fn ctrl_c_ends_the_workload_and_end_still_runs() {
    let mut session = Session::start(&[&[HELLO, "--"][..], &WAITS].concat());
    session.wait_for("running");
    session.kill(true, libc::SIGINT);
    let (rest, status) = session.end();
    assert!(rest.ends_with(HELLO_END), "{rest}");
    assert_eq!(status.code(), Some(128 + libc::SIGINT));
}

#[test]
fn sigterm_is_passed_on_and_end_still_runs() {
    let mut session = Session::start(&[&[HELLO, "--"][..], &WAITS].concat());
    session.wait_for("running");
    session.kill(false, libc::SIGTERM);
    let (rest, status) = session.end();
    assert!(rest.ends_with(HELLO_END), "{rest}");
    assert_eq!(status.code(), Some(128 + libc::SIGTERM));
}

#[test]
fn ctrl_c_stops_an_end_that_does_not_end() {
    let mut session = Session::start(&["faults/endless_end.bpf.o", "--", "true"]);
    session.wait_for("again");
    session.kill(true, libc::SIGINT);
    let (_, status) = session.end();
    assert_eq!(status.signal(), Some(libc::SIGINT));
}
