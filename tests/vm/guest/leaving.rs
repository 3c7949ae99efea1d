//! However a session ends, nothing of it stays. This machine has no other user, so that all there is can be compared.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use twinbpf_kernel::{Link, Map, Prog};

use super::{said, twinbpf, words};

/// All that a session could have left behind.
#[derive(Debug, Default, PartialEq)]
struct There {
    programs: Vec<u32>,
    maps: Vec<u32>,
    links: Vec<u32>,
    /// Lines of tracefs and debugfs, and names in bpffs.
    names: Vec<String>,
}

fn there() -> There {
    let files = ["tracing/kprobe_events", "tracing/uprobe_events", "debug/kprobes/list"];
    let text = files.map(|file| fs::read_to_string(format!("/sys/kernel/{file}")).unwrap()).concat();
    let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
    let pins = fs::read_dir("/sys/fs/bpf").unwrap().flatten();
    names.extend(pins.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    There { programs: Prog::ids().unwrap(), maps: Map::ids().unwrap(), links: Link::ids().unwrap(), names }
}

fn start(object: &str) -> Child {
    let mut command = twinbpf();
    command.args(["run", object]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits until there is nothing. The kernel frees after a grace period.
#[track_caller]
fn all_gone() {
    let begun = Instant::now();
    loop {
        let now = there();
        if now == There::default() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{now:?}");
        sleep(Duration::from_millis(20));
    }
}

/// Killed at ten points between its start and some time after everything is attached.
pub(super) fn killed() {
    all_gone();
    let mut target = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
    let end = |mut child: Child| {
        child.kill().unwrap();
        child.wait().unwrap();
    };
    // How long a session takes until it is enabled, so that the points spread over all of it.
    let mut time = Duration::ZERO;
    for (object, mark) in [("probes/trampolines.bpf.o", ""), ("probes/kprobes.bpf.o", "vfs_read")] {
        let (begun, child) = (Instant::now(), start(object));
        while there().links.len() < 4 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing was attached");
            sleep(Duration::from_millis(5));
        }
        time = begun.elapsed();
        let attached = there();
        end(child);
        assert!(mark.is_empty() || attached.names.iter().any(|line| line.contains(mark)), "{attached:?}");
        all_gone();
    }
    for point in 0..10 {
        let child = start("probes/kprobes.bpf.o");
        sleep(time * point / 8);
        end(child);
    }
    all_gone();
    assert!(target.try_wait().unwrap().is_none(), "others go on");
    target.kill().unwrap();
    target.wait().unwrap();
}

/// A kernel whose perf knows no kprobes has lines in a file instead, which go when the session ends.
pub(super) fn text_probes() {
    all_gone();
    let script = "mkdir -p /tmp/empty; mount --bind /tmp/empty /sys/bus/event_source/devices; \
        twinbpf run probes/kprobes.bpf.o -- sh -c 'cat /sys/kernel/tracing/kprobe_events; checks --workload'";
    let output = Command::new("/bin/unshare").args(["-m", "sh", "-c", script]).output().unwrap();
    let text = said(&output);
    assert_eq!(text.lines().filter(|line| line.contains(":twinbpf_")).count(), 4, "{text}");
    for kind in ["kprobe", "kretprobe", "ksyscall", "kretsyscall"] {
        assert_eq!(words(&text, kind), [kind, "100", "5050"], "{text}");
    }
    all_gone();
}
