//! Terms after an object, and elements of arrays set by `--set`: in maps of the kernel and of userspace.

use std::path::PathBuf;
use std::process::Output;

use tempfile::{TempDir, tempdir};

use crate::common::{installed, skip, stderr, twinbpf};
use crate::rig::{kernel, said};

/// A tool with arrays that BEGIN prints, and a perf event array.
const TOOL: &str = r#"
#include <twinbpf/trace.h>
struct limit { int most; char name[8]; };
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 8); __type(key, int); __type(value, __u16); } table SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2); __type(key, int); __type(value, struct limit); } limits SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2); __type(key, int); __type(value, double); } shares SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2); __type(key, int); __type(value, char[8]); } words SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2); __uint(key_size, 4); __uint(value_size, 8); } untyped SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 8); __type(key, int); __type(value, int); } hash SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __uint(key_size, 4); __uint(value_size, 4); } slots SEC(".maps");

int BEGIN(void)
{
	for (int i = 0; i < 8; i++) {
		__u16 *value = bpf_map_lookup_elem(&table, &i);
		printf(i < 7 ? "%u " : "%u\n", value ? *value : 99);
	}
	for (int i = 0; i < 2; i++) {
		struct limit *limit = bpf_map_lookup_elem(&limits, &i);
		__u64 *share = bpf_map_lookup_elem(&shares, &i);
		char *word = bpf_map_lookup_elem(&words, &i);
		if (limit && share && word)
			printf("%d [%s] %d [%s]\n", limit->most, limit->name, *share == 0x3fd0000000000000UL, word);
	}
	return 0;
}
"#;

/// Counts what a program sees of the event in its CPU's slot.
const COUNTS: &str = r#"
struct value { __u64 counter, enabled, running; };
static long (*const read_value)(void *map, __u64 flags, struct value *value, __u32 size) = (void *)55;
MAP_COUNT(errors, long);
MAP_SUM(advanced);
SEC("tp/raw_syscalls/sys_enter") int enter(void *ctx)
{
	struct value value = {};
	long error = read_value(&slots, 0xffffffffUL, &value, sizeof(value));
	count(&errors, error);
	if (value.counter > 0 && value.running)
		sum(&advanced, 1);
	return 0;
}
LICENSE("GPL");
"#;

/// The tool in a folder of its own; `None` where something is missing, which it says.
fn tool(more: &str) -> Option<(TempDir, PathBuf)> {
    if !installed("clang-19") {
        skip("clang-19 is not installed");
        return None;
    }
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("tool.bpf.c"), format!("{TOOL}{more}")).unwrap();
    let path = folder.path().to_owned();
    Some((folder, path))
}

fn run(folder: &std::path::Path, args: &[&str]) -> Output {
    twinbpf().current_dir(folder).arg("run").args(args).output().unwrap()
}

pub(crate) fn values_are_set_before_anything_runs() {
    let Some((_folder, path)) = tool("") else { return };
    let modes: &[&str] = if kernel() { &["user", "kernel"] } else { &["user"] };
    for mode in modes {
        let terms = "tool.bpf.c/map:table.value=1,map:table.value[0,3...5]=0x10,map:table.value[0x7]=65535/";
        let text = said(&run(&path, &["--mode", mode, terms]));
        assert_eq!(text.lines().next(), Some("16 1 1 16 16 16 1 65535"), "{mode}");
        let all = said(&run(&path, &["--mode", mode, "tool.bpf.c/map:table.value[all]=7/"]));
        assert!(all.starts_with("7 7 7 7 7 7 7 7\n"), "{mode}: {all}");
        let set = said(&run(
            &path,
            &[
                "--mode",
                mode,
                "--set",
                "table[3]=7",
                "--set",
                "limits[0]={\"most\": -9, \"name\": \"first\"}",
                "--set",
                "limits[1].name=second",
                "--set",
                "limits[1].most=0x11",
                "--set",
                "shares[1]=0.25",
                "--set",
                "words[0]=one, 2",
                "tool.bpf.c",
            ],
        ));
        assert_eq!(set, "0 0 0 7 0 0 0 0\n-9 [first] 0 [one, 2]\n17 [second] 1 []\n", "{mode}");
    }
}

pub(crate) fn a_single_program_has_its_elements() {
    let Some((_folder, path)) = tool("") else { return };
    let exec = twinbpf().current_dir(&path).args(["exec", "tool.bpf.c:BEGIN", "--set", "table[3]=7"]).output().unwrap();
    assert!(said(&exec).starts_with("0 0 0 7 0 0 0 0\n"), "{exec:?}");
}

pub(crate) fn terms_that_do_not_fit_say_why() {
    let Some((_folder, path)) = tool("") else { return };
    // Under each: where the caret is.
    let cases = [
        ("map:tabel.value=1", "    ^^^^^", "Target map doesn't exist: there is no map tabel in tool.bpf.c"),
        ("map:table.value[9]=1", "                ^", "Index too large: map table has 8 elements"),
        ("map:table.value", "               ^", "Config value not set (missing '=')"),
        (
            "map:table.value=65536",
            "                ^^^^^",
            "Incorrect value type for map: 65536 does not fit into 2 bytes",
        ),
        (
            "map:hash.value=1",
            "    ^^^^",
            "Can't use this config term with this map type: hash is of type hash, no array",
        ),
        (
            "map:table.values=1",
            "          ^^^^^^",
            "Invalid object map config option: 'values' is neither value nor event",
        ),
        ("tables=1", "^^^^^^", "Invalid object config option: 'tables' is no term; event terms are period, freq, time"),
        (
            "period=1000",
            "^^^^^^^^^^^",
            "An event term is for `twinbpf record`: 'period=1000' says how samples are recorded",
        ),
        (
            "map:slots.event=cpu-clock",
            "                ^^^^^^^^^",
            "The event cannot be put into the map here: map slots is in",
        ),
    ];
    for (terms, caret, message) in cases {
        let output = run(&path, &["--mode", "user", &format!("tool.bpf.c/{terms}/")]);
        assert_eq!(output.status.code(), Some(125), "{terms}: {output:?}");
        let text = stderr(&output);
        assert!(text.starts_with(&format!("twinbpf: {message}")), "{terms}: {text}");
        let wanted =
            format!("\n    tool.bpf.c/{terms}/\n    {}{caret}\n  hint: map:[<arraymap>].value", " ".repeat(11));
        assert!(text.contains(&wanted), "{terms}: {text}");
    }
    // `check` takes terms of events, which `record` needs, and refuses what does not fit.
    let check = |object: &str| twinbpf().current_dir(&path).args(["check", object]).output().unwrap();
    let text = said(&check("tool.bpf.c/freq=99,map:table.value=1/"));
    assert!(text.contains("  term    freq=99 "), "{text}");
    assert!(stderr(&check("tool.bpf.c/map:table.value[8]=1/")).contains("Index too large"));
    let gone = run(&path, &["gone.bpf.o/map:table.value=1/"]);
    assert!(stderr(&gone).contains("cannot read gone.bpf.o: No such file"), "{gone:?}");
}

pub(crate) fn elements_that_cannot_be_set_say_why() {
    let Some((_folder, path)) = tool("") else { return };
    let cases = [
        ("tabel[1]=1", "variable 'tabel[1]': the object has no variables"),
        ("table=1", "variable 'table': table is a map: write table[INDEX]=VALUE"),
        ("table[8]=1", "variable 'table[8]': index 8 is too large: table has 8 elements"),
        ("table[x]=1", "variable 'table[x]': 'x' is no index"),
        ("table[1]=65536", "variable 'table[1]': 65536 does not fit __u16"),
        ("limits[1].least=1", "variable 'limits[1].least': struct limit has no member 'least'"),
        ("hash[x]=1", "variable 'hash[x]': as a key, "),
        ("untyped[1]=1", "the type of its values is not known: declare untyped with __type(value, ...)"),
        ("words[1]=far too long", "the string has 12 bytes"),
    ];
    for (set, message) in cases {
        let output = run(&path, &["--mode", "user", "--set", set, "tool.bpf.c"]);
        assert_eq!(output.status.code(), Some(125), "{set}: {output:?}");
        assert!(stderr(&output).contains(message), "{set}: {}", stderr(&output));
    }
}

pub(crate) fn events_in_slots_are_counted_by_programs() {
    if !kernel() {
        return;
    }
    let Some((_folder, path)) = tool(COUNTS) else { return };
    let counted = |object: &str, more: &[&str]| said(&run(&path, &[more, &[object, "--", "/bin/true"]].concat()));
    let text = counted("tool.bpf.c/map:slots.event=cpu-clock/", &[]);
    assert!(text.contains("@errors[0]: ") && !text.contains("@errors[-"), "{text}");
    assert!(text.contains("@advanced: "), "{text}");
    // -ENOENT: nothing is in the slot.
    let text = counted("tool.bpf.c", &[]);
    assert!(text.contains("@errors[-2]: ") && !text.contains("@errors[0]") && !text.contains("@advanced: 1"), "{text}");
    let plan = counted("tool.bpf.c/map:slots.event[0]=context-switches/", &["--dry-run"]);
    assert!(plan.contains("  map slots                context-switches on CPU 0\n"), "{plan}");
    let refused = |object: &str, more: &[&str]| stderr(&run(&path, &[more, &[object, "--", "/bin/true"]].concat()));
    let text = refused("tool.bpf.c/map:slots.event[60000]=cpu-clock/", &[]);
    assert!(text.contains("Invalid map size for event setting: there is no CPU 60000"), "{text}");
    assert!(
        text.contains(&format!("\n    {}^^^^^^^^^\n", " ".repeat("tool.bpf.c/map:slots.event[60000]=".len()))),
        "{text}"
    );
    let text = refused("tool.bpf.c/map:slots.event=bpf-output/no-inherit=1//", &[]);
    assert!(text.contains("no EVENT program reads the records of slots: SEC(\"EVENT/slots\")"), "{text}");
    // A machine without the counter says so; one that has it counts.
    let output = run(&path, &["tool.bpf.c/map:slots.event=cycles/", "--", "/bin/true"]);
    assert!(
        output.status.success() || stderr(&output).contains("this machine does not have that counter"),
        "{output:?}"
    );
    // A process of two threads.
    let source = std::fs::read_to_string(path.join("tool.bpf.c")).unwrap();
    let source = source.replace("tp/raw_syscalls/sys_enter", "perf_event");
    std::fs::write(path.join("sampled.bpf.c"), source).unwrap();
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv());
    let text = refused("sampled.bpf.c/map:slots.event=cpu-clock/", &["-p", &std::process::id().to_string()]);
    assert!(text.contains("Cannot set event to BPF map in multi-thread tracing: the process of -p has "), "{text}");
    assert!(
        text.contains(&format!("\n    {}^^^^^^^^^\n", " ".repeat("sampled.bpf.c/map:slots.event=".len()))),
        "{text}"
    );
    drop(stop);
    let _ = thread.join();
}
