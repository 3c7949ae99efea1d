//! Runs every case of `corpus/cases.txt` as a user would, on both drivers of the interpreter.

mod common;

use std::fs;
use std::process::Command;

use common::{Case, cases, corpus, exists_library, skip, twinbpf};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let args = Arguments::from_args();
    let mut trials = Vec::new();
    for case in cases() {
        for driver in ["step", "threaded"] {
            let case = case.clone();
            trials.push(Trial::test(format!("{}::{driver}", case.name), move || check(&case, driver)));
        }
    }
    assert!(trials.len() > 100, "the cases were found");
    libtest_mimic::run(&args, trials).exit();
}

fn check(case: &Case, driver: &str) -> Result<(), Failed> {
    if let Some(need) = &case.needs {
        let library = need.strip_prefix("lib ").ok_or("only `needs = lib NAME` is known")?;
        if !exists_library(library) {
            skip(&format!("{}: {library} is not installed", case.name));
            return Ok(());
        }
    }
    let mut command: Command = twinbpf();
    command.current_dir(corpus()).arg(&case.args[0]).args(["--driver", driver]);
    let exec = case.args[0] == "exec";
    if exec {
        command.arg("--json");
    }
    let output = command.args(&case.args[1..]).output()?;
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
    if exec && case.status == 0 {
        check_exec(case, &stdout)?;
    }
    Ok(())
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
