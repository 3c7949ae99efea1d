//! Runs every case of `corpus/cases.txt` as a user would, on every engine.

mod common;

use std::fs;
use std::process::{Command, ExitCode, Output};

use common::{Case, Mode, blocked, cases, corpus, exists_library, harness, low_halves, modes, skip, twinbpf};
use harness::Tests;
use libtest_mimic::Failed;

fn main() -> ExitCode {
    let mut tests = Tests::default();
    let mut count = 0;
    for case in cases() {
        for mode in modes() {
            // Some count instructions in all modes, some work with raw pointers only.
            let says = |what: &str| case.args.iter().any(|arg| arg == what);
            let trusted = mode.memory.is_none_or(|memory| memory == "trusted");
            if mode.fuel && says("--max-insns") || says("--trust") && !trusted && !mode.kept {
                continue;
            }
            let mut mode = mode;
            if says("--trust") {
                mode.args.retain(|arg| *arg != "--trust");
            }
            let case = case.clone();
            tests.add(format!("{}::{}", case.name, mode.name), move || check(&case, &mode));
            count += 1;
        }
    }
    assert!(count > 100, "the cases were found");
    const BLOCKED: &str = "with_every_signal_blocked";
    tests.add(BLOCKED, || Ok(blocked::run_again(BLOCKED)?));
    tests.run()
}

fn check(case: &Case, mode: &Mode) -> Result<(), Failed> {
    if let Some(need) = &case.needs {
        let library = need.strip_prefix("lib ").ok_or("only `needs = lib NAME` is known")?;
        if !exists_library(library) {
            skip(&format!("{library} is not installed"));
            return Ok(());
        }
    }
    if let Some(memory) = mode.memory.filter(|memory| case.strays.iter().any(|strays| strays == memory)) {
        return check_stray(case, mode, memory);
    }
    let output = execute_mode(case, mode, &[])?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let context = format!("\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
    if output.status.code() != Some(case.status) {
        return Err(format!("status {:?}, expected {}{context}", output.status.code(), case.status).into());
    }
    if let Some(part) = case.out.iter().find(|part| !stdout.contains(*part)) {
        return Err(format!("standard output lacks '{part}'{context}").into());
    }
    if let Some(part) = case.stderr.iter().find(|part| !stderr.contains(*part)) {
        return Err(format!("standard error lacks '{part}'{context}").into());
    }
    if let Some(file) = &case.stdout {
        golden(file, &stdout)?;
    }
    if case.args[0] == "exec" && case.status == 0 {
        check_exec(case, &stdout)?;
    }
    Ok(())
}

/// Native code that does not notice what exact bounds would does what an interpreter does that does not either.
fn check_stray(case: &Case, mode: &Mode, memory: &str) -> Result<(), Failed> {
    // Trusted modes say so themselves.
    let (here, there): (&[&str], &[&str]) = match memory {
        "trusted" => (&[], &["--engine", "interp", "--trust"]),
        _ => (&["--bounds", "arena"], &["--engine", "interp", "--bounds", "arena"]),
    };
    let seen = |output: Output| {
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let differs = |field: &str| ["\"duration_ns\"", "\"insns\""].iter().any(|name| field.starts_with(name));
        let fields = out.split(',').filter(|field| !differs(field.trim_start_matches('{')));
        let out = low_halves(&fields.collect::<Vec<_>>().join(","));
        (output.status.code(), out, low_halves(&String::from_utf8_lossy(&output.stderr)))
    };
    let (found, wanted) = (seen(execute_mode(case, mode, here)?), seen(execute(case, there)?));
    match found == wanted {
        true => Ok(()),
        false => Err(format!("{found:#?}\nwhile {there:?} has {wanted:#?}").into()),
    }
}

/// Runs a case in a mode, with more options.
fn execute_mode(case: &Case, mode: &Mode, options: &[&str]) -> Result<Output, Failed> {
    match mode.kept {
        true => execute_kept(case, options),
        false => execute(case, &[&mode.args[..], options].concat()),
    }
}

fn execute(case: &Case, mode: &[&str]) -> Result<Output, Failed> {
    let mut command: Command = twinbpf();
    command.current_dir(corpus()).arg(&case.args[0]).args(mode);
    if case.args[0] == "exec" {
        command.arg("--json");
    }
    Ok(command.args(&case.args[1..]).output()?)
}

/// Compiles the objects of a case, and runs it with what came out. Where that fails, running would have.
fn execute_kept(case: &Case, options: &[&str]) -> Result<Output, Failed> {
    let folder = tempfile::TempDir::new()?;
    let args = case.args.split(|arg| arg == "--").next().unwrap_or(&[]);
    let mut load: Vec<&str> = Vec::new();
    load.extend(args.iter().map(String::as_str).filter(|arg| ["--trust", "--strict"].contains(arg)));
    for pair in args.windows(2) {
        match pair[0].as_str() {
            "--set" | "--lib" | "--extern" | "--stack-size" | "--policy" | "--enable" | "--disable" => {
                load.extend([pair[0].as_str(), &pair[1]]);
            }
            "--max-insns" => load.push("--fuel"),
            _ => {}
        }
    }
    let mut with: Vec<String> = Vec::new();
    for (index, object) in args.iter().filter(|arg| arg.contains(".bpf.o")).enumerate() {
        let [file, library] = ["o", "so"].map(|end| folder.path().join(format!("{index}.{end}")));
        let mut command = twinbpf();
        command.current_dir(corpus()).arg("compile").arg(object).args(&load).arg("-o").arg(&file);
        let output = command.output()?;
        if !output.status.success() {
            return Ok(output);
        }
        common::link(&file, &library);
        with.extend(["--compiled".to_owned(), library.display().to_string()]);
    }
    let with: Vec<&str> = with.iter().map(String::as_str).collect();
    execute(case, &[&with[..], options].concat())
}

fn golden(file: &str, stdout: &str) -> Result<(), Failed> {
    let path = corpus().join(file);
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, stdout)?;
        return Ok(());
    }
    let wanted = fs::read_to_string(&path).map_err(|error| format!("{file}: {error}"))?;
    match wanted == stdout {
        true => Ok(()),
        false => Err(format!("standard output differs from {file}\n--- wanted\n{wanted}--- got\n{stdout}").into()),
    }
}

fn check_exec(case: &Case, stdout: &str) -> Result<(), Failed> {
    // The program's own output comes before the JSON object, which is one line.
    let line = stdout.lines().last().ok_or("no output")?;
    let json: serde_json::Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
    if let Some(r0) = case.r0 {
        let found = json["r0"].as_u64().ok_or("no r0")?;
        let r0 = r0 as u64;
        // A C program returns an int: its upper half says nothing.
        if found != r0 && found as u32 != r0 as u32 {
            return Err(format!("r0 = {found}, expected {r0}").into());
        }
    }
    match &case.packet {
        Some(packet) if json["packet"].as_str() != Some(packet) => {
            Err(format!("packet {}, expected {packet}", json["packet"]).into())
        }
        _ => Ok(()),
    }
}
