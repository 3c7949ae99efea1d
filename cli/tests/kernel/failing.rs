//! Sessions that an error ends: what was collected is not lost, END runs, and the workload ends by itself.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::common::{corpus, stderr, twinbpf};
use crate::rig::{bare, kernel};

/// A hundred calls of `getppid`, and as many half a second later.
const CALLS: &str = "
static long call(long number, const void *argument) {
    __asm__ volatile(\"syscall\" : \"+a\"(number) : \"D\"(argument), \"S\"(0) : \"rcx\", \"r11\", \"memory\");
    return number;
}
void _start(void) {
    const long time[2] = { 0, 500000000 };
    for (int i = 0; i < 100; i++)
        call(110, 0);
    call(35, time);
    for (int i = 0; i < 100; i++)
        call(110, 0);
    call(60, (void *)3);
}";

/// Runs `faulty` with a shell as workload, which writes `done` where it is when the calls are over.
fn run(folder: &Path, options: &[&str], stdout: Stdio) -> Output {
    let calls = bare(folder, "twcalls", CALLS);
    let (done, object) = (folder.join("done"), corpus().join("sessions/faulty.bpf.o"));
    let _ = fs::remove_file(&done);
    let script = format!("{}; [ $? = 3 ] && echo done > {}", calls.display(), done.display());
    let mut command = twinbpf();
    command.arg("run").arg(object).args(options).args(["--", "sh", "-c", &script]);
    command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

fn is_done(folder: &Path) -> bool {
    folder.join("done").exists()
}

pub(crate) fn a_trap_ends_a_session_in_order() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let cases: [(&str, &str); 2] = [("faulty_event=10", "EVENT"), ("faulty_timer=true", "timer")];
    for (fault, program) in cases {
        let output = run(folder.path(), &["--set", fault], Stdio::piped());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(stderr(&output).contains(&format!("program {program}, insn ")), "{}", stderr(&output));
        assert!(is_done(folder.path()), "the workload ends by itself");
        let last = text.lines().last().unwrap();
        let ["sent", sent, "came", came] = last.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
        let [sent, came] = [sent, came].map(|number| number.parse::<u64>().unwrap());
        if program == "EVENT" {
            assert!(text.starts_with("BEGIN\nevent 0\n") && text.contains("event 9\nsent "), "{text}");
            assert_eq!(came, 10, "{text}");
            // What it did not come to.
            let left = format!("{} records of map records were not handled", sent - 11);
            assert!(sent == 11 || stderr(&output).contains(&left), "{left}: {}", stderr(&output));
        }
    }
}

pub(crate) fn a_trap_on_a_signal_ends_a_session_in_order() {
    if !kernel() {
        return;
    }
    let mut command = twinbpf();
    command.current_dir(corpus()).args(["run", "sessions/faulty.bpf.o", "--set", "faulty_signal=true"]);
    command.args(["--", "sh", "-c", "kill -USR1 $PPID; sleep 0.3; exit 5"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(stderr(&output).contains("program on_signal, insn "), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("\nsent "), "{output:?}");
}

pub(crate) fn the_user_chooses_what_becomes_of_the_workload() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let fault = ["--set", "faulty_event=10"];
    let output = run(folder.path(), &[&fault[..], &["--on-error", "kill"]].concat(), Stdio::piped());
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    sleep(Duration::from_millis(800));
    assert!(!is_done(folder.path()), "it was killed");
    let begun = Instant::now();
    let calls = bare(folder.path(), "twcalls", CALLS);
    let script = format!("{}; echo done > {}", calls.display(), folder.path().join("done").display());
    let mut command = twinbpf();
    command.arg("run").arg(corpus().join("sessions/faulty.bpf.o")).args(fault).args(["--on-error", "detach"]);
    // Its output is not ours, or this would wait for its end.
    let output =
        command.args(["--", "sh", "-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(output.code(), Some(125), "{output:?}");
    assert!(begun.elapsed() < Duration::from_millis(450) || is_done(folder.path()), "it is not waited for");
    let limit = Instant::now();
    while !is_done(folder.path()) {
        assert!(limit.elapsed() < Duration::from_secs(10), "it runs on");
        sleep(Duration::from_millis(10));
    }
}

pub(crate) fn an_output_that_takes_no_more_ends_a_session_in_order() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let to_file = run(folder.path(), &["-o", "/dev/full"], Stdio::piped());
    // BEGIN prints before anything runs: that is an error at once, and the workload has not run.
    assert_eq!((to_file.status.code(), is_done(folder.path())), (Some(125), false), "{to_file:?}");
    let quiet = ["--set", "quiet=true"];
    let to_file = run(folder.path(), &[&quiet[..], &["-o", "/dev/full"]].concat(), Stdio::piped());
    let to_stdout = run(folder.path(), &quiet, full());
    for (output, what) in [(to_file, "/dev/full"), (to_stdout, "standard output")] {
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let text = stderr(&output);
        assert!(text.contains(&format!("cannot write {what}: No space left on device")), "{text}");
        // What could not be written, and what END prints.
        assert!(text.contains("\nevent 0\n") && text.contains("\nsent "), "{text}");
        assert!(is_done(folder.path()), "the workload ends by itself");
    }
}

pub(crate) fn a_reader_that_goes_ends_a_session_in_order() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let calls = bare(folder.path(), "twcalls", CALLS);
    let done = folder.path().join("done");
    let script = "\"$1\" run sessions/faulty.bpf.o -- sh -c \"$2; echo done > $3\" | head -1; echo ${PIPESTATUS[0]}";
    let mut command = Command::new("bash");
    command.current_dir(corpus()).args(["-c", script, "bash", env!("CARGO_BIN_EXE_twinbpf")]);
    let output = command.arg(&calls).arg(&done).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "BEGIN\n125\n", "{output:?}");
    let text = stderr(&output);
    assert!(text.contains("cannot write standard output: Broken pipe") && text.contains("\nsent "), "{text}");
    assert!(done.exists());
}
