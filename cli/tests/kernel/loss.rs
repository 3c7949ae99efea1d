//! What kernel programs lose is counted to the record, by map, program and helper, and reported.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use crate::common::stderr;
use crate::rig::{bare, kernel, said, tool};

/// `setpgid(MAGIC, 1000)` as often as `TIMES` says, and a hundred stacks of each of two places.
const CALLS: &str = "
static inline __attribute__((always_inline)) void call(long number, long argument) {
    __asm__ volatile(\"syscall\" : \"+a\"(number) : \"D\"(MAGIC), \"S\"(argument) : \"rcx\", \"r11\", \"memory\");
}
void _start(void) {
    for (int i = 0; i < TIMES; i++)
        call(109, 1000);
    for (int i = 0; i < 100; i++)
        call(121, 0), call(121, 1);
    __asm__ volatile(\"syscall\" : : \"a\"(60), \"D\"(0));
}";

/// Compiles the calls. Tests run at the same time, so each has its own magic number.
fn calls(folder: &Path, magic: u32, times: u32) -> String {
    let source = CALLS.replace("MAGIC", &magic.to_string()).replace("TIMES", &times.to_string());
    bare(folder, "twlossy", &source).display().to_string()
}

/// Sent, lost and delivered, by channel, as the programs of `lossy.bpf.c` count it.
fn sums(text: &str) -> BTreeMap<String, [u64; 3]> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap().to_owned();
        (name, std::array::from_fn(|_| words.next().unwrap().parse().unwrap()))
    };
    text.lines().map(line).collect()
}

pub(crate) fn sent_data_is_delivered_or_lost() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = calls(folder.path(), 71, 5000);
    let output = tool("../sessions/lossy", &["--set", "magic=71", "-f", "json"], &[&workload]);
    let text = said(&output);
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |kind: &str| objects.iter().filter(|object| object["type"] == kind).map(|object| &object["data"]).collect();
    let (printed, lost): (Vec<&Value>, Vec<&Value>) = (of("printf"), of("lost"));
    let printed: String = printed.iter().map(|text| text.as_str().unwrap()).collect();
    let sums = sums(&printed);
    for channel in ["ring", "small", "perf", "table", "queue"] {
        assert_eq!(sums[channel][0], 5_000_000, "{channel}");
    }
    for channel in ["ring", "small", "perf"] {
        let [sent, lost, came] = sums[channel];
        assert_eq!(sent, lost + came, "{channel}");
    }
    let helpers = [
        ("ring", "burst", "bpf_ringbuf_output"),
        ("small", "burst", "bpf_ringbuf_reserve"),
        ("perf", "burst", "bpf_perf_event_output"),
        ("table", "burst", "bpf_map_update_elem"),
        ("queue", "burst", "bpf_map_push_elem"),
        ("stacks", "stack", "bpf_get_stackid"),
    ];
    for (map, program, helper) in helpers {
        let mut found = lost.iter().filter(|lost| lost["map"] == map);
        let count = found.next().map_or(0, |lost| {
            assert_eq!((lost["program"].as_str(), lost["helper"].as_str()), (Some(program), Some(helper)));
            lost["count"].as_u64().unwrap()
        });
        assert_eq!((count, found.next()), (sums[map][1], None), "{map}");
        let line = format!(" of map {map} were lost: ");
        assert_eq!(stderr(&output).contains(&line), count > 0, "{map}: {}", stderr(&output));
    }
    // Two of the maps cannot hold what they get, and one stack has the other's slot.
    assert!(sums["small"][1] > 0 && sums["perf"][1] > 0, "{sums:?}");
    assert_eq!([sums["table"][1], sums["queue"][1], sums["stacks"][1]], [5_000_000 - 100 * 5000, 4_999_990, 100]);
}

pub(crate) fn loss_changes_the_status_only_on_request() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = calls(folder.path(), 72, 5);
    let run = |option| tool("../sessions/lossy", &["--set", "magic=72", option], &[&workload]);
    let strict = run("--fail-on-loss");
    assert_eq!(strict.status.code(), Some(125));
    assert!(stderr(&strict).contains(" were lost (--fail-on-loss)"), "{}", stderr(&strict));
    assert!(String::from_utf8_lossy(&strict.stdout).starts_with("ring 5000 "), "END has run: {strict:?}");
    let plain = run("--no-count-loss");
    assert_eq!(plain.status.code(), Some(0));
    assert!(!stderr(&plain).contains("of map table"), "{}", stderr(&plain));
    let fine = tool("syscall_counts", &["--fail-on-loss"], &["true"]);
    assert_eq!((fine.status.code(), stderr(&fine)), (Some(0), String::new()));
}
