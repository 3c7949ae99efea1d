//! Program texts (`-e`) beside bpftrace's one-liners: both print the same of a workload.

use tempfile::tempdir;

use crate::common::{installed, skip, twinbpf};
use crate::rig::{bare, bpftrace, kernel};

/// Opens a file, reads it in pieces of 100 to 500 bytes, and calls `getppid` five times.
const WORKLOAD: &str = "
static long call(long number, long a, const void *b, long c) {
    __asm__ volatile(\"syscall\" : \"+a\"(number) : \"D\"(a), \"S\"(b), \"d\"(c) : \"rcx\", \"r11\", \"memory\");
    return number;
}
void _start(void) {
    static char buf[512];
    /* On the stack, whose page is there. */
    volatile char path[] = \"/proc/self/exe\";
    long fd = call(257, -100, (const void *)path, 0);
    for (int i = 1; i <= 5; i++)
        call(0, fd, buf, 100 * i), call(110, 0, 0, 0);
    call(60, 0, 0, 0);
}";

/// Ours, and bpftrace's.
const PAIRS: [(&str, &str); 11] = [
    ("tp/raw_syscalls/sys_enter { count(&_, comm()); }", "tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }"),
    (
        "tp/sched/sched_process_exec { printf(\"%s %s\\n\", comm(), data(filename)); }",
        "tracepoint:sched:sched_process_exec { printf(\"%s %s\\n\", comm, str(args->filename)); }",
    ),
    (
        "tp/syscalls/sys_enter_openat { printf(\"%s %s %d\\n\", comm(), args->filename, args->dfd); }",
        "tracepoint:syscalls:sys_enter_openat { printf(\"%s %s %d\\n\", comm, str(args->filename), args->dfd); }",
    ),
    (
        "tp/syscalls/sys_exit_read { hist(&_, comm(), args->ret); }",
        "tracepoint:syscalls:sys_exit_read { @[comm] = hist(args->ret); }",
    ),
    (
        "tp/syscalls/sys_exit_read { lhist(&_, comm(), args->ret, 0, 1000, 100); }",
        "tracepoint:syscalls:sys_exit_read { @[comm] = lhist(args->ret, 0, 1000, 100); }",
    ),
    (
        "tp/syscalls/sys_exit_read { sum(&_, comm(), args->ret); }",
        "tracepoint:syscalls:sys_exit_read { @[comm] = sum(args->ret); }",
    ),
    (
        "tp/syscalls/sys_exit_read { avg(&_, comm(), args->ret); }",
        "tracepoint:syscalls:sys_exit_read { @[comm] = avg(args->ret); }",
    ),
    (
        "tp/syscalls/sys_exit_read { stats(&_, comm(), args->ret); }",
        "tracepoint:syscalls:sys_exit_read { @[comm] = stats(args->ret); }",
    ),
    (
        "tp/syscalls/sys_exit_read { min(&_, comm(), args->ret); }",
        "tracepoint:syscalls:sys_exit_read { @[comm] = min(args->ret); }",
    ),
    (
        "tp/syscalls/sys_exit_read { max(&_, comm(), args->ret); }",
        "tracepoint:syscalls:sys_exit_read { @[comm] = max(args->ret); }",
    ),
    (
        "tp/syscalls/sys_exit_read { count(&_, KEY(comm(), args->ret)); }",
        "tracepoint:syscalls:sys_exit_read { @[comm, args->ret] = count(); }",
    ),
];

/// Lines about the workload, and of histograms those up to the next empty one; in order, as ties may be sorted otherwise.
fn about(text: &str) -> Vec<String> {
    let (mut lines, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        inside = line.contains("twone") || inside && line.starts_with('[');
        if inside {
            lines.push(line.trim_end().to_owned());
        }
    }
    lines.sort();
    lines
}

pub(crate) fn texts_print_what_one_liners_print() {
    if !installed("clang-19") {
        return skip("clang-19 is not installed, so that no text can be compiled");
    }
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = bare(folder.path(), "twone", WORKLOAD).display().to_string();
    for (text, one_liner) in PAIRS {
        let mut command = twinbpf();
        command.env("XDG_CACHE_HOME", folder.path().join("cache")).env("TWINBPF_CLANG", "clang-19");
        let output = command.args(["run", "-e", text, "--", &workload]).output().unwrap();
        assert!(output.status.success(), "{text}: {output:?}");
        let ours = about(&String::from_utf8_lossy(&output.stdout));
        assert!(!ours.is_empty(), "{text}: {output:?}");
        let Some(theirs) = bpftrace(one_liner, &workload) else { return };
        assert_eq!(ours, about(&theirs), "{text}\n{}\n{theirs}", String::from_utf8_lossy(&output.stdout));
    }
}
