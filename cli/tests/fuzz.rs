//! `twinbpf fuzz` and `twinbpf diff`: what they find, keep and say.

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{harness, installed, skip, stderr, twinbpf};
use serde_json::{Value, json};

fn fuzz(folder: &Path, args: &[&str]) -> Output {
    twinbpf().arg("fuzz").arg("--corpus").arg(folder).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn cases(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "case")).collect()
}

/// A plugin that answers 0 to any program.
fn liar(folder: &Path) -> String {
    let path = folder.join("liar");
    fs::write(&path, "#!/bin/sh\ncat > /dev/null\necho 0\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("plugin:{}", path.display())
}

fn engines_agree_and_a_campaign_continues() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--engines", "interp,step,jit,changed", "--programs", "128", "--insns", "12", "--inputs", "1"];
    let output = fuzz(folder.path(), &[&args[..], &["--jobs", "2", "--seed", "5"]].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.starts_with("seed 5, from batch 0: interp, interp(step), jit("), "{text}");
    for part in ["of a processor: ", " by interp\n", " by jit(", "coverage: ", "0 findings that are not"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    // One child, whose last whole batch is after the first.
    let output = fuzz(folder.path(), &["--programs", "320", "--engines", "interp"]);
    assert!(stdout(&output).starts_with("seed 5, from batch "), "{}", stdout(&output));
    let output = fuzz(folder.path(), &["--programs", "64", "--engines", "interp"]);
    let text = stdout(&output);
    assert!(text.starts_with("seed 5, from batch ") && !text.contains("from batch 0"), "{text}");
}

fn words_choose_modes_of_native_code() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--engines", "jit-all", "--modes", "trusted,none,sandbox", "--programs", "64", "--inputs", "1"];
    let text = stdout(&fuzz(folder.path(), &args));
    let modes = ["sandbox,none", "sandbox,none,fuel", "trusted,none", "trusted,none,fuel"];
    let named: String = modes.iter().map(|mode| format!(", jit({mode})")).collect();
    assert!(text.lines().next().unwrap().ends_with(&format!(": interp{named}")), "{text}");
    let output = fuzz(folder.path(), &["--modes", "no-fool"]);
    assert!(stderr(&output).contains("no-fuel"), "{}", stderr(&output));
}

fn findings_are_reduced_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = liar(folder.path());
    // Its first program writes many words of the stack.
    let args = ["--engines", "interp,step", "--against", &plugin, "--programs", "64", "--inputs", "1", "--seed", "36"];
    let output = fuzz(folder.path(), &args);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    let cases = cases(folder.path());
    assert!(!cases.is_empty(), "{text}");
    let found = fs::read_to_string(&cases[0]).unwrap();
    let first = found.lines().next().unwrap();
    assert!(first.starts_with("# twinbpf diff ") && first.contains("--against plugin:"), "{found}");
    assert!(found.contains("# plugin(liar) against interp, interp(step)"), "{found}");
    assert!(found.lines().count() < 15, "not small:\n{found}");
    let again = twinbpf().arg("diff").arg(&cases[0]).args(["--against", &plugin]).output().unwrap();
    let text = stdout(&again);
    assert_eq!(again.status.code(), Some(1), "{text}");
    assert!(text.contains("plugin(liar): differs") && text.contains("wrong, by the majority: plugin(liar)"), "{text}");
}

fn a_child_that_is_killed_is_followed_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = twinbpf();
    command.args(["fuzz", "--engines", "interp", "--time", "6s", "--corpus"]).arg(folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let worker = loop {
        assert!(begin.elapsed() < Duration::from_secs(5), "no child process");
        let text = fs::read_to_string(&children).unwrap_or_default();
        if let Some(worker) = text.split_whitespace().next() {
            break worker.to_owned();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    std::thread::sleep(Duration::from_millis(1500));
    assert!(Command::new("kill").args(["-KILL", &worker]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let (text, errors) = (stdout(&output), stderr(&output));
    assert!(errors.contains("a child ended by signal 9 in batch"), "{errors}{text}");
    assert!(text.contains("times: ended by signal 9 in batch") && text.contains("1 findings that are not"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
    // All of the batch is kept.
    let kept = fs::read_to_string(&cases(folder.path())[0]).unwrap();
    assert_eq!(kept.matches("\n---\n").count(), 63, "{kept}");
}

/// A campaign whose native code has a mutant that ends the process, and the file that it keeps.
fn deadly(args: &[&str]) -> (String, String, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let output = fuzz(folder.path(), &[args, &["--engines", "interp,jit", "--seed", "5", "--inputs", "1"]].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    let path = cases(folder.path()).pop().unwrap_or_else(|| panic!("{text}{}", stderr(&output)));
    let kept = fs::read_to_string(&path).unwrap();
    (text, kept, path, folder)
}

fn a_program_that_ends_a_child_is_a_finding() {
    let (text, kept, ..) = deadly(&["--mutant", "die", "--modes", "none", "--programs", "64"]);
    assert!(text.contains("times: ended by signal 6\n") && text.contains("1 findings that are not known"), "{text}");
    assert!(!kept.contains("\n---\n") && kept.contains("# ended by signal 6\n"), "{kept}");
}

/// Two programs of a batch end the process, in one of four modes, which is not the first: found again in that mode, and
/// made small.
fn programs_that_end_a_child_together_are_kept_together() {
    let args = ["--mutant", "die_together", "--modes", "none,sandbox,strict", "--programs", "512"];
    let (text, kept, path, _folder) = deadly(&args);
    let bucket = "ended by signal 6, 2 programs together";
    assert!(text.contains(bucket) && text.contains("1 findings that are not known"), "{text}");
    assert_eq!(kept.matches("\n---\n").count(), 1, "{kept}");
    // The first line says how to repeat it.
    let first = kept.lines().next().unwrap();
    let words: Vec<&str> = first.split(' ').skip(2).collect();
    assert!(words.contains(&"--turn") && words[1] == path.to_str().unwrap(), "{first}");
    let again = twinbpf().args(&words).output().unwrap();
    assert_eq!(again.status.code(), None, "{}", stdout(&again));
    let other = [&words[..words.len() - 1], &["0"]].concat();
    assert_eq!(twinbpf().args(&other).output().unwrap().status.code(), Some(0));
}

/// A panic of the compiler, or IR that its verifier rejects, ends no process.
fn a_mistake_of_the_compiler_is_a_finding_that_names_the_stage() {
    let (text, kept, path, _folder) =
        deadly(&["--mutant", "panic_demanded_bits", "--modes", "speed", "--programs", "64"]);
    assert!(text.contains(": internal compiler error in stage demanded-bits: "), "{text}");
    assert!(kept.contains("demanded-bits fails on purpose") && kept.lines().count() < 12, "{kept}");
    let again = twinbpf()
        .arg("diff")
        .arg(&path)
        .args(["--mutant", "panic_demanded_bits", "--modes", "speed"])
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(1), "{}", stdout(&again));
}

/// Text that a worker is given, and the lines that it answers.
fn answers(args: &[&str], lines: &str) -> Vec<Value> {
    let mut command = twinbpf();
    command.args(["fuzz", "--worker"]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn a_worker_answers_batches() {
    let case = "input r1=0x5\nprogram\n  r0 = 7\n  *(u64 *)(r1 + 8) = r0\n  exit\n";
    let lines = [
        json!({ "batch": "mine", "cases": [case, case] }).to_string(),
        "nonsense".to_owned(),
        json!({ "batch": 2, "cases": ["program\n  what"] }).to_string(),
    ];
    let said = answers(&["--engines", "step,jit"], &lines.join("\n"));
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(said[0]["engines"][0], "interp(step)");
    assert_eq!(said[1]["batch"], "mine");
    let step = &said[1]["engines"][0];
    assert_eq!(
        (&step["engine"], &step["ran"][0], &step["ran"][1]),
        (&"interp(step)".into(), &step["ran"][1], &step["ran"][0])
    );
    let outcome = json!({ "ended": [{ "r0": "0x7", "context": [[8, "0700000000000000"]], "executed": 3 }] });
    assert_eq!(step["ran"][0], outcome);
    assert_eq!(said[1]["engines"][1]["ran"][1]["ended"][0]["r0"], "0x7");
    assert!(said[2]["error"].as_str().unwrap().starts_with("not a line of JSON"), "{said:?}");
    assert!(said[3]["error"].as_str().unwrap().starts_with("case 0: line 2"), "{said:?}");
}

fn a_worker_takes_part_in_a_campaign() {
    let folder = tempfile::tempdir().unwrap();
    let worker = format!("worker:{} fuzz --worker --engines step,interp", env!("CARGO_BIN_EXE_twinbpf"));
    let args = ["--engines", "interp", "--against", &worker, "--programs", "256", "--inputs", "3"];
    let output = fuzz(folder.path(), &args);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(
        text.lines().any(|line| line.trim_start().starts_with("256 ") && line.ends_with("by interp(step)")),
        "{text}"
    );
    let output = fuzz(folder.path(), &["--engines", "interp", "--against", "worker:false", "--programs", "64"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("false does not become a worker: it ended with"), "{}", stderr(&output));
}

/// Kernels that QEMU boots: the compiler and the interpreter of each are two engines. Both know what they are given.
fn other_kernels_take_part() {
    let kernels = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("vm");
    let folders = fs::read_dir(&kernels).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders: Vec<PathBuf> = folders.collect();
    if !["qemu-system-x86_64", "cpio"].into_iter().all(installed) || !Path::new("/bin/busybox").exists() {
        return skip("qemu-system-x86, cpio or busybox-static is not installed");
    }
    for (version, cpu) in [("6.1.", "v3"), ("6.12.", "v4")] {
        let release =
            |folder: &Path| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(version));
        let Some(kernel) = folders.iter().filter(|folder| release(folder)).max() else {
            return skip(&format!("no kernel {version} in target/vm; .ci/kernels puts it there"));
        };
        let folder = tempfile::tempdir().unwrap();
        let peer = format!("qemu:{}", kernel.display());
        let args = ["--engines", "step", "--against", &peer, "--cpu", cpu, "--programs", "64", "--inputs", "2"];
        let output = fuzz(folder.path(), &[&args[..], &["--seed", "4"]].concat());
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
        for engine in ["by kernel(", "by kernel-interp("] {
            let engine = format!("{engine}{version}");
            let line =
                text.lines().find(|line| line.contains(&engine)).unwrap_or_else(|| panic!("no {engine}: {text}"));
            let executed: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
            // An interpreter has no tail calls beside calls, an old verifier no constants into contexts.
            assert!(executed >= 56, "{text}");
        }
    }
}

fn mistakes_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = fuzz(folder.path(), &["--against", "moon"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("'moon' is none of kernel, "), "{}", stderr(&output));
    let path = folder.path().join("bad.case");
    fs::write(&path, "program\n  r1 = \n").unwrap();
    let output = twinbpf().arg("diff").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("bad.case: line 2"), "{}", stderr(&output));
}

/// Hundreds of programs in the kernel; of one that it does not take, the reason is printed.
fn the_kernel_takes_what_is_generated() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--engines", "interp", "--against", "kernel", "--programs", "640", "--inputs", "4", "--seed", "1"];
    let output = fuzz(folder.path(), &args);
    let (text, errors) = (stdout(&output), stderr(&output));
    if errors.contains("--against kernel: ") {
        return skip(&errors);
    }
    let line =
        |what: &str| text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in {text}"));
    let number = |line: &str| line.split_whitespace().next().unwrap().replace(',', "").parse::<u64>().unwrap();
    let (all, taken) = (number(line(" by interp")), number(line(" by kernel(")));
    assert_eq!(all, 640, "{text}");
    assert!(taken * 100 > all * 99, "the kernel took {taken} of {all}:\n{text}");
}

/// What the verifier takes of valid and nearly valid programs does what it may, and no more.
fn the_verifier_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        fuzz(folder.path(), &["--agreement", "--programs", "128", "--inputs", "2", "--insns", "12", "--seed", "3"]);
    let (text, errors) = (stdout(&output), stderr(&output));
    if errors.contains("--agreement needs the running kernel: ") {
        return skip(&errors);
    }
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
    let count = |what: &str| {
        let mut counts = text.lines().filter_map(|line| line.trim().split_once(' '));
        let (count, _) = counts.find(|(_, counted)| *counted == what).unwrap_or_else(|| panic!("no {what} in {text}"));
        count.replace(',', "").parse::<u64>().unwrap()
    };
    assert!(count("valid: accepted by both") > 64 && count("nearly valid: accepted by both") > 16, "{text}");
    assert!(count("nearly valid: refused by both") > 64 && count("ran on both") > 80, "{text}");
}

fn programs_in_c_are_compared_and_repeated() {
    if !["clang-19", "cc"].iter().all(|tool| Command::new(tool).arg("--version").output().is_ok()) {
        return skip("clang-19 or cc is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let fuzz = |args: &[&str]| {
        let mut command = twinbpf();
        command.env("TWINBPF_CLANG", "clang-19").args(["fuzz", "--c", "--corpus"]).arg(folder.path()).args(args);
        command.output().unwrap()
    };
    let output = fuzz(&["--programs", "1", "--seed", "4", "--inputs", "2"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    // Four encodings on four engines, and the machine itself.
    assert!(text.ends_with("s 1 programs in C, 34 runs, 0 encodings refused, 0 findings\n"), "{text}");

    let path = folder.path().join("case.c");
    let source = fs::read_to_string(&path).unwrap();
    let again = |text: &str| {
        fs::write(&path, text).unwrap();
        twinbpf().env("TWINBPF_CLANG", "clang-19").arg("diff").arg(&path).output().unwrap()
    };
    let output = again(&source);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), format!("{}\n  all the same\n", path.display())));
    let output =
        again(&source.replace("\treturn ", "#ifdef __BPF_FEATURE_MOVSX\n\treturn 1 +\n#else\n\treturn\n#endif\n"));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("\n  cc, interp of v1, "), "{text}");
    let wrong = "\n  interp of v4, jit of v4, jit(none,strict) of v4, jit(trusted) of v4: input ";
    assert!(text.contains(wrong), "{text}");
}

harness::tests! {
    engines_agree_and_a_campaign_continues,
    words_choose_modes_of_native_code,
    findings_are_reduced_and_kept,
    a_child_that_is_killed_is_followed_by_another,
    a_program_that_ends_a_child_is_a_finding,
    programs_that_end_a_child_together_are_kept_together,
    a_mistake_of_the_compiler_is_a_finding_that_names_the_stage,
    a_worker_answers_batches,
    a_worker_takes_part_in_a_campaign,
    other_kernels_take_part,
    mistakes_are_reported,
    the_kernel_takes_what_is_generated,
    the_verifier_agrees,
    programs_in_c_are_compared_and_repeated,
}
