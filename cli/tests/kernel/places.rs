//! `twinbpf list`: attach points of the running kernel and of files, against their sources.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use tempfile::tempdir;

use crate::common::{installed, run, skip, stderr};
use crate::rig::{kernel, kernel_and, program, said, tool, words};
use crate::tools::PROBE;

fn listed(pattern: &str) -> BTreeSet<String> {
    said(&run(&["list", pattern])).lines().map(str::to_owned).collect()
}

pub(crate) fn tracepoints_are_those_of_bpftrace() {
    if !kernel() {
        return;
    }
    let ours = listed("tp");
    assert!(ours.contains("tp/sched/sched_switch") && ours.contains("tp/raw_syscalls/sys_enter"), "{ours:?}");
    assert_eq!(listed("tracepoint:sched:sched_switch").len(), 1);
    if !installed("bpftrace") {
        return skip("bpftrace is not installed, so that there is nothing to compare with");
    }
    let script =
        "[ -d /sys/kernel/debug/tracing ] || mount -t debugfs none /sys/kernel/debug; exec bpftrace -l 'tracepoint:*'";
    let theirs = Command::new("unshare").args(["--mount", "sh", "-c", script]).output().unwrap();
    let theirs: BTreeSet<String> = String::from_utf8_lossy(&theirs.stdout)
        .lines()
        .filter_map(|line| Some(format!("tp/{}", line.strip_prefix("tracepoint:")?.replace(':', "/"))))
        .collect();
    assert_eq!(ours.difference(&theirs).collect::<Vec<_>>(), Vec::<&String>::new());
    // They list events that only ftrace itself can have.
    let more: Vec<&String> = theirs.difference(&ours).filter(|name| !name.starts_with("tp/ftrace/")).collect();
    assert_eq!(more, Vec::<&String>::new());
}

pub(crate) fn arguments_are_named() {
    if !kernel() {
        return;
    }
    let text = said(&run(&["list", "-v", "tp/sched/sched_switch"]));
    assert!(text.lines().any(|line| line.trim() == "pid_t prev_pid"), "{text}");
    let typed = run(&["list", "-v", "--json", "tp_btf/sched_switch"]);
    let text = said(&typed);
    assert!(text.starts_with(r#"{"arguments":["#) && text.contains(r#""section":"tp_btf/sched_switch""#), "{text}");
    assert!(text.contains("struct task_struct *"), "{text}");
}

pub(crate) fn missing_things_are_reported() {
    if !kernel() {
        return;
    }
    let all = run(&["list"]);
    let (text, left) = (said(&all), stderr(&all));
    for kind in ["tp", "raw_tp", "tp_btf", "kprobe", "fentry", "iter", "lsm", "perf_event", "xdp", "cgroup"] {
        let listed = text.lines().any(|line| line.split(['/', ' ']).next() == Some(kind));
        let reported = left.contains(&format!("twinbpf: left out: {kind}"));
        assert!(listed || reported, "nothing of {kind} in {left}");
    }
    assert!(text.lines().any(|line| line == "iter/task") && text.contains("--attach PROG=cpu-clock:99"), "{left}");
    let none = run(&["list", "no_place_has_this_name"]);
    assert_eq!((none.status.code(), stderr(&none).contains("nothing matches")), (Some(1), true));
    let usdt = run(&["list", "usdt"]);
    assert!(stderr(&usdt).contains("say in which one, usdt:FILE:*"), "{usdt:?}");
}

pub(crate) fn a_program_is_attached_to_all_places_of_a_pattern() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let source = "#include <sys/syscall.h>\n#include <unistd.h>
        __attribute__((noinline)) void work_a(void) { __asm__ volatile(\"\"); }
        __attribute__((noinline)) void work_b(void) { __asm__ volatile(\"\"); }
        __attribute__((noinline)) void rest(void) { __asm__ volatile(\"\"); }
        int main(void) {
            for (int i = 0; i < 10; i++) {
                syscall(SYS_getppid), syscall(SYS_getpgid, 0), syscall(SYS_gettid);
                work_a(), work_b(), rest();
            }
        }";
    let path = program(folder.path(), "twplaces", source);
    let path = path.to_str().unwrap();
    let place = |program: &str, function: &str| format!("{program}={path}:{function}");
    let places = [place("patterned", "work_?"), place("named", "work_b"), place("named", "rest")];
    let attach: Vec<&str> = places.iter().flat_map(|place| ["--attach", place]).collect();
    // Other processes may call getpgid and getppid.
    let text = said(&tool("../sessions/places", &attach, &[path]));
    let words: Vec<&str> = text.split_whitespace().collect();
    let ["calls", calls, "functions", "20", "several", "20"] = words[..] else { panic!("{text}") };
    assert!(calls.parse::<u32>().unwrap() >= 10, "{text}");
    let plan = said(&tool("../sessions/places", &["--dry-run"], &[]));
    assert!(plan.contains("tracepoint syscalls:sys_enter_getpgid and 1 more"), "{plan}");
    let refused = tool("../sessions/places", &["--attach", &place("named", "nothing_*")], &[path]);
    assert!(stderr(&refused).contains("nothing matches"), "{}", stderr(&refused));
}

pub(crate) fn places_in_a_file_share_a_link() {
    if !kernel() {
        return;
    }
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    if !types.windows(21).any(|name| name == b"bpf_uprobe_multi_link") {
        return skip("this kernel has no links to several places in a file (6.6)");
    }
    let folder = tempdir().unwrap();
    let path = program(folder.path(), "twlist", PROBE);
    let [step, main] = ["step", "main"].map(|function| format!("named={}:{function}", path.display()));
    let attach = ["--attach", &step, "--attach", &main];
    // As a child of the session, a workload sees what that has open.
    let links = "cat /proc/$PPID/fdinfo/* 2>/dev/null | grep -A4 uprobe_multi; true";
    let text = said(&tool("../sessions/places", &attach, &["sh", "-c", links]));
    assert_eq!(text.matches("uprobe_multi").count(), 1, "{text}");
    assert_eq!(words(&text, "uprobe_cnt:"), ["uprobe_cnt:", "2"], "{text}");
    let events = [&attach[..], &["--no-count-loss"]].concat();
    let text = said(&tool("../sessions/places", &events, &["sh", "-c", links]));
    assert!(!text.contains("uprobe_multi"), "as libbpf loads and attaches it: {text}");
}

/// Two functions that the kernel probes, and one that it does not.
const LOCKED: &str = r#"
__asm__(".globl work_c\n.type work_c, @function\nwork_c: lock decl (%rdi)\nret\n.size work_c, . - work_c\n");
void work_c(int *left);
__attribute__((noinline)) void work_a(int *left) { ++*left; }
__attribute__((noinline)) void work_b(int *left) { ++*left; }
int main(void)
{
	int left = 0;

	work_a(&left);
	work_b(&left);
	work_c(&left);
	return left - 1;
}
"#;

pub(crate) fn functions_that_cannot_be_probed_are_left_out_of_a_pattern() {
    if !cfg!(target_arch = "x86_64") || !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let path = program(folder.path(), "locked", LOCKED);
    let path = path.display();
    for section in ["uprobe", "uretprobe", "uprobe.multi"] {
        let text = format!("{section}/{path}:work_* {{ count(&calls); }}");
        let output = run(&["run", "-e", &text, "--", &path.to_string()]);
        assert_eq!(said(&output), "@calls: 2\n", "{section}");
        let left = "work_*: work_c is left out: it begins with an instruction with a lock prefix, which the kernel does not probe";
        assert!(stderr(&output).contains(left), "{section}: {}", stderr(&output));
        let none = format!("{section}/{path}:work_c* {{ count(&calls); }}");
        let output = run(&["run", "-e", &none, "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{section}: {output:?}");
    }
}

pub(crate) fn a_terminal_sees_how_far_places_are() {
    if !kernel_and(&["script"]) {
        return;
    }
    let program = "tp/syscalls/sys_enter_*at { count(&calls, pid()); }";
    let run = |end: &str| {
        let line = format!("{} run -e '{program}' -- true {end}", env!("CARGO_BIN_EXE_twinbpf"));
        let output = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
        said(&output)
    };
    let text = run("");
    let (line, rest) = text.rsplit_once("\r\x1b[K").unwrap();
    let last = line.rsplit("\r\x1b[K").next().unwrap();
    let words: Vec<&str> = last.split(' ').collect();
    let ["twinbpf:", "detaching", done, "of", all, "places"] = words[..] else { panic!("{last:?}") };
    let (done, all): (usize, usize) = (done.parse().unwrap(), all.parse().unwrap());
    assert!(0 < done && done <= all && all > 10, "{text:?}");
    // The line is gone when the maps are printed.
    assert!(rest.starts_with("@calls["), "{text:?}");
    // No one needs it in a file.
    let text = run("2>&1 | cat");
    assert!(!text.contains("places"), "{text:?}");
}

pub(crate) fn programs_of_userspace_have_functions_and_static_probes() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let path = program(folder.path(), "twlist", PROBE);
    let path = path.to_str().unwrap();
    let text = said(&run(&["list", "-v", path]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&format!("uprobe/{path}:step").as_str()), "{text}");
    let probe = lines.iter().position(|line| *line == format!("usdt/{path}:twin:step")).expect("the static probe");
    assert!(lines[probe + 1].trim().starts_with("-4@"), "{text}");
    assert_eq!(listed(&format!("usdt:{path}:*")).len(), 1);
    assert_eq!(listed(&format!("uprobe/{path}:st*p")).len(), 1);
}
