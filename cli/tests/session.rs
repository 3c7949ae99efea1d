//! Sessions without the kernel: timers, events, signals, options; and what of them every user sees.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;

use common::{run, stderr};
use tempfile::TempDir;

const TIMER: &str = "scripts/timer.bpf.o";

#[test]
fn timers_and_events_run_until_exit() {
    let output = run(&["run", "--mode", "user", TIMER]);
    let text = String::from_utf8_lossy(&output.stdout);
    let wanted = "BEGIN\ntick 0 of 4 bytes\ntick 1 of 4 bytes\ntick 2 of 4 bytes\nEND after 3\n";
    assert_eq!((text.as_ref(), output.status.code()), (wanted, Some(3)), "{}", stderr(&output));
}

#[test]
fn exit_in_a_timer_ends_the_workload() {
    let output = run(&["run", TIMER, "--", "sleep", "60"]);
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("END after 3\n"));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_workload_that_ends_ends_the_timers() {
    let output = run(&["run", TIMER, "--", "true"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("END after "), "{text}");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
}

#[test]
fn output_goes_to_a_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("out");
    let path = file.to_str().unwrap();
    let output = run(&["run", "scripts/hello.bpf.o", "-o", path, "--", "echo", "workload"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "workload\n");
    let wanted = fs::read_to_string(common::corpus().join("scripts/hello.out")).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), wanted);
    // A session that does not begin leaves the file as it is.
    let output =
        run(&["run", "scripts/hello.bpf.o", "-o", path, "--svg", folder.path().join("none.svg").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), wanted);
    let output = run(&["run", "scripts/hello.bpf.o", "-o", "/no/such/folder/out"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("twinbpf: cannot write /no/such/folder/out: "), "{}", stderr(&output));
}

/// A note beside the trap names the context that a program reads and did not get.
#[test]
fn a_missing_context_is_noted() {
    let note = "twinbpf: note: without --ctx or --packet r1, the program's context, is 0\n";
    let output = run(&["exec", "bench/sieve.bpf.o"]);
    assert!(output.status.code() == Some(125) && stderr(&output).starts_with(note), "{}", stderr(&output));
}

#[test]
fn json_is_an_object_a_line() {
    let output = run(&["run", "--mode", "user", "-f", "json", "--print-maps", "scripts/hello.bpf.o"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let objects: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let printed: String = objects
        .iter()
        .filter(|object| object["type"] == "printf")
        .filter_map(|object| object["data"].as_str())
        .collect();
    assert_eq!(printed, fs::read_to_string(common::corpus().join("scripts/hello.out")).unwrap());
    let maps: Vec<&serde_json::Value> = objects.iter().filter(|object| object["type"] == "map").collect();
    assert_eq!(maps.len(), 1, "{text}");
    assert_eq!(maps[0]["data"]["@squares"]["5"], 25, "{text}");
}

#[test]
fn maps_are_printed_at_the_end() {
    let output = run(&["run", "--print-maps", "scripts/hello.bpf.o"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let hello = fs::read_to_string(common::corpus().join("scripts/hello.out")).unwrap();
    assert!(text.starts_with(&hello), "{text}");
    assert!(text.ends_with("@squares[4]: 16\n@squares[5]: 25\n"), "{text}");
}

#[test]
fn a_dry_run_says_what_would_run_where() {
    let output = run(&["run", "--dry-run", TIMER, "scripts/syscall_counts.bpf.o", "--", "true"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for line in [
        "TIMER                    userspace  as set_timer says",
        "on_tick                  userspace  each record of ticks",
        "count                    kernel     tracepoint raw_syscalls:sys_enter",
        "map counts               kernel",
        "map ticks                userspace",
        "workload: true",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("BEGIN\n") && output.status.code() == Some(0));
}

#[test]
fn programs_for_the_kernel_stay_out_in_user_mode() {
    let output = run(&["run", "--mode", "user", "scripts/syscall_counts.bpf.o"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let wanted = "count (tracepoint/raw_syscalls/sys_enter) does not run: it is for the kernel";
    assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
}

#[test]
fn options_that_cannot_be_met_name_the_program() {
    let cases: &[(&[&str], &str)] = &[
        (&["-p", "1", "scripts/syscall_counts.bpf.o"], "program count (section tracepoint/raw_syscalls/sys_enter): "),
        (&["-p", "1", "scripts/syscall_counts.bpf.o"], "-p cannot limit it"),
        (&["-C", "0", "scripts/syscall_counts.bpf.o"], "-C cannot limit it"),
        (&["-t", "1", "--attach", "called=libc.so.6:malloc", "scripts/calls.bpf.o"], "-t cannot limit it, -p can"),
        (&["--attach", "nobody=x", "scripts/calls.bpf.o"], "--attach nobody: no object has a program of this name"),
        (&["--attach", "called=libc.so.6:no_such", "scripts/calls.bpf.o"], "no function no_such"),
        (&["--attach", "count=no-such-if", "scripts/xdp_count.bpf.o"], "program count (section xdp): "),
        (&["packets/xdp_parse.bpf.o"], "no program that says what to attach it to (--attach"),
        (&["-C", "65535", "scripts/profile.bpf.o"], "there is no CPU 65535; those that run are 0"),
        (&["--attach", "END=lo", "scripts/calls.bpf.o"], "this one runs in userspace"),
        (&["-C", "3-1", "scripts/calls.bpf.o"], "no list of CPUs"),
    ];
    for (args, wanted) in cases {
        let output = run(&[&["run"], *args].concat());
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(stderr(&output).contains(wanted), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_program_that_would_not_run_is_an_error() {
    let output = run(&["run", "sessions/idle.bpf.o"]);
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(125), true));
    let text = stderr(&output);
    let wanted = [
        "program misspelt (section tracepont/syscalls/sys_enter_getppid): its section says nothing of what it is for: \
         the nearest known is tracepoint/syscalls/sys_enter_getppid",
        "program period (section TIMER/xyz): its section says nothing of what it is for: write TIMER/ and a period",
        "program lowercase (section begin): its section says nothing of what it is for: the nearest known is BEGIN",
        "program placeless (section uprobe): it is attached to nothing: say to what with --attach placeless=PLACE",
        "program notation (section wk=work n): ",
        "program unattached (section xdp): it is attached to nothing",
        "program end (section .text): nothing calls it, and it is no entry point, which END would be",
    ];
    for line in wanted {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    // A section that is wrong is shown with a caret below the error.
    let errors = text.lines().filter(|line| line.starts_with("twinbpf: ")).count();
    assert_eq!(errors, wanted.len(), "what says that it is optional is none: {text}");
    let output = run(&["run", "--mode", "user", "sessions/idle.bpf.o"]);
    assert_eq!(output.status.code(), Some(125), "a function that nothing calls is wrong there, too");
    let names = ["misspelt", "period", "lowercase", "placeless", "notation", "unattached"];
    let mut args = vec!["run", "--allow-unattached", "sessions/idle.bpf.o"];
    args.extend(names.iter().flat_map(|name| ["--without", *name]));
    let output = run(&args);
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(0), "BEGIN\n"));
    for name in names {
        let note = format!("note: sessions/idle.bpf.o: {name} (");
        assert!(stderr(&output).contains(&note), "{}", stderr(&output));
    }
    let output = run(&["run", "--without", "nobody", "sessions/idle.bpf.o"]);
    assert!(stderr(&output).contains("--without nobody: no object has a program of this name"), "{output:?}");
}

#[test]
fn a_workload_dies_with_us() {
    use std::io::{BufRead, BufReader};
    let mut command = common::twinbpf();
    command.current_dir(common::corpus()).args(["run", "scripts/hello.bpf.o", "--"]);
    command.args(["sh", "-c", "echo pid $$; exec sleep 60"]).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid = lines.into_iter().find_map(|line| line.strip_prefix("pid ").map(str::to_owned)).unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    let gone = || !fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sleep");
    assert!((0..500).any(|_| gone() || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        false
    }));
}

#[test]
fn histograms_are_drawn() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("charts.svg");
    let path = file.to_str().unwrap();
    let output = run(&["run", "scripts/display.bpf.o", "--svg", path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let picture = fs::read_to_string(&file).unwrap();
    for text in ["<svg ", "Time asleep (us)", "[32, 64)", "@steps [short]", "[20, 30)"] {
        assert!(picture.contains(text), "{text} is not in {picture}");
    }
    // `top` leaves it out.
    assert!(!picture.contains("[long]"), "{picture}");
    let failed = |script: &str, path: &str, why: &str| {
        let output = run(&["run", script, "--svg", path]);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(125), why));
        assert!(output.stdout.is_empty(), "{output:?}");
    };
    let why = "no map is a histogram or prints every interval (MAP_HIST, DISPLAY), and no program calls print_hist()";
    let other = folder.path().join("other.svg").display().to_string();
    failed("scripts/hello.bpf.o", &other, &format!("twinbpf: cannot draw {other}: {why}\n"));
    let why = "No such file or directory (os error 2)";
    failed("scripts/display.bpf.o", "/no/such/x.svg", &format!("twinbpf: cannot write /no/such/x.svg: {why}\n"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
