//! `twinbpf script`: over recordings that the test makes, scripts say what follows from the text of `perf script`.

mod common;
#[path = "script/guest.rs"]
mod guest;
#[path = "../../tests/support/guests.rs"]
mod guests;
#[path = "script/ready.rs"]
mod ready;
#[path = "script/recordings.rs"]
mod recordings;
#[allow(dead_code, reason = "the sessions' tests use the rest")]
#[path = "kernel/rig.rs"]
mod rig;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use tempfile::{TempDir, tempdir};

use common::{corpus, harness, stderr, twinbpf};
use rig::kernel_and;

harness::tests! {
    counts_and_histograms_are_those_of_the_text,
    fields_have_the_values_of_the_text,
    call_chains_are_those_of_the_text,
    members_are_there_whichever_a_program_reads,
    maps_print_by_their_declarations,
    native_code_leaves_no_file_of_names,
    samples_are_kept_or_dropped,
    lines_of_scripts_and_of_perf_are_in_order,
    timers_go_by_the_times_of_samples,
    every_engine_says_the_same,
    traps_limits_and_exit_end_perf_in_order,
    a_closed_pipe_ends_it_quietly,
    errors_have_exact_words,
    the_page_prints_what_it_says,
    recordings::fields_by_type_are_those_by_name,
    recordings::early_comes_before_perf_chooses,
    recordings::samples_that_a_recording_lacks_are_counted,
    recordings::stacks_are_no_call_chains,
    recordings::a_perf_without_filters_is_too_old,
    recordings::the_library_is_kept,
    recordings::the_command_carries_its_library,
    guest::recordings_of_other_kernels,
    ready::system_calls,
    ready::wakeups,
    ready::stacks,
    ready::stacks_are_drawn,
    ready::block_requests_and_faults,
}

const HEAD: &str = "#include <twinbpf/perf_script.h>\nLICENSE(\"GPL\");\n";

/// What all tests read: `tp.data` (two tracepoints), `cpu.data` (cpu-clock with call chains of `work`). Recorded once.
static RECORDINGS: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recordings");
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir(&folder).unwrap();
    let work = "volatile long n; __attribute__((noinline)) void inner(void) { for (long i = 0; i < 200000000; i++) n++; }\n\
                __attribute__((noinline)) void outer(void) { inner(); n++; }\nint main(void) { outer(); n++; return 0; }\n";
    fs::write(folder.join("work.c"), work).unwrap();
    sh(&folder, "gcc -O1 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -o work work.c");
    sh(
        &folder,
        "perf record -q -o tp.data -e sched:sched_wakeup -e sched:sched_switch -a -- \
         sh -c 'for i in 1 2 3 4 5 6 7 8 9; do ls / >/dev/null; sleep 0.01; done'",
    );
    sh(&folder, "perf record -q -o cpu.data -e cpu-clock -F 1999 -g -- ./work");
    folder
});

/// A folder of a test's own with these files; `None` where something is missing.
fn folder() -> Option<TempDir> {
    if !kernel_and(&["clang-19", "gcc", "perf"]) {
        return None;
    }
    let folder = tempdir().unwrap();
    for name in ["work.c", "work", "tp.data", "cpu.data"] {
        fs::copy(RECORDINGS.join(name), folder.path().join(name)).unwrap();
    }
    Some(folder)
}

/// Runs a line of a shell, which must succeed.
fn sh(folder: &Path, line: &str) {
    let output = Command::new("sh").args(["-c", line]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
}

/// The text of `perf script` with these fields.
fn perf_text(folder: &Path, data: &str, fields: &str) -> String {
    let mut perf = Command::new("perf");
    perf.current_dir(folder).args(["script", "--no-inline", "--ns", "-i", data, "-F", fields]);
    let output = perf.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn command(folder: &Path, source: &str, args: &[&str]) -> Command {
    fs::write(folder.join("tool.bpf.c"), format!("{HEAD}{source}")).unwrap();
    let mut command = twinbpf();
    command.current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache")).env("TWINBPF_CLANG", "clang-19");
    command.args(["script", "tool.bpf.c"]).args(args);
    command
}

fn script(folder: &Path, source: &str, args: &[&str]) -> Output {
    command(folder, source, args).output().unwrap()
}

/// The lines that a script prints, which must succeed and say nothing else.
fn printed(folder: &Path, source: &str, args: &[&str]) -> Vec<String> {
    let output = script(folder, source, args);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn count<T: Ord>(all: impl Iterator<Item = T>) -> BTreeMap<T, u64> {
    let mut counts = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts
}

const COUNT: &str = "struct name { char comm[16]; };\n\
    struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, struct name); __type(value, u64);\n\
             __uint(max_entries, 1024); } counts SEC(\".maps\");\n\
    struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, u32); __type(value, u64);\n\
             __uint(max_entries, HIST_SLOTS); } tids SEC(\".maps\");\n\
    int EVENT(struct sample *s, u64 size)\n{\n\
        struct name name; u64 one = 1, *old; u32 slot = hist_slot(s->tid);\n\
        memcpy(name.comm, s->comm, 16);\n\
        old = bpf_map_lookup_elem(&counts, &name);\n\
        if (old) ++*old; else bpf_map_update_elem(&counts, &name, &one, BPF_NOEXIST);\n\
        old = bpf_map_lookup_elem(&tids, &slot);\n\
        if (old) ++*old;\n\
        return s->cpu == 0;\n}\n\
    void END(void) { print_map(&counts); print_hist(&tids); }\n";

fn counts_and_histograms_are_those_of_the_text() {
    let Some(folder) = folder() else { return };
    let lines = printed(folder.path(), COUNT, &["-i", "tp.data", "-f", "json", "-o", "out"]);
    assert!(lines.is_empty(), "{lines:?}");
    let out = fs::read_to_string(folder.path().join("out")).unwrap();
    let mut objects = out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let (map, hist) = (objects.next().unwrap(), objects.next().unwrap());
    let text = perf_text(folder.path(), "tp.data", "comm,tid");
    let samples: Vec<(&str, i64)> = text
        .lines()
        .map(|line| line.trim().trim_end_matches(':').rsplit_once(char::is_whitespace).unwrap())
        .map(|(comm, tid)| (comm.trim(), tid.parse().unwrap()))
        .collect();
    assert!(samples.len() > 50, "{text}");
    let counts: BTreeMap<String, u64> = serde_json::from_value(map["data"]["@counts"].clone()).unwrap();
    assert_eq!(counts, count(samples.iter().map(|(comm, _)| (*comm).to_owned())));
    let slots = hist["data"]["@tids"].as_array().unwrap().iter();
    let slots = slots.filter(|slot| slot["count"] != 0);
    let drawn = slots.map(|slot| (slot["max"].as_i64().unwrap(), slot["count"].as_u64().unwrap()));
    // A thread that has exited is -1.
    let top = |tid: i64| if tid <= 0 { tid } else { (1 << (tid.ilog2() + 1)) - 1 };
    assert_eq!(drawn.collect::<BTreeMap<_, _>>(), count(samples.iter().map(|(_, tid)| top(*tid))));
}

fn fields_have_the_values_of_the_text() {
    let Some(folder) = folder() else { return };
    let source = "SEC(\"EVENT/sched:sched_switch\") int on(struct sample *s, u64 size)\n{\n\
        char comm[16];\n sample_field_str(\"next_comm\", comm, 16);\n\
        printf(\"%lld %lld %s\\n\", sample_field(\"prev_pid\"), sample_field(\"next_pid\"), comm);\n return 1;\n}\n";
    let lines = printed(folder.path(), source, &["-i", "tp.data"]);
    let text = perf_text(folder.path(), "tp.data", "event,trace");
    let after = |line: &str, mark: &str| line.split_once(mark).unwrap().1.split(' ').next().unwrap().to_owned();
    let switches = text.lines().filter(|line| line.contains("sched_switch:"));
    // perf prints `prev_comm:prev_pid [prio] state ==> next_comm:next_pid [prio]`, or members by name.
    let expected: Vec<String> = switches
        .map(|line| match line.contains("prev_pid=") {
            true => {
                let comm = line.split_once("next_comm=").unwrap().1.split_once(" next_pid=").unwrap().0;
                format!("{} {} {comm}", after(line, "prev_pid="), after(line, "next_pid="))
            }
            false => {
                let (before, next) = line.split_once(" ==> ").unwrap();
                let pid = |text: &str| text.rsplit_once(" [").map(|(text, _)| text.to_owned()).unwrap();
                let (prev, next) = (pid(before), pid(next));
                let (comm, next) = next.rsplit_once(':').unwrap();
                format!("{} {next} {comm}", prev.rsplit_once(':').unwrap().1)
            }
        })
        .collect();
    assert!(expected.len() > 20);
    assert_eq!(lines, expected);
}

fn call_chains_are_those_of_the_text() {
    let Some(folder) = folder() else { return };
    let source = "int EVENT(struct sample *s, u64 size)\n{\n char stack[512];\n\
        sample_stack(stack, sizeof(stack));\n printf(\"%u %s\\n\", s->callchain_nr, stack);\n return 1;\n}\n";
    let source = source.replace("char stack[512];", "static char stack[4096];");
    let lines = printed(folder.path(), &source, &["-i", "cpu.data"]);
    let text = perf_text(folder.path(), "cpu.data", "ip,sym");
    let chain = |block: &str| {
        let frame = |line: &str| {
            let (address, symbol) = line.trim().split_once(' ').unwrap();
            if symbol == "[unknown]" { format!("0x{}", address.trim()) } else { symbol.to_owned() }
        };
        let mut frames: Vec<String> = block.lines().filter(|line| !line.trim().is_empty()).map(frame).collect();
        frames.reverse();
        format!("{} {}", frames.len(), frames.join(";"))
    };
    let expected: Vec<String> = text.split("\n\n").filter(|block| !block.trim().is_empty()).map(chain).collect();
    assert!(expected.iter().filter(|line| line.contains("main;") && line.ends_with("inner")).count() > 10, "{text}");
    assert_eq!(count(lines.into_iter()), count(expected.into_iter()));
}

/// What a program does not read is not made; a program whose sample goes elsewhere gets all of it.
fn members_are_there_whichever_a_program_reads() {
    let Some(folder) = folder() else { return };
    let members = [
        ("%s", "s->event"),
        ("%s", "s->comm"),
        ("%u", "s->callchain_nr"),
        ("%llx", "(s->callchain_nr ? s->callchain[s->callchain_nr - 1] : 0)"),
        ("%llx", "(s->raw_size > 8 ? *(u64 *)s->raw : 0)"),
        ("%u", "s->branch_nr"),
        ("%c", "s->comm[2]"),
    ];
    let print = |members: &[(&str, &str)]| {
        let (formats, values): (Vec<&str>, Vec<&str>) = members.iter().copied().unzip();
        format!("printf(\"{}\\n\", {});", formats.join("|"), values.join(", "))
    };
    for data in ["tp.data", "cpu.data"] {
        let all = print(&members);
        let direct = format!("int EVENT(struct sample *s, u64 size) {{ {all} return 1; }}\n");
        let passed = format!(
            "__attribute__((noinline)) int show(struct sample *s) {{ {all} return s->cpu >= 0; }}\n\
             int EVENT(struct sample *s, u64 size) {{ return show(s) + 1; }}\n"
        );
        let lines = printed(folder.path(), &direct, &["-i", data]);
        assert!(lines.len() > 50, "{lines:?}");
        assert_eq!(lines, printed(folder.path(), &passed, &["-i", data]), "{data}");
        let columns: Vec<Vec<&str>> = lines.iter().map(|line| line.split('|').collect()).collect();
        for (at, member) in members.iter().enumerate() {
            let alone = format!("int EVENT(struct sample *s, u64 size) {{ {} return 1; }}\n", print(&[*member]));
            let lines = printed(folder.path(), &alone, &["-i", data]);
            let wanted: Vec<&str> = columns.iter().map(|columns| columns[at]).collect();
            assert_eq!(lines, wanted, "{data}: {}", member.1);
        }
    }
}

/// cranelift-jit writes names where perf sets a variable.
fn native_code_leaves_no_file_of_names() {
    let Some(folder) = folder() else { return };
    let source = "int EVENT(struct sample *s, u64 size) { return 1; }\n\
        void END(void) { printf(\"%llu\\n\", bpf_get_current_pid_tgid() >> 32); }\n";
    let lines = printed(folder.path(), source, &["-i", "tp.data", "--engine", "jit"]);
    let names = format!("/tmp/perf-{}.map", lines[0]);
    assert!(lines[0].parse::<u32>().is_ok() && !Path::new(&names).exists(), "{names}");
}

fn maps_print_by_their_declarations() {
    let Some(folder) = folder() else { return };
    let source = COUNT.replace("counts SEC(\".maps\")", "counts SEC(\".maps\") DISPLAY(\"SETTINGS\")");
    let source = source.replace("void END(void) { print_map(&counts); print_hist(&tids); }\n", "");
    let args = ["-i", "tp.data", "--svg", "charts.svg"];
    let with = |settings: &str| printed(folder.path(), &source.replace("SETTINGS", settings), &args);
    let text = perf_text(folder.path(), "tp.data", "comm,time");
    let samples: Vec<(&str, &str)> =
        text.lines().map(|line| line.trim().trim_end_matches(':').rsplit_once(char::is_whitespace).unwrap()).collect();
    let counts = count(samples.iter().map(|(comm, _)| comm.trim().to_owned()));
    let mut wanted: Vec<(u64, String)> = counts.into_iter().map(|(comm, count)| (count, comm)).collect();
    wanted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let row = |line: &str| {
        let (comm, count) = line.rsplit_once(' ')?;
        Some((count.parse::<u64>().ok()?, comm.trim().to_owned()))
    };
    let plain = source.replace("SETTINGS", "title=Samples, columns=comm count");
    let lines = printed(folder.path(), &plain, &["-i", "tp.data"]);
    assert_eq!(lines[0], "Samples");
    assert_eq!(lines.iter().filter_map(|line| row(line)).collect::<Vec<_>>(), wanted);
    // Intervals are those of the samples' times.
    let lines = with("title=Samples, columns=comm count, every=20ms, clear, time");
    let headings = lines.iter().filter_map(|line| line.strip_suffix(" Samples"));
    let times: Vec<f64> = headings.map(|time| time.parse().unwrap()).collect();
    let second = |time: &str| time.trim().parse::<f64>().unwrap();
    let (first, last) = (second(samples[0].1), second(samples[samples.len() - 1].1));
    assert!(times.len() > 2 && times.is_sorted(), "{times:?}");
    assert!(times.iter().all(|time| (first..last + 0.001).contains(time)), "{times:?}");
    let sum = lines.iter().filter_map(|line| row(line)).map(|(count, _)| count).sum::<u64>();
    assert_eq!(sum, samples.len() as u64);
    let charts = fs::read_to_string(folder.path().join("charts.svg")).unwrap();
    assert!(charts.contains("Samples") && charts.contains("<polyline") && charts.contains(&wanted[0].1), "{charts}");
}

fn samples_are_kept_or_dropped() {
    let Some(folder) = folder() else { return };
    let fields = "comm,cpu,time,event";
    let kept = printed(folder.path(), COUNT, &["-i", "tp.data", "--print", "-o", "out", "--", "--ns", "-F", fields]);
    let text = perf_text(folder.path(), "tp.data", fields);
    let on_first: Vec<&str> = text.lines().filter(|line| line.contains("[000]")).collect();
    assert!(!kept.is_empty());
    assert_eq!(kept, on_first);
    // One that returns nothing keeps all, and so does one for another event.
    let source = "SEC(\"EVENT/sched:sched_wakeup\") void on(struct sample *s, u64 size) { }\n";
    let kept = printed(folder.path(), source, &["-i", "tp.data", "--print", "--", "--ns", "-F", fields]);
    assert_eq!(kept, text.lines().collect::<Vec<_>>());
}

fn lines_of_scripts_and_of_perf_are_in_order() {
    let Some(folder) = folder() else { return };
    let source = "int EVENT(struct sample *s, u64 size) { printf(\"ours %llu\\n\", s->time / 1000); return 1; }\n";
    let lines = printed(folder.path(), source, &["-i", "tp.data", "--print", "--", "-F", "time"]);
    let micros = |line: &str| line.trim().trim_end_matches(':').replace('.', "");
    assert!(lines.len() > 50);
    for pair in lines.chunks(2) {
        assert_eq!(pair[0].strip_prefix("ours ").unwrap(), micros(&pair[1]), "{pair:?}");
    }
}

fn timers_go_by_the_times_of_samples() {
    let Some(folder) = folder() else { return };
    let source = "SEC(\"TIMER/20ms\") int tick(void) { printf(\"tick\\n\"); return 0; }\n\
        int EVENT(struct sample *s, u64 size) { printf(\"%llu\\n\", s->time); return 1; }\n";
    let lines = printed(folder.path(), source, &["-i", "tp.data"]);
    let (mut due, mut expected) = (0, Vec::new());
    for line in lines.iter().filter(|line| *line != "tick") {
        let now: u64 = line.parse().unwrap();
        if due == 0 {
            due = now + 20_000_000;
        } else if now >= due {
            expected.push("tick".to_owned());
            due += ((now - due) / 20_000_000 + 1) * 20_000_000;
        }
        expected.push(line.clone());
    }
    assert!(expected.iter().any(|line| line == "tick"));
    assert_eq!(lines, expected);
}

fn every_engine_says_the_same() {
    let Some(folder) = folder() else { return };
    let run = |engine: &str| printed(folder.path(), COUNT, &["-i", "tp.data", "--engine", engine]);
    let interp = run("interp");
    assert!(interp.len() > 2);
    assert_eq!(interp, run("auto"));
    if common::runs_native() {
        assert_eq!(interp, run("jit"));
    }
}

fn traps_limits_and_exit_end_perf_in_order() {
    let Some(folder) = folder() else { return };
    let ending = |body: &str, args: &[&str]| {
        let source = format!(
            "u32 n;\nint EVENT(struct sample *s, u64 size)\n{{\n if (++n < 3) return 1;\n {body}\n return 1;\n}}\n\
             void END(void) {{ printf(\"end %u\\n\", n); }}\n"
        );
        let output = script(folder.path(), &source, &[&["-i", "tp.data"], args].concat());
        (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
    };
    let (status, out, err) = ending("*(volatile int *)0xdead0000 = 1;", &["--engine", "interp"]);
    assert_eq!((status, out.as_str()), (Some(125), "end 3\n"), "{err}");
    assert!(err.contains("out of bounds") && err.contains("*(volatile int *)0xdead0000 = 1;"), "{err}");
    let (status, out, err) = ending("for (;;) *(volatile u32 *)&size = 1;", &["--max-insns", "100000"]);
    assert_eq!((status, out.as_str()), (Some(125), "end 3\n"), "{err}");
    assert!(err.contains("instruction limit reached"), "{err}");
    let (status, out, err) = ending("exit(7);", &[]);
    assert_eq!((status, out.as_str(), err.as_str()), (Some(7), "end 3\n", ""));
    let (status, out, err) = ending("exit(0);", &[]);
    assert_eq!((status, out.as_str(), err.as_str()), (Some(0), "end 3\n", ""));
    let (status, _, err) = ending("sample_field(\"nothing\");", &[]);
    assert_eq!(status, Some(125));
    assert!(err.contains("host function failed: event sched:sched_") && err.contains("has no field nothing; it has "));
}

fn a_closed_pipe_ends_it_quietly() {
    let Some(folder) = folder() else { return };
    let source = "int EVENT(struct sample *s, u64 size)\n{\n\
        for (u32 i = 0; i < 100000; i++) printf(\"line %u\\n\", i);\n return 1;\n}\n";
    let mut command = command(folder.path(), source, &["-i", "tp.data"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let head = Command::new("head").arg("-1").stdin(child.stdout.take().unwrap()).output().unwrap();
    assert_eq!(String::from_utf8(head.stdout).unwrap(), "line 0\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(libc::SIGPIPE), "{output:?}");
}

fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_twinbpf")).parent().unwrap();
    let places = ["deps", "."].map(|place| folder.join(place).join("libtwinbpf_perf.so"));
    places.into_iter().find(|path| path.exists()).expect("cargo builds the shared object")
}

fn errors_have_exact_words() {
    let Some(folder) = folder() else { return };
    let error = |source: &str, args: &[&str]| {
        let output = script(folder.path(), source, args);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        stderr(&output)
    };
    let kernel = "SEC(\"tp/sched/sched_switch\") int on(void *ctx) { return 0; }\n";
    assert_eq!(error(kernel, &["-i", "no.data"]), "twinbpf: no.data: No such file or directory (os error 2)\n");
    fs::write(folder.path().join("short.data"), "PERF").unwrap();
    let no_recording = "twinbpf: short.data is no recording: perf record or twinbpf record writes one\n";
    assert_eq!(error(kernel, &["-i", "short.data"]), no_recording);
    let err = error(kernel, &["-i", "tp.data"]);
    let why = "program on (section tp/sched/sched_switch): it is for the kernel, and over a recording only userspace \
               programs run\n";
    assert!(err.ends_with(why), "{err}");
    let err = error("SEC(\"SIGNAL/USR1\") int on(void) { return 0; }\n", &["-i", "tp.data"]);
    assert!(err.ends_with("program on (section SIGNAL/USR1): no signal runs a program over a recording\n"), "{err}");
    let output = script(
        folder.path(),
        "SEC(\"EVENT/sched:x\") int on(struct sample *s, u64 n) { return 1; }\n",
        &["-i", "tp.data"],
    );
    let err = stderr(&output);
    let unmet = "program on: the recording has no sample of sched:x; there are samples of sched:sched_switch, sched:sched_wakeup\n";
    assert!(output.status.success() && err.ends_with(unmet), "{err}");
    let direct = |args: &[&str]| {
        let mut perf = Command::new("perf");
        perf.current_dir(&folder).args(["script", "-i", "tp.data", "--dlfilter"]).arg(library());
        let output = perf.args(args.iter().flat_map(|arg| ["--dlarg", arg])).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{output:?}");
        stderr(&output)
    };
    assert_eq!(direct(&[]), "twinbpf: no script: give an object that clang made, as --dlarg script.bpf.o\n");
    assert!(direct(&["work.c"]).starts_with("twinbpf: not an ELF object"), "{}", direct(&["work.c"]));
    assert_eq!(direct(&["none.o"]), "twinbpf: cannot read none.o: No such file or directory (os error 2)\n");
    assert!(direct(&["none.o", "--fast"]).starts_with("twinbpf: --dlarg --fast: there is no such option; there are "));
}

/// Runs the commands of `docs/perf.md`; each line that it shows, but for numbers, is printed.
fn the_page_prints_what_it_says() {
    let Some(folder) = folder() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in fs::read_dir(corpus().join("scripts/perf")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let page = fs::read_to_string(root.join("../docs/perf.md")).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_twinbpf")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut output = String::new();
    let mut ran = 0;
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        if language == "c" {
            let name = text.lines().next().unwrap().strip_prefix("// ").unwrap();
            fs::write(folder.path().join(name), text).unwrap();
        }
        for line in text.lines().filter(|_| language == "sh") {
            let Some(line) = line.strip_prefix("$ ") else {
                let plain = |line: &str| line.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ').to_owned();
                assert!(output.lines().any(|printed| plain(printed) == plain(line)), "{line} is not in\n{output}");
                continue;
            };
            let mut shell = Command::new("sh");
            shell.current_dir(&folder).env("PATH", &path).env("XDG_CACHE_HOME", folder.path().join("cache"));
            shell.env("TWINBPF_CLANG", "clang-19").env("INCLUDE", root.join("include"));
            let done = shell.args(["-c", line]).output().unwrap();
            assert!(done.status.success(), "{line}: {done:?}");
            output = String::from_utf8_lossy(&done.stdout).into_owned();
            ran += 1;
        }
    }
    assert!(ran >= 7, "{ran} commands");
}
