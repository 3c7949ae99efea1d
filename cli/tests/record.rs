//! `twinbpf record`: perf's file has the samples that programs kept, other recordings lose none, and nothing stays.

mod common;
#[path = "record/killed.rs"]
mod killed;
#[allow(dead_code, reason = "the sessions' tests use the rest")]
#[path = "kernel/rig.rs"]
mod rig;
#[allow(dead_code, reason = "the sessions' tests use the rest")]
#[path = "kernel/tutorial.rs"]
mod tutorial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::{TempDir, tempdir};

use common::{harness, installed, skip, stderr, twinbpf};
use rig::{bare, kernel_and};

harness::tests! {
    the_page_about_recording_prints_what_it_says,
    samples_are_kept_by_their_arguments,
    the_command_of_2015_records,
    events_may_have_names_that_mean_something_to_perf,
    other_recordings_lose_nothing,
    two_recordings_do_not_meet,
    children_are_recorded_unless_perf_is_told_otherwise,
    a_running_process_is_recorded_to_its_end,
    records_of_programs_are_in_the_file,
    strings_and_returns_decide_too,
    terms_are_for_the_events_of_their_object,
    impossible_recordings_are_errors,
    an_event_for_records_alone_is_recorded,
    killed::nothing_stays_of_a_recording_that_is_killed,
}

fn the_page_about_recording_prints_what_it_says() {
    if !installed("perf") {
        return skip("perf is not installed");
    }
    tutorial::page_prints_what_it_says("record.md", 8);
}

/// Calls `work` a hundred times, `other` as often with its argument elsewhere, and writes 1 to 50 bytes.
const TARGET: &str = r#"
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define FUNC __attribute__((noinline, noipa))
FUNC void work(const char *s, int n) { asm volatile("" :: "r"(s), "r"(n)); }
FUNC void other(const char *s, long x, int n) { asm volatile("" :: "r"(s), "r"(x), "r"(n)); }
FUNC int back(const char *name) { asm volatile("" :: "r"(name)); return name[0] - 'a'; }
static void all(void)
{
	char bytes[50] = { 0 };
	int null = open("/dev/null", O_WRONLY);
	for (int i = 0; i < 100; i++) {
		work("one", i);
		other("two", 7, i + 1);
	}
	for (int i = 1; i <= 50; i++)
		write(null, bytes, i);
	back("alpha");
	back("beta");
}
int main(int argc, char **argv)
{
	all();
	for (int i = 1; i < argc; i++)
		if (!fork()) {
			all();
			_exit(0);
		}
	while (wait(0) > 0)
		;
	return 7;
}
"#;

const TOOL: &str = r#"
#include <twinbpf/trace.h>
SEC("exec=./tgt;wk=work n")
int tens(void *ctx, int err, int n) { return n % 10 == 0; }
SEC("exec=./tgt;ot=other n")
int high(void *ctx, int err, int n) { return n > 98; }
struct write { long common, number, fd, bytes, count; };
SEC("tp/syscalls/sys_enter_write")
int large(struct write *ctx) { return ctx->count > 45; }
LICENSE("GPL");
"#;

/// A folder with the target and tools; `None` where something is missing, which it says.
fn folder(tools: &[(&str, &str)]) -> Option<TempDir> {
    if !kernel_and(&["clang-19", "gcc", "perf"]) {
        return None;
    }
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("tgt.c"), TARGET).unwrap();
    let mut gcc = Command::new("gcc");
    assert!(gcc.args(["-g", "-O2", "-o", "tgt", "tgt.c"]).current_dir(&folder).status().unwrap().success());
    for (name, source) in tools {
        fs::write(path(name), source).unwrap();
    }
    Some(folder)
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = twinbpf();
    command.current_dir(folder).args(args);
    command
}

fn record(folder: &Path, args: &[&str]) -> Output {
    command(folder, &[&["record"], args].concat()).output().unwrap()
}

/// The samples in a file: event without its group, and what it recorded.
fn samples(folder: &Path, file: &str) -> Vec<(String, String)> {
    let mut perf = Command::new("perf");
    let output = perf.args(["script", "-F", "event,trace", "-i", file]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let sample = |line: &str| {
        let (event, rest) = line.trim().split_once(": ").expect("an event and its fields");
        (event.rsplit(':').next().unwrap_or_default().to_owned(), rest.to_owned())
    };
    text.lines().filter(|line| line.contains(": ")).map(sample).collect()
}

/// What follows a mark in each sample of an event.
fn fields(all: &[(String, String)], event: &str, mark: &str) -> Vec<String> {
    let of_event = all.iter().filter(|(name, _)| name == event);
    let field = |text: &str| Some(text.split_once(mark)?.1.split([' ', ',']).next()?.to_owned());
    of_event.map(|(_, text)| field(text).unwrap_or_else(|| panic!("no {mark} in {text}"))).collect()
}

fn numbers(range: impl Iterator<Item = i32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// The line in which it is said what a program decided.
fn decided(output: &Output, program: &str) -> String {
    let text = stderr(output);
    let line = text.lines().find(|line| line.contains(&format!(" {program}: ")));
    line.unwrap_or_else(|| panic!("nothing of {program} in\n{text}")).to_owned()
}

/// The probe events that are there on files of a folder.
fn events(folder: &Path) -> String {
    let text = fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap();
    let folder = folder.to_str().unwrap();
    text.lines().filter(|line| line.contains(folder)).collect::<Vec<_>>().join("\n")
}

fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        sleep(Duration::from_millis(10));
    }
}

fn samples_are_kept_by_their_arguments() {
    let Some(folder) = folder(&[("tool.bpf.c", TOOL)]) else { return };
    let folder = folder.path();
    let output = record(folder, &["-e", "tool.bpf.c", "--", "./tgt"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let all = samples(folder, "perf.data");
    assert_eq!(fields(&all, "wk", " n="), numbers((0..100).step_by(10)));
    assert_eq!(fields(&all, "ot", " n="), ["99", "100"]);
    assert_eq!(
        fields(&all, "sys_enter_write", "count: "),
        (46..51).map(|count| format!("{count:#010x}")).collect::<Vec<_>>()
    );
    assert_eq!(all.len(), 17);
    assert_eq!(decided(&output, "tens"), "twinbpf: tens: 10 samples kept, 90 dropped");
    assert_eq!(decided(&output, "high"), "twinbpf: high: 2 samples kept, 98 dropped");
    assert_eq!(decided(&output, "large"), "twinbpf: large: 5 samples kept, 45 dropped");
    let mut perf = Command::new("perf");
    let report = perf.args(["report", "--stdio", "-i", "perf.data"]).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.status.success() && text.contains("tgt") && text.contains(":wk'"), "{report:?}");
    assert_eq!(events(folder), "");
}

fn the_command_of_2015_records() {
    // perf's own writes would be samples, which it would write.
    let tool = TOOL.replace("sys_enter_write", "sys_enter_getpgid").replace("ctx->count > 45", "1");
    let Some(folder) = folder(&[("x.bpf.c", &tool)]) else { return };
    let folder = folder.path();
    let object = twinbpf().current_dir(folder).args(["record", "--dry-run", "--object", "x.bpf.c"]).output().unwrap();
    assert!(object.status.success(), "{object:?}");
    let args = ["bpf", "record", "--object", "x.bpf.c", "--", "-a", "-g", "sh", "-c", "./tgt"];
    let output = command(folder, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = stderr(&output);
    let warning = "twinbpf: warning: every process is recorded: samples of syscalls:sys_enter_getpgid that programs drop are \
                   missing in other recordings, too";
    assert!(text.lines().any(|line| line == warning), "{text}");
    assert_eq!(decided(&output, "tens"), "twinbpf: tens: 10 samples kept, 90 dropped");
    assert_eq!(fields(&samples(folder, "perf.data"), "wk", " n=").len(), 10);
}

/// A program without a library that asks for its group a thousand times, after a while.
fn asker(folder: &Path) -> PathBuf {
    bare(
        folder,
        "asker",
        "static long call(long n, long a, long b) { long r; asm volatile(\"syscall\" : \"=a\"(r) : \"0\"(n), \"D\"(a), \
         \"S\"(b) : \"rcx\", \"r11\", \"memory\"); return r; }\n\
         void _start(void) { long half[2] = { 0, 500000000 }; call(35, (long)half, 0);\n\
         for (int i = 0; i < 1000; i++) call(121, 0, 0);\n call(35, (long)half, 0); call(231, 0, 0); }\n",
    )
}

const ASKED: &str = "syscalls:sys_enter_getpgid";

/// A perf that records a program of its own, meanwhile.
fn other(folder: &Path, file: &str) -> Child {
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", ASKED, "-o", file, "./asker"]).current_dir(folder).spawn().unwrap()
}

fn other_recordings_lose_nothing() {
    let tool = "#include <twinbpf/trace.h>\nSEC(\"tp/syscalls/sys_enter_getpgid\") int none(void *ctx) { return 0; }\n\
                LICENSE(\"GPL\");\n";
    let Some(folder) = folder(&[("none.bpf.c", tool)]) else { return };
    let folder = folder.path();
    asker(folder);
    // The cache makes the second start quick, so that all of them are at work when the others ask.
    assert!(twinbpf().current_dir(folder).args(["check", "none.bpf.c"]).output().unwrap().status.success());
    for (name, args, kept) in [
        ("recorded", &["record", "-e", "none.bpf.c", "--", "sh", "-c", "./asker; sleep 2"][..], 1000),
        ("looking", &["run", "none.bpf.c", "--", "sleep", "3"], 1000),
        ("filtering", &["run", "--filter", "none.bpf.c", "--", "sleep", "3"], 0),
    ] {
        let mut child = command(folder, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        soon("it is not attached", || {
            let held = fs::read_dir(format!("/proc/{}/fdinfo", child.id())).into_iter().flatten().flatten();
            held.into_iter().any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text.contains("link_id:")))
        });
        sleep(Duration::from_millis(200));
        assert!(other(folder, name).wait().unwrap().success());
        assert!(child.wait().unwrap().success());
        assert_eq!(samples(folder, name).len(), kept, "{name}");
    }
    assert_eq!(samples(folder, "perf.data").len(), 0);
}

fn two_recordings_do_not_meet() {
    let half = |rest| TOOL.replace("n % 10 == 0", &format!("n % 2 == {rest}"));
    let (even, odd) = (half(0), half(1));
    let Some(folder) = folder(&[("even.bpf.c", &even), ("odd.bpf.c", &odd)]) else { return };
    let folder = folder.path();
    let start = |tool: &str, file: &str| {
        let args = ["record", "-e", tool, "-o", file, "--", "sh", "-c", "sleep 1; ./tgt; sleep 1"];
        command(folder, &args).stderr(Stdio::null()).spawn().unwrap()
    };
    let both = [start("even.bpf.c", "even"), start("odd.bpf.c", "odd")];
    for mut child in both {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fields(&samples(folder, "even"), "wk", " n="), numbers((0..100).step_by(2)));
    assert_eq!(fields(&samples(folder, "odd"), "wk", " n="), numbers((1..100).step_by(2)));
}

fn children_are_recorded_unless_perf_is_told_otherwise() {
    let Some(folder) = folder(&[("tool.bpf.c", TOOL)]) else { return };
    let folder = folder.path();
    for (words, times) in [(&["./tgt", "x", "y"][..], 3), (&["-i", "./tgt", "x", "y"], 1)] {
        let output = record(folder, &[&["-e", "tool.bpf.c", "--"], words].concat());
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let all = samples(folder, "perf.data");
        assert_eq!((fields(&all, "wk", " n=").len(), fields(&all, "ot", " n=").len()), (10 * times, 2 * times));
        assert_eq!(fields(&all, "sys_enter_write", "count: ").len(), 5 * times);
        let words = decided(&output, "large");
        assert_eq!(words, format!("twinbpf: large: {} samples kept, {} dropped", 5 * times, 45 * times));
    }
}

fn a_running_process_is_recorded_to_its_end() {
    let Some(folder) = folder(&[("tool.bpf.c", TOOL)]) else { return };
    let folder = folder.path();
    let mut target = Command::new("sh").args(["-c", "sleep 3; exec ./tgt x"]).current_dir(folder).spawn().unwrap();
    let pid = target.id().to_string();
    let output = record(folder, &["-e", "tool.bpf.c", "-p", &pid, "-o", "p.data"]);
    assert!(output.status.success(), "{output:?}");
    target.wait().unwrap();
    assert_eq!(decided(&output, "tens"), "twinbpf: tens: 20 samples kept, 180 dropped");
    assert_eq!(fields(&samples(folder, "p.data"), "wk", " n=").len(), 20);
}

fn records_of_programs_are_in_the_file() {
    let tool = "#include <vmlinux.h>\n#include <bpf/bpf_helpers.h>\n\
        struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __type(key, int); __type(value, int); } __bpf_stdout__ \
        SEC(\".maps\");\n\
        SEC(\"exec=./tgt;wk=work n\") int send(struct pt_regs *ctx, int err, int n)\n{\n\tchar text[8] = \"hello!\\n\";\n\
        \tif (n % 4 == 0)\n\t\tbpf_perf_event_output(ctx, &__bpf_stdout__, BPF_F_CURRENT_CPU, text, 8);\n\treturn n == 1;\n}\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let Some(folder) = folder(&[("send.bpf.c", tool)]) else { return };
    let folder = folder.path();
    for words in [&["./tgt"][..], &["-a", "./tgt"]] {
        let output = record(folder, &[&["-e", "send.bpf.c", "--"], words].concat());
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let mut perf = Command::new("perf");
        let script = perf.args(["script", "-i", "perf.data"]).current_dir(folder).output().unwrap();
        let text = String::from_utf8_lossy(&script.stdout).into_owned();
        assert_eq!(text.matches("68 65 6c 6c 6f 21 0a 00").count(), 25, "{text}");
        assert_eq!(text.matches(":wk:").count(), 1, "{text}");
        assert!(!stderr(&output).contains("lost"), "{output:?}");
    }
}

fn events_may_have_names_that_mean_something_to_perf() {
    let names = [
        "cycles",
        "instructions",
        "branches",
        "faults",
        "migrations",
        "cs",
        "dummy",
        "mem",
        "l1d",
        "LLC",
        "L2",
        "dTLB",
        "branch",
        "bpu",
        "node",
        "load",
        "loads",
        "read",
        "store",
        "write",
        "prefetch",
        "refs",
        "ops",
        "access",
        "misses",
        "r1",
        "rfeed",
        "uk",
        "ppp",
        "G",
        "probe",
        "name",
        "period",
        "config",
        "event",
        "raw",
        "wk",
        "call",
        "e",
        "cpu",
        "slots",
    ];
    let program = |name: &&str| format!("SEC(\"exec=./tgt;{name}=work\") int p_{name}(void *ctx) {{ return 0; }}\n");
    let programs: String = names.iter().map(program).collect();
    let tool = format!("#include <twinbpf/trace.h>\n{programs}LICENSE(\"GPL\");\n");
    let Some(folder) = folder(&[("names.bpf.c", &tool)]) else { return };
    let output = record(folder.path(), &["-e", "names.bpf.c", "--", "./tgt"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(stderr(&output).matches(": 0 samples kept, 100 dropped").count(), names.len(), "{output:?}");
}

fn terms_are_for_the_events_of_their_object() {
    let tool = "#include <vmlinux.h>\n#include <bpf/bpf_helpers.h>\n\
        struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __type(key, int); __type(value, int); } channel \
        SEC(\".maps\");\n\
        struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4); __type(key, int); __type(value, int); } step \
        SEC(\".maps\");\n\
        SEC(\"exec=./tgt;wk=work n\") int send(struct pt_regs *ctx, int err, int n)\n{\n\tint two = 2, *by;\n\
        \tby = bpf_map_lookup_elem(&step, &two);\n\tif (!by || !*by || n % *by)\n\t\treturn 0;\n\
        \tbpf_perf_event_output(ctx, &channel, BPF_F_CURRENT_CPU, &n, 4);\n\treturn 1;\n}\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let Some(folder) = folder(&[("send.bpf.c", tool)]) else { return };
    let folder = folder.path();
    let terms = "send.bpf.c/map:step.value[2...3]=25,map:channel.event=evt,call-graph=fp/";
    let output = record(folder, &["-e", "bpf-output/no-inherit=1,name=evt/", "-e", terms, "--", "./tgt"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let mut perf = Command::new("perf");
    let script = perf.args(["script", "-i", "perf.data"]).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&script.stdout).into_owned();
    assert_eq!((text.matches("BPF output").count(), text.matches(":wk:").count()), (4, 4), "{text}");
    // With callers, each in a line of its own.
    assert!(text.lines().any(|line| line.trim_end().ends_with("work+0x0 (") || line.contains(" work+0x0 ")), "{text}");
    let wrong = record(folder, &["-e", "send.bpf.c/map:none.value=1/", "--", "./tgt"]);
    let text = stderr(&wrong);
    assert!(wrong.status.code() == Some(125) && text.contains("Target map doesn't exist"), "{text}");
    let wrong = record(folder, &["-e", "send.bpf.c/map:channel.event=none/", "--", "./tgt"]);
    assert!(stderr(&wrong).contains("Event not found for map setting"), "{wrong:?}");
}

fn strings_and_returns_decide_too() {
    let tool = "#include <twinbpf/trace.h>\n\
        SEC(\"exec=./tgt;bk=back name:string\") int name(void *ctx, int err, const char *name) { return name[0] == 'b'; }\n\
        SEC(\"exec=./tgt;br=back%return $retval\") int ret(void *ctx, int err, int n) { return n == 0; }\n\
        void END(void) { printf(\"over\\n\"); }\nLICENSE(\"GPL\");\n";
    let Some(folder) = folder(&[("back.bpf.c", tool)]) else { return };
    let folder = folder.path();
    let output = record(folder, &["-e", "back.bpf.c", "--", "./tgt"]);
    let all = samples(folder, "perf.data");
    // perf would take the name for two modifiers of an event.
    assert_eq!(fields(&all, "bk_", " name="), ["\"beta\""], "{output:?}");
    assert_eq!(fields(&all, "br", " retval="), ["0"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "over\n");
}

fn an_event_for_records_alone_is_recorded() {
    let Some(folder) = folder(&[]) else { return };
    let output = record(folder.path(), &["-e", "bpf-output/no-inherit=1,name=evt/", "--", "true"]);
    assert!(output.status.success(), "{output:?}");
    assert!(folder.path().join("perf.data").exists());
}

fn impossible_recordings_are_errors() {
    let raw =
        "#include <twinbpf/trace.h>\nSEC(\"raw_tp/sys_enter\") int raw(void *ctx) { return 0; }\nLICENSE(\"GPL\");\n";
    let Some(folder) = folder(&[("raw.bpf.c", raw), ("tool.bpf.c", TOOL)]) else { return };
    let folder = folder.path();
    for (args, why) in [
        (
            &["-e", "raw.bpf.c", "--", "true"][..],
            "twinbpf: raw.bpf.c: program raw (section raw_tp/sys_enter): no program is on an event that perf records: a \
             tracepoint, a uprobe, a kprobe, or a definition in perf's notation",
        ),
        (
            &["-e", "tool.bpf.c", "--", "-D", "5", "true"],
            "twinbpf: perf's option --delay is not possible here: recording starts when the programs are attached",
        ),
        (&["-e", "tool.bpf.c", "-p", "999999999"], "twinbpf: there is no process 999999999"),
        (
            &["-e", "tool.bpf.c", "--", "no-such-command"],
            "twinbpf: cannot run the workload 'no-such-command': No such file or directory (os error 2)",
        ),
        (
            &["-e", "tool.bpf.c", "-e", "no-such:event", "--", "true"],
            "twinbpf: perf record ended with exit status: 129; its own message says why, and its file may be incomplete",
        ),
        (
            &["-e", "none.bpf.o", "--", "true"],
            "twinbpf: cannot read none.bpf.o: No such file or directory (os error 2)",
        ),
    ] {
        let output = record(folder, args);
        assert_eq!(output.status.code(), Some(125), "{args:?} {output:?}");
        assert_eq!(stderr(&output).lines().last(), Some(why), "{args:?}");
        assert!(!folder.join("perf.data").exists(), "{args:?}");
        assert_eq!(events(folder), "", "{args:?}");
    }
    let mut without = command(folder, &["record", "-e", "tool.bpf.c", "--", "true"]);
    let output = without.env("PATH", folder).output().unwrap();
    let why = "twinbpf: cannot run perf, which records the samples (package linux-perf): No such file or directory (os error 2)\n";
    assert_eq!(stderr(&output), why);
}
