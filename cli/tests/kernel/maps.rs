//! `twinbpf map`, as the workload of a session whose maps it reads.

use std::process::Output;

use crate::common::{corpus, installed, skip, stderr, twinbpf};
use crate::rig::{kernel, said};

/// `id NAME` is the number of a map of the session that runs this; other sessions have maps of the same names.
const PREAMBLE: &str = r#"
id() { "$T" map list "$1" --json | grep "\"pid\":$PPID[,}]" | sed 's/.*"id":\([0-9]*\).*/\1/' | head -1; }
map() { "$T" map "$@"; }
"#;

/// Runs a shell script while the maps of `shelf.bpf.c` are in the kernel.
fn with_shelf(script: &str) -> Output {
    let mut command = twinbpf();
    command.current_dir(corpus()).env("T", env!("CARGO_BIN_EXE_twinbpf"));
    command.args(["run", "--mode", "kernel", "scripts/shelf.bpf.o", "--", "sh", "-c"]);
    command.arg(format!("{PREAMBLE}{script}")).output().unwrap()
}

pub(crate) fn elements_are_printed_by_their_types() {
    if !kernel() {
        return;
    }
    let text = said(&with_shelf(
        "map dump $(id table); map dump $(id table) --json; map dump $(id untyped); map dump $(id shelf.data); \
         map get $(id shelf.rodata) 0 --json; map dump $(id percpu) --sum; map dump $(id percpu) | head -2",
    ));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..9],
        [
            "{ .pid = 1, .comm = \"init\" }: { .hits = 3, .level = LOUD, \
             .mac = { 0xde, 0xad, 0x00, 0x00, 0x00, 0x00 }, .port = 80, .odd = 1 }",
            r#"{"key":{"pid":1,"comm":"init"},"value":{"hits":3,"level":"LOUD","mac":[222,173,0,0,0,0],"port":80,"odd":1}}"#,
            "hex:01000000: hex:616200",
            "0: { .limit = 5, .title = \"the shelf\" }",
            r#"{"key":0,"value":{"level":"LOUD"}}"#,
            "0: 0",
            "1: 4",
            "0:",
            "  cpu 0: 0",
        ],
        "{text}"
    );
    let listed = said(&with_shelf("map list table | grep \"($PPID)\""));
    for part in ["hash", "table", "struct who", "struct what", "8", "twinbpf ("] {
        assert!(listed.contains(part), "no {part} in {listed}");
    }
}

pub(crate) fn values_set_by_the_command_are_seen_by_scripts() {
    if !kernel() {
        return;
    }
    let text = said(&with_shelf(
        "t=$(id table); map set $t '{ .pid = 2, .comm = \"sh\" }' '{\"hits\": 7, \"mac\": [1], \"port\": 4095}'; \
         map set $t '{1, init}' .hits=41; map get $t '{\"pid\": 2, \"comm\": \"sh\"}'; map set $(id shelf.data) 0 .limit=-9; \
         map set $(id untyped) 258 hex:010203; map dump $(id untyped) | sort; \
         map set $(id percpu) 0 5; map get $(id percpu) 0; map get $(id waiting); map set $(id waiting) -3",
    ));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "{ .hits = 7, .level = QUIET, .mac = { 0x01, 0x00, 0x00, 0x00, 0x00, 0x00 }, .port = 4095, .odd = 0 }",
            "hex:01000000: hex:616200",
            "hex:02010000: hex:010203",
            "cpu 0: 5",
        ],
        "{text}"
    );
    assert!(lines.contains(&"hex:feffffff"), "{text}");
    assert_eq!(lines.last(), Some(&"41 hits, limit -9"), "{text}");
}

pub(crate) fn errors_name_map_key_and_type() {
    if !kernel() {
        return;
    }
    for (command, parts) in [
        ("dump $(id waiting)", &["map waiting (queue", "has no keys", "map get MAP"][..]),
        ("dump $(id records)", &["map records (ringbuf", "EVENT program"]),
        ("set $(id records) 1", &["map records (ringbuf", "EVENT program"]),
        ("get $(id table)", &["say which key", "struct who", "{ .pid = 0, .comm = \"\" }"]),
        ("get $(id table) '{9, x}'", &["no element with key {9, x}"]),
        ("get $(id table) 7", &["key '7'", "struct who"]),
        ("set $(id table) '{1, \"much too long for it\"}' {}", &["holds 11", "written as { .pid = 0"]),
        (
            "set $(id table) '{1, init}' '{ .level = NOISY }'",
            &["value '{ .level = NOISY }'", "QUIET, LOUD", ".hits = 0"],
        ),
        ("set $(id table) '{1, init}' {} --noexist", &["the key exists already"]),
        ("set $(id table) '{8, x}' {} --exist", &["there is no such key"]),
        ("set $(id shelf.rodata) 0 .level=QUIET", &["frozen", "--set"]),
        ("set $(id percpu) 2 1", &["its keys go from 0 to 1"]),
        ("set $(id untyped) 1 hex:01", &["3 bytes without a type", "6 digits"]),
        ("dump no_such_map", &["no map is called no_such_map", "map list"]),
        ("dump 999999999", &["no map has the number 999999999"]),
        ("dump /etc/passwd", &["/etc is in no BPF file system"]),
    ] {
        let output = with_shelf(&format!("map {command}; [ $? = 125 ] || echo wrong status"));
        let (text, out) = (stderr(&output), String::from_utf8_lossy(&output.stdout).into_owned());
        assert!(!out.contains("wrong status"), "{command}: {text}");
        for part in parts {
            assert!(text.contains(part), "{command}: no '{part}' in {text}");
        }
    }
}

pub(crate) fn a_name_of_two_maps_is_ambiguous() {
    if !kernel() {
        return;
    }
    let output = with_shelf("\"$T\" run --mode kernel scripts/shelf.bpf.o -- \"$T\" map dump table");
    let text = stderr(&output);
    assert!(text.contains("maps are called table: ") && text.contains("(hash of twinbpf ("), "{text}");
    assert!(text.contains("say which by its number"), "{text}");
}

pub(crate) fn changes_are_watched() {
    if !kernel() {
        return;
    }
    // Each change waits until the one before was seen.
    let text = said(&with_shelf(
        "t=$(id table); d=$(mktemp); map watch $t -i 50ms -n 100 >$d & w=$!; \
         seen() { n=0; until [ $(wc -l <$d) -ge $1 ] || [ $n = 90 ]; do sleep 0.05; n=$((n+1)); done; }; \
         seen 1; map set $t '{2, sh}' '{6}'; seen 2; map set $t '{1, init}' .hits=1000; seen 3; kill $w; cat $d; rm $d",
    ));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("+ { .pid = 1, .comm = \"init\" }: { .hits = 3,"), "{text}");
    assert!(lines[1].starts_with("+ { .pid = 2, .comm = \"sh\" }: { .hits = 6,"), "{text}");
    let changed = lines[2];
    assert!(changed.starts_with("  { .pid = 1, .comm = \"init\" }: { .hits = 3,"), "{text}");
    assert!(changed.contains(" -> { .hits = 1000,"), "{text}");
}

pub(crate) fn a_pinned_map_is_found_by_its_path() {
    if !kernel() {
        return;
    }
    if !installed("bpftool") {
        return skip("bpftool is not installed, which pins the map");
    }
    // Pins live in a file system of a mount namespace of their own and vanish with it.
    let text = said(&with_shelf(
        "export I=$(id untyped) D=$(mktemp -d); unshare --mount sh -c \
         'mount -t bpf bpf $D && bpftool map pin id $I $D/pinned && \"$T\" map dump $D/pinned'; rmdir $D",
    ));
    assert_eq!(text.lines().next(), Some("hex:01000000: hex:616200"), "{text}");
}

pub(crate) fn values_are_those_of_bpftool() {
    if !kernel() {
        return;
    }
    if !installed("bpftool") {
        return skip("bpftool is not installed, so that there is nothing to compare with");
    }
    let text = said(&with_shelf(
        "for name in table percpu; do i=$(id $name); bpftool -j map dump id $i | tr -d '\\n'; echo; \
         map dump $i --json | head -1; done",
    ));
    let lines: Vec<serde_json::Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(lines.len(), 4, "{text}");
    for pair in lines.chunks(2) {
        let (mut theirs, mut ours) = (pair[0][0]["formatted"].clone(), pair[1].clone());
        // They print bit fields as strings of hex digits.
        for value in [&mut theirs["value"], &mut ours["value"]] {
            if let Some(members) = value.as_object_mut() {
                members.retain(|name, _| name != "port" && name != "odd");
            }
        }
        assert!(!ours["key"].is_null());
        assert_eq!(theirs, ours);
    }
}
