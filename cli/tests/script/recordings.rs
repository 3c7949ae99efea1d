//! Recordings that lack something, and fields by their types.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::{command, folder, perf_text, printed, script, sh, stderr};

const SWITCH: &str =
    "struct trace_event_raw_sched_switch { s32 next_pid; char next_comm[16]; s32 prev_pid; } RECORDED;\n";

/// The types of the struct are others than the recording's: CO-RE reads as many bytes as that has.
pub(super) fn fields_by_type_are_those_by_name() {
    let Some(folder) = folder() else { return };
    let program = |body: &str| {
        let source = format!(
            "{SWITCH}SEC(\"EVENT/sched:sched_switch\") int on(struct sample *s, u64 size)\n{{\n\
             const struct trace_event_raw_sched_switch *e = s->raw;\n (void)e;\n{body}\n return 1;\n}}\n"
        );
        printed(folder.path(), &source, &["-i", "tp.data"])
    };
    let by_type = program("printf(\"%lld %d %s\\n\", (s64)e->prev_pid, e->next_pid, e->next_comm);");
    let by_name = program(
        "char comm[16];\n sample_field_str(\"next_comm\", comm, 16);\n\
         printf(\"%lld %lld %s\\n\", sample_field(\"prev_pid\"), sample_field(\"next_pid\"), comm);",
    );
    assert!(by_type.len() > 20);
    assert_eq!(by_type, by_name);
    let output = script(folder.path(), &source_of("nothing"), &["-i", "tp.data"]);
    let error = stderr(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{error}");
    let why = "CO-RE has no match for <byte_off> [";
    assert!(
        error.contains(why) && error.contains("struct trace_event_raw_sched_switch.nothing (0:0 @ offset 0)"),
        "{error}"
    );
    assert!(error.contains("guard it with bpf_core_field_exists()"), "{error}");
}

fn source_of(member: &str) -> String {
    format!(
        "struct trace_event_raw_sched_switch {{ s32 {member}; }} RECORDED;\n\
         SEC(\"EVENT/sched:sched_switch\") int on(struct sample *s, u64 size)\n{{\n\
         const struct trace_event_raw_sched_switch *e = s->raw;\n printf(\"%d\\n\", e->{member});\n return 1;\n}}\n"
    )
}

/// EARLY gets the samples that perf's own option leaves out, and drops for EVENT.
pub(super) fn early_comes_before_perf_chooses() {
    let Some(folder) = folder() else { return };
    let source = "u64 early, other, event;\n\
        int EARLY(struct sample *s, u64 size) { early++; other += s->cpu != 0; return s->tid & 1; }\n\
        int EVENT(struct sample *s, u64 size) { event++; if (!(s->tid & 1) || s->cpu) exit(3); return 1; }\n\
        void END(void) { printf(\"%llu %llu %llu\\n\", early, other, event); }\n";
    let lines = printed(folder.path(), source, &["-i", "tp.data", "--", "-C", "0"]);
    let text = perf_text(folder.path(), "tp.data", "cpu,tid");
    let samples = text.lines().map(|line| line.trim().split_once(' ').unwrap());
    let samples: Vec<(i64, bool)> = samples.map(|(tid, cpu)| (tid.parse().unwrap(), cpu.contains("[000]"))).collect();
    let other = samples.iter().filter(|(_, first)| !first).count();
    let event = samples.iter().filter(|(tid, first)| *first && tid & 1 == 1).count();
    assert!(event > 0 && other > 0);
    assert_eq!(lines, [format!("{} {other} {event}", samples.len())]);
    let output = command(folder.path(), source, &[]).args(["-i", "tp.data"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "EVENT gets samples of other CPUs without -C");
    fs::write(folder.path().join("tool.bpf.c"), format!("{}{source}", super::HEAD)).unwrap();
    let mut run = super::twinbpf();
    run.current_dir(&folder).env("TWINBPF_CLANG", "clang-19").args(["run", "tool.bpf.c"]);
    let error = stderr(&run.output().unwrap());
    assert!(
        error.contains("program EARLY (section .text): EARLY gets samples of a recording: twinbpf script runs it"),
        "{error}"
    );
}

pub(super) fn samples_that_a_recording_lacks_are_counted() {
    let Some(folder) = folder() else { return };
    let source = "u64 n;\nint EVENT(struct sample *s, u64 size) { n++; return 1; }\n\
        void END(void) { printf(\"%llu\\n\", n); }\n";
    sh(
        folder.path(),
        "perf record -q -m 1 -o lost.data -e raw_syscalls:sys_enter -e raw_syscalls:sys_exit -- \
         dd if=/dev/zero of=/dev/null bs=1 count=3000 2>/dev/null",
    );
    let output = script(folder.path(), source, &["-i", "lost.data", "-f", "json"]);
    let mut perf = Command::new("perf");
    perf.current_dir(&folder).args(["script", "-D", "-i", "lost.data"]);
    let output_of_perf = perf.output().unwrap().stdout;
    let text = String::from_utf8_lossy(&output_of_perf);
    let sum = |mark: &str| -> u64 {
        let counts = text.lines().filter_map(|line| line.split_once(mark)?.1.trim().parse::<u64>().ok());
        counts.sum()
    };
    let lost = sum(": lost:").max(sum(": lost samples :"));
    assert!(lost > 0, "a buffer of one page had room for all of it");
    let error = stderr(&output);
    assert!(
        error.contains(&format!("twinbpf: the recording lacks {lost} samples: perf record had no room")),
        "{error}"
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    let object = stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut counts = object.filter(|object| object["type"] == "lost").map(|object| object["data"]["count"].as_u64());
    assert_eq!((counts.next(), counts.next()), (Some(Some(lost)), None), "{stdout}");
    assert!(output.status.success());
    let output = script(folder.path(), source, &["-i", "lost.data", "--fail-on-loss"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(printed(folder.path(), source, &["-i", "tp.data", "--fail-on-loss"]).len() == 1);
}

pub(super) fn stacks_are_no_call_chains() {
    let Some(folder) = folder() else { return };
    sh(folder.path(), "perf record -q -o dwarf.data -e cpu-clock -F 499 --call-graph dwarf,4096 -- ./work");
    for call in ["print_callchain()", "sample_stack(0, 0)"] {
        let source = format!("int EVENT(struct sample *s, u64 size) {{ {call}; return 1; }}\n");
        let output = script(folder.path(), &source, &["-i", "dwarf.data"]);
        let error = stderr(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{error}");
        let name = call.split_once('(').unwrap().0;
        let why = "the recording has stacks (--call-graph dwarf), of which perf makes call chains only when it prints them: \
                   record with --call-graph fp\n";
        assert!(error.ends_with(&format!("{name}: {why}")), "{error}");
    }
    let count = "u64 n;\nint EVENT(struct sample *s, u64 size) { n++; return 1; }\n\
        void END(void) { printf(\"%llu\\n\", n); }\n";
    let samples = perf_text(folder.path(), "dwarf.data", "tid").lines().filter(|line| !line.trim().is_empty()).count();
    assert_eq!(printed(folder.path(), count, &["-i", "dwarf.data"]), [samples.to_string()]);
}

pub(super) fn a_perf_without_filters_is_too_old() {
    let Some(folder) = folder() else { return };
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let old = "#!/bin/sh\n[ \"$1\" = --version ] && echo perf version 5.10.200 && exit\n\
               echo \" Error: unknown option \\`dlfilter'\" >&2\nexit 129\n";
    fs::write(bin.join("perf"), old).unwrap();
    fs::set_permissions(bin.join("perf"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let source = "int EVENT(struct sample *s, u64 size) { return 1; }\n";
    let output = command(folder.path(), source, &["-i", "tp.data"]).env("PATH", path).output().unwrap();
    let words = "twinbpf: perf version 5.10.200 is too old: scripts run in the perf script of Linux 6.1 or later\n";
    assert!(stderr(&output).ends_with(words), "{output:?}");
    assert_eq!(output.status.code(), Some(125));
}

pub(super) fn the_library_is_kept() {
    let Some(folder) = folder() else { return };
    let kept = folder.path().join("cache/twinbpf/perf");
    let run =
        |args: &[&str]| printed(folder.path(), "int EVENT(struct sample *s, u64 size) { exit(0); return 1; }\n", args);
    let files = || {
        let files = fs::read_dir(&kept).unwrap().map(|file| file.unwrap());
        files.map(|file| (file.path(), file.metadata().unwrap().len())).collect::<Vec<_>>()
    };
    run(&["-i", "tp.data"]);
    let first = files();
    let [(path, length)] = &first[..] else { panic!("{first:?}") };
    // One that was not written whole is written again.
    fs::write(path, &fs::read(path).unwrap()[..*length as usize / 2]).unwrap();
    run(&["-i", "tp.data"]);
    assert_eq!(files(), first);
    // Others could change what they can write, so that nothing is taken from there.
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(path, b"no library").unwrap();
    run(&["-i", "tp.data"]);
    assert_eq!(fs::read(path).unwrap(), b"no library");
}

/// The command alone, without the folder that cargo built it in.
pub(super) fn the_command_carries_its_library() {
    let Some(folder) = folder() else { return };
    fs::copy(env!("CARGO_BIN_EXE_twinbpf"), folder.path().join("twinbpf")).unwrap();
    let source = "int EVENT(struct sample *s, u64 size) { printf(\"%s\\n\", s->comm); exit(0); return 1; }\n";
    fs::write(folder.path().join("tool.bpf.c"), format!("{}{source}", super::HEAD)).unwrap();
    let run = |line: &str| {
        let mut shell = Command::new("sh");
        shell.current_dir(&folder).env("TWINBPF_CLANG", "clang-19").args(["-c", line]);
        let output = shell.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let lines = run("./twinbpf script tool.bpf.c -i tp.data");
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert_eq!(run("./twinbpf script --save-library saved.so && ls saved.so"), "saved.so\n");
    let include = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    run(&format!("clang-19 -O2 -g -target bpf -I {} -c tool.bpf.c", include.display()));
    assert_eq!(run("perf script -i tp.data --dlfilter ./saved.so --dlarg tool.bpf.o --dlarg --hide-samples"), lines);
}
