//! Clean-up of sessions: no program, map or link stays in the kernel, however a session ends.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{corpus, installed, skip, stderr, twinbpf};
use crate::rig::{kernel, kills, tool};

/// Kind and number of what a process holds in the kernel.
fn held(pid: u32) -> BTreeSet<(&'static str, u32)> {
    let mut all = BTreeSet::new();
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return all };
    for text in entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()) {
        for (field, kind) in [("prog_id:", "prog"), ("map_id:", "map"), ("link_id:", "link")] {
            let number = text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok());
            all.extend(number.map(|number| (kind, number)));
        }
    }
    all
}

fn is_there((kind, number): (&str, u32)) -> bool {
    let output = Command::new("bpftool").args([kind, "show", "id", &number.to_string()]).output().unwrap();
    output.status.success()
}

/// Nothing of this is there any more, soon: the kernel frees after a grace period.
fn all_gone(held: &BTreeSet<(&'static str, u32)>) {
    let start = Instant::now();
    while let Some(stays) = held.iter().copied().find(|thing| is_there(*thing)) {
        assert!(start.elapsed() < Duration::from_secs(20), "{stays:?} of {held:?} stays");
        sleep(Duration::from_millis(20));
    }
}

/// What others than descriptors could hold.
fn names() -> Vec<String> {
    let tracing = Path::new("/sys/kernel/tracing");
    let mut all: Vec<String> = ["uprobe_events", "kprobe_events"]
        .into_iter()
        .filter_map(|file| fs::read_to_string(tracing.join(file)).ok())
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.contains("twinbpf"))
        .collect();
    let pins = fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
    all.extend(pins.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    all
}

fn start(args: &[&str]) -> Child {
    let mut command = twinbpf();
    command.current_dir(corpus()).arg("run").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until it holds links: everything is enabled.
fn enabled(child: &Child) -> BTreeSet<(&'static str, u32)> {
    let start = Instant::now();
    loop {
        let held = held(child.id());
        if held.iter().any(|(kind, _)| *kind == "link") {
            return held;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was attached");
        sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

fn ready() -> bool {
    if !kernel() {
        return false;
    }
    if !installed("bpftool") {
        skip("bpftool is not installed");
        return false;
    }
    true
}

pub(crate) fn nothing_stays_of_a_session_that_is_killed() {
    if !ready() {
        return;
    }
    let before = names();
    // How long a session takes until it is enabled, so that the points spread over all of it.
    let begun = Instant::now();
    let mut child = start(&["scripts/opensnoop.bpf.o"]);
    let whole = enabled(&child);
    let time = begun.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    all_gone(&whole);
    // One that ends it in order, and those that do not; nohup and shells have others ignored.
    let signals = [libc::SIGKILL, libc::SIGTERM, libc::SIGKILL, libc::SIGALRM];
    let points = kills(10);
    for point in 0..points {
        let mut target = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = target.id().to_string();
        let args = ["scripts/calls.bpf.o", "--attach", "called=libc.so.6:malloc", "-p", &pid];
        let mut child = start(&args);
        let begun = Instant::now();
        let mut seen = BTreeSet::new();
        while begun.elapsed() < time * point * 10 / (points * 7) {
            seen.extend(held(child.id()));
            sleep(Duration::from_millis(1));
        }
        seen.extend(held(child.id()));
        signal(&child, signals[point as usize % signals.len()]);
        child.wait().unwrap();
        all_gone(&seen);
        let took = begun.elapsed();
        assert_eq!(target.try_wait().unwrap(), None, "the target goes on: point {point}, {took:?}");
        target.kill().unwrap();
        target.wait().unwrap();
    }
    assert_eq!(names(), before);
}

pub(crate) fn ctrl_c_ends_a_session_and_end_runs() {
    if !ready() {
        return;
    }
    let child = start(&["scripts/syscall_counts.bpf.o"]);
    let held = enabled(&child);
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!output.stdout.is_empty(), "END has printed");
    all_gone(&held);
}

pub(crate) fn a_second_ctrl_c_ends_it_at_once() {
    use std::os::unix::process::ExitStatusExt;
    if !ready() {
        return;
    }
    // A workload that ignores SIGINT and SIGTERM.
    let mut child =
        start(&["scripts/syscall_counts.bpf.o", "--", "sh", "-c", "trap '' INT TERM; while :; do sleep 1; done"]);
    let held = enabled(&child);
    signal(&child, libc::SIGINT);
    // A busy machine may handle the first so late that the next counts as the same.
    let ends = |child: &mut Child| {
        sleep(Duration::from_millis(300));
        signal(child, libc::SIGINT);
        sleep(Duration::from_millis(300));
        child.try_wait().unwrap().is_some()
    };
    if !(0..3).any(|_| ends(&mut child)) {
        child.kill().unwrap();
    }
    assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(libc::SIGINT));
    all_gone(&held);
}

pub(crate) fn a_reader_that_goes_ends_it() {
    if !ready() {
        return;
    }
    let mut child = start(&["scripts/opensnoop.bpf.o"]);
    let held = enabled(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    drop(lines);
    let begun = Instant::now();
    let status = loop {
        // Something to print.
        let _ = fs::read("/proc/self/status");
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it goes on without a reader");
        sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(125));
    all_gone(&held);
}

pub(crate) fn a_failing_workload_gives_its_status() {
    if !ready() {
        return;
    }
    for (script, status) in [("exit 7", 7), ("kill -KILL $$", 137)] {
        let output = tool("syscall_counts", &[], &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
    }
    let output = tool("syscall_counts", &[], &["/no/such/command"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty() && stderr(&output).contains("cannot run the workload"), "{output:?}");
}

pub(crate) fn a_missing_probe_is_one_error() {
    if !ready() {
        return;
    }
    let before = names();
    let output = tool("calls", &["--attach", "called=/no/such/file:f"], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    assert!(stderr(&output).contains("program called (section uprobe): there is no file /no/such/file"), "{output:?}");
    assert_eq!(names(), before);
}

/// Congestion control algorithms that TCP can use.
fn congestion_controls() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

pub(crate) fn a_table_of_functions_is_registered_as_long_as_the_session_lasts() {
    if !kernel() {
        return;
    }
    let said = |workload: &[&str]| {
        let output =
            twinbpf().current_dir(corpus()).args(["run", "kernel/congestion.bpf.o", "--"]).args(workload).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    };
    assert!(said(&["cat", "/proc/sys/net/ipv4/tcp_available_congestion_control"]).contains("twinbpf_steady"));
    assert!(!congestion_controls().contains("twinbpf_steady"));
    let mut child = start(&["kernel/congestion.bpf.o", "--", "sh", "-c", "echo on; sleep 60"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line == "on\n" && congestion_controls().contains("twinbpf_steady"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
    let begin = Instant::now();
    while congestion_controls().contains("twinbpf_steady") {
        assert!(begin.elapsed() < Duration::from_secs(20), "it stays");
        sleep(Duration::from_millis(20));
    }
}

/// Maps are pinned when a session has started, and otherwise nothing is left of them.
pub(crate) fn a_session_that_fails_leaves_no_pins() {
    if !kernel() {
        return;
    }
    if !installed("clang-19") {
        return skip("clang-19 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let name = format!("twinbpf_test_{}", std::process::id());
    let pin = Path::new("/sys/fs/bpf").join(&name);
    let source = |returned: &str| {
        format!(
            "#include <twinbpf/trace.h>\nstruct {{ __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4); __type(key, __u64);
             __type(value, __u64); __uint(pinning, 1); }} {name} SEC(\".maps\");
             SEC(\"tp/sched/sched_switch\") int seen(void *c) {{ __u64 k = 1, v = 2; bpf_map_update_elem(&{name}, &k, &v, 0);
             return {returned}; }}\nLICENSE(\"GPL\");\n"
        )
    };
    let run = |file: &str, workload: &str| {
        let mut command = twinbpf();
        command.current_dir(folder.path()).env("XDG_CACHE_HOME", folder.path()).env("TWINBPF_CLANG", "clang-19");
        command.args(["run", file, "--", workload]).output().unwrap()
    };
    fs::write(folder.path().join("good.bpf.c"), source("0")).unwrap();
    fs::write(folder.path().join("bad.bpf.c"), source("*(volatile int *)0")).unwrap();
    for (file, workload) in [("good.bpf.c", "/no/such/command"), ("bad.bpf.c", "true")] {
        let output = run(file, workload);
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        assert!(!pin.exists(), "{file}: {}", stderr(&output));
    }
    let output = run("good.bpf.c", "true");
    let stays = fs::remove_file(&pin);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stays.unwrap();
}
