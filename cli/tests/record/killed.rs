//! Recordings that are killed: the command, its guard, or both.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::twinbpf;
use crate::rig::kills;
use crate::{TOOL, command, events, folder, samples, soon};

/// A child of a process by its name.
fn child_of(parent: u32, name: &str) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let mut all = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    all.find(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name))
}

fn kill(pid: u32) {
    // It may have ended at this moment.
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Command,
    Guard,
    Both,
}

pub(crate) fn nothing_stays_of_a_recording_that_is_killed() {
    let Some(folder) = folder(&[("tool.bpf.c", TOOL)]) else { return };
    let folder = folder.path();
    assert!(twinbpf().current_dir(folder).args(["check", "tool.bpf.c"]).output().unwrap().status.success());
    let times = kills(3) as usize;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut readable = 0;
    for victim in [Victim::Command, Victim::Guard, Victim::Both].into_iter().cycle().take(3 * times) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let args = ["record", "-e", "tool.bpf.c", "--", "sh", "-c", "for i in $(seq 500); do ./tgt; done"];
        let mut child = command(folder, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_millis(50 + random % 1200));
        let guard = child_of(child.id(), "twinbpf-guard");
        let perf = child_of(child.id(), "perf");
        if victim != Victim::Command {
            guard.into_iter().for_each(kill);
        }
        match victim {
            Victim::Guard => {
                let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            }
            Victim::Command | Victim::Both => kill(child.id()),
        }
        child.wait().unwrap();
        if let Some(perf) = perf {
            soon("perf runs on", || !Path::new(&format!("/proc/{perf}")).exists());
        }
        if victim == Victim::Both {
            let output = twinbpf().args(["list", "--stale"]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        soon(&format!("events stay: {victim:?}"), || events(folder).is_empty());
        // A recording that ends before its first sample leaves no file or an empty one. perf reads every other file.
        if let Ok(file) = fs::metadata(folder.join("perf.data")) {
            if file.len() > 0 {
                samples(folder, "perf.data");
                readable += 1;
            }
            fs::remove_file(folder.join("perf.data")).unwrap();
        }
    }
    assert!(readable > 0, "no moment was late enough");
}
